"""Remembered hints are held against what people accept, with the shipped policy scoring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.hints import UNRELATED, HintMemory
from openclaw_rl.learner.rollouts.rehearsal import hinted_prompts
from openclaw_rl.shared.engine.protocol import Scores
from openclaw_rl.shared.errors import ContextLengthExceeded, EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Judgement, NextState, Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from tests.learner.things import turn

QUESTION = "Anna has 7 apples. Anna gets 5 more apples. How many apples does Anna have now?"
PLAIN = "Anna has 7 apples and gets 5 more. 7 plus 5 is 12, so Anna has 12 apples now."
BOLD = (
    "**Step 1:** Anna has 7 apples\n**Step 2:** Anna gets 5 more apples\n**Step 3:** 7 + 5 = 12\n\n"
    "**Final answer:** Anna has 12 apples now."
)
NO_BOLD = "No bold and no numbered steps, just plain sentences please."
STEPS, OTHER = "Please use bold and numbered steps.", "The weather is lovely here today."


class ScoringBase:
    """Stands for an engine: the real base model, scored by the trainer's own forward pass."""

    def __init__(self, settings: Settings) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(settings.engine.model, dtype=torch.float32).eval()
        self.asked = 0
        self.prompts: list[list[int]] = []
        self.error: EngineError | None = None

    async def score(self, prompt: Sequence[int], answer: Sequence[int], *, version: int, **_: Any) -> Scores:
        assert version == 0
        if self.error:
            raise self.error
        self.asked += 1
        self.prompts.append(list(prompt))
        ids = self._torch.tensor([[*prompt, *answer]])
        with self._torch.inference_mode():
            rows = self._torch.log_softmax(self._model(ids).logits[0, len(prompt) - 1 : -1], -1)
        return Scores(rows[range(len(answer)), list(answer)].tolist(), 0)


