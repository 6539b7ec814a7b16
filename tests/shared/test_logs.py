"""Log lines in both formats, and the ids by which those of one turn are joined."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.logs import JsonLines, PlainLines, readable, set_log_ids
from openclaw_rl.shared.records import Judgement, Quarantine
from tests.shared.journal_records import make_turn

TURN, OTHER = "turn_" + "a" * 32, "turn_" + "b" * 32
SESSION = "session_" + "c" * 32


def record(text: str, *values: Any, failed: bool = False) -> logging.LogRecord:
    try:
        raise ValueError("no \ud83d")
    except ValueError:
        information = sys.exc_info() if failed else None
    return logging.LogRecord("learner", logging.ERROR, "x.py", 1, text, values, information)


def fields(line: str) -> dict[str, Any]:
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line)
    return read


def test_a_json_line_names_what_it_is_about() -> None:
    form = JsonLines("learner")
    line = fields(form.format(record("version %d rejected: %s in %s\nand so on", 7, TURN, SESSION)))
    assert {name: line[name] for name in ("process", "logger", "level", "turn", "session", "version")} == {
        "process": "learner", "logger": "learner", "level": "ERROR", "turn": TURN, "session": SESSION, "version": 7,
    }  # fmt: skip
    assert line["message"].endswith("\nand so on") and line["time"].endswith("+00:00")
    bare = fields(form.format(record("half an emoji \ud83d", failed=True)))
    assert not {"turn", "session", "version"} & bare.keys()
    assert "ValueError: no ?" in bare["exception"]


async def test_lines_of_a_request_are_about_its_turn_and_those_of_others_are_not() -> None:
    async def request(turn: str) -> list[str]:
        set_log_ids(turn=turn, session="main")
        await asyncio.sleep(0)
        inner = asyncio.create_task(asyncio.to_thread(JsonLines("proxy").format, record("the connection broke")))
        return [await inner, JsonLines("proxy").format(record(f"{OTHER} is late"))]

    (one, named), (two, _) = await asyncio.gather(request(TURN), request(OTHER))
    assert (fields(one)["turn"], fields(two)["turn"]) == (TURN, OTHER) and fields(one)["session"] == "main"
    assert fields(named)["turn"] == OTHER
    assert "turn" not in fields(JsonLines("proxy").format(record("idle")))


async def test_a_plain_line_keeps_its_look_and_names_its_turn() -> None:
    form = PlainLines("%(levelname)s %(name)s: %(message)s")
    assert form.format(record("idle")) == "ERROR learner: idle"
    set_log_ids(turn=TURN)
    assert form.format(record("answered %d", 502)) == f"ERROR learner: answered 502 [{TURN}]"
    assert form.format(record("%s is late", OTHER)) == f"ERROR learner: {OTHER} is late"


@pytest.mark.parametrize("line", ["plain", "{", '{"time": 1}', '{"time":[', '{"time":"","level":"INFO"}'])
def test_a_person_reads_a_json_line_as_a_plain_one(line: str) -> None:
    assert readable(line) == line
    assert readable(JsonLines("proxy").format(record("it %s", "broke"))) == "ERROR learner: it broke"


async def test_the_learners_writes_are_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    journal, turn = AsyncJournal(tmp_path / "journal.db", linger=0), make_turn()
    await journal.record_turn(turn)
    await journal.add_judgement(Judgement(turn_id=turn.turn_id, score=-1.0, judge="rules"))
    await journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason="too long"))
    await journal.close()
    assert [one.getMessage() for one in caplog.records] == [
        f"{turn.turn_id} is judged -1.0 by rules",
        f"{turn.turn_id} is set aside: too long",
    ]


def test_a_process_and_its_children_write_in_the_chosen_format() -> None:
    program = (
        "import logging, subprocess, sys\n"
        "from openclaw_rl.shared.logs import PLAIN, configure_logs\n"
        "configure_logs('engine', 'info', form=sys.argv[1], plain=PLAIN)\n"
        "logging.getLogger('x').info('up')\n"
        "if sys.argv[1]: subprocess.run([sys.executable, '-c', sys.argv[2], '', ''], check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "json", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert [fields(line)["message"] for line in done.stderr.splitlines()] == ["up", "up"]
