"""Selection of a step's samples: short sessions, accumulated batches, and the hints of published methods."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.learner import batch
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import PolicyVersion, VersionSpan
from tests.learner.test_loop import COMPLAINTS, Worlds, tell


def version(number: int, parent: int, state: Any) -> PolicyVersion:
    """A version that keeps the weights of the base."""
    return PolicyVersion(number=number, parent=parent, state=state, checkpoint="", guard={"passed": True})


async def test_turns_of_a_short_session_wait_and_are_set_aside_when_it_ends(worlds: Worlds) -> None:
    world = worlds(min_turns=3, batch_size=2)
    await world.versions.start()
    await tell(world, 1, [COMPLAINTS[0], "thanks"], session_id="short")
    assert not await world.learner.once()
    assert await world.journal.ready_count() == 2

    await tell(world, 11, [COMPLAINTS[1], "thanks", "thanks"], session_id="long")
    await world.journal.end_episode("short", "done")
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and len(version.sample_ids) == 3
    explained = await world.journal.explain(f"turn_{1:032x}")
    assert explained is not None
    assert explained["quarantine"]["reason"] == "its session ended after 2 main turns, fewer than min_turns = 3"


async def test_accumulated_batches_make_one_step(worlds: Worlds) -> None:
    world = worlds(batch_size=2, grad_accumulation=2)
    await world.versions.start()
    await tell(world, 1, [COMPLAINTS[0], "thanks", "thanks"])
    assert not await world.learner.once()
    await tell(world, 4, ["thanks"])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and len(version.sample_ids) == 4


@pytest.mark.parametrize(("method", "prompts"), [("rehearse", 2), ("topk", 1)])
async def test_published_methods_see_a_turns_own_hint_and_ours_all_that_are_remembered(
    worlds: Worlds, method: str, prompts: int
) -> None:
    world = worlds(method=method, batch_size=2, rehearsals=0, anchors=0)
    await world.versions.start()
    taught = world.spy()
    await tell(world, 1, [COMPLAINTS[0], COMPLAINTS[2]])
    assert await world.learner.once()
    assert [len(sample.hinted_prompts) for sample in taught] == [prompts, prompts]


async def test_a_baseline_makes_advantages_of_rewards(worlds: Worlds) -> None:
    world = worlds(method="binary", batch_size=4, baseline="batch", guard=False)
    await world.versions.start()
    taught = world.spy()
    await tell(world, 1, [COMPLAINTS[0], "thanks", "thanks", "thanks"])
    assert await world.learner.once()
    assert sorted(sample.advantage for sample in taught) == [-1.5, 0.5, 0.5, 0.5]  # type: ignore[type-var]


async def test_more_tool_results_than_are_looked_at_together_keep_no_words_from_being_learned(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "WAITING_AT_MOST", 8)
    world = worlds(batch_size=2)
    await world.versions.start()
    for first in (1, 11, 21):
        await tell(world, first, ["exit code 0"] * 8, role="tool")
    assert not await world.learner.once()
    assert not await world.journal.ready_signal()
    await tell(world, 31, [COMPLAINTS[0], "thanks"])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and version.metrics["mix/hints"] == 1
    await tell(world, 41, ["exit code 0"] * 8, role="tool")
    await tell(world, 51, ["thanks", "thanks", "exit code 0"])
    while await world.learner.once():
        pass
    assert await world.journal.ready_count() < 2


async def test_praise_without_end_is_not_read_again_and_again(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "WAITING_AT_MOST", 8)
    world = worlds(batch_size=2)
    await world.versions.start()
    for first in (1, 11, 21):
        await tell(world, first, ["thanks"] * 8)
    asked: list[int] = []
    read = world.journal.ready_samples

    async def counted(limit: int, groups: Any) -> Any:
        asked.append(limit)
        return await read(limit, groups)

    world.journal.ready_samples = counted  # type: ignore[method-assign]
    assert not await world.learner.once()
    assert asked == [8] and world.progress.state == "waiting for a first signal"


@pytest.mark.parametrize(
    ("method", "reactions", "counted"),
    [
        ("opd", [COMPLAINTS[0], "thanks", "What is 2 + 2?", COMPLAINTS[2]], 2),
        ("topk", [COMPLAINTS[0], "thanks", "What is 2 + 2?", COMPLAINTS[2]], 2),
        ("combined", [COMPLAINTS[0], "What is 2 + 2?", "thanks"], 2),
        ("topk-select", [COMPLAINTS[0], "What is 2 + 2?", "thanks"], 2),
        ("binary", ["What is 2 + 2?", "thanks"], 2),
    ],
)
async def test_a_published_batch_counts_the_turns_that_teach_and_binary_every_verdict(
    worlds: Worlds, method: str, reactions: list[str], counted: int
) -> None:
    world = worlds(method=method, batch_size=counted, guard=False)
    await world.versions.start()
    await tell(world, 1, reactions[:-1])
    assert not await world.learner.once()
    waiting = len(reactions) - 1
    assert world.progress.detail.startswith(f"1 of {counted}")
    if waiting >= counted:
        assert f", {waiting} with" in world.progress.detail
    await tell(world, 11, reactions[-1:])
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None and len(version.sample_ids) == len(reactions)


async def test_a_look_that_fails_is_repeated_though_nothing_new_came(worlds: Worlds) -> None:
    world = worlds(batch_size=2)
    await world.versions.start()
    await tell(world, 1, [COMPLAINTS[0], "thanks"])
    memory = world.learner._batches._memory
    standing = memory.standing

    async def away() -> list[str]:
        raise EngineError("the engine cannot be reached")

    memory.standing = away  # type: ignore[method-assign]
    with pytest.raises(EngineError):
        await world.learner.once()
    memory.standing = standing  # type: ignore[method-assign]
    assert await world.learner.once()
    assert (await world.journal.versions())[-1].state == "live"


async def test_tool_results_are_not_read_until_people_have_said_enough(worlds: Worlds) -> None:
    world = worlds(batch_size=3)
    await world.versions.start()
    await tell(world, 1, ["exit code 0"] * 6, role="tool")
    read = world.journal.ready_samples

    async def unread(limit: int, groups: Any) -> Any:
        raise AssertionError("read in vain")

    world.journal.ready_samples = unread  # type: ignore[method-assign]
    for first, text in ((11, COMPLAINTS[0]), (21, "thanks")):
        await tell(world, first, [text])
        assert not await world.learner.once()
    assert world.progress.detail == "2 of 3, 8 with those that do not count"
    world.journal.ready_samples = read  # type: ignore[method-assign]
    await tell(world, 31, ["thanks"])
    assert await world.learner.once()


async def test_versions_that_were_rejected_make_no_sample_older(worlds: Worlds) -> None:
    world = worlds(max_version_lag=2, batch_size=2)
    await world.versions.start()
    rejected = [(number, 1, "rejected") for number in range(2, 10)]
    for number, parent, state in ((1, 0, "live"), *rejected, (10, 1, "live")):
        await world.journal.commit_version(version(number, parent, state))
    await tell(world, 1, [COMPLAINTS[0], "thanks"], versions=[VersionSpan(1, 0, 3)])
    assert await world.journal.ready_count() == 2
    assert await world.learner.once()
    made = await world.journal.version(11)
    assert made is not None and len(made.sample_ids) == 2
    assert (made.metrics["lag/mean"], made.metrics["lag/max"]) == (1.0, 1.0)


async def test_samples_of_another_branch_are_as_old_as_the_updates_between_them(worlds: Worlds) -> None:
    world = worlds(max_version_lag=2, batch_size=2)
    await world.versions.start()
    for number, parent in ((1, 0), (2, 1), (3, 2), (4, 3)):
        await world.journal.commit_version(version(number, parent, "live"))
    await world.journal.set_version_state(2, "live")
    await tell(world, 1, [COMPLAINTS[0], COMPLAINTS[1]], versions=[VersionSpan(4, 0, 3)])
    await tell(world, 3, [COMPLAINTS[2]], versions=[VersionSpan(0, 0, 3)])
    assert await world.journal.ready_count() == 3, "version 2 is two updates away from either"
    await world.journal.set_version_state(1, "live")
    lineage = await world.journal.lineage()
    assert [lineage.updates_from(number) for number in range(5)] == [1, 0, 1, 2, 3]
    assert lineage.updates_from(9) == 8, "of a version that the journal does not have only the number is known"


async def test_every_turn_is_taught_its_own_hint_in_a_batch_with_more_hints_than_are_remembered(
    worlds: Worlds,
) -> None:
    world = worlds(max_hints=2, batch_size=4, rehearsals=0, anchors=0)
    await world.versions.start()
    taught = world.spy()
    await tell(world, 1, list(COMPLAINTS[:4]))
    assert await world.learner.once()
    read = world.prompter.tokenizer.decode
    shown = {str(sample.hint): [read(ids) for ids in sample.hinted_prompts] for sample in taught}
    assert len(shown) == 4
    assert all(len(prompts) == 2 and hint in prompts[-1] for hint, prompts in shown.items())
