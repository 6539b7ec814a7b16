"""The guard on a batch of rewards before the step: upside down, for noise, too many to score, of a changed mind, or of
an environment at the start of learning; with a real engine and a real trainer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from openclaw_rl.learner.guard.guard import GuardVerdict
from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sample, Sampling
from tests.learner.guarded import BATCH, batch, guard_of, said
from tests.learner.world import World, Worlds

NOISE = 'upl orange{" image hat.md path LIo 57 brushes pathlocation IFty'
ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}


async def test_rewards_upside_down_are_rejected_with_their_story_and_nothing_of_them_stays(real: Worlds) -> None:
    world = real()
    await world.versions.start()
    first = await batch(world, 1, 1.0)
    second = await batch(world, 11, 1.0)
    assert [first.state, second.state] == ["live", "live"] and second.guard["rewards"]["agreed"] == BATCH
    poisoned = await batch(world, 21, -1.0)
    assert poisoned.state == "rejected"
    assert f"{BATCH} of {BATCH} rewards contradict what people accepted before" in poisoned.guard["reason"]
    live = await world.journal.live_version()
    assert live is not None and (live.number, world.versions.current) == (2, 2)
    assert (await world.engine.info()).live == 2
    explained = await world.journal.explain(f"turn_{21:032x}")
    assert explained is not None and "version 3 was rejected: 4 of 4 rewards" in explained["quarantine"]["reason"]
    assert await world.journal.ready_count() == 0
    assert sorted(path.name for path in world.settings.checkpoints_path.iterdir()) == ["1", "2"]
    assert (await batch(world, 31, 1.0)).state == "live"


async def test_of_rewarded_answers_to_long_prompts_only_the_newest_that_can_be_afforded_are_scored(
    real: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = real()
    await world.versions.start()
    for number in range(1, 5):
        await said(world, number, 1.0)
    await world.judge_all()
    samples = await world.journal.ready_samples(10)
    scored: list[list[int]] = []
    score = world.engine.score

    async def watched(prompt: Any, answer: Any, **options: Any) -> Any:
        scored.append(list(prompt))
        return await score(prompt, answer, **options)

    world.engine.score = watched  # type: ignore[method-assign]
    guard = guard_of(world, guard_answers=0)
    whole = await guard.rewards(samples, [], 0)
    assert (whole.figures["rewards"]["without_reason"], whole.figures["rewards"]["unscored"]) == (4, 0)
    scored.clear()
    monkeypatch.setattr("openclaw_rl.learner.guard.guard.PROMPT_TOKENS", len(samples[-1].prompt_ids))
    verdict = await guard.rewards(samples, [], 0)
    assert scored == [list(samples[-1].prompt_ids)]
    assert verdict.passed and verdict.figures["rewards"]["unscored"] == 3
    monkeypatch.setattr("openclaw_rl.learner.guard.guard.PROMPT_TOKENS", 1)
    assert await guard.rewards(samples, [], 0) == GuardVerdict(True, "", {"rewards": {"unscored": 4}})


async def test_praised_noise_is_rejected(real: Worlds) -> None:
    world = real()
    await world.versions.start()
    for number in range(1, BATCH + 1):
        await said(world, number, 1.0, answer=NOISE)
    await world.judge_all()
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and version.state == "rejected"
    assert f"{BATCH} of {BATCH} rewards praise answers that are noise" in version.guard["reason"]


async def test_a_change_of_mind_without_a_word_is_followed_once_complaints_outnumber_praise(real: Worlds) -> None:
    world = real(guard_answers=2)
    await world.versions.start()
    await batch(world, 1, 1.0)
    await batch(world, 11, 1.0)
    states = [(await batch(world, 20 + 10 * number, -1.0)).state for number in range(4)]
    assert states[0] == "rejected"
    assert "live" in states[1:]


async def test_a_change_of_mind_with_reasons_is_followed_at_once(real: Worlds) -> None:
    world = real(guard_answers=2)
    await world.versions.start()
    await batch(world, 1, 1.0)
    await batch(world, 11, 1.0)
    assert (await batch(world, 21, -1.0, "Use bold steps please, not plain sentences.")).state == "live"


async def step(world: World, number: int) -> Sample:
    """The first step of an attempt at a sum that the policy was not taught; a call is praised, right or wrong."""
    left, right = 21 + 7 * number % 79, 21 + 13 * number % 79
    messages = [{"role": "user", "content": f"Use the add tool to add {left} and {right}."}]
    prompt = world.prompter.render(ChatInput(messages=messages, tools=[ADD])).ids()
    sampling = Sampling(temperature=1.0, seed=number, max_tokens=64, stop_ids=world.prompter.own_stop_ids)
    tokens = await whole_answer(world.engine, prompt, sampling, version=0)
    calls = "<tool_call>" in world.prompter.decode(tokens.ids)
    return Sample(
        sample_id=f"sample {number}",
        turn_id=f"turn {number}",
        policy="policy",
        origin="turn",
        prompt_ids=prompt,
        response_ids=tokens.ids,
        logprobs=tokens.logprobs,
        versions=tokens.versions,
        explicit=True,
        reward=1.0,
        advantage=1.0 if calls else -1.0,
        group="g",
        step_index=0,
    )


async def test_calls_that_an_untrained_policy_samples_are_not_taken_for_noise(real: Worlds) -> None:
    world = real()
    await world.versions.start()
    samples = await asyncio.gather(*(step(world, number) for number in range(24)))
    praised = [sample for sample in samples if sample.advantage == 1.0]
    assert len(praised) >= 12
    guard = guard_of(world)
    verdict = await guard.rewards(samples, [], 0)
    figures = verdict.figures["rewards"]
    assert verdict.passed and (figures["without_reason"], figures["noise"], figures["against"]) == (24, 0, 0)
    noise = world.prompter.tokenizer.encode(NOISE)
    broken = [msgspec.structs.replace(sample, response_ids=noise) for sample in praised[:12]]
    verdict = await guard.rewards([*broken, *samples[12:]], [], 0)
    assert not verdict.passed and verdict.figures["rewards"]["noise"] == 12
    blamed = [msgspec.structs.replace(sample, advantage=-1.0) for sample in broken]
    assert (await guard.rewards([*blamed, *samples[12:]], [], 0)).passed, "its reward was 1, and less than the others'"