class MemoryWorld:
    """A journal in which people said things, and the memory over it."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data=folder)
        self.journal = AsyncJournal(self.settings.serve.journal_path)
        self.prompter = Prompter(EMBEDDED_POLICY)
        self.engine = ScoringBase(self.settings)
        self.memory = HintMemory(self.journal, self.engine, self.prompter, self.settings)  # type: ignore[arg-type]
        self._count = 0

    async def judged(
        self, answer: str, score: float, hint: str | None = None, role: str = "user", before: Turn | None = None
    ) -> Turn:
        """A turn that was answered, judged so; a second try if there is a turn `before`, and a complaint about it."""
        self._count += 1
        messages = [{"role": "user", "content": QUESTION}]
        if before is not None:
            messages += [{"role": "assistant", "content": BOLD}, {"role": "user", "content": NO_BOLD}]
        prompt = self.prompter.render(ChatInput(messages=messages, tools=[], tools_json=b"")).ids()
        ids = self.prompter.tokenizer.encode(answer, add_special_tokens=False)
        made = turn(
            self._count,
            messages=messages,
            prompt_ids=prompt,
            parent_turn_id=before.turn_id if before else None,
            answer={"role": "assistant", "content": answer},
            response_ids=ids,
            logprobs=[-0.1] * len(ids),
            versions=[],
        )
        await self.journal.record_turn(made)
        await self.journal.settle(NextState(turn_id=made.turn_id, role=role, text="…"))  # type: ignore[arg-type]
        await self.journal.add_judgement(Judgement(turn_id=made.turn_id, score=score, hint=hint))
        return made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[MemoryWorld]:
    made = MemoryWorld(tmp_path)
    yield made
    await made.journal.close()


async def test_a_hint_falls_when_people_accept_answers_against_it_and_others_stand(world: MemoryWorld) -> None:
    await world.judged(BOLD, -1.0, NO_BOLD)
    await world.judged(PLAIN, -1.0, STEPS)
    await world.judged(PLAIN, -1.0, OTHER)
    assert await world.memory.standing() == [NO_BOLD, STEPS, OTHER]
    await world.judged(PLAIN, 1.0)
    assert STEPS in await world.memory.standing(), "said once, accepted against once"
    await world.judged(PLAIN, 1.0)
    assert await world.memory.standing() == [NO_BOLD, OTHER]
    await world.judged(PLAIN, -1.0, STEPS)
    assert STEPS in await world.memory.standing(), "said as often as accepted against"


async def test_a_user_who_changed_their_mind_is_followed(world: MemoryWorld) -> None:
    for _ in range(3):
        await world.judged(BOLD, -1.0, NO_BOLD)
        await world.judged(PLAIN, 1.0)
    for _ in range(3):
        await world.judged(PLAIN, -1.0, STEPS)
    assert await world.memory.standing() == [NO_BOLD, STEPS]
    for _ in range(7):
        await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == [STEPS]


async def test_an_accepted_second_try_is_compared_as_an_answer_to_the_first_prompt(world: MemoryWorld) -> None:
    first = await world.judged(BOLD, -1.0, NO_BOLD)
    await world.judged(PLAIN, 1.0, before=first)
    assert await world.memory.standing() == [NO_BOLD]
    asked = [list(prompt) for prompt in hinted_prompts(world.prompter, first, [NO_BOLD, UNRELATED])]
    assert all(prompt in world.engine.prompts for prompt in asked), "the first prompt is asked"
    again = await world.judged(BOLD, -1.0, NO_BOLD)
    for _ in range(4):
        await world.judged(BOLD, 1.0, before=again)
    assert await world.memory.standing() == [], "accepted against the wish, after a complaint too"


async def test_results_of_tools_and_earlier_acceptance_say_nothing_about_a_hint(world: MemoryWorld) -> None:
    for _ in range(4):
        await world.judged(PLAIN, 1.0)
    await world.judged(PLAIN, -1.0, STEPS)
    for _ in range(4):
        await world.judged(PLAIN, 1.0, role="tool")
    assert await world.memory.standing() == [STEPS]
    assert world.engine.asked == 0


async def test_a_pair_is_scored_once(world: MemoryWorld) -> None:
    await world.judged(BOLD, -1.0, NO_BOLD)
    await world.judged(PLAIN, 1.0)
    await world.memory.standing()
    asked = world.engine.asked
    assert asked == 2
    await world.memory.standing()
    assert world.engine.asked == asked


async def test_an_engine_that_cannot_score_lets_all_stand_and_an_absent_one_is_waited_for(
    world: MemoryWorld,
) -> None:
    await world.judged(PLAIN, -1.0, STEPS)
    for _ in range(4):
        await world.judged(PLAIN, 1.0)
    world.engine.error = EngineError("cannot", status=501)
    assert await world.memory.standing() == [STEPS]
    world.engine.error = EngineError("the base is gone", status=404)
    assert await world.memory.standing() == [STEPS]
    world.engine.error = ContextLengthExceeded(prompt_tokens=9, requested_tokens=1, context_length=8)
    assert await world.memory.standing() == [STEPS], "too long to be asked about"
    world.memory = HintMemory(world.journal, world.engine, world.prompter, world.settings)  # type: ignore[arg-type]
    world.engine.error = EngineError("away")
    with pytest.raises(EngineError, match="away"):
        await world.memory.standing()
    world.engine.error = None
    assert await world.memory.standing() == []


async def test_a_base_that_finds_all_hinted_answers_less_likely_says_nothing_about_a_hint(world: MemoryWorld) -> None:
    exact = world.engine.score

    async def disturbed(prompt: Sequence[int], answer: Sequence[int], **options: Any) -> Scores:
        """As a small chat model scores: any words after a question cost an answer 10 nats."""
        scores = await exact(prompt, answer, **options)
        question = world.prompter.render(ChatInput(messages=[{"role": "user", "content": QUESTION}])).ids()
        cost = 0.0 if list(prompt) == list(question) else 10.0
        return Scores([scores.logprobs[0] - cost, *scores.logprobs[1:]], 0)

    world.engine.score = disturbed  # type: ignore[method-assign]
    await world.judged(BOLD, -1.0, NO_BOLD)
    for _ in range(8):
        await world.judged(PLAIN, 1.0)
    assert await world.memory.standing() == [NO_BOLD]
    for _ in range(20):
        await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == []
