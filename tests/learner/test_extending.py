"""Every example of docs/extending.md, run by a learner with a real journal and a real trainer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from openclaw_rl.shared.engine.protocol import Priority
from openclaw_rl.shared.records import Judgement
from tests.learner.test_loop import COMPLAINTS, tell
from tests.learner.world import World

Worlds = Callable[..., World]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "extending"


def example(name: str) -> str:
    return str(EXAMPLES / f"{name}.py")


async def judged(world: World, text: str, number: int = 1, answer: str = "It is 12.") -> Judgement:
    turn = await world.says(number, text, answer=answer)
    await world.judge.once()
    found = await world.journal.judgement(turn.turn_id)
    assert found is not None
    return found


async def stepped(world: World, number: int = 1) -> dict[str, float]:
    assert await world.learner.once(), (world.progress.state, world.progress.detail)
    version = await world.journal.version(number)
    assert version is not None and version.state == "live", version
    return dict(version.metrics)


async def test_the_judge(worlds: Worlds) -> None:
    world = worlds(judge=example("judge"), batch_size=1)
    await world.versions.start()
    content = await judged(world, "Thanks!")
    assert (content.score, content.hint) == (1.0, None)
    short = await judged(world, "Shorter, please.", 2)
    assert (short.score, short.hint) == (-1.0, "Answer in fewer than 40 characters.")
    assert short.prompt_version.startswith("judge.py")
    figures = await stepped(world)
    assert figures["samples/distill"] >= 1 and figures["mix/hints"] == 1


async def test_the_reward(worlds: Worlds) -> None:
    world = worlds(custom_reward=example("reward"), method="binary", batch_size=2)
    await world.versions.start()
    assert (await judged(world, "ok", 1, "Here you are, thank you.")).score == pytest.approx(2 * 1.0 - 1)
    assert (await judged(world, "ok", 2, "No.")).score == pytest.approx(2 * 0.25 - 1)
    figures = await stepped(world)
    assert (figures["reward/mean"], figures["reward/std"]) == (pytest.approx(0.25), pytest.approx(0.75))


async def test_the_method(worlds: Worlds) -> None:
    world = worlds(method=example("method"), batch_size=3, learning_rate=1e-3)
    await world.versions.start()
    await tell(world, 1, [COMPLAINTS[0], "Thanks, perfect!", COMPLAINTS[1]])
    rewards = [sample.reward for sample in await world.journal.ready_samples(10)]
    assert len(set(rewards)) == 2 and None not in rewards
    numbers = [float(value or 0.0) for value in rewards]
    wanted = [(value - fmean(numbers)) / pstdev(numbers) for value in numbers]
    figures = await stepped(world)
    assert figures["samples/binary"] == 3
    # Every answer has as many tokens as the others, so their advantages per token have the moments of the turns'.
    assert figures["advantage/mean"] == pytest.approx(fmean(wanted), abs=1e-6)
    assert figures["advantage/std"] == pytest.approx(pstdev(wanted), abs=1e-4)


@pytest.mark.parametrize("name", ["loss", "compute_loss"])
async def test_the_losses(worlds: Worlds, name: str) -> None:
    world = worlds(custom_loss=example(name), batch_size=2, epochs=2, learning_rate=1e-2)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:2])
    figures = await stepped(world)
    assert figures["samples/custom"] == 2 + figures["mix/rehearsals"] + figures["mix/anchors"]
    assert figures["loss/total"] == figures["loss/custom"] != 0
    assert figures["weights/change"] > 0


async def test_the_rollout(worlds: Worlds) -> None:
    world = worlds(custom_rollout=example("rollout"), batch_size=1, anchors=2, rehearsals=3)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    figures = await stepped(world)
    assert (figures["mix/rehearsals"], figures["mix/anchors"]) == (4, 2)
    assert figures["samples/binary"] == 4, "the marks train"
    assert [version for _, version, _ in world.engine.asked] == [None] * 4 + [0] * 2
    assert not world.progress.notes


async def test_the_generate(worlds: Worlds) -> None:
    world = worlds(custom_generate=example("generate"), batch_size=1, anchors=2, rehearsals=3)
    await world.versions.start()
    await tell(world, 1, COMPLAINTS[:1])
    figures = await stepped(world)
    assert (figures["mix/rehearsals"], figures["mix/anchors"]) == (3, 2)
    assert len(world.engine.asked) == 2 * (3 + 2), "two of each"
    assert {priority for _, _, priority in world.engine.asked} == {Priority.REHEARSAL}
    assert not world.progress.notes


def test_the_page_shows_every_example_as_it_is() -> None:
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    for file in sorted(EXAMPLES.glob("*.py")):
        assert f"examples/extending/{file.name}" in page, file.name
        code = file.read_text("utf-8").partition('"""\n\n')[2].partition("from __future__ import annotations\n\n")[2]
        assert code.strip() in page, f"{file.name} is not shown as it is"
    shown = re.findall(r"examples/extending/(\w+\.py)", page)
    assert set(shown) == {file.name for file in EXAMPLES.glob("*.py")}
