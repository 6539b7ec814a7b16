"""Imported sessions in a journal: how each turn is held, and what may be learned from it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.trajectories.imported import Added, Importer
from openclaw_rl.cli.trajectories.trajectory import FileSession, TrajectoryError, lossless, sessions_in
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import VersionSpan
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.redaction.redactor import Redactor
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.processes import Engine as Process

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
async def engine(engine_server: Process) -> AsyncIterator[Engine]:
    client = create_engine(Settings(engine_url=engine_server.url))
    yield client
    await client.close()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[AsyncJournal]:
    opened = AsyncJournal(tmp_path / "journal.db")
    yield opened
    await opened.close()


@pytest.fixture
def importer(journal: AsyncJournal, engine: Engine, policy_folder: Path) -> Importer:
    return Importer(journal, engine, Prompter(policy_folder), policy="policy", context=4096)


def session(tmp_path: Path, *turns: dict[str, Any], name: str = "s1") -> FileSession:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"session_id": name, "turns": turns}))
    (found,) = sessions_in(path)
    return found


async def added(importer: Importer, given: FileSession) -> Added:
    found = await importer.add(given)
    assert found is not None
    return found


async def test_a_turn_is_scored_and_settled_and_waits_for_a_judge(
    tmp_path: Path, importer: Importer, journal: AsyncJournal, engine: Engine
) -> None:
    given = session(tmp_path, {"prompt": "How much is 2 and 2?", "response": "**4**", "next_state": "No bold!"})
    imported = await added(importer, given)
    assert (imported.turns, imported.trainable, dict(imported.left_out)) == (1, 1, {})
    (turn,) = await journal.unjudged(9)
    assert (turn.session_id, turn.dialect, turn.kind, turn.untrainable) == (given.name, "import", "main", "")
    assert turn.messages == [{"role": "user", "content": "How much is 2 and 2?"}]
    assert turn.answer == {"role": "assistant", "content": "**4**"}
    assert turn.sampling.imported
    scores = await engine.score(list(turn.prompt_ids), list(turn.response_ids), version=0)
    assert list(turn.logprobs) == pytest.approx(list(scores.logprobs), abs=1e-4)
    assert turn.versions == (VersionSpan(0, 0, len(turn.response_ids)),)
    came = await journal.next_state(turn.turn_id)
    assert came is not None
    assert (came.role, came.text, came.source) == ("user", "No bold!", "import")
    row = await journal.session(given.name)
    assert row is not None
    assert (row.source, row.episodes[0].reason) == ("import", "imported")


async def test_importing_again_adds_nothing(tmp_path: Path, importer: Importer, journal: AsyncJournal) -> None:
    given = session(tmp_path, {"prompt": "Hi", "response": "Hello."})
    await added(importer, given)
    assert await importer.add(given) is None
    assert await importer.add(session(tmp_path, name="empty")) is None
    other = session(tmp_path, {"prompt": "Hi", "response": "Hello there."})
    await added(importer, other)
    assert (await journal.status())["turns"]["total"] == 2


async def test_a_history_continues_from_the_turn_before_it(
    tmp_path: Path, importer: Importer, journal: AsyncJournal
) -> None:
    first = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    second = [*first, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Again"}]
    other = [*first, {"role": "assistant", "content": "Something else."}, {"role": "user", "content": "Again"}]
    given = session(
        tmp_path,
        {"prompt": first, "response": "Hello."},
        {"prompt": second, "response": {"role": "assistant", "content": "Hello again."}},
        {"prompt": other, "response": "Well."},
    )
    await added(importer, given)
    ids = await journal.turn_ids(given.name)
    turns = [await journal.turn(turn_id) for turn_id in ids]
    assert [turn and turn.parent_turn_id for turn in turns] == [None, ids[0], None]


async def test_an_untrainable_turn_is_kept_with_its_reason(
    tmp_path: Path, importer: Importer, journal: AsyncJournal
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    given = session(
        tmp_path,
        {"prompt": "Hi", "response": "Hello.", "next_state": "Shorter", "trainable": False, "reason": "a test"},
        {"type": "side", "prompt": "A title for this?", "response": "Greetings", "next_state": "no"},
        {"prompt": "Think", "response": "<think>\nhm\n</think>\n\nHello.", "next_state": "no"},
        {"prompt": "Look", "response": {"content": None, "tool_calls": [call]}, "next_state": "no"},
        {"prompt": "Hello " * 5000, "response": "Hello.", "next_state": "no"},
    )
    imported = await added(importer, given)
    assert (imported.turns, imported.trainable) == (5, 0)
    reasons = sorted(imported.left_out)
    assert len(reasons) == 4
    for part in ("not to be trained on: a test", "holds reasoning", "calls tools", "context of 4096 tokens"):
        assert any(part in reason for reason in reasons)
    assert await journal.unjudged(9) == []
    row = await journal.session(given.name)
    assert row is not None
    assert [turn.state for turn in row.turns] == ["quarantined", "", "quarantined", "quarantined", "quarantined"]
    assert (row.main, row.side) == (4, 1)


async def test_the_lossless_form_keeps_calls_feedback_and_roles(
    tmp_path: Path, importer: Importer, journal: AsyncJournal
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"often": 2}'}}
    asked = {"role": "user", "content": "Look."}
    given = session(
        tmp_path,
        {
            "prompt": "for reading",
            "response": "for reading",
            "messages": [asked],
            "tools": [LOOK],
            "answer": {"role": "assistant", "content": "", "tool_calls": [call]},
            "next_state": "nothing there",
            "next_role": "tool",
            "feedback": [{"score": -1.0, "text": "Look twice."}],
        },
    )
    imported = await added(importer, given)
    assert imported.trainable == 1
    (turn,) = await journal.unjudged(9)
    came = await journal.next_state(turn.turn_id)
    assert came is not None and came.role == "tool"
    said = await journal.feedback_for(turn.turn_id)
    assert [(one.score, one.text, one.source) for one in said] == [(-1.0, "Look twice.", "import")]
    assert turn.answer["tool_calls"] == [{"id": "c", "name": "look", "arguments": {"often": 2}}]
    again = session(tmp_path, json.loads(json.dumps(lossless(turn, came, said, None))), name="again")
    await added(importer, again)
    (turn_id,) = await journal.turn_ids(again.name)
    copy = await journal.turn(turn_id)
    assert copy is not None
    assert (copy.messages, copy.tools, copy.answer) == (turn.messages, turn.tools, turn.answer)
    assert (copy.prompt_ids, copy.response_ids) == (turn.prompt_ids, turn.response_ids)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ({"prompt": " ", "response": "x"}, "prompt is missing or empty"),
        ({"prompt": "x"}, "response is missing"),
        ({"prompt": [{"role": "king", "content": "x"}], "response": "x"}, "messages[0].role is 'king'"),
        ({"prompt": [], "response": "x"}, "messages is empty"),
        ({"prompt": "x", "response": {"role": "user", "content": "x"}}, "message of role 'user'"),
        ({"prompt": "x", "response": "x", "feedback": [{"score": 3}]}, "feedback has score 3"),
    ],
)
async def test_a_fault_names_the_turn(tmp_path: Path, importer: Importer, turn: dict[str, Any], message: str) -> None:
    given = session(tmp_path, {"prompt": "Hi", "response": "Hello."}, turn)
    with pytest.raises(TrajectoryError) as caught:
        importer.read(given)
    assert "file.json, turn 1: " in str(caught.value)
    assert message in str(caught.value)


async def test_nothing_is_stored_where_the_engine_fails(
    tmp_path: Path, journal: AsyncJournal, policy_folder: Path
) -> None:
    absent = SglangEngine("http://127.0.0.1:9", patience=0.1)
    importer = Importer(journal, absent, Prompter(policy_folder), policy="policy", context=4096)
    with pytest.raises(EngineError):
        await importer.add(session(tmp_path, {"prompt": "Hi", "response": "Hello."}))
    await absent.close()
    assert (await journal.status())["sessions"] == 0


async def test_a_redacted_answer_is_scored_and_kept_as_it_left(
    tmp_path: Path, journal: AsyncJournal, engine: Engine, policy_folder: Path
) -> None:
    pytest.importorskip("detect_secrets")
    key = f"ghp_{'a1B2' * 9}"
    prompter = Prompter(policy_folder, outgoing=Outgoing(Redactor(personal=False)))
    careful = Importer(journal, engine, prompter, policy="policy", context=4096)
    given = session(tmp_path, {"prompt": f"Log in with {key}", "response": f"Used {key}.", "next_state": "Fine"})
    assert (await added(careful, given)).trainable == 1
    (turn,) = await journal.unjudged(9)
    assert turn.answer == {"role": "assistant", "content": f"Used {key}."}
    assert "Log in with [SECRET]" in prompter.decode(list(turn.prompt_ids))
    assert prompter.decode(list(turn.response_ids)).startswith("Used [SECRET].")
