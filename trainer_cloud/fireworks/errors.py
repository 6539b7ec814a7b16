"""What Fireworks' libraries raise, as a `CloudError` in words. It imports none of them: errors are told apart by what
they carry. Statuses by the error reference of Fireworks' cookbook: 412 with a word of billing is a suspended account,
409 with a word of capacity a full pool, 425 a deployment that is loading weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx

from openclaw_rl.trainer_cloud.provider import CloudError

KEY = "FIREWORKS_API_KEY (fireworks_api_key)"
_STATUS = re.compile(r"(?:with status |\(status |status code |Error code: |\(HTTP |^HTTP )(\d{3})")
_BILLING = re.compile(r"suspend|billing|spending limit|insufficient (?:funds|credit)|credit|payment", re.I)
_CAPACITY = re.compile(r"capacity|resource_exhausted|out of slots|quota", re.I)
_CAUSE = re.compile(r"^\s*Cause: (.+)$", re.M)
_SECRET = re.compile(r"\bfw_\w{6,}")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def told(error: Exception, *, model: str = "", doing: str = "a request") -> CloudError:
    """The error of a library, or of the network below it, in our words. Where it is certain that the request was not
    taken, `undone` is set.
    """
    if isinstance(error, CloudError):
        return error
    said, status = _said(error), status_of(error)
    # A status that came with the request itself, and not with the result of one that had been taken.
    direct = getattr(error, "response", None) is not None
    after = _retry_after(error)
    if status in (402, 403, 412, 429) and (status == 402 or _BILLING.search(said)):
        return CloudError(
            f"the Fireworks account of {KEY} cannot pay: {said}. See to its billing, at https://app.fireworks.ai",
            "billing",
            undone=direct,
        )
    if status == 401 or "api_key" in said:
        return CloudError(
            f"Fireworks refuses the key in {KEY}: {said}. Is it whole, and still valid?", "key", undone=True
        )
    if status == 403:
        return CloudError(
            f"Fireworks does not let the key in {KEY} do this ({doing}): {said}. Training is a preview that each "
            "account has to be let into: https://fireworks.ai/contact-training",
            "key",
            undone=True,
        )
    if status == 429 or (status == 409 and _CAPACITY.search(said)):
        return CloudError(f"Fireworks has no room for {doing} now: {said}", "limit", retry_after=after, undone=direct)
    if status in (400, 404) and model and (model in said or "base_model" in said or "model not found" in said.lower()):
        return CloudError(f"Fireworks cannot use model = {model} for this: {said}", "model", undone=direct)
    if not_sent(error):
        return CloudError(f"Fireworks cannot be reached ({doing}): {said}", "away", undone=True)
    if (status is not None and 400 <= status < 500 and status not in (408, 409, 410, 425)) or _users(error):
        return CloudError(f"Fireworks refused {doing}: {said}", "refused", undone=direct)
    if isinstance(error, ValueError | TypeError | NotImplementedError) and error.__cause__ is None and status is None:
        # The library's own, before anything is sent.
        return CloudError(f"Fireworks' library refused {doing}: {said}", "refused", undone=True)
    if status is not None:
        return CloudError(f"Fireworks failed with status {status} ({doing}): {said}", "away", retry_after=after)
    return CloudError(f"Fireworks cannot be reached or failed ({doing}): {said}", "away")


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error is about."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        for found in (
            getattr(cause, "status_code", None),
            getattr(cause, "final_status", None),
            getattr(response, "status_code", None),
        ):
            if isinstance(found, int):
                return found
        match = _STATUS.search(str(cause))
        if match is not None:
            return int(match[1])
    return None


def not_sent(error: BaseException) -> bool:
    """Whether a request certainly never left: there was no connection."""
    return any(isinstance(cause, _UNSENT) for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _users(error: Exception) -> bool:
    """Whether a result says that the request was wrong."""
    return "user" in str(getattr(error, "category", "")).lower()


def _retry_after(error: BaseException) -> float | None:
    for cause in _causes(error):
        headers: Any = getattr(getattr(cause, "response", None), "headers", None)
        if headers is not None:
            try:
                return max(0.0, float(headers.get("retry-after", "")))
            except ValueError:
                return None
    return None


def _said(error: Exception) -> str:
    """The cause that a message of several lines gives, or its first line; of a wrapped connection error what is
    below it.
    """
    text = next((str(cause) for cause in reversed(list(_causes(error))) if str(cause).strip()), "")
    if not not_sent(error):
        text = _body(error) or str(error).strip() or text
    cause = _CAUSE.search(text)
    line = cause[1] if cause is not None else next(iter(text.strip().splitlines()), type(error).__name__)
    return _SECRET.sub("(the key)", line.strip())[:300].rstrip(".")


def _body(error: Exception) -> str:
    """What an error body says: `message` as Google writes it, `error.message` as OpenAI, `detail` as FastAPI."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        try:
            found: Any = response.json() if response is not None else None
        except (ValueError, RuntimeError):  # no JSON, or a stream that was not read
            continue
        for _ in range(4):
            if isinstance(found, dict):
                found = next((found[name] for name in ("message", "detail", "error", "msg") if found.get(name)), "")
            elif isinstance(found, list):
                found = found[0] if found else ""
        if found and isinstance(found, str):
            return " ".join(found.split())
    return ""
