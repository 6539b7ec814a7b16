"""A day of the real OpenClaw on a service that learns, with our extension and without anything of ours: what the
journal says of it is compared with what was typed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.journal import Journal
from shared.records import Turn
from shared.settings import EMBEDDED_POLICY, Settings, to_environment
from tests.clients.engine_log import run_logged_engine
from tests.processes import KEY, ROOT, claim_port, run_engine
from tests.real import openclaw_day
from tests.real.openclaw_day import ANNOUNCED, SIDE, SUMMARY, Day, Line, heard
from tests.rigs.openclaw import OpenClaw
from tests.rigs.programs import output_of, running

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

EXTENSION = ROOT / "openclaw-extension"
VERSIONS = 2
START_SECONDS = 120.0
FORCED = "the engine was told what to answer and sampled nothing"


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
            data=folder / "data",
            max_output_tokens=64,
            batch_size=2,
            rehearsals=2,
            anchors=2,
        )
        url, service_log = f"http://127.0.0.1:{settings.port}", folder / "service.log"
        command = [sys.executable, "-m", "cli.main"]
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
            flags = ["--file", str(openclaw.configuration), "--data", str(settings.data), "--yes"]
            flags += [] if extension else ["--no-extension"]
            output_of([*command, "connect", "openclaw", *flags], ROOT, variables, START_SECONDS)
            if extension:
                packed = _packed(folder)
                openclaw.run("plugins", "install", f"npm-pack:{packed}", "--force", "--accept-capabilities")
            journal = Journal.open(settings.journal_path)
            lived = Day(openclaw, log, journal, extension=extension)
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


def _conversations(day: Day) -> dict[str, list[tuple[Line, list[Turn]]]]:
    """By the key of the conversation: what was typed, with the turns that came of it, in order."""
    found: dict[str, list[tuple[Line, list[Turn]]]] = {}
    turns = [turn for turn in day.turns() if turn.tools]
    for line in day.lines:
        own = [turn for turn in turns if heard(turn) == line.words and turn.kind == "main"]
        found.setdefault(line.key, []).append((line, own))
    return found


def _expected_kind(day: Day, turn: Turn) -> str:
    """What a turn is, by what was typed and what OpenClaw writes for its own runs."""
    words = heard(turn)
    if not turn.tools or any(words.startswith(beginning) for beginning in SIDE.values()):
        return "side"
    assert words.startswith(ANNOUNCED) or words in {line.words for line in day.lines}, words
    return "main"


def test_every_turn_is_main_or_side_as_it_should_be(day: Day) -> None:
    assert [(heard(turn)[:60], turn.kind) for turn in day.turns()] == [
        (heard(turn)[:60], _expected_kind(day, turn)) for turn in day.turns()
    ]
    for what in (SIDE["heartbeat"], SIDE["cron"], SIDE["subagent"], SUMMARY, "Generate a concise session title"):
        assert {turn.kind for turn in day.told(what)} == {"side"}, what


def test_no_chat_failed_while_versions_were_published(day: Day) -> None:
    turns = day.turns()
    assert {(turn.status, turn.error) for turn in turns} == {("complete", "")}
    assert day.published() >= VERSIONS
    assert len({span.version for turn in turns for span in turn.versions}) >= VERSIONS


def test_what_was_forced_is_recorded_so_and_never_trained_on(day: Day) -> None:
    turns = {turn.turn_id: turn for turn in day.turns()}
    forced = {name for name, turn in turns.items() if turn.untrainable}
    assert {turns[name].untrainable for name in forced} == {FORCED}
    assert len(forced) == 4  # read, exec, sessions_spawn, the summary
    trained = [
        (turn, known)
        for name, turn in turns.items()
        if (known := day.journal.explain(name)) is not None and known["versions"]
    ]
    assert len(trained) >= VERSIONS
    assert not forced & {turn.turn_id for turn, _ in trained}
    assert {turn.kind for turn, _ in trained} == {"main"}
