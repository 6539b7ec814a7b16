"""What the Tinker library raises, as a `CloudError` in words. It imports nothing of the library: errors are told apart
by what they carry, which all its versions have in common.
"""

from __future__ import annotations

import re

from openclaw_rl.trainer_cloud.provider import CloudError, Trouble

_STATUS = re.compile(r"(?:with status |\(status |status code |Error code: )(\d{3})")
_ABSENT = (404, 410)
_NOT_THERE = re.compile(r"\bnot found\b|\bis gone\b", re.I)
_SESSION = re.compile(r"\bsession not found\b", re.I)
_KEY = "set TINKER_API_KEY (tinker_api_key) to a key that is valid"


def told(
    error: Exception, *, model: str = "", path: str = "", training: bool = False, doing: str = "a request"
) -> CloudError:
    """The error of the library, or of the network below it, in our words. What is not there is told by what was asked
    for: the base model by its name, weights or a state by their path, or the model of a `training` client. Where it is
    certain that the request was not taken, `undone` is set.
    """
    if isinstance(error, CloudError):
        return error
    said = _first_line(error)
    status = _status(error)
    of_user = "user" in str(getattr(error, "category", "")).lower()
    if status == 401 or "api_key" in said:
        return CloudError(f"Tinker refuses the key: {said}; {_KEY}", "key", undone=True)
    if status == 403:
        return CloudError(f"Tinker does not allow this to the key: {said}; {_KEY}", "key", undone=True)
    if status == 402:
        return CloudError(
            f"the Tinker account has no credit left ({said}): add some in Tinker's console; nothing is lost meanwhile",
            "billing",
            undone=True,
        )
    if status == 429:
        return CloudError(f"Tinker asks to slow down: {said}", "limit", retry_after=_retry_after(error), undone=True)
    absent = status in _ABSENT
    refusal = (status is not None and 400 <= status < 500 and status not in (408, 409, 410)) or of_user
    if absent and _SESSION.search(said):
        return CloudError(f"Tinker has ended the session ({doing}): {said}", "away", undone=not training)
    if path and (absent or (refusal and _NOT_THERE.search(said))):
        return CloudError(f"Tinker has nothing at {path} any more ({doing}): {said}", "gone", undone=True)
    if training and absent:
        return CloudError(f"Tinker does not have the model in training any more ({doing}): {said}", "away")
    if model and status == 404:
        return CloudError(f"Tinker does not have the model {model} ({said}); set model", "model", undone=True)
    if refusal:
        return CloudError(f"Tinker refused {doing}: {said}", "refused", undone=status is not None)
    trouble: Trouble = "away"
    if status is not None:
        return CloudError(f"Tinker failed with status {status} ({doing}): {said}", trouble)
    if "poisoned" in said:
        return CloudError(f"an earlier request failed, and the Tinker client with it ({doing})", trouble)
    return CloudError(f"Tinker cannot be reached or failed ({doing}): {said}", trouble)


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status
    found = _STATUS.search(str(error))
    if found is not None:
        return int(found[1])
    return _status(error.__cause__) if error.__cause__ is not None else None


def _retry_after(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    value = getattr(response, "headers", {}).get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
