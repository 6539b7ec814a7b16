"""A quick check that a provider can be used with these settings: seconds, no retries, none of its libraries.

Tinker, and every server that speaks its API, lists its models at `/api/v1/get_server_capabilities`
(`tinker.resources.service`). Fireworks' own API names the key's account and whether it is suspended at `/v1/accounts`,
and a model at `/v1/accounts/…/models/…` (`fireworks.resources.accounts`, `.models`); at another address than Fireworks'
own, its training API is Tinker's.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.named_models import TINY, find_named
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.failures import (
    ACCOUNTS,
    ProviderAccount,
    account_error,
    body_words,
    cannot_pay,
    causes,
    seconds_to_wait,
)
from openclaw_rl.trainer_cloud.futures import in_thread
from openclaw_rl.trainer_cloud.provider import CloudError, Offer, Trouble

SECONDS = 5.0
_ALL_SECONDS = 12.0  # a silent name server does not keep a time-out of ours
_SHOWN = 10
_FIREWORKS_MODEL = re.compile(r"accounts/[\w.-]+/models/[\w.-]+")


def account(settings: Settings) -> ProviderAccount:
    """The provider that `settings.engine.backend` names. Raises `ConfigError` for another backend."""
    if settings.engine.backend not in ACCOUNTS:
        raise ConfigError(f"backend = {settings.engine.backend!r} is no cloud provider; choose {' or '.join(ACCOUNTS)}")
    return ACCOUNTS[settings.engine.backend]


def base_url(settings: Settings) -> str:
    """The address of the provider's API."""
    return str(settings.value(account(settings).url_setting))


def key_problem(settings: Settings) -> CloudError | None:
    """The fault of the key by its form alone, `None` where it has none."""
    provider = account(settings)
    key = str(settings.value(provider.setting))
    if not key:
        message = (
            f"backend = {settings.engine.backend} needs a key: set {provider.key}; keys are made at {provider.keys_at}"
        )
        return CloudError(message, "key", undone=True)
    other = next((one for one in ACCOUNTS.values() if one is not provider and key.startswith(one.prefixes)), None)
    if (provider.prefixes and not key.startswith(provider.prefixes)) or (other is not None and other.prefixes):
        form = f"{provider.name}'s begin with {provider.prefixes[0]}" if provider.prefixes else "it is another's"
        advice = f"Copy it again, whole, from {provider.keys_at}"
        message = f"the key in {provider.key} is none of {provider.name}: {form}. {advice}"
        return CloudError(message, "key", undone=True)
    return None


def check_key(settings: Settings) -> None:
    """Raise `CloudError` for a key that is wrong by its form."""
    if (problem := key_problem(settings)) is not None:
        raise problem


def diagnose(settings: Settings) -> CloudError | None:
    """The fault of provider, key, account or model; `None` where all is well."""
    try:
        check(settings)
    except CloudError as error:
        return error
    return None


def check(settings: Settings) -> Offer:
    """The provider's offer. Raises `CloudError`, whose message names what to set. Blocks for seconds at most."""
    check_key(settings)
    inquiry = _Inquiry(settings)
    # A thread that is not waited for: looking up a name cannot be interrupted, and may take minutes.
    try:
        return in_thread(inquiry.offer, "ask the provider").result(_ALL_SECONDS)
    except TimeoutError:
        raise inquiry.away(f"there was no answer within {_ALL_SECONDS:.0f} s (is there a network?)") from None


