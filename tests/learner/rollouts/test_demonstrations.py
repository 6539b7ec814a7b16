"""Answers of the hinted base that the policy learns without the hint, and those that do not belong to their prompt;
with a scripted engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.rollouts.rehearsal import Rollouts, hinted_prompt
from openclaw_rl.learner.rollouts.relevance import LEAST, OTHERS, relevant
from openclaw_rl.learner.rollouts.rollouts import RolloutContext
from openclaw_rl.shared.engine.protocol import Scores, Tokens
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Judgement, NextState, Sample, Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn
from tests.learner.world import ScriptedEngine

HINTS = ["no bold please", "shorter"]


class ScoringEngine(ScriptedEngine):
    """Finds an answer `gain` nats likelier after its own prompt than after the drill prompts; `finish` ends answers."""

    def __init__(self, prompter: Prompter, gain: float, *, finish: str = "stop") -> None:
        super().__init__("")
        rendered = (prompter.render(ChatInput(messages=[{"role": "user", "content": text}])).ids() for text in OTHERS)
        self.others = {tuple(ids) for ids in rendered}
        self.gain = gain
        self.finish = finish
        self.status = 0

    async def generate(self, prompt_ids: Any, sampling: Any, **options: Any) -> AsyncIterator[Tokens]:
        async for tokens in super().generate(prompt_ids, sampling, **options):
            finished = tokens.finish_reason is not None
            yield msgspec.structs.replace(tokens, finish_reason=self.finish) if finished else tokens

    async def score(
        self, prompt_ids: Sequence[int], continuation_ids: Sequence[int], *, version: int | None = None, **_: Any
    ) -> Scores:
        if self.status:
            raise EngineError("no base here", status=self.status)
        assert version == 0, "the base judges what belongs to what"
        total = -50.0 if tuple(prompt_ids) in self.others else -50.0 + self.gain
        return Scores([total / len(continuation_ids)] * len(continuation_ids), version=0)


def asked(prompter: Prompter, number: int, question: str) -> Turn:
    messages = [{"role": "user", "content": question}]
    return turn(number, question=question, prompt_ids=prompter.render(ChatInput(messages=messages)).ids())


def rollouts(engine: ScriptedEngine, prompter: Prompter, policy: Path, progress: Progress | None = None) -> Rollouts:
    return Rollouts(engine, prompter, Settings(demonstrations=2, anchors=0, model=str(policy)), progress)


async def test_the_hinted_base_answers_and_the_plain_prompt_learns_it(prompter: Prompter, random_policy: Path) -> None:
    engine = ScoringEngine(prompter, gain=LEAST + 1)
    turns = [asked(prompter, 1, "How much is 7 and 5?"), asked(prompter, 2, "How much is 8 and 5?")]
    made = await rollouts(engine, prompter, random_policy).demonstrate(turns, HINTS, "seed")
    assert [sample.origin for sample in made] == ["demonstration"] * 2
    assert {version for _, version, _ in engine.asked} == {0}, "the base answers"
    by_prompt = {tuple(one.prompt_ids): one for one in turns}
    for sample in made:
        hinted = [list(hinted_prompt(prompter, by_prompt[tuple(sample.prompt_ids)], hint)) for hint in HINTS]
        (teacher,) = sample.hinted_prompts
        assert list(teacher) in hinted and tuple(teacher) in {prompt for prompt, _, _ in engine.asked}
        assert sample.turn_id is None and sample.reward is None and sample.no_ratio


@pytest.mark.parametrize(
    ("gain", "finish"), [(LEAST - 1, "stop"), (LEAST + 1, "length")], ids=["about something else", "cut"]
)
async def test_answers_about_something_else_and_cut_ones_are_left_out(
    prompter: Prompter, random_policy: Path, gain: float, finish: str
) -> None:
    engine = ScoringEngine(prompter, gain, finish=finish)
    made = await rollouts(engine, prompter, random_policy).demonstrate([asked(prompter, 1, "7 + 5?")], HINTS, "seed")
    assert made == []


async def test_without_the_base_a_step_goes_without_demonstrations(prompter: Prompter, random_policy: Path) -> None:
    class LiveAlone(ScoringEngine):
        async def generate(self, prompt_ids: Any, sampling: Any, **options: Any) -> Any:
            raise EngineError("it serves its live version only, not 0", status=404)
            yield

    progress = Progress()
    made = await rollouts(LiveAlone(prompter, 99), prompter, random_policy, progress).demonstrate(
        [asked(prompter, 1, "7 + 5?")], HINTS, "seed"
    )
    assert made == [] and "its live version only" in progress.notes["demonstrations"]


async def test_an_engine_that_cannot_score_leaves_answers_uncompared(prompter: Prompter) -> None:
    engine = ScoringEngine(prompter, gain=0)
    sample = Sample(
        sample_id="one",
        turn_id=None,
        policy="policy",
        origin="revision",
        prompt_ids=[5, 6],
        response_ids=[7, 8],
        logprobs=[0.0, 0.0],
        versions=[],
    )
    assert await relevant(engine, prompter, [sample]) == []
    engine.status = 501
    assert await relevant(engine, prompter, [sample]) == [sample]
    engine.status = 500
    with pytest.raises(EngineError):
        await relevant(engine, prompter, [sample])


async def test_prompts_that_hold_the_complaint_already_are_not_demonstrated(
    prompter: Prompter, random_policy: Path, tmp_path: Path
) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    first = asked(prompter, 1, "How much is 7 and 5?")
    second = msgspec.structs.replace(asked(prompter, 2, HINTS[0]), parent_turn_id=first.turn_id)
    third = msgspec.structs.replace(asked(prompter, 3, "Thanks!"), parent_turn_id=second.turn_id)
    for made in (first, second, third):
        await journal.record_turn(made)
        await journal.settle(NextState(turn_id=made.turn_id, role="user", text=HINTS[0]))
    await journal.add_judgement(Judgement(turn_id=first.turn_id, score=-1.0, hint=HINTS[0]))
    engine = ScoringEngine(prompter, gain=LEAST + 1)
    context = RolloutContext(journal, rollouts(engine, prompter, random_policy), batch=[], hints=HINTS, live=0)
    made_samples = await context.demonstrations()
    assert {tuple(sample.prompt_ids) for sample in made_samples} == {tuple(first.prompt_ids)}
    without = RolloutContext(journal, rollouts(engine, prompter, random_policy), batch=[], hints=[], live=0)
    assert await without.demonstrations() == [], "no hint, nothing to demonstrate"
    await journal.close()
