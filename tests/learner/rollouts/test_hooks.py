"""Rollouts and answers by a user's own code: checks of what it returns, and that no batch is lost by it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.learner.main import check_start
from openclaw_rl.learner.methods import Method
from openclaw_rl.learner.rollouts.hooks import HookFailed, checked_answer, checked_samples, load
from openclaw_rl.learner.rollouts.rollouts import RolloutContext
from openclaw_rl.shared.engine.protocol import Engine, Tokens
from openclaw_rl.shared.errors import ConfigError, EngineError, TrainerError
from openclaw_rl.shared.records import Sample, Sampling, VersionSpan
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.test_loop import COMPLAINTS, Worlds, tell

HERE = __name__


def rollout_sample(**changes: Any) -> Sample:
    fields: dict[str, Any] = {
        "sample_id": "one",
        "turn_id": None,
        "policy": "policy",
        "origin": "rehearsal",
        "prompt_ids": [1, 2],
        "response_ids": [3, 4],
        "logprobs": [-1.0, 0.0],
        "versions": [VersionSpan(0, 0, 2)],
    }
    return Sample(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"origin": "turn"}, "a turn trains once"),
        ({"response_ids": []}, "response is empty"),
        ({"prompt_ids": []}, "prompt is empty"),
        ({"response_ids": [3, 100]}, "outside the vocabulary of 100"),
        ({"response_ids": [3, -1]}, "outside the vocabulary"),
        ({"response_ids": [3, 4.5]}, "no integers"),
        ({"logprobs": [-1.0]}, "1 logprobs for 2 tokens"),
        ({"logprobs": [-1.0, math.nan]}, "no finite number"),
        ({"logprobs": [-1.0, 0.5]}, "no finite number up to 0"),
        ({"logprobs": "ab"}, "no numbers"),
        ({"reward": 2.0}, r"its reward is 2\.0"),
        ({"reward": "good"}, "its reward is 'good'"),
        ({"advantage": math.inf}, "its advantage is inf"),
        ({"weight": -1.0}, "its weight"),
        ({"temperature": 0.0}, "its temperature"),
        ({"prompt_ids": [1] * 9}, "11 tokens, more than max_sample_tokens = 10"),
        ({"hinted_prompts": [[1, 1000]]}, "hinted prompt has an id outside"),
        ({"sample_id": "taken"}, "another one has its sample_id"),
    ],
)
def test_a_sample_that_cannot_be_trained_on_is_left_out_with_the_reason(changes: dict[str, Any], why: str) -> None:
    good = rollout_sample(sample_id="good", turn_id="turn_1")
    samples, wrong = checked_samples([rollout_sample(**changes), good], 100, 10, ["taken"])
    assert [(sample.sample_id, sample.turn_id) for sample in samples] == [("good", None)]
    with pytest.raises(HookFailed, match=why):
        raise HookFailed(wrong[0])
    assert wrong[0].startswith("sample 1 of 2: ")


def test_a_value_that_is_no_list_of_samples_is_refused_as_a_whole() -> None:
    for given in (None, "text", {"a": 1}, 5):
        with pytest.raises(HookFailed, match="not a list"):
            checked_samples(given, 100, 10, [])
    samples, wrong = checked_samples([5, rollout_sample(), rollout_sample()], 100, 10, [])
    assert len(samples) == 1 and "it is a int" in wrong[0] and "another one" in wrong[1]


def test_an_answer_may_be_tokens_or_a_pair() -> None:
    pair = checked_answer(([3, 4], [-1, -0.5]), 100, 7)
    assert pair is not None
    assert (pair.ids, pair.logprobs, pair.versions) == ([3, 4], [-1.0, -0.5], [VersionSpan(7, 0, 2)])
    checked = checked_answer(Tokens(ids=(3,), logprobs=(-1.0,), version=2), 100, 7)
    assert checked is not None and checked.versions == [VersionSpan(2, 0, 1)]
    assert checked_answer(None, 100, 7) is None
    for given in ("text", ([3],), ([3], [1.0]), ([], []), ([3], [-1.0], 5), ([3], None)):
        with pytest.raises(HookFailed):
            checked_answer(given, 100, 7)


def plain(context: Any) -> list[Sample]:
    return []


class Callable_:
    async def __call__(self, context: RolloutContext) -> list[Sample]:
        return []


as_object = Callable_()


async def collect_opd_trajectory(
    prompt: str, student_model: Any, teacher_augmentation_fn: Any, max_turns: int = 10
) -> dict[str, Any]:
    """The arguments of a rollout in a guide to OpenClaw-RL."""
    return {}


async def any_arguments(*arguments: Any) -> list[Sample]:
    return []


def test_a_function_that_collects_conversations_itself_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "rollout_opd.py").write_text("async def collect_opd_trajectory(prompt, student_model): ...\n")
    for path in (f"{HERE}:collect_opd_trajectory", str(tmp_path / "rollout_opd.py")):
        with pytest.raises(ConfigError, match="they are recorded while they are served"):
            check_start(Settings(custom_rollout=path))
    with pytest.raises(ConfigError, match="asks for prompt, student_model, teacher_augmentation_fn, max_turns, and a"):
        check_start(Settings(custom_rollout=f"{HERE}:collect_opd_trajectory"))
    assert load(Settings(custom_rollout=f"{HERE}:any_arguments"), "custom_rollout") is any_arguments


def test_a_hook_that_is_none_ends_the_start_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    for path, why in (
        (f"{HERE}:plain", "no async function"),
        (f"{HERE}:nothing", "has no 'nothing'"),
        (str(tmp_path / "empty.py"), "has no 'rollout'"),
        (str(tmp_path / "missing.py"), "no such file"),
    ):
        with pytest.raises(ConfigError, match=why):
            check_start(Settings(custom_rollout=path))
    assert load(Settings(custom_rollout=f"{HERE}:as_object"), "custom_rollout") is as_object
    assert load(Settings(), "custom_rollout") is None


async def raising(context: RolloutContext) -> list[Sample]:
    raise ValueError("no luck")


async def engine_says_no(context: RolloutContext) -> list[Sample]:
    raise EngineError("there is no version 99", status=404)


async def forever(context: RolloutContext) -> list[Sample]:
    await asyncio.Event().wait()
    return []


async def half_good(context: RolloutContext) -> list[Any]:
    return [*await context.anchors(), "not a sample"]


async def of_the_batch(context: RolloutContext) -> list[Sample]:
    return [msgspec.structs.replace(sample, origin="rehearsal") for sample in context.batch]


@pytest.mark.parametrize(
    ("hook", "note", "anchors"),
    [
        ("raising", "raised ValueError: no luck", 0),
        ("engine_says_no", "raised EngineError: there is no version 99", 0),
        ("forever", "took longer than 0.2 s (request_timeout)", 0),
        ("half_good", "sample 3 of 3: it is a str", 2),
        ("of_the_batch", "another one has its sample_id", 0),
    ],
)
async def test_a_rollout_that_fails_is_noted_and_the_step_continues(
    worlds: Worlds, hook: str, note: str, anchors: int
) -> None:
    world = worlds(custom_rollout=f"{HERE}:{hook}", batch_size=1, request_timeout=0.2)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and version.state == "live" and len(version.sample_ids) == 1
    assert (version.metrics["mix/rehearsals"], version.metrics["mix/anchors"]) == (0, anchors)
    assert note in world.progress.notes["custom_rollout"]
    assert world.progress.status()["notes"] == world.progress.notes


async def away(context: RolloutContext) -> list[Sample]:
    context.engine.down = True  # type: ignore[attr-defined]
    return await context.anchors()


async def test_an_engine_that_is_away_is_waited_for_and_the_batch_is_kept(worlds: Worlds) -> None:
    world = worlds(custom_rollout=f"{HERE}:away", batch_size=1)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    with pytest.raises(EngineError):
        await world.learner.once()
    assert await world.journal.ready_count() == 1 and "custom_rollout" not in world.progress.notes


async def poisoned(context: RolloutContext) -> list[Sample]:
    """A sample that passes every check and makes the loss infinite."""
    return [rollout_sample(logprobs=[-30.0, -30.0], reward=1.0, advantage=-3e38, explicit=True)]


async def test_a_batch_whose_step_failed_of_its_rollouts_is_tried_without_them(worlds: Worlds) -> None:
    world = worlds(custom_rollout=f"{HERE}:poisoned", batch_size=1)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    task = asyncio.create_task(world.learner.run())
    try:
        async with asyncio.timeout(60):
            while (await world.journal.version(1)) is None:
                assert not task.done()
                await asyncio.sleep(0.05)
    finally:
        task.cancel()
    version = await world.journal.version(1)
    assert version is not None and version.state != "rejected", version.guard
    assert (version.metrics["mix/rehearsals"], version.metrics["mix/anchors"]) == (3, 2), "the built-in ones"


class Careless(Method, frozen=True):
    """Its advantages cannot be computed."""

    def advantages(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        return [1 / 0 for _ in samples]  # type: ignore[misc]


careless = Careless("careless", rewards="all")


async def test_a_method_that_fails_costs_its_batch_and_not_the_learner(worlds: Worlds) -> None:
    world = worlds(method=f"{HERE}:careless", batch_size=1)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    with pytest.raises(TrainerError, match="careless raised ZeroDivisionError"):
        await world.learner.once()
    assert await world.journal.ready_count() == 1
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and version.state == "rejected" and "ZeroDivisionError" in version.guard["reason"]


async def asked(
    prompt_ids: Sequence[int], sampling: Sampling, *, engine: Engine, version: int | None
) -> tuple[list[int], list[float]] | None:
    """Answers for the policy, fails for the base."""
    if version == 0:
        raise KeyError("base")
    return [301, 302], [-0.5, -0.25]


async def test_a_generate_that_fails_leaves_that_rollout_out(worlds: Worlds) -> None:
    world = worlds(custom_generate=f"{HERE}:asked", batch_size=1)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None
    assert (version.metrics["mix/rehearsals"], version.metrics["mix/anchors"]) == (3, 0)
    assert "KeyError: 'base'" in world.progress.notes["custom_generate"]
    assert not world.engine.asked, "nothing was sampled the usual way"


async def rewarded(context: RolloutContext) -> list[Sample]:
    tokens = await context.generate(context.render([{"role": "user", "content": "How much is 1 and 1?"}]))
    assert tokens is not None
    return [context.sample([1, 2, 3], tokens, reward=-1.0)]


async def test_a_method_without_rollouts_takes_those_of_a_hook(worlds: Worlds) -> None:
    world = worlds(custom_rollout=f"{HERE}:rewarded", method="binary", batch_size=1)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and version.metrics["samples/binary"] == 2
