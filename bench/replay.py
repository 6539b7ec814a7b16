"""Send recorded OpenClaw requests to a service and show how it classifies each.

    python -m bench.replay DIR [--strip-headers] [--url URL --key KEY] [--json]

Each JSON file in DIR holds `path`, `headers` and `body`. The files are sent in order of their names to one service, so
that sessions build up as recorded; only the key is replaced. `--strip-headers` omits all headers that start with `x-`.
The effect of control requests (`/v1/rl/…`) is checked: the end of a session closes its open episode, and feedback
applies to the session's last main turn, even after its end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx

from bench.program import log, parser, report, run, service
from openclaw_rl.evaluation.service import RunningService
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError

TRANSPORT_HEADERS = frozenset(
    {"host", "connection", "authorization", "content-length", "transfer-encoding", "accept-encoding"}
)
ANSWER_TIMEOUT = 600.0


class ReplayFailed(OpenClawRLError):
    """A recorded request was refused, or a control request had the wrong effect."""


@dataclass(frozen=True)
class Recording:
    """One recorded request."""

    file: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def is_control(self) -> bool:
        """True for a control route."""
        return self.path.removeprefix("/v1").startswith("/rl/")


@dataclass(frozen=True)
class Taken:
    """The classification of a request; `turn` is empty for control requests."""

    file: str
    kind: str
    reason: str
    session: str
    turn: str = ""


def load(folder: Path) -> list[Recording]:
    """Read a folder's recordings in order of their names. Raises `ConfigError` if one is invalid or there are none."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; give the folder with the recorded requests")
    recordings = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            recordings.append(Recording(path.name, content["path"], dict(content["headers"]), content["body"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} is no recorded request (path, headers, body): {error!r}") from error
    if not recordings:
        raise ConfigError(f"{folder} holds no *.json file")
    return recordings


def headers_for(recording: Recording, key: str, *, strip: bool) -> dict[str, str]:
    """The recorded headers with our key, without those of the recorded connection and, on request, all `x-` headers."""
    kept = {
        name: value
        for name, value in recording.headers.items()
        if name.lower() not in TRANSPORT_HEADERS and not (strip and name.lower().startswith("x-"))
    }
    return {**kept, "authorization": f"Bearer {key}"}


async def chat(http: httpx.AsyncClient, recording: Recording, headers: Mapping[str, str]) -> Taken:
    """Send a recorded chat request and read its whole answer."""
    async with http.stream("POST", recording.path, json=recording.body, headers=dict(headers)) as response:
        text = (await response.aread()).decode()
        if response.status_code != 200:
            raise ReplayFailed(f"{recording.file} was answered with {response.status_code}: {text[:500]}")
        if recording.body.get("stream") and not text.rstrip().endswith("data: [DONE]"):
            raise ReplayFailed(f"{recording.file}: the stream was cut: …{text[-300:]}")
        return Taken(
            file=recording.file,
            kind=response.headers["x-openclaw-rl-kind"],
            reason=response.headers.get("x-openclaw-rl-reason", ""),
            session=unquote(response.headers["x-openclaw-rl-session"]),
            turn=response.headers.get("x-openclaw-rl-turn", ""),
        )


async def control(
    http: httpx.AsyncClient, recording: Recording, headers: Mapping[str, str], before: list[Taken]
) -> Taken:
    """Send a control request and check its effect on the requests `before` it."""
    response = await http.post(recording.path, json=recording.body, headers=dict(headers))
    if response.status_code != 200:
        raise ReplayFailed(f"{recording.file} was answered with {response.status_code}: {response.text[:500]}")
    session = recording.body["session_id"]
    answer = response.json()
    if recording.path.endswith("/feedback"):
        target = next((taken for taken in before if taken.turn == answer["turn_id"]), None)
        main_turns = [taken for taken in before if taken.session == session and taken.kind == "main"]
        if main_turns and target != main_turns[-1]:
            landed = "an unknown turn" if target is None else target.file
            wanted = f"the last main turn {main_turns[-1].file}"
            raise ReplayFailed(f"{recording.file}: feedback applied to {landed}, not on {wanted}")
        effect = f"feedback {answer['score']:+g} on {target.file if target else answer['turn_id']}"
    elif recording.path.endswith("/session-done"):
        status = await http.get(f"/rl/sessions/{session}", headers={"authorization": headers["authorization"]})
        if status.status_code != 200:
            raise ReplayFailed(f"{recording.file}: its session is unknown: {status.text[:300]}")
        ended = f"episode {answer['episode']} ended" if answer.get("ended") else "no episode was open"
        effect = f"session-done: {ended}"
    else:
        effect = recording.path
    return Taken(recording.file, "control", effect, session)


async def replay(target: RunningService, recordings: list[Recording], *, strip: bool) -> list[Taken]:
    """Send all recordings in order."""
    taken: list[Taken] = []
    async with httpx.AsyncClient(
        base_url=target.url, timeout=httpx.Timeout(ANSWER_TIMEOUT, connect=10.0), trust_env=False
    ) as http:
        for recording in recordings:
            log.print(f"{recording.file} …")
            headers = headers_for(recording, target.key, strip=strip)
            if recording.is_control:
                taken.append(await control(http, recording, headers, taken))
            else:
                taken.append(await chat(http, recording, headers))
    return taken


async def measure(options: argparse.Namespace) -> None:
    """Replay and report the recordings."""
    recordings = load(options.folder)
    async with service(options, only=("engine", "proxy")) as target:
        taken = await replay(target, recordings, strip=options.strip_headers)
    result = [{"file": one.file, "kind": one.kind, "reason": one.reason, "session": one.session} for one in taken]
    title = "Recorded requests" + (", without x- headers" if options.strip_headers else "")
    report(options, title, list(result[0]), [list(row.values()) for row in result], result)


def main() -> int:
    options = parser(__doc__, needs_service=True)
    options.add_argument("folder", type=Path, metavar="DIR", help="folder with the recorded requests (JSON)")
    options.add_argument("--strip-headers", action="store_true", help="omit every header that starts with x-")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
