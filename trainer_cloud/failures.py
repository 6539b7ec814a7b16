"""Reading the errors of providers' libraries, and of the network below them. None of the libraries is imported: errors
are recognised by what they carry, which all versions have in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx

_STATUS = re.compile(r"(?:with status |\(status |status code |Error code: |\(HTTP |^HTTP )(\d{3})")
_CAUSE = re.compile(r"^\s*Cause: (.+)$", re.M)
_KEY = re.compile(r"\b(?:fw_|tml-)\w{6,}")
_UNCLEAR = (408, 409, 410, 425)
"""Statuses that say nothing of the request itself."""
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def causes(error: BaseException | None, *, implicit: bool = False) -> Iterator[BaseException]:
    """The error and what it was raised from; with `implicit` what was being handled then counts too."""
    while error is not None:
        yield error
        error = error.__cause__ or (error.__context__ if implicit else None)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error is about."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        for holder, name in ((cause, "status_code"), (cause, "final_status"), (response, "status_code")):
            if isinstance(found := getattr(holder, name, None), int):
                return found
        if (match := _STATUS.search(str(cause))) is not None:
            return int(match[1])
    return None


def is_refusal(error: Exception) -> bool:
    """True if the request itself was wrong, by the status or by the category of a result."""
    status = status_of(error)
    by_status = status is not None and 400 <= status < 500 and status not in _UNCLEAR
    return by_status or "user" in str(getattr(error, "category", "")).lower()


def was_not_sent(error: BaseException) -> bool:
    """True if a request certainly never left: there was no connection."""
    return any(isinstance(cause, _UNSENT) for cause in causes(error))


def retry_after(error: BaseException) -> float | None:
    """The seconds that the answer behind an error asks to wait."""
    responses = (getattr(cause, "response", None) for cause in causes(error))
    return seconds_to_wait(next((one for one in responses if one is not None), None))


def seconds_to_wait(response: Any) -> float | None:
    """The `retry-after` of an answer, where it is a number of seconds."""
    try:
        return max(0.0, float(getattr(response, "headers", {}).get("retry-after", "")))
    except ValueError:
        return None


def words_of(error: Exception) -> str:
    """The reason that an error gives, in a line without keys: what the answer's body says, the cause that a message of
    several lines names, or its first line; of a connection that failed what is below it.
    """
    deepest = next((str(cause) for cause in reversed(list(causes(error))) if str(cause).strip()), "")
    text = deepest
    if not was_not_sent(error):
        bodies = (body_words(getattr(cause, "response", None)) for cause in causes(error))
        text = next(filter(None, bodies), "") or str(error).strip() or deepest
    named = _CAUSE.search(text)
    line = named[1] if named is not None else next(iter(text.strip().splitlines()), type(error).__name__)
    return _KEY.sub("(the key)", line.strip())[:300].rstrip(".")


def body_words(response: Any) -> str:
    """The message in a JSON body: `message` as Google writes it, `error.message` as OpenAI, `detail` as FastAPI."""
    try:
        found: Any = response.json() if response is not None else None
    except (ValueError, RuntimeError):  # no JSON, or a stream that was not read
        return ""
    for _ in range(4):
        if isinstance(found, dict):
            found = next((found[name] for name in ("message", "detail", "error", "msg") if found.get(name)), "")
        elif isinstance(found, list):
            found = found[0] if found else ""
    return " ".join(found.split()) if isinstance(found, str) else ""
