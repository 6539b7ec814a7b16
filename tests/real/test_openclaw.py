"""A day of the real OpenClaw on a service that learns, with our extension and without anything of ours: what the
journal says of it is compared with what was typed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Turn
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings, to_environment
from tests.clients.engine_log import run_logged_engine
from tests.processes import KEY, ROOT, claim_port, run_engine
from tests.real import openclaw_day
from tests.real.openclaw_day import ADMIN_KEY, ANNOUNCED, SIDE, SUMMARY, Day, heard
from tests.rigs.openclaw import OpenClaw
from tests.rigs.programs import output_of, running

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

EXTENSION = ROOT / "openclaw-extension"
VERSIONS = 2
START_SECONDS = 120.0
FAILED = re.compile(r"run failed|failover|isError=true|HTTP [45]\d\d", re.IGNORECASE)
"""How OpenClaw's log tells of a chat that failed, or was tried again."""
FORCED = "the engine was given the answer and sampled nothing"


@pytest.fixture(scope="module", params=["extension", "nothing of ours"])
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """A day that is over: OpenClaw has been shut down, the service still runs."""
    folder = tmp_path_factory.mktemp("day")
    openclaw = OpenClaw(folder / "home")
    with run_engine(EMBEDDED_POLICY, folder) as engine, run_logged_engine(engine) as (logged, log):
        log.owns_up = True
        settings = Settings(
            engine_url=logged.url,
            port=claim_port("127.0.0.1", 0, setting="port"),
            api_key=KEY,
            admin_key=ADMIN_KEY,
            data=folder / "data",
            max_output_tokens=64,
            batch_size=2,
            epochs=2,
            rehearsals=1,
            anchors=1,
        )
        url, service_log = f"http://127.0.0.1:{settings.serve.port}", folder / "service.log"
        command = [sys.executable, "-m", "openclaw_rl.cli.main"]
        variables = dict(os.environ) | to_environment(settings)
        ready = f"{url}/readyz"
        with running([*command, "serve"], ROOT, variables, service_log, ready=ready, seconds=START_SECONDS):
            openclaw.configure(
                {
                    "agents": {"defaults": {"workspace": str(openclaw.workspace)}},
                    "tools": {"exec": {"mode": "full"}},
                    "gateway": openclaw.gateway,
                }
            )
            extension = request.param == "extension"
            flags = ["--config", str(openclaw.configuration), "--data", str(settings.serve.data), "--yes"]
            flags += [] if extension else ["--no-extension"]
            output_of([*command, "connect", "openclaw", *flags], ROOT, variables, START_SECONDS)
            if extension:
                packed = _packed(folder)
                openclaw.run("plugins", "install", f"npm-pack:{packed}", "--force", "--accept-capabilities")
            journal = Journal(settings.serve.journal_path)
            lived = Day(openclaw, url, log, journal, extension=extension)
            try:
                with openclaw.running() as gateway:
                    openclaw_day.live(lived, versions=VERSIONS)
                    gateway.terminate()
                    gateway.wait(60.0)
                yield lived
            finally:
                journal.close()


def _packed(folder: Path) -> Path:
    """The extension as npm packs it."""
    npm = shutil.which("npm")
    if npm is None or not (EXTENSION / "node_modules").is_dir():
        pytest.skip("the extension cannot be packed: `make extension` sets it up")
    output_of([npm, "pack", "--pack-destination", str(folder)], EXTENSION, dict(os.environ), 120.0)
    (packed,) = folder.glob("openclaw-rl-*.tgz")
    return packed


def _episodes(day: Day) -> list[list[Turn]]:
    """The main turns of every stretch of conversation, in order."""
    typed = {line.words: line.episode for line in day.lines}
    found: dict[tuple[str, int], list[Turn]] = {}
    episode: dict[str, int] = {}
    for turn in day.turns():
        if turn.kind == "main":  # in the middle of a stretch there may be words that no one typed
            name = turn.session_id
            episode[name] = typed.get(heard(turn), episode.get(name, 0))
            found.setdefault((name, episode[name]), []).append(turn)
    return list(found.values())


def _expected_kind(day: Day, turn: Turn) -> str:
    """The kind of a turn, by the typed words and the text that OpenClaw writes for its own runs."""
    words = heard(turn)
    if not turn.tools or any(words.startswith(beginning) for beginning in SIDE.values()):
        return "side"
    if words.startswith(ANNOUNCED):
        return "main"
    (line,) = [line for line in day.lines if line.words == words]
    return "main" if line.thumb is None else "side"


def test_every_turn_is_main_or_side_as_it_should_be(day: Day) -> None:
    assert [(heard(turn)[:60], turn.kind) for turn in day.turns()] == [
        (heard(turn)[:60], _expected_kind(day, turn)) for turn in day.turns()
    ]
    for what in (SIDE["heartbeat"], SIDE["cron"], SIDE["subagent"], SUMMARY, "Generate a concise session title"):
        assert {turn.kind for turn in day.turns_beginning(what)} == {"side"}, what


