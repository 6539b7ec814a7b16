"""Cells, their cache, wrong judges, people, and one small cell for real."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from bench.cells import cache as cells_cache
from bench.cells import code_digest
from bench.cells.cache import Cache, run_all
from bench.learning import judges
from bench.learning.cell import RUNS, Cell, Result
from bench.learning.talk import Contrary, Lane, Preceded
from openclaw_rl.evaluation.personas import create, take
from openclaw_rl.learner.judge.rules.rules import read_message
from openclaw_rl.shared.chat_client import ChatReply
from openclaw_rl.shared.records import NextState, VersionSpan
from openclaw_rl.shared.settings.settings import Settings
from tests.bench.learning.cells import cell, result
from tests.learner.things import turn


def test_a_cell_is_kept_whole_and_found_again_only_for_the_same_work_and_code(tmp_path: Path) -> None:
    cache = Cache(tmp_path, Result)
    kept = result(cell(code="one"), {0: 0.1})
    assert cache.get(kept.cell) is None
    cache.put(kept.cell, kept)
    assert cache.get(cell(code="one")) == kept
    assert cache.get(cell(code="one", arm="whole")) == kept, "another name of the same work"
    assert cache.get(cell(code="one", settings={"learning_rate": 0.5})) is None
    assert cache.get(cell(code="two")) is None, "another state of the code"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_the_code_of_a_cell_has_its_hooks() -> None:
    hooked = cell(settings={"judge": "bench.learning.judges:Wrong5", "learning_rate": 1e-3})
    assert hooked.modules == (RUNS, "bench.learning.judges") and cell().modules == (RUNS,)
    plain, wrong = cell().with_code(), hooked.with_code()
    assert plain.code != wrong.code and len(plain.code) == 12
    assert not {"bench.learning.page", "bench.learning.judges"} & code_digest.modules(cell().modules)


def test_a_search_is_measured_at_its_end_alone() -> None:
    assert cell(interactions=40).stops == [0, 8, 16, 24, 32, 40]
    assert cell(interactions=40, last_only=True).stops == [40]


async def instant(one: Cell) -> Result:
    if one.seed == 13:
        raise ValueError("unlucky")
    return result(one, {0: one.seed / 10})


def test_missing_cells_run_and_none_begins_after_the_time(tmp_path: Path) -> None:
    cache = Cache(tmp_path, Result)
    cells = [cell(seed=seed, code="one") for seed in (1, 2, 2)]
    shown: list[tuple[int, int]] = []

    def show(done: int, total: int, *_: Any) -> None:
        shown.append((done, total))

    assert run_all(cells, cache, 1, instant, show, until=time.monotonic()) == [] and shown == []
    cache.put(cells[0], result(cells[0], {0: 0.1}))
    assert [one.cell.seed for one in run_all(cells, cache, 1, instant, show)] == [1, 2, 2]
    assert shown == [(1, 1)], "equal work runs once"


async def endless(one: Cell) -> Result:
    await asyncio.sleep(3600)
    return result(one, {0: 0.0})


@pytest.mark.timeout(100)
def test_an_interrupted_run_ends_its_workers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cells_cache, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all([cell()], Cache(tmp_path, Result), 1, endless, lambda *_: None)
    assert active_children() == []


async def heard(judge: Any, text: str, number: int = 1) -> Any:
    one = turn(number, versions=[VersionSpan(0, 0, 3)])
    return await judge.judge(one, NextState(turn_id=one.turn_id, role="user", text=text))


async def test_wrong_judges_are_wrong_about_their_share() -> None:
    judge = judges.Wrong30(Settings())
    found = [await heard(judge, "thanks!", number) for number in range(300)]
    wrong = [one for one in found if one.score == -1.0]
    assert 60 < len(wrong) < 120
    assert all(one.hint for one in wrong)
    right = [await heard(judges.Wrong5(Settings()), "no bold please") for _ in range(100)]
    assert sum(one.score == 1.0 and one.hint is None for one in right) < 20


async def test_a_judge_that_misses_half_has_no_score_for_the_other_half() -> None:
    judge = judges.MissesHalf(Settings())
    found = [await heard(judge, "no bold please", number) for number in range(200)]
    missed = [one for one in found if one.score is None]
    assert 70 < len(missed) < 130 and not any(one.hint for one in missed)
    assert all(one.score == -1.0 and one.hint for one in found if one not in missed)


def test_a_changed_mind_is_understood_by_the_judge() -> None:
    contrary = Contrary(1)
    for _ in range(40):
        reading = read_message(contrary.react("It is twelve apples.").text, answer="It is twelve apples.")
        assert reading.score == -1 and reading.hint
    assert contrary.react("**Step 1:** 4 + 3 = 7").mood == "thanks"


def test_a_changed_mind_may_have_two_phrases() -> None:
    assert len({Contrary(1, 2).react("Twelve.").text for _ in range(40)}) == 1, "each is drawn from the seed"
    contrary = Contrary(1, 2)
    assert len({contrary.react("Twelve.").text for _ in range(60)}) == 2


def test_instructions_stand_before_each_question() -> None:
    student = create("student", 1)
    (task,) = take(student, "held-out", 1, 1)
    asked = Preceded(student, 3).ask(task)
    assert asked.count("\n") == 4 and asked.startswith("Answer the question") and task.text in asked
    assert Preceded(student, 3).grade(task, "") is False


class Scripted:
    """A client that answers at once."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def chat(self, messages: list[dict[str, Any]], **_: Any) -> ChatReply:
        self.asked.append(len(messages))
        return ChatReply("**Twelve.**", "stop")


@pytest.mark.parametrize(("reacts", "low", "high"), [(1.0, 200, 200), (0.2, 25, 55)])
async def test_a_lane_reads_an_answer_a_step_and_reacts_to_a_share(reacts: float, low: int, high: int) -> None:
    client, student = Scripted(), create("student", 1)
    lane = Lane(client, student, student.tasks("train", 1), "lane", reacts=reacts)  # type: ignore[arg-type]
    lane._random = Random(3)
    for _ in range(200):
        await lane.step()
    assert low <= lane.reactions <= high and lane.complaints == lane.reactions
    assert (max(client.asked) > 1) and client.asked.count(1) >= (1 if reacts == 1.0 else 145)


RUN = """
import asyncio, sys
from bench.learning.cell import Cell
from bench.learning.run import run
one = Cell(arm="rehearse", persona="student+ta", seed=1, interactions=4, lanes=4, problems=4, glances=2,
           settings={"guard": False})
found = asyncio.run(run(one.with_code()))
print(*sorted(name for name in sys.modules if name.startswith(("openclaw_rl.", "bench."))))
sys.stdout.buffer.write(__import__("msgspec").json.encode(found))
"""


@pytest.mark.real
@pytest.mark.timeout(600)
def test_a_cell_runs_for_real_and_its_code_has_every_module_that_it_loads() -> None:
    printed = subprocess.run([sys.executable, "-W", "ignore", "-c", RUN], capture_output=True, check=True).stdout
    *_, loaded, encoded = printed.splitlines()
    assert set(loaded.decode().split()) <= code_digest.modules((RUNS,))
    found = msgspec.json.decode(encoded, type=Result)
    for curve in found.curves.values():
        assert [point.interactions for point in curve] == [0, 4]
        assert (curve[0].version, curve[0].kl, curve[0].count) == (0, 0.0, 4)
    assert curve[1].version >= 1 and curve[1].kl, "measured, by few samples"
    assert found.versions_made == curve[1].version
    assert found.complaints >= 1 and found.reactions == 8 and found.late == 0
    assert found.cell.code and found.commit
