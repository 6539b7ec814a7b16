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
from openclaw_rl.shared.journal.wishes import BALANCES
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


class OpposedBase:
    """Stands for an engine: answers are `nats` less likely after a prompt that holds one of the `opposed` wishes."""

    def __init__(self, prompter: Prompter, opposed: Sequence[str], nats: float = 9.0) -> None:
        self._prompter = prompter
        self._opposed = opposed
        self.nats = nats
        self.asked = 0

    async def score(self, prompt: Sequence[int], answer: Sequence[int], *, version: int, **_: Any) -> Scores:
        self.asked += 1
        text = self._prompter.decode(list(prompt), skip_special_tokens=True)
        lost = self.nats if any(wish in text for wish in self._opposed) else 0.0
        return Scores([-lost, *[0.0] * (len(answer) - 1)], 0)


class MemoryWorld:
    """A journal in which people said things, and the memory over it."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data=folder)
        self.journal = AsyncJournal(self.settings.serve.journal_path)
        self.prompter = Prompter(EMBEDDED_POLICY)
        self.engine: Any = ScoringBase(self.settings)
        self._count = 0
        self.restart()

    def restart(self) -> None:
        """A fresh memory, as after a restart."""
        self.memory = HintMemory(self.journal, self.engine, self.prompter, self.settings)

    def opposing(self, *wishes: str) -> OpposedBase:
        """From now on the base finds answers less likely under `wishes`."""
        self.engine = OpposedBase(self.prompter, wishes)
        self.restart()
        return self.engine

    async def judged(
        self,
        answer: str,
        score: float,
        hint: str | None = None,
        role: str = "user",
        before: Turn | None = None,
        system: str = "",
        session: str = "session-1",
    ) -> Turn:
        """A turn that was answered, judged so; a second try if there is a turn `before`, and a complaint about it."""
        self._count += 1
        messages = [{"role": "user", "content": QUESTION}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        if before is not None:
            messages += [{"role": "assistant", "content": BOLD}, {"role": "user", "content": NO_BOLD}]
        prompt = self.prompter.render(ChatInput(messages=messages, tools=[], tools_json=b"")).ids()
        ids = self.prompter.tokenizer.encode(answer, add_special_tokens=False)
        made = turn(
            self._count,
            session_id=session,
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
    world.restart()
    for _ in range(2):
        await world.judged(PLAIN, 1.0)
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

    world.engine.score = disturbed
    await world.judged(BOLD, -1.0, NO_BOLD)
    for _ in range(8):
        await world.judged(PLAIN, 1.0)
    assert await world.memory.standing() == [NO_BOLD]
    for _ in range(20):
        await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == []


OLD = ("No bold, please.", "No numbered steps.", "Plain sentences only.")
NEW = ("Bold words help me, use them again.", "Number the steps from now on.")


@pytest.mark.parametrize("accepted", [2, 10, 60, 64, 100])
async def test_a_wish_that_fell_stays_fallen_however_many_answers_are_accepted(
    world: MemoryWorld, accepted: int
) -> None:
    world.opposing(*OLD)
    for wish in OLD:
        await world.judged(BOLD, -1.0, wish)
    for wish in NEW:
        await world.judged(PLAIN, -1.0, wish)
    for _ in range(accepted):
        await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == list(NEW)
    world.restart()
    assert await world.memory.standing() == list(NEW), "after a restart too"


async def test_a_wish_that_fell_stays_fallen_while_answers_say_nothing_about_it(world: MemoryWorld) -> None:
    base = world.opposing(OLD[0])
    await world.judged(BOLD, -1.0, OLD[0])
    for _ in range(3):
        await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == []
    base.nats = 0.0
    for _ in range(70):
        await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == []
    await world.judged(PLAIN, -1.0, OLD[0])
    assert await world.memory.standing() == [], "said twice, accepted against three times"
    await world.judged(PLAIN, -1.0, "No bold, please!")
    assert await world.memory.standing() == ["No bold, please!"], "in other words, and as often as accepted against"


@pytest.mark.parametrize("said", [1, 8, 9, 40])
async def test_a_wish_falls_after_at_most_nine_answers_against_it_however_often_it_was_said(
    world: MemoryWorld, said: int
) -> None:
    world.opposing(OLD[0])
    for _ in range(said):
        await world.judged(BOLD, -1.0, OLD[0])
    for number in range(min(said, 8)):
        await world.judged(BOLD, 1.0)
        assert await world.memory.standing() == [OLD[0]], f"{said} against {number + 1}"
    await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == []


async def test_a_wish_that_fell_stands_again_after_at_most_eight_mentions(world: MemoryWorld) -> None:
    world.opposing(OLD[0])
    await world.judged(BOLD, -1.0, OLD[0])
    for _ in range(30):
        await world.judged(BOLD, 1.0)
    assert await world.memory.standing() == []
    for _ in range(7):
        await world.judged(BOLD, -1.0, OLD[0])
    assert await world.memory.standing() == []
    await world.judged(BOLD, -1.0, OLD[0])
    assert await world.memory.standing() == [OLD[0]]


async def test_a_wish_is_held_against_answers_to_prompts_as_long_as_an_agents(world: MemoryWorld) -> None:
    system = "You are a helpful agent. " * 700
    tokens = len(world.prompter.render(ChatInput(messages=[{"role": "system", "content": system}])).ids())
    assert tokens > 4096
    base = world.opposing(OLD[0])
    await world.judged(BOLD, -1.0, OLD[0], system=system)
    for _ in range(2):
        await world.judged(BOLD, 1.0, system=system)
    assert await world.memory.standing() == []
    assert base.asked == 4, "two answers, each under the wish and under the unrelated request"


async def test_accepted_answers_to_long_prompts_that_share_nothing_vote_at_later_looks(world: MemoryWorld) -> None:
    world.settings = world.settings.replace(max_sample_tokens=6000)
    base = world.opposing(OLD[0])
    await world.judged(BOLD, -1.0, OLD[0])
    for number in range(3):
        await world.judged(BOLD, 1.0, system=f"You are agent number {number}. " * 600)
    found = [(await world.memory.standing(), base.asked) for _ in range(4)]
    assert found == [([OLD[0]], 2), ([], 4), ([], 6), ([], 6)]


async def test_hints_of_a_forgotten_session_are_not_kept(world: MemoryWorld) -> None:
    world.opposing()
    await world.judged(BOLD, -1.0, OLD[0])
    assert await world.memory.standing() == [OLD[0]]
    assert OLD[0] not in await world.journal.get_control(BALANCES)
    await world.journal.forget("session-1")
    assert await world.memory.standing() == []
    world.restart()
    assert await world.memory.standing() == []


async def test_a_hint_after_a_forgotten_session_has_a_balance_of_its_own(world: MemoryWorld) -> None:
    world.opposing(OLD[0])
    await world.judged(PLAIN, -1.0, NEW[0])
    await world.judged(BOLD, -1.0, OLD[0], session="session-2")
    for _ in range(3):
        await world.judged(BOLD, 1.0, session="session-2")
    assert await world.memory.standing() == [NEW[0]]
    await world.journal.forget("session-2")
    await world.judged(PLAIN, -1.0, NEW[1])
    assert await world.memory.standing() == list(NEW)


async def test_balances_that_are_damaged_are_counted_again(world: MemoryWorld) -> None:
    world.opposing()
    await world.judged(BOLD, -1.0, OLD[0])
    await world.journal.set_control(BALANCES, "[[")
    assert await world.memory.standing() == [OLD[0]]
