"""Groups of attempts from the journal to a batch: they wait until they are complete, come whole, and are compared."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from openclaw_rl.learner import batch
from openclaw_rl.learner.attempts import accepted_attempts
from openclaw_rl.learner.batch import Batch
from openclaw_rl.learner.ready import CONSTANT, NOTHING
from openclaw_rl.proxy.routes.story import story
from openclaw_rl.shared.records import Feedback, Outcome, PolicyVersion, Sample, Turn, VersionSpan
from tests.learner.judged import HINTS, STEPS, judgement_of
from tests.learner.world import World, Worlds

NUMBERS = itertools.count(1)
GROUP = {"task": "sums/17", "group": "run/17"}


async def begin(world: World, name: str, *texts: str, attempts: int = 2, **changes: Any) -> list[Turn]:
    """An open attempt whose steps tools answered so; "" is a step that nothing came after."""
    opened = await world.journal.begin_attempt(name, "policy", **{**GROUP, **changes.pop("of", {})}, attempts=attempts)
    assert opened is not None
    fields = {"role": "tool", "session_id": name, "episode": opened.episode, "question": "Add 45 and 32."}
    return [await world.says(next(NUMBERS), text, **{**fields, **changes}) for text in texts]


async def attempt(world: World, name: str, *texts: str, reward: float | None, **changes: Any) -> list[Turn]:
    made = await begin(world, name, *(texts or [""]), **changes)
    await world.journal.add_outcome(Outcome(session_id=name, episode=0, reward=reward, done=True))
    await world.judge_all()
    return made


async def look(world: World) -> Batch:
    found = await world.learner._batches.next(news=True)
    assert found is not None
    return found


async def advantages(world: World) -> dict[str | None, float | None]:
    return {sample.turn_id: sample.advantage for sample in (await look(world)).samples}


async def reason(world: World, turn: Turn) -> str:
    explained = await world.journal.explain(turn.turn_id)
    assert explained is not None
    return str((explained["quarantine"] or {"reason": ""})["reason"])


@pytest.fixture
def binary(untrained: Worlds) -> Worlds:
    def build(**changes: Any) -> World:
        return untrained(**{"method": "binary", "batch_size": 2, **changes})

    return build


async def test_a_group_waits_until_it_is_complete_also_over_a_restart_and_is_compared_step_by_step(
    binary: Worlds,
) -> None:
    world = binary()
    await world.versions.start()
    first = await attempt(world, "a", "77", "", reward=1.0, attempts=3)
    assert (await look(world)).detail == "0 of 2; 2 more wait for their groups (1)"
    second = await attempt(world, "b", "error", "", reward=0.0, attempts=3)
    assert (await look(world)).waiting
    last = await begin(world, "c", "error", attempts=3)

    world = binary()  # every process died, and the attempt continues
    await world.journal.add_outcome(Outcome(session_id="c", episode=0, reward=0.0, done=True))
    await world.judge_all()
    low = pytest.approx(-math.sqrt(0.5))
    assert await advantages(world) == {
        first[0].turn_id: pytest.approx(math.sqrt(2)),
        first[1].turn_id: 1.0,
        second[0].turn_id: low,
        second[1].turn_id: -1.0,
        last[0].turn_id: low,
    }


async def test_a_group_whose_attempts_ended_alike_is_set_aside_at_once(binary: Worlds) -> None:
    world = binary(batch_size=64)
    await world.versions.start()
    made = [*await attempt(world, "a", "", reward=1.0), *await attempt(world, "b", "", reward=1.0)]
    assert (await look(world)).detail == "0 of 64"
    assert [await reason(world, one) for one in made] == [CONSTANT, CONSTANT]
    assert (await world.journal.status())["groups"] == {"waiting": 0, "ready": 0}


async def test_of_a_mixed_group_only_the_steps_that_came_out_alike_are_set_aside(binary: Worlds) -> None:
    world = binary(judge=STEPS, step_rewards=1.0)
    await world.versions.start()
    # R: 1 + 1, 1 - 1 and 0 + 1, 0 + 0 (no valid vote): the first steps differ, 2 and 1; the second are 0 and 0.
    first = await attempt(world, "a", "good", "bad", reward=1.0)
    second = await attempt(world, "b", "good", "none", reward=0.0)
    assert await advantages(world) == {first[0].turn_id: 1.0, second[0].turn_id: -1.0}
    assert [await reason(world, one) for one in (first[1], second[1])] == [CONSTANT, CONSTANT]
    judgements = [await judgement_of(world, one) for one in (*first, *second)]
    assert [judged.score for judged in judgements] == [2.0, 0.0, 1.0, 0.0]
    assert "the step was not scored" in judgements[3].reason


async def test_an_attempt_without_a_verdict_completes_its_group_and_is_not_compared(binary: Worlds) -> None:
    world = binary()
    await world.versions.start()
    first = await attempt(world, "a", reward=3.0, attempts=3)
    second = await attempt(world, "b", reward=-1.0, attempts=3)
    (lost,) = await attempt(world, "c", reward=None, attempts=3)
    assert await advantages(world) == {first[0].turn_id: 1.0, second[0].turn_id: -1.0}
    assert (await reason(world, lost)).startswith("no verdict")


async def test_an_attempt_whose_runner_died_is_waited_for_and_then_left_out(binary: Worlds) -> None:
    world = binary(judge=STEPS, at_least_one=True)
    await world.versions.start()
    first = await attempt(world, "a", reward=1.0, attempts=3)
    second = await attempt(world, "b", reward=0.0, attempts=3)
    (dead,) = await begin(world, "c", "good", attempts=3)
    assert (await look(world)).waiting
    await world.journal.end_episode("c", "idle")
    await world.judge_all()
    assert await world.judge.keep_one() == 0
    assert (await look(world)).waiting, "it may be tried again"
    assert await reason(world, dead) == "no verdict: its attempt ended without an outcome"
    assert world.judge._judge.made.asked == 0  # type: ignore[attr-defined]
    patient = binary(judge=STEPS, group_patience=0.0)
    assert await advantages(patient) == {first[0].turn_id: 1.0, second[0].turn_id: -1.0}


async def test_attempts_of_several_versions_are_one_group_and_what_cannot_be_learned_from_is_compared_with(
    binary: Worlds,
) -> None:
    world = binary(max_version_lag=1, max_sample_tokens=500)
    await world.versions.start()
    for number in (1, 2, 3):
        await world.journal.commit_version(
            PolicyVersion(number=number, parent=number - 1, state="live", checkpoint="", guard={"passed": True})
        )
    rewards = {"stale": 2.0, "long": 1.0, "fresh": 0.0, "live": -1.0}
    versions = {"stale": 1, "long": 3, "fresh": 2, "live": 3}
    made = {}
    for name, reward in rewards.items():
        changes: dict[str, Any] = {"versions": [VersionSpan(versions[name], 0, 3)]}
        if name == "long":
            changes["prompt_ids"] = [5] * 600
        made[name] = (await attempt(world, name, reward=reward, attempts=4, **changes))[0]
    deviation = math.sqrt(1.25)  # mean .5 over all four
    assert await advantages(world) == {
        made["fresh"].turn_id: pytest.approx(-0.5 / deviation),
        made["live"].turn_id: pytest.approx(-1.5 / deviation),
    }
    assert (await reason(world, made["stale"])).startswith("stale")
    assert "max_sample_tokens" in await reason(world, made["long"])


async def test_batches_take_whole_groups_the_oldest_complete_first_next_to_what_people_said(
    binary: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "WAITING_AT_MOST", 3)  # less than the groups have together
    world = binary(batch_size=4)
    await world.versions.start()
    names = {}
    late, early = {"of": {"group": "late"}}, {"of": {"group": "early"}}
    for name, reward, of in (("l1", 1.0, late), ("e1", 1.0, early), ("e2", 0.0, early)):
        for one in await attempt(world, name, "77", "", reward=reward, **of):
            names[one.turn_id] = name
    person = await world.says(next(NUMBERS), "thanks")
    names[person.turn_id] = "person"
    await world.judge_all()
    found = await look(world)
    assert [names[str(sample.turn_id)] for sample in found.samples] == ["e1", "e1", "e2", "e2"]
    for one in await attempt(world, "l2", "77", "", reward=0.0, **late):
        names[one.turn_id] = "l2"
    await world.journal.mark_known([sample.sample_id for sample in found.samples])
    found = await look(world)
    assert [names[str(sample.turn_id)] for sample in found.samples] == ["person", "l1", "l1", "l2", "l2"]
    assert [sample.advantage for sample in found.samples] == [None, 1.0, 1.0, -1.0, -1.0]
    assert sorted(sample.step_index or 0 for sample in found.samples[1:]) == [0, 0, 1, 1]


async def test_turns_that_teach_nothing_fill_no_batch_of_groups(binary: Worlds) -> None:
    world = binary(batch_size=3)
    await world.versions.start()
    for name, reward in (("a", 0.0), ("b", 1.0), ("c", 0.5)):
        await attempt(world, name, reward=reward, attempts=3)
    assert (await look(world)).detail == "2 of 3, 3 with those that do not count"


@pytest.mark.parametrize(("kind", "expected"), [("centred", [0.5, -0.5]), ("none", [1.0, 0.0])])
async def test_advantages_may_be_centred_or_left(binary: Worlds, kind: str, expected: list[float]) -> None:
    world = binary(group_advantage=kind, batch_size=1)
    await world.versions.start()
    await attempt(world, "a", reward=1.0)
    await attempt(world, "b", reward=0.0)
    assert [sample.advantage for sample in (await look(world)).samples] == expected


async def test_a_group_of_a_method_that_learns_from_no_reward_is_set_aside(untrained: Worlds) -> None:
    world = untrained(method="follow-up", batch_size=1)
    await world.versions.start()
    (first,) = await attempt(world, "a", reward=1.0)
    await attempt(world, "b", reward=0.0)
    assert (await look(world)).waiting and await reason(world, first) == NOTHING


async def test_a_persons_word_on_a_step_is_compared_with_no_other(binary: Worlds) -> None:
    world = binary(batch_size=3)
    await world.versions.start()
    (liked,) = await begin(world, "a", "", attempts=3)
    await world.journal.add_feedback(Feedback(turn_id=liked.turn_id, session_id="a", score=-1.0))
    await world.journal.add_outcome(Outcome(session_id="a", episode=0, reward=1.0, done=True))
    first = await attempt(world, "b", reward=1.0, attempts=3)
    second = await attempt(world, "c", reward=0.0, attempts=3)
    found: dict[str | None, Sample] = {sample.turn_id: sample for sample in (await look(world)).samples}
    word = found.pop(liked.turn_id)
    assert (word.group, word.reward, word.advantage) == ("", -1.0, None)
    assert {turn: sample.advantage for turn, sample in found.items()} == {
        first[0].turn_id: 1.0,
        second[0].turn_id: -1.0,
    }


@pytest.mark.parametrize(("method", "takes", "hint"), [
    ("combined", True, "Mind this: exit code 1"), ("combined", False, None), ("binary", True, None),
])  # fmt: skip
async def test_hints_from_an_environment_are_asked_for(
    untrained: Worlds, method: str, takes: bool, hint: str | None
) -> None:
    world = untrained(method=method, judge=HINTS, environment_hints=takes)
    (made,) = await attempt(world, "a", "exit code 1", reward=1.0, attempts=1)
    judged = await judgement_of(world, made)
    assert (judged.score, judged.hint) == (1.0, hint)
    person = await world.says(next(NUMBERS), "exit code 1", role="tool")
    await world.judge_all()
    assert (await judgement_of(world, person)).hint == "Mind this: exit code 1", "as ever outside of attempts"
    assert await world.journal.recent_hints(5) == []


async def test_the_accepted_attempts_of_a_group_are_those_whose_outcome_is_not_their_votes(untrained: Worlds) -> None:
    world = untrained(method="sdpo", judge=STEPS, step_rewards=1.0)
    (won,) = await attempt(world, "a", "bad", reward=1.0)
    (lost,) = await attempt(world, "b", "good", reward=0.0)
    assert [(await judgement_of(world, one)).score for one in (won, lost)] == [0.0, 1.0]
    assert await accepted_attempts(world.journal) == {lost.turn_id: [won.turn_id]}


async def test_a_step_is_made_of_a_group_and_why_tells_its_numbers(worlds: Worlds) -> None:
    world = worlds(method="binary", batch_size=2, judge=STEPS, step_rewards=0.5)
    await world.versions.start()
    taught = world.spy()
    for name in ("c1", "c2"):
        await attempt(world, name, "good", reward=1.0, of={"group": "constant"})
    await attempt(world, "a", "good", reward=1.0)
    (second,) = await attempt(world, "b", "bad", reward=1.0)
    assert await world.learner.once()
    assert [sample.advantage for sample in taught] == [1.0, -1.0]
    version = await world.journal.version(1)
    assert version is not None
    assert {name: value for name, value in version.metrics.items() if name.startswith("group/")} == {
        "group/complete": 2.0, "group/constant": 1.0, "group/reward": 1.0, "group/steps": 1.0,
    }  # fmt: skip
    assert world.learner._batches.group_figures() == {}
    known = await world.journal.explain(second.turn_id)
    assert known is not None
    assert (
        "It is step 1 of attempt 2 of 2 at sums/17: outcome 1, votes mean -1.00, group mean 1.00, std 0.50."
        in story(known)
    )


async def test_a_batch_that_teaches_nothing_makes_no_version(worlds: Worlds) -> None:
    world = worlds(method="binary", batch_size=2)
    await world.versions.start()
    for number in (1, 2):
        await world.says(number, "What is 2 + 2?")
    await world.judge_all()
    taught = world.spy()
    assert await world.learner.once()
    assert taught == [] and await world.journal.version(1) is None
    assert (await world.journal.status())["known"] == 2