def test_no_chat_failed_while_versions_were_published(day: Day) -> None:
    turns = day.turns()
    assert {(turn.status, turn.error) for turn in turns} == {("complete", "")}
    assert day.published() >= VERSIONS
    served = max(version.number for version in day.journal.versions() if version.state in ("live", "retired"))
    (last,) = [turn for turn in turns if heard(turn) == "One more thing." and turn.kind == "main"]
    assert {span.version for span in last.versions} == {served}
    assert {turn.versions[0].version for turn in turns if turn.versions} >= {0, served}
    assert list(day.statuses()) == ["200"]
    assert not [line for line in day.openclaw.log.read_text().splitlines() if FAILED.search(line)]


def test_every_conversation_is_one_session_of_its_own(day: Day) -> None:
    sessions = {
        key: {turn.session_id for turn in day.turns() if turn.tools and heard(turn) in words}
        for key in {line.key for line in day.lines}
        for words in [{line.words for line in day.lines if line.key == key}]
    }
    assert all(len(named) == 1 for named in sessions.values()), sessions
    assert len(set.union(*sessions.values())) == len(sessions)


def test_a_forced_answer_is_recorded_so_and_never_trained_on(day: Day) -> None:
    turns = {turn.turn_id: turn for turn in day.turns()}
    forced = {name for name, turn in turns.items() if turn.untrainable}
    assert {turns[name].untrainable for name in forced} == {FORCED}
    called = [call["name"] for name in forced for call in turns[name].answer.get("tool_calls", ())]
    assert sorted(called) == ["exec", "read", "tool_call"]
    assert len(forced) > len(called)  # and summaries
    trained = [
        (turn, known)
        for name, turn in turns.items()
        if (known := day.journal.explain(name)) is not None and known["versions"]
    ]
    assert len(trained) >= VERSIONS
    assert not forced & {turn.turn_id for turn, _ in trained}
    assert {turn.kind for turn, _ in trained} == {"main"}


def test_every_turn_continues_the_one_before_it(day: Day) -> None:
    for turns in _episodes(day):
        assert turns[0].parent_turn_id is None, turns[0].parent_reason
        for before, turn in pairwise(turns):
            assert turn.parent_turn_id == before.turn_id, (heard(turn), turn.parent_reason)


def test_the_next_state_is_the_next_message(day: Day) -> None:
    for turns in _episodes(day):
        for turn, after in pairwise([*turns, None]):
            assert turn is not None
            state = day.journal.next_state(turn.turn_id)
            recorded = (state.role, state.text) if state is not None else None
            if turn.answer.get("tool_calls"):
                assert recorded is not None and recorded[0] == "tool"
            elif after is None or heard(after).startswith(ANNOUNCED):
                assert recorded is None, (heard(turn), recorded)
            else:
                assert recorded == ("user", heard(after))
    by_tool = {call["name"]: turn for turn in day.turns() for call in turn.answer.get("tool_calls", ())}
    for name, result in (("read", "5 apples"), ("exec", "hello from exec")):
        state = day.journal.next_state(by_tool[name].turn_id)
        assert state is not None and state.text.strip() == result


def test_a_thumb_is_about_the_last_answer_before_it(day: Day) -> None:
    expected: dict[str, list[tuple[float, str]]] = {}
    answered: dict[str, Turn] = {}
    turns = [turn for turn in day.turns() if turn.kind == "main" and not turn.answer.get("tool_calls")]
    for line in day.lines:
        if line.thumb is None:
            (answered[line.key],) = [turn for turn in turns if heard(turn) == line.words]
        else:
            said = expected.setdefault(answered[line.key].turn_id, [])
            said.append((line.thumb, line.words.partition(" ")[2]))
    found = {turn.turn_id: day.journal.feedback_for(turn.turn_id) for turn in day.turns()}
    assert {name: [(one.score, one.text) for one in said] for name, said in found.items() if said} == expected
    source = "extension" if day.extension else "command"
    assert {one.source for said in found.values() for one in said} == {source}


def test_the_last_word_of_a_thumb_counts(day: Day) -> None:
    (turn,) = [turn for turn in day.turns() if heard(turn) == "Say it again." and turn.kind == "main"]
    known = day.journal.explain(turn.turn_id)
    assert known is not None
    judgement = known["judgements"][-1]
    assert (judgement["score"], judgement["signal"]) == (-1.0, "feedback")


def test_conversations_end_when_openclaw_says_so(day: Day) -> None:
    if not day.extension:
        pytest.skip("without the extension OpenClaw does not say so")
    (anna,) = {turn.session_id for turn in day.turns() if heard(turn) == "And how many pears?"}
    session = day.journal.session(anna)
    assert session is not None
    assert [episode.reason for episode in session.episodes] == ["reset", "shutdown"]
    named = {turn.session_id for turn in day.turns() if turn.kind == "main"}
    rows = [day.journal.session(name) for name in named]
    assert all(row is not None and row.episodes[-1].reason == "shutdown" for row in rows)