class _Inquiry:
    """One question to the provider of some settings, and its errors with what to do about them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._account = account(settings)
        self._url = base_url(settings)
        self._key = str(settings.value(self._account.setting))

    def offer(self) -> Offer:
        with httpx.Client(timeout=SECONDS, headers={"user-agent": "openclaw-rl"}) as http:
            if self._settings.engine.backend == "fireworks" and is_fireworks_own(self._url):
                return self._fireworks(http)
            url = f"{self._url}/api/v1/get_server_capabilities"
            listed = self._get(http, url, {"x-api-key": self._key}).get("supported_models")
        if not isinstance(listed, list):
            raise self._other_program(url)
        settings = self._settings
        rows = {str(row["model_name"]): row for row in listed if isinstance(row, dict) and row.get("model_name")}
        usable = [name for name, row in rows.items() if not _lacks(row, settings)]
        name = _named(settings.engine.model, usable)
        if rows and name is None:
            raise self._not_offered(
                usable, _lacks(rows[settings.engine.model], settings) if settings.engine.model in rows else ""
            )
        length = rows[name].get("max_context_length") if name is not None else None
        return Offer(usable, int(length or 0))

    def _fireworks(self, http: httpx.Client) -> Offer:
        settings, headers = self._settings, {"authorization": f"Bearer {self._key}"}
        parts = urlsplit(self._url)
        root = f"{parts.scheme}://{parts.netloc}"
        accounts = self._get(http, f"{root}/v1/accounts", headers).get("accounts")
        if not isinstance(accounts, list):
            raise self._other_program(f"{root}/v1/accounts")
        states = [str(row.get("suspendState") or "UNSUSPENDED") for row in accounts if isinstance(row, dict)]
        if states and "UNSUSPENDED" not in states:
            raise cannot_pay(self._account, states[0].replace("_", " ").lower())
        if _FIREWORKS_MODEL.fullmatch(settings.engine.model):
            row = self._get(http, f"{root}/v1/{settings.engine.model}", headers, absent={})
            if row:
                lengths = (row.get("trainingContextLength") if settings.learning.train else 0, row.get("contextLength"))
                return Offer([settings.engine.model], int(next(filter(None, lengths), 0)))
        # Those that Fireworks itself offers, of which those that can be tuned where it says which.
        found = self._get(http, f"{root}/v1/accounts/fireworks/models?pageSize=200", headers, absent={})
        rows = [row for row in found.get("models") or () if isinstance(row, dict) and row.get("name")]
        tunable = [row for row in rows if row.get("tunable") or row.get("rlTunable")]
        raise self._not_offered([str(row["name"]) for row in tunable or rows])

    def _get(
        self, http: httpx.Client, url: str, headers: dict[str, str], *, absent: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The JSON object at a URL; `absent`, if given, where there is none. Raises `CloudError`."""
        try:
            answer = http.get(url, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error
        if answer.status_code == 404 and absent is not None:
            return absent
        if answer.status_code != 200:
            raise self._refusal(answer)
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._other_program(url)
        return found

    def _unreachable(self, error: Exception) -> CloudError:
        host = urlsplit(self._url).hostname or self._url
        chain = list(causes(error, implicit=True))
        words = next((str(cause) for cause in reversed(chain) if str(cause)), type(error).__name__)
        if isinstance(error, httpx.ProxyError):
            why = f"the proxy of this machine (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY) refuses the connection: {words}"
        elif any(isinstance(cause, ssl.SSLCertVerificationError) for cause in chain):
            why = f"the certificate of {host} is not trusted here (a proxy? SSL_CERT_FILE names others): {words}"
        elif any(isinstance(cause, ssl.SSLError) for cause in chain):
            why = f"no secure connection to {host} is possible (https where http is spoken? a proxy?): {words}"
        elif isinstance(error, httpx.TimeoutException):
            why = f"it did not answer within {SECONDS:.0f} s"
        elif any(isinstance(cause, OSError) and type(cause).__name__ == "gaierror" for cause in chain):
            why = f"the name {host} cannot be looked up; is there a network? ({words})"
        elif isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
            why = f"{self._url} is no address: {words}"
        else:
            why = words
        return self.away(why)

    def _refusal(self, answer: httpx.Response) -> CloudError:
        provider, status, words = self._account, answer.status_code, self._words(answer)
        wait = seconds_to_wait(answer)
        if known := account_error(provider, status, words, retry_after=wait):
            return known
        trouble: Trouble = "refused"
        if status >= 500 or status == 408:
            trouble, message = "away", f"{provider.name} at {self._url} fails with status {status}: {words}"
            message += "; its status page says more"
        elif 300 <= status < 400:
            message = f"{self._url} sends on to {answer.headers.get('location', 'elsewhere')} (status {status}): "
            message += f"set {provider.url_setting} to where {provider.name} is, or log in to this network"
        elif status == 404:
            message = f"{answer.url} is not there: is {provider.url_setting} right ({self._url})?"
        else:
            message = f"{provider.name} at {self._url} answered with status {status}: {words}"
        return CloudError(message, trouble, retry_after=wait, undone=True)

    def _words(self, answer: httpx.Response) -> str:
        """The reason that an answer gives, without the key that it may repeat."""
        try:
            answer.json()
            text = body_words(answer)
        except ValueError:
            text = "" if answer.text.lstrip().startswith("<") else " ".join(answer.text.split())
        text = text[:200].replace(self._key, "(the key)").rstrip(".")
        return text or answer.reason_phrase or f"status {answer.status_code}"

    def away(self, why: str) -> CloudError:
        where = f"{self._account.name} at {self._url} ({self._account.url_setting})"
        return CloudError(f"{where} cannot be reached: {why}", "away", undone=True)

    def _other_program(self, url: str) -> CloudError:
        provider = self._account
        message = f"{url} answers, but not as {provider.name} does: is {provider.url_setting} right, or does this "
        return CloudError(f"{message}network want a log-in?", "refused", undone=True)

    def _not_offered(self, models: Sequence[str], lacking: str = "") -> CloudError:
        """With the models that are offered, the most alike first."""
        model, name = self._settings.engine.model, self._account.name

        def likeness(other: str) -> float:
            return -difflib.SequenceMatcher(None, model.lower(), other.lower()).ratio()

        local = find_named(model)
        if local is not None:
            title = "the shipped policy" if local is TINY else local.name
            message = f"{title} is on this machine alone; {name} trains base models of its own"
        elif lacking:
            message = f"model = {model} is not there {lacking} at {name}"
        else:
            message = f"model = {model} is not offered by {name}"
        shown = sorted(models) if local is not None else sorted(models, key=likeness)
        listed = ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
        message += ": set model (OPENCLAW_RL_MODEL, --model) to one that is"
        return CloudError(f"{message}: {listed}" if listed else message, "model", undone=True)


def _lacks(row: dict[str, Any], settings: Settings) -> str:
    """The use that a listed model is not there for."""
    if row.get("sampleable") is False:
        return "to be sampled from"
    return "to be trained" if settings.learning.train and row.get("trainable") is False else ""


def _named(model: str, names: Sequence[str]) -> str | None:
    """The name among those offered that means the model; a folder may be written in several ways."""
    if model in names:
        return model
    folder = Path(model)
    same = (name for name in names if folder.is_dir() and Path(name).is_dir() and folder.samefile(name))
    return next(same, None)


def is_fireworks_own(url: str) -> bool:
    """True for an address of Fireworks itself."""
    return _is_of(url, "fireworks.ai")


def is_tinkers_own(url: str) -> bool:
    """True for an address of Tinker itself, as opposed to another server that speaks its API."""
    return _is_of(url, "thinkingmachines.dev", "thinkingmachines.ai")


def _is_of(url: str, *domains: str) -> bool:
    host = urlsplit(url).hostname or ""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
