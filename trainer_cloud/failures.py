"""Reading the errors of providers' libraries, and of the network below them, and the errors that concern an account.
None of the libraries is imported: errors are recognised by what they carry, which all versions have in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from openclaw_rl.trainer_cloud.provider import CloudError

_STATUS = re.compile(r"(?:with status |\(status |status code |Error code: |\(HTTP |^HTTP )(\d{3})")
_CAUSE = re.compile(r"^\s*Cause: (.+)$", re.M)
_KEY = re.compile(r"\b(?:fw_|tml-)\w{6,}")
_BILLING = re.compile(r"suspend|billing|spending limit|insufficient (?:funds|credit)|credit|\bbalance\b|payment", re.I)
_UNCLEAR = (408, 409, 410, 425)
"""Statuses that say nothing of the request itself."""
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class ProviderAccount(msgspec.Struct, frozen=True):
    """The name of a provider, the settings of key and address with the key's variable, its pages, and what to do
    without access.
    """

    name: str
    setting: str
    variable: str
    url_setting: str
    keys_at: str
    billing_at: str
    access: str = "Does the account have access to training?"
    prefixes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key by both its names."""
        return f"{self.variable} ({self.setting})"


ACCOUNTS = {
    "tinker": ProviderAccount(
        "Tinker",
        "tinker_api_key",
        "TINKER_API_KEY",
        "tinker_base_url",
        "https://tinker.thinkingmachines.ai/keys",
        "https://tinker.thinkingmachines.ai",
        prefixes=("tml-", "eyJ"),
    ),
    "fireworks": ProviderAccount(
        "Fireworks",
        "fireworks_api_key",
        "FIREWORKS_API_KEY",
        "fireworks_base_url",
        "https://fireworks.ai/account/api-keys",
        "https://fireworks.ai/account/billing",
        "Training is a preview, to which each account has to be admitted: https://fireworks.ai/contact-training",
    ),
}


def cannot_pay(account: ProviderAccount, why: str, *, undone: bool = True) -> CloudError:
    """The error of an account without credit."""
    advice = f"Add credit, or settle the bill, at {account.billing_at}; nothing is lost meanwhile"
    message = f"the {account.name} account of {account.key} cannot pay: {why}. {advice}"
    return CloudError(message, "billing", undone=undone)


def account_error(
    account: ProviderAccount, status: int | None, words: str, *, retry_after: float | None = None, undone: bool = True
) -> CloudError | None:
    """The error of an answer about the account: its credit, key, access or number of requests; `None` for another."""
    name, key = account.name, account.key
    if status == 402 or (status in (403, 412, 429) and _BILLING.search(words)):
        return cannot_pay(account, words, undone=undone)
    if status == 401 or "api_key" in words:
        advice = f"Is it whole, and still valid? Keys are made at {account.keys_at}"
        return CloudError(f"{name} refuses the key in {key}: {words}. {advice}", "key", undone=True)
    if status == 403:
        message = f"{name} does not let the key in {key} do this: {words}. {account.access}"
        return CloudError(message, "key", undone=True)
    if status == 429:
        message = f"{name} is asked too often with {key}: {words}; try again later"
        return CloudError(message, "limit", retry_after=retry_after, undone=undone)
    return None


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
