"""A teacher that is another model, behind a real engine.

The shipped policy teaches the random one, whose tokenizer it has.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openclaw_rl.learner.judge.selection import Selector
from openclaw_rl.learner.methods import METHODS, Method
from openclaw_rl.learner.teacher import OtherTeacher, check_teacher, check_vocabulary, create_teacher
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.errors import ConfigError, EngineError
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sample, VersionSpan, Vote
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.learner.test_loop import COMPLAINTS, Worlds, tell
from tests.learner.things import ready, turn
from tests.processes import Engine
from tests.trainer_local import plain
from tests.trainer_local.tiny import anchor, sample

HINTED = [40, 41, 42, 43]


def of(engine: Engine, policy: Path, **changes: Any) -> Settings:
    return Settings(**({"model": str(policy), "teacher": f"engine:{EMBEDDED_POLICY}@{engine.url}"} | changes))


async def created(settings: Settings) -> OtherTeacher:
    teacher = await create_teacher(settings, METHODS[settings.learning.method])
    assert teacher is not None
    return teacher


def answer(**changes: Any) -> Sample:
    return sample(1, prompt=3, response=2, hints=0, **({"hinted_prompts": [HINTED], "temperature": 0.7} | changes))


async def test_it_scores_the_sampled_tokens_at_the_temperature_of_their_sampling(
    engine_server: Engine, random_policy: Path
) -> None:
    teacher = await created(of(engine_server, random_policy, method="opd"))
    one = answer()
    untaught = [answer(hinted_prompts=[]), anchor(2), answer(no_ratio="decoded greedily")]
    found, *others = await teacher.teach([one, *untaught])
    assert found.taught is not None and not any(found.taught.top) and others == untaught
    wanted = plain.sampled(plain.log_probs(EMBEDDED_POLICY, HINTED, one.response_ids, 0.7), one.response_ids)
    assert found.taught.logprobs == pytest.approx(wanted, abs=1e-3)
    assert replace(found, taught=None) == one
    await teacher.close()


async def test_it_reports_its_likeliest_tokens_at_temperature_1(engine_server: Engine, random_policy: Path) -> None:
    teacher = await created(of(engine_server, random_policy, method="topk", topk=6))
    (found,) = await teacher.teach([answer()])
    assert found.taught is not None
    rows = plain.log_probs(EMBEDDED_POLICY, HINTED, found.response_ids)
    for row, line in zip(rows, found.taught.top, strict=True):
        assert [token for _, token in line] == plain.likeliest(row, 6)
        assert [value for value, _ in line] == pytest.approx([row[token] for _, token in line], abs=1e-3)
    await teacher.close()


async def test_a_text_that_is_too_long_for_it_is_left_without(engine_server: Engine, random_policy: Path) -> None:
    teacher = await created(of(engine_server, random_policy, method="topk"))
    context = (await teacher._engine.info()).context_length
    long = answer(hinted_prompts=[[40] * context])
    found, other = await teacher.teach([long, answer()])
    assert found == long and other.taught is not None
    await teacher.close()


async def test_while_its_engine_is_away_the_batch_waits(engine_server: Engine, random_policy: Path) -> None:
    teacher = await created(of(engine_server, random_policy, method="topk"))
    await teacher._engine.close()
    teacher._engine = SglangEngine("http://127.0.0.1:9", patience=0.1)
    with pytest.raises(EngineError):
        await teacher.teach([answer()])
    await teacher.close()


def test_another_vocabulary_is_refused(random_policy: Path, tmp_path: Path) -> None:
    check_vocabulary(str(random_policy), str(EMBEDDED_POLICY))
    other = tmp_path / "other"
    shutil.copytree(random_policy, other)
    spec = json.loads((other / "tokenizer.json").read_text())
    first, second = list(spec["model"]["vocab"])[300:302]
    vocabulary = spec["model"]["vocab"]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(ConfigError, match=r"another vocabulary than the policy .*: 2 of \d+ tokens have another id"):
        check_vocabulary(str(random_policy), str(other))


async def test_the_setting_is_checked_when_the_learner_starts(random_policy: Path) -> None:
    policy = {"model": str(random_policy)}
    assert await create_teacher(Settings(**policy), METHODS["rehearse"]) is None
    with pytest.raises(ConfigError, match="`openclaw-rl serve` starts it"):
        await create_teacher(Settings(**policy, teacher=f"engine:{EMBEDDED_POLICY}"), METHODS["topk"])
    with pytest.raises(ConfigError, match="compares whole distributions"):
        check_teacher(Settings(teacher="engine:http://elsewhere:1"), METHODS["rehearse"])
    several = Method("mine", hints="remembered", distillation="topk")
    with pytest.raises(ConfigError, match="averages the teacher over several hints"):
        check_teacher(Settings(teacher="engine:http://elsewhere:1"), several)


async def test_a_batch_is_taught_before_its_step(engine_server: Engine, random_policy: Path, worlds: Worlds) -> None:
    how = {"method": "topk", "topk": 5, "teacher": f"engine:{EMBEDDED_POLICY}@{engine_server.url}"}
    world = worlds(batch_size=2, **how)
    world.learner._teacher = await created(of(engine_server, random_policy, method="topk", topk=5))
    await world.versions.start()
    taught = world.spy()
    await tell(world, 1, [COMPLAINTS[0], COMPLAINTS[2]])
    assert await world.learner.once()
    assert len(taught) == 2
    for one in taught:
        assert one.taught is not None and [len(line) for line in one.taught.top] == [5] * len(one.response_ids)
    version = await world.journal.version(1)
    assert version is not None and version.metrics["samples/distill"] == 2
    await world.learner._teacher.close()


async def test_hints_are_compared_by_the_teachers_own_tokens(
    engine_server: Engine, random_policy: Path, prompter: Prompter, tmp_path: Path
) -> None:
    settings = of(engine_server, random_policy, hint_selection="overlap-sequence", engine_url=engine_server.url)
    engine, teacher = create_engine(settings), create_engine(settings)
    ids = prompter.render(ChatInput(messages=[{"role": "user", "content": "How much is 7 and 5?"}])).ids()
    made = turn(1, prompt_ids=ids, response_ids=[309, 310], versions=[VersionSpan(0, 0, 2)])
    asked: list[int | None] = []
    score = teacher.score

    async def counted(*parts: Any, **options: Any) -> Any:
        asked.append(options["version"])
        return await score(*parts, **options)

    teacher.score = counted  # type: ignore[method-assign]
    selector = Selector(settings, engine, ready(prompter), teacher)
    votes = [Vote(score=-1.0, hint=hint) for hint in ("Use no bold type.", "Write as if you spoke to a friend.")]
    found = await selector.choose(made, votes)
    assert found.selection == "overlap-sequence" and asked == [None, None]
    await selector.close()
    await engine.close()
