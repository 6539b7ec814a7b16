"""The guard on the shipped policy, with a real engine and a real trainer: which candidates pass, and which do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.guard.answers import GuardQuestion, SampledAnswer
from openclaw_rl.learner.guard.guard import GuardVerdict, examine
from openclaw_rl.learner.loop import OBSTRUCTED
from openclaw_rl.shared.engine.protocol import EngineInfo
from openclaw_rl.shared.errors import ConfigError, EngineError, JournalError, TrainerAway
from openclaw_rl.shared.messages.answer import Answer
from openclaw_rl.shared.trainer import StepReport
from tests.learner.guarded import BATCH, accepted, batch, candidate, guard_of, said
from tests.learner.world import Worlds


async def test_a_candidate_like_its_parent_passes_with_figures(real: Worlds) -> None:
    world = real()
    await accepted(world)
    verdict = await guard_of(world).probe(await candidate(world), 0, [])
    assert verdict.passed, verdict.reason
    report = json.loads(json.dumps(verdict.report()))
    assert report["accepted"]["answers"] == 6 and abs(report["accepted"]["drop"]) < 1e-3
    assert abs(report["kl_base"]) < 1e-2
    assert report["answers"]["asked"] == 6 and report["answers"]["candidate"] == report["answers"]["parent"]
    assert (await world.engine.info()).live == 0


async def test_a_broken_candidate_is_recognised_by_accepted_answers_and_by_its_own(real: Worlds) -> None:
    world = real()
    await accepted(world)
    verdict = await guard_of(world).probe(await candidate(world, rate=0.05), 0, [])
    assert not verdict.passed
    assert "guard_max_drop" in verdict.reason and "answers degenerate" in verdict.reason
    figures = verdict.figures
    assert figures["accepted"]["parent"] - figures["accepted"]["candidate"] > figures["accepted"]["limit"]
    assert figures["answers"]["candidate"]["flawed"] > figures["answers"]["parent"]["flawed"]


async def test_the_answers_of_the_batch_itself_prove_nothing(real: Worlds) -> None:
    world = real()
    await accepted(world)
    turns = [f"turn_{number:032x}" for number in range(1, 7)]
    verdict = await guard_of(world, guard_answers=0).probe(await candidate(world), 0, turns)
    assert verdict.passed and verdict.figures["accepted"] == {"answers": 0}


async def test_the_parents_answers_are_asked_for_once(real: Worlds) -> None:
    world = real()
    await accepted(world)
    guard = guard_of(world)
    number = await candidate(world)
    await guard.probe(number, 0, [])
    asked: list[int | None] = []
    generate = world.engine.generate

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(options["version"])
        return generate(*arguments, **options)

    world.engine.generate = counted  # type: ignore[method-assign]
    await guard.probe(number, 0, [])
    assert asked == []


async def test_probes_of_the_users_own_stop_what_the_parent_can_do(real: Worlds, tmp_path: Path) -> None:
    world = real()
    await world.versions.start()
    file = tmp_path / "probes.jsonl"
    lines = [
        {"prompt": "7 + 5 =", "must": ["12"], "max_tokens": 24, "name": "a sum"},
        {"prompt": "7 + 5 =", "must": ["a poem"], "max_tokens": 24, "name": "a poem"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    guard = guard_of(world, guard_probes=str(file), guard_answers=0)
    passed = await guard.probe(await candidate(world), 0, [])
    assert passed.passed
    assert passed.figures["probes"] == {"asked": 2, "failed": [], "failed_before": ["a poem: without 'a poem'"]}
    failed = await guard.probe(await candidate(world, rate=0.05, number=2), 0, [])
    assert not failed.passed and "guard_probes (a sum: without '12')" in failed.reason


def test_a_probe_file_that_cannot_be_read_stops_the_start(real: Worlds) -> None:
    with pytest.raises(ConfigError, match="guard_probes"):
        guard_of(real(guard_probes="/nowhere/probes.jsonl"))


async def test_without_the_guard_only_the_steps_figures_count(real: Worlds) -> None:
    world = real()
    assert await guard_of(world, guard=False).probe(1, 0, []) == GuardVerdict(True)
    assert await guard_of(world, guard=False).rewards([], [], 0) == GuardVerdict(True)
    report = StepReport(step=1, sample_ids=[], metrics={"kl/parent": 3.0})
    assert not examine(report, max_kl=2.0).passed


async def test_an_engine_of_one_version_is_named_in_the_report(real: Worlds) -> None:
    world = real()
    info = await world.engine.info()

    async def one_version() -> EngineInfo:
        return EngineInfo(info.live, (info.live,), info.model_path, 4096, 4096, several_versions=False)

    world.engine.info = one_version  # type: ignore[method-assign]
    verdict = await guard_of(world).probe(1, 0, [])
    assert verdict.passed and "one version" in verdict.figures["not_probed"]


async def test_answers_that_no_longer_fit_the_engine_are_not_asked_about(real: Worlds) -> None:
    world = real(guard_answers=0)
    await accepted(world)
    turns = [await world.journal.turn(f"turn_{number:032x}") for number in range(1, 7)]
    lengths = sorted(len(one.prompt_ids) + len(one.response_ids) for one in turns if one is not None)
    limit = lengths[-1] - 1
    info, score = await world.engine.info(), world.engine.score

    async def smaller() -> EngineInfo:
        return EngineInfo(info.live, info.versions, info.model_path, limit, info.vocab_size)

    async def refusing(prompt: Any, answer: Any, **options: Any) -> Any:
        if len(prompt) + len(answer) > limit:
            raise EngineError("too long", status=400)
        return await score(prompt, answer, **options)

    world.engine.info, world.engine.score = smaller, refusing  # type: ignore[method-assign]
    number = await candidate(world)
    verdict = await guard_of(world).probe(number, 0, [])
    assert verdict.passed
    assert verdict.figures["accepted"]["answers"] == sum(length <= limit for length in lengths) < 6
    samples = await world.journal.ready_samples(10)
    assert (await guard_of(world).rewards(samples, [], 0)).passed


async def test_an_engine_that_fails_while_it_is_probed_is_waited_for_and_the_step_is_made_once(
    real: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.learner.loop._RETRY", 0.01)
    world = real()
    await world.versions.start()
    for number in range(1, BATCH + 1):
        await said(world, number, 1.0)
    await world.judge_all()
    load, step = world.engine.load, world.trainer.step
    tries: list[str] = []

    async def away(*given: Any, **options: Any) -> None:
        if tries.count("load") < 2:
            tries.append("load")
            raise EngineError("the engine cannot be reached")
        await load(*given, **options)

    async def counted(*given: Any) -> Any:
        tries.append("step")
        return await step(*given)

    world.engine.load = away  # type: ignore[method-assign]
    world.trainer.step = counted  # type: ignore[method-assign]
    assert await world.learner.once()
    assert tries == ["step", "load", "load"]
    assert (await world.journal.versions())[-1].state == "live"


async def test_additions_to_a_batch_whose_step_did_not_happen_are_kept_for_its_next_try(real: Worlds) -> None:
    world = real()
    await world.versions.start()
    for number in range(1, BATCH + 1):
        await said(world, number, 1.0)
    await world.judge_all()
    step, generate, score = world.trainer.step, world.engine.generate, world.engine.score
    asked: list[str] = []

    async def away(*_: Any) -> Any:
        asked.append("step")
        raise TrainerAway("the provider is away")

    def sampled(*given: Any, **options: Any) -> Any:
        asked.append("sample")
        return generate(*given, **options)

    async def scored(*given: Any, **options: Any) -> Any:
        asked.append("score")
        return await score(*given, **options)

    world.engine.generate = sampled  # type: ignore[method-assign]
    world.engine.score = scored  # type: ignore[method-assign]
    world.trainer.step = away  # type: ignore[method-assign]
    with pytest.raises(TrainerAway):
        await world.learner.once()
    first = [what for what in asked if what != "step"]
    for _ in range(2):
        with pytest.raises(TrainerAway):
            await world.learner.once()
    assert first and asked == [*first, "step", "step", "step"]
    assert await world.journal.ready_count() == BATCH
    world.trainer.step = step  # type: ignore[method-assign]
    assert await world.learner.once()
    assert (await world.journal.versions())[-1].state == "live"


async def test_an_obstacle_does_not_keep_the_trainer_from_a_version_that_the_user_chose(
    real: Worlds,
) -> None:
    """The way out may be another version: the state of this one may be unavailable."""
    world = real()
    await world.versions.start()
    for number in range(1, BATCH + 1):
        await said(world, number, 1.0)
    await world.judge_all()
    assert await world.learner.once() and world.versions.current == 1

    async def obstacle() -> str:
        return "the state of version 1 is gone" if world.versions.current == 1 else ""

    world.trainer.obstacle = obstacle  # type: ignore[method-assign]
    assert not await world.learner.once()
    assert (world.progress.state, world.progress.detail) == (OBSTRUCTED, "the state of version 1 is gone")
    await world.journal.set_version_state(0, "live")
    assert not await world.learner.once()
    assert world.versions.current == 0 and world.progress.state != OBSTRUCTED


async def test_a_candidate_that_cannot_be_probed_is_dropped_once_another_version_is_live(
    real: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.learner.loop._RETRY", 0.01)
    world = real()
    await world.versions.start()
    for round_of in range(2):
        for number in range(1, BATCH + 1):
            await said(world, number + BATCH * round_of, 1.0)
        await world.judge_all()
        if not round_of:
            assert await world.learner.once()

    async def away(*_: Any, **__: Any) -> None:
        await world.journal.set_version_state(0, "live")
        raise EngineError("the engine cannot be reached")

    load = world.engine.load
    world.engine.load = away  # type: ignore[method-assign]
    assert await world.learner.once()
    world.engine.load = load  # type: ignore[method-assign]
    assert await world.journal.ready_count() == BATCH and world.versions.current == 0
    assert not (world.settings.checkpoints_path / "2").exists()


async def test_measurements_of_a_step_that_was_undone_are_not_kept_for_the_next_of_its_number(real: Worlds) -> None:
    world = real()
    await world.versions.start()
    for number in range(1, BATCH + 1):
        await said(world, number, 1.0)
    await world.judge_all()
    commit, generate = world.journal.commit_version, world.engine.generate
    asked: list[int | None] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(options["version"])
        return generate(*arguments, **options)

    async def full(*_: Any) -> None:
        raise JournalError("the disk is full")

    world.engine.generate = counted  # type: ignore[method-assign]
    world.journal.commit_version = full  # type: ignore[method-assign]
    with pytest.raises(JournalError):
        await world.learner.once()
    first = asked.count(1)
    world.journal.commit_version = commit  # type: ignore[method-assign]
    assert await world.learner.once()
    assert first and asked.count(1) == 2 * first
    assert asked.count(0) == first  # the parent is the same as before


async def test_held_back_answers_are_kept_out_of_the_step_and_asked_about_later(real: Worlds) -> None:
    world = real(guard_held_back=0.5, batch_size=8)
    await world.versions.start()
    first = await batch(world, 1, 1.0, count=8)
    held = (await world.journal.status())["quarantined"]
    (count,) = held.values()
    assert 0 < count < 8 and len(first.sample_ids) == 8 - count
    assert await world.journal.ready_count() == 0
    second = await batch(world, 11, 1.0, count=8)
    assert second.guard["accepted"]["held_back"] == count
    assert second.guard["accepted"]["answers"] == 8


async def test_recent_prompts_are_asked_and_those_of_a_forgotten_session_are_not(real: Worlds) -> None:
    world = real()
    await world.versions.start()
    for number in range(1, 5):
        await world.says(number, "thanks", session_id=f"session-{number}")
    guard = guard_of(world)
    asked: list[tuple[int, ...]] = []
    generate = world.engine.generate

    def noted(prompt: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(tuple(prompt))
        return generate(prompt, *arguments, **options)

    world.engine.generate = noted  # type: ignore[method-assign]
    turns = [await world.journal.turn(f"turn_{number:032x}") for number in range(1, 5)]
    prompts = {tuple(one.prompt_ids): one.session_id for one in turns if one is not None}
    await guard.probe(await candidate(world), 0, [])
    assert {prompts[one] for one in asked if one in prompts} == {"session-2", "session-3", "session-4"}
    await world.journal.forget("session-4")
    asked.clear()
    await guard.probe(await candidate(world, number=2), 0, [])
    assert {prompts[one] for one in asked if one in prompts} == {"session-1", "session-2", "session-3"}


@pytest.mark.parametrize(("parent", "candidate", "passes"), [(0, 4, True), (4, 6, True), (4, 7, False), (7, 7, True)])
async def test_many_flawed_answers_fail_even_if_the_parent_has_almost_as_many(
    real: Worlds, monkeypatch: pytest.MonkeyPatch, parent: int, candidate: int, passes: bool
) -> None:
    """Of 16 answers; those of version 1 are the candidate's. Only the answers are replaced."""
    world = real()
    guard = guard_of(world)
    counts = {0: parent, 1: candidate}

    async def asked(version: int, questions: Sequence[GuardQuestion]) -> list[tuple[SampledAnswer, float]]:
        question = questions[0]
        flawed, sound = Answer(content=" "), Answer(content="It is 12.")
        return [
            (SampledAnswer(question, [5], [-0.1], flawed if number < counts[version] else sound), -0.1)
            for number in range(16)
        ]

    questions = (await guard._questions())[:1] * 16

    async def sixteen() -> list[GuardQuestion]:
        return questions

    monkeypatch.setattr(guard, "_asked", asked)
    monkeypatch.setattr(guard, "_questions", sixteen)
    verdict = await guard._degeneration(1, 0)
    assert verdict.passed is passes, verdict.reason
