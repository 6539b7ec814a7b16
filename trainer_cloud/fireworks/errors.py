"""Errors of Fireworks' libraries as a `CloudError` in words. Statuses by the error reference of Fireworks' cookbook:
412 with a word of billing is a suspended account, 409 with a word of capacity a full pool, 425 a deployment that is
loading weights.
"""

from __future__ import annotations

import re

from openclaw_rl.trainer_cloud.failures import is_refusal, retry_after, status_of, was_not_sent, words_of
from openclaw_rl.trainer_cloud.provider import CloudError

KEY = "FIREWORKS_API_KEY (fireworks_api_key)"
_BILLING = re.compile(r"suspend|billing|spending limit|insufficient (?:funds|credit)|credit|payment", re.I)
_CAPACITY = re.compile(r"capacity|resource_exhausted|out of slots|quota", re.I)


def to_cloud_error(error: Exception, *, model: str = "", doing: str = "a request") -> CloudError:
    """The error of a library, or of the network below it. `undone` is set where the request was certainly not taken."""
    if isinstance(error, CloudError):
        return error
    words, status, after = words_of(error), status_of(error), retry_after(error)
    # A status that came with the request itself, and not with the result of one that had been taken.
    direct = getattr(error, "response", None) is not None
    if status == 402 or (status in (403, 412, 429) and _BILLING.search(words)):
        advice = "See to its billing, at https://app.fireworks.ai"
        return CloudError(f"the Fireworks account of {KEY} cannot pay: {words}. {advice}", "billing", undone=direct)
    if status == 401 or "api_key" in words:
        message = f"Fireworks refuses the key in {KEY}: {words}. Is it whole, and still valid?"
        return CloudError(message, "key", undone=True)
    if status == 403:
        message = f"Fireworks does not let the key in {KEY} do this ({doing}): {words}"
        advice = (
            "Training is a preview, to which each account has to be admitted: https://fireworks.ai/contact-training"
        )
        return CloudError(f"{message}. {advice}", "key", undone=True)
    if status == 429 or (status == 409 and _CAPACITY.search(words)):
        return CloudError(f"Fireworks has no room for {doing} now: {words}", "limit", retry_after=after, undone=direct)
    about_model = model in words or "base_model" in words or "model not found" in words.lower()
    if status in (400, 404) and model and about_model:
        return CloudError(f"Fireworks cannot use model = {model} for this: {words}", "model", undone=direct)
    if was_not_sent(error):
        return CloudError(f"Fireworks cannot be reached ({doing}): {words}", "away", undone=True)
    if is_refusal(error):
        return CloudError(f"Fireworks refused {doing}: {words}", "refused", undone=direct)
    if isinstance(error, ValueError | TypeError | NotImplementedError) and error.__cause__ is None and status is None:
        # The library's own, before anything is sent.
        return CloudError(f"Fireworks' library refused {doing}: {words}", "refused", undone=True)
    if status is not None:
        return CloudError(f"Fireworks failed with status {status} ({doing}): {words}", "away", retry_after=after)
    return CloudError(f"Fireworks cannot be reached or failed ({doing}): {words}", "away")
