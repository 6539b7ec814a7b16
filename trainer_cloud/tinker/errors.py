"""Errors of the Tinker library as a `CloudError` in words."""

from __future__ import annotations

import re

from openclaw_rl.trainer_cloud.failures import is_refusal, retry_after, status_of, words_of
from openclaw_rl.trainer_cloud.provider import CloudError

_NOT_THERE = re.compile(r"\bnot found\b|\bis gone\b", re.I)
_SESSION = re.compile(r"\bsession not found\b", re.I)
_KEY = "set TINKER_API_KEY (tinker_api_key) to a key that is valid"


def to_cloud_error(
    error: Exception, *, model: str = "", path: str = "", training: bool = False, doing: str = "a request"
) -> CloudError:
    """The error of the library, or of the network below it. What is missing is named by what was asked for: the base
    model by its name, weights or a state by their path, or the model of a `training` client. `undone` is set where the
    request was certainly not taken.
    """
    if isinstance(error, CloudError):
        return error
    words, status = words_of(error), status_of(error)
    if status == 401 or "api_key" in words:
        return CloudError(f"Tinker refuses the key: {words}; {_KEY}", "key", undone=True)
    if status == 403:
        return CloudError(f"Tinker does not allow this to the key: {words}; {_KEY}", "key", undone=True)
    if status == 402:
        advice = "add some in Tinker's console; nothing is lost meanwhile"
        return CloudError(f"the Tinker account has no credit left ({words}): {advice}", "billing", undone=True)
    if status == 429:
        return CloudError(f"Tinker asks to slow down: {words}", "limit", retry_after=retry_after(error), undone=True)
    absent, refusal = status in (404, 410), is_refusal(error)
    if absent and _SESSION.search(words):
        return CloudError(f"Tinker has ended the session ({doing}): {words}", "away", undone=not training)
    if path and (absent or (refusal and _NOT_THERE.search(words))):
        return CloudError(f"Tinker has nothing at {path} any more ({doing}): {words}", "gone", undone=True)
    if training and absent:
        return CloudError(f"Tinker does not have the model in training any more ({doing}): {words}", "away")
    if model and status == 404:
        return CloudError(f"Tinker does not have the model {model} ({words}); set model", "model", undone=True)
    if refusal:
        return CloudError(f"Tinker refused {doing}: {words}", "refused", undone=status is not None)
    if status is not None:
        return CloudError(f"Tinker failed with status {status} ({doing}): {words}", "away")
    if "poisoned" in words:
        return CloudError(f"an earlier request failed, and the Tinker client with it ({doing})", "away")
    return CloudError(f"Tinker cannot be reached or failed ({doing}): {words}", "away")
