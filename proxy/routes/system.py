"""The routes of an operator: settings, checks, what leaves this machine, logs, data, evaluations."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from openclaw_rl.proxy.http.json import json_response, read_fields
from openclaw_rl.proxy.routes.caller import require_admin, seen_session, service_of
from openclaw_rl.proxy.routes.status import readiness, status_report
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.errors import Conflict, NotFound
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.redaction.redactor import EXTRA, Redactor
from openclaw_rl.shared.settings.aliases import SECRETS
from openclaw_rl.shared.settings.settings import SETTINGS, Settings, shown

LOG_BYTES = 1 << 20
"""Bytes of the end of a log that are looked at."""

_FREE_BYTES = 1 << 30
_PAGE = 50
_UNKNOWN_FLOWS = "not known here: this proxy was started alone (openclaw-rl doctor lists it)"


class _LogQuery(msgspec.Struct):
    process: Annotated[str, Meta(max_length=64)] = "proxy"
    limit: Annotated[int, Meta(ge=1, le=5000)] = 200


async def settings(request: Request) -> Response:
    """Every setting with its meaning, whether the service is well, and what leaves this machine."""
    require_admin(request)
    service = service_of(request)
    supervisor = (await service.journal.processes()).get("supervisor")
    flows = None if supervisor is None else supervisor.status.get("leaves_machine")
    return json_response(
        {
            "settings": await asyncio.to_thread(lambda: list(described_settings(service.settings))),
            "checks": await _checks(service),
            "leaves_machine": [_UNKNOWN_FLOWS] if flows is None else flows,
        }
    )


def described_settings(settings: Settings) -> Iterator[dict[str, Any]]:
    """Each setting: its value as a person may see it, whether that is the default, and its meaning."""
    usual = Settings()
    for name, setting in SETTINGS.items():
        yield {
            "name": name,
            "value": shown(settings, name),
            "source": "default" if settings.value(name) == usual.value(name) else "set",
            "meaning": setting.field.description or "",
            "secret": name in SECRETS,
        }


async def _checks(service: ProxyService) -> list[dict[str, Any]]:
    ready, report = readiness(service), await status_report(service)
    learner = report["processes"].get("learner")
    free = await asyncio.to_thread(lambda: shutil.disk_usage(service.settings.serve.data).free)
    lost = report["accounting"]["lost"]
    found = [
        ("engine", ready["engine"] == "ok", ready["engine"]),
        ("journal", ready["journal"] == "ok", ready["journal"]),
        ("learner", bool(learner and learner["alive"]), report["why_untrained"] or report["waiting_for"]),
        ("recording", not report["unrecorded"]["turns"], f"{report['unrecorded']['turns']} answers not recorded"),
        ("turns", not lost, f"{lost} settled turns are in no place"),
        ("disk", free >= _FREE_BYTES, f"{free / 1e9:.1f} GB free"),
    ]
    return [{"name": name, "ok": ok, "detail": detail} for name, ok, detail in found]


async def logs(request: Request) -> Response:
    """The last lines of a process's log; `processes` are those that have one."""
    require_admin(request)
    query = read_fields(request.query_params, _LogQuery, strict=False)
    folder = service_of(request).settings.serve.data / "logs"
    names = await asyncio.to_thread(lambda: sorted(path.stem for path in folder.glob("*.log")))
    if names and query.process not in names:
        raise NotFound(f"There is no log of {query.process!r}; there are {', '.join(names)}.", code="log_not_found")
    lines = await asyncio.to_thread(last_lines, folder / f"{query.process}.log", query.limit) if names else []
    return json_response({"lines": lines, "processes": names})


def last_lines(path: Path, limit: int) -> list[str]:
    """The last lines of a file, of its last `LOG_BYTES`."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = text.splitlines()
    return lines[1:][-limit:] if size > LOG_BYTES else lines[-limit:]


async def data(request: Request) -> Response:
    """The parts of the data folder in bytes, and the journal in numbers."""
    require_admin(request)
    service = service_of(request)
    parts = await asyncio.to_thread(folder_parts, service.settings.serve.data)
    counts = await service.journal.status()
    names = ("turns", "sessions", "feedback", "judgements", "versions")
    return json_response(
        {
            "bytes": sum(parts.values()),
            "parts": parts,
            "counts": {name: counts[name] for name in names},
            "oldest": await service.journal.oldest(),
            "keep_days": service.settings.serve.keep_days,
        }
    )


def folder_parts(folder: Path) -> dict[str, int]:
    """The bytes of each part of a data folder; a journal with its log is one part."""
    parts: dict[str, int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            part = path.relative_to(folder).parts[0]
            part = "journal" if part.startswith("journal.db") else part
            try:
                parts[part] = parts.get(part, 0) + path.lstat().st_size
            except OSError:  # it went away meanwhile
                continue
    return parts


async def evals(request: Request) -> Response:
    """The results of `openclaw-rl eval` against this service, the newest first."""
    require_admin(request)
    found = await asyncio.to_thread(evaluations, service_of(request).settings.serve.data / "evals")
    return json_response({"total": len(found), "next": None, "items": found})


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """The results that are kept in a folder, the newest first."""
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    read = ((path, read_json(path)) for path in paths)
    return [{"id": path.stem, "time": path.stat().st_mtime, **result} for path, result in read if result is not None]


async def export(request: Request) -> Response:
    """A session's transcript as JSON lines, without what has the form of a secret or of personal data."""
    session_id = await seen_session(request)
    redactor = Redactor.if_installed()
    if redactor is None:
        raise Conflict(
            f"Nothing is exported unredacted here, and redaction is not installed: {install_command(EXTRA)}. "
            "openclaw-rl export --no-redact writes a file as it is.",
            code="not_redacted",
        )
    return StreamingResponse(_exported(service_of(request), session_id, redactor), media_type="application/jsonl")


async def _exported(service: ProxyService, session_id: str, redactor: Redactor) -> AsyncIterator[bytes]:
    after: int | None = 0
    while after is not None:
        page = await service.journal.transcript(session_id, _PAGE, after)
        for item in page["items"] if page is not None else ():
            yield msgspec.json.encode(await asyncio.to_thread(redactor.value, item)) + b"\n"
        after = int(page["next"]) if page is not None and page["next"] is not None else None


ROUTES: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("/settings", "GET", settings),
    ("/logs", "GET", logs),
    ("/data", "GET", data),
    ("/evals", "GET", evals),
    ("/sessions/{session_id:path}/export", "GET", export),
)
