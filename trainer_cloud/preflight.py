"""Whether a provider can be used with these settings, asked at once: seconds, no retries, none of its libraries.

Tinker, and every server that speaks its API, says at `/api/v1/get_server_capabilities` which models it has
(`tinker.resources.service`). Fireworks' own API says at `/v1/accounts` whose key it is and whether the account is
suspended, and at `/v1/accounts/…/models/…` whether there is a model (`fireworks.resources.accounts`, `.models`); at
another address than Fireworks' own, its training API is Tinker's.
"""

from __future__ import annotations

import difflib
import re
import ssl
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.trainer_cloud.provider import CloudError, Offer, Trouble

SECONDS = 5.0
_ALL_SECONDS = 12.0  # a name server that is silent keeps no time-out of ours
_SHOWN = 10
_FIREWORKS_MODEL = re.compile(r"accounts/[\w.-]+/models/[\w.-]+")
_BILLING = re.compile(r"suspend|billing|spending limit|insufficient|credit|balance|payment", re.I)


class Account(msgspec.Struct, frozen=True):
    """How a provider is called, and the setting and variable of its key."""

    name: str
    setting: str
    variable: str
    url_setting: str
    keys_at: str
    billing_at: str
    prefixes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key by both its names."""
        return f"{self.variable} ({self.setting})"


ACCOUNTS = {
    "tinker": Account(
        "Tinker",
        "tinker_api_key",
        "TINKER_API_KEY",
        "tinker_base_url",
        "https://tinker.thinkingmachines.ai/keys",
        "https://tinker.thinkingmachines.ai",
        ("tml-", "eyJ"),
    ),
    "fireworks": Account(
        "Fireworks",
        "fireworks_api_key",
        "FIREWORKS_API_KEY",
        "fireworks_base_url",
        "https://fireworks.ai/account/api-keys",
        "https://fireworks.ai/account/billing",
    ),
}


def account(settings: Settings) -> Account:
    """The provider that `settings.backend` names. Raises `ConfigError` for another backend."""
    if settings.backend not in ACCOUNTS:
        raise ConfigError(f"backend = {settings.backend!r} is no cloud provider; choose {' or '.join(ACCOUNTS)}")
    return ACCOUNTS[settings.backend]


def base_url(settings: Settings) -> str:
    """Where the provider is asked."""
    return str(settings.value(account(settings).url_setting))


def key_problem(settings: Settings) -> CloudError | None:
    """What can be said of the key without asking anybody."""
    provider = account(settings)
    key = str(settings.value(provider.setting))
    if not key:
        return CloudError(
            f"backend = {settings.backend} needs a key: set {provider.key}; keys are made at {provider.keys_at}",
            "key",
            undone=True,
        )
    other = next((one for one in ACCOUNTS.values() if one is not provider and key.startswith(one.prefixes)), None)
    if (provider.prefixes and not key.startswith(provider.prefixes)) or (other is not None and other.prefixes):
        form = f"{provider.name}'s begin with {provider.prefixes[0]}" if provider.prefixes else "it is another's"
        return CloudError(
            f"the key in {provider.key} is none of {provider.name}: {form}. Copy it again, whole, from "
            f"{provider.keys_at}",
            "key",
            undone=True,
        )
    return None


def diagnose(settings: Settings) -> CloudError | None:
    """What is wrong with provider, key, account or model; `None` when nothing is."""
    try:
        check(settings)
    except CloudError as error:
        return error
    return None


def check(settings: Settings) -> Offer:
    """What the provider has. Raises `CloudError`, whose message names what to set. Blocks for seconds at most."""
    problem = key_problem(settings)
    if problem is not None:
        raise problem
    answer: list[Offer | Exception] = []

    def ask() -> None:
        try:
            answer.append(_offer(settings))
        except Exception as error:
            answer.append(error)

    # A thread that is not waited for: looking up a name cannot be interrupted, and may take minutes.
    thread = threading.Thread(target=ask, name="ask the provider", daemon=True)
    thread.start()
    thread.join(_ALL_SECONDS)
    if not answer:
        raise _away(settings, f"there was no answer within {_ALL_SECONDS:.0f} s (is there a network?)")
    (found,) = answer
    if isinstance(found, Exception):
        raise found
    return found


def _offer(settings: Settings) -> Offer:
    provider = account(settings)
    key = str(settings.value(provider.setting))
    with httpx.Client(timeout=SECONDS, headers={"user-agent": "openclaw-rl"}) as http:
        if settings.backend == "fireworks" and _is_fireworks_own(base_url(settings)):
            return _fireworks(http, settings, {"authorization": f"Bearer {key}"})
        url = f"{base_url(settings)}/api/v1/get_server_capabilities"
        told = _get(http, url, settings, {"x-api-key": key})
    listed = told.get("supported_models")
    if not isinstance(listed, list):
        raise _other_program(settings, url)
    rows = {str(row["model_name"]): row for row in listed if isinstance(row, dict) and row.get("model_name")}
    usable = [name for name, row in rows.items() if not _lacks(row, settings)]
    name = _named(settings.model, usable)
    if rows and name is None:
        lacking = _lacks(rows[settings.model], settings) if settings.model in rows else ""
        raise _not_offered(settings, usable, lacking)
    length = rows[name].get("max_context_length") if name is not None else None
    return Offer(usable, int(length or 0))


def _lacks(row: dict[str, Any], settings: Settings) -> str:
    """What a model that is listed is not there for."""
    if row.get("sampleable") is False:
        return "to be sampled from"
    return "to be trained" if settings.train and row.get("trainable") is False else ""


def _named(model: str, names: Sequence[str]) -> str | None:
    """The name among those offered that means the model; a folder may be written in several ways."""
    if model in names:
        return model
    folder = Path(model)
    same = (name for name in names if folder.is_dir() and Path(name).is_dir() and folder.samefile(name))
    return next(same, None)


def _fireworks(http: httpx.Client, settings: Settings, headers: dict[str, str]) -> Offer:
    parts = urlsplit(base_url(settings))
    root = f"{parts.scheme}://{parts.netloc}"
    accounts = _get(http, f"{root}/v1/accounts", settings, headers).get("accounts")
    if not isinstance(accounts, list):
        raise _other_program(settings, f"{root}/v1/accounts")
    states = [str(row.get("suspendState") or "UNSUSPENDED") for row in accounts if isinstance(row, dict)]
    if states and "UNSUSPENDED" not in states:
        raise _billing(settings, states[0].replace("_", " ").lower())
    if _FIREWORKS_MODEL.fullmatch(settings.model):
        row = _get(http, f"{root}/v1/{settings.model}", settings, headers, absent={})
        if row:
            lengths = (row.get("trainingContextLength") if settings.train else 0, row.get("contextLength"))
            return Offer([settings.model], int(next(filter(None, lengths), 0)))
    raise _not_offered(settings, list(_fireworks_models(http, root, settings, headers)))


def _fireworks_models(http: httpx.Client, root: str, settings: Settings, headers: dict[str, str]) -> Iterator[str]:
    """Names of models that Fireworks itself offers, those that can be tuned where it says which."""
    found = _get(http, f"{root}/v1/accounts/fireworks/models?pageSize=200", settings, headers, absent={})
    rows = [row for row in found.get("models") or () if isinstance(row, dict) and row.get("name")]
    tunable = [row for row in rows if row.get("tunable") or row.get("rlTunable")]
    yield from (str(row["name"]) for row in tunable or rows)


def _is_fireworks_own(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "fireworks.ai" or host.endswith(".fireworks.ai")


def _get(
    http: httpx.Client, url: str, settings: Settings, headers: dict[str, str], *, absent: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The JSON object at a URL; `absent`, if given, where there is none. Raises `CloudError`."""
    try:
        answer = http.get(url, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _unreachable(settings, error) from error
    if answer.status_code == 404 and absent is not None:
        return absent
    if answer.status_code != 200:
        raise _refusal(settings, answer)
    try:
        told = answer.json()
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise _other_program(settings, url)
    return told


def _unreachable(settings: Settings, error: Exception) -> CloudError:
    """An error of the network, in words."""
    host = urlsplit(base_url(settings)).hostname or base_url(settings)
    causes = list(_causes(error))
    said = next((str(cause) for cause in reversed(causes) if str(cause)), type(error).__name__)
    if isinstance(error, httpx.ProxyError):
        told = f"the proxy of this machine (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY) refuses the way there: {said}"
    elif any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        told = f"the certificate of {host} is not trusted here (a proxy in between? SSL_CERT_FILE names others): {said}"
    elif any(isinstance(cause, ssl.SSLError) for cause in causes):
        told = f"no secure connection to {host} comes about (https where http is spoken? a proxy in between?): {said}"
    elif isinstance(error, httpx.TimeoutException):
        told = f"it did not answer within {SECONDS:.0f} s"
    elif any(isinstance(cause, OSError) and type(cause).__name__ == "gaierror" for cause in causes):
        told = f"the name {host} cannot be looked up; is there a network? ({said})"
    elif isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL):
        told = f"{base_url(settings)} is no address: {said}"
    else:
        told = said
    return _away(settings, told)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _refusal(settings: Settings, answer: httpx.Response) -> CloudError:
    """An error that a provider answered, in words."""
    provider, status = account(settings), answer.status_code
    said = _said(answer, str(settings.value(provider.setting)))
    trouble: Trouble
    if status == 402 or (status in (403, 412, 429) and _BILLING.search(said)):
        return _billing(settings, said)
    if status == 401:
        trouble, told = "key", f"{provider.name} refuses the key in {provider.key}: {said}"
        told += f". Is it whole, and still valid? Keys are made at {provider.keys_at}"
    elif status == 403:
        trouble, told = "key", f"{provider.name} does not let the key in {provider.key} do this: {said}"
        told += ". Does the account have access to training?"
    elif status == 429:
        trouble, told = "limit", f"{provider.name} is asked too often with {provider.key}: {said}; try again later"
    elif status >= 500 or status == 408:
        trouble, told = "away", f"{provider.name} at {base_url(settings)} fails with status {status}: {said}"
        told += "; its status page says more"
    elif 300 <= status < 400:
        trouble = "refused"
        told = f"{base_url(settings)} sends on to {answer.headers.get('location', 'elsewhere')} (status {status}): "
        told += f"set {provider.url_setting} to where {provider.name} is, or log in to this network"
    elif status == 404:
        trouble, told = "refused", f"{answer.url} is not there: is {provider.url_setting} right ({base_url(settings)})?"
    else:
        trouble, told = "refused", f"{provider.name} at {base_url(settings)} answered with status {status}: {said}"
    return CloudError(told, trouble, retry_after=_retry_after(answer), undone=True)


def _said(answer: httpx.Response, key: str) -> str:
    """What an answer says in words, without the key that it may repeat."""
    try:
        told: Any = answer.json()
    except ValueError:
        told = answer.text
    for _ in range(3):
        if isinstance(told, dict):
            told = next((told[name] for name in ("message", "detail", "error") if told.get(name)), "")
    text = " ".join(str(told).split())[:200] if not str(told).lstrip().startswith("<") else ""
    return text.replace(key, "(the key)").rstrip(".") or answer.reason_phrase or f"status {answer.status_code}"


def _retry_after(answer: httpx.Response) -> float | None:
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return None


def _away(settings: Settings, why: str) -> CloudError:
    provider = account(settings)
    return CloudError(
        f"{provider.name} at {base_url(settings)} ({provider.url_setting}) cannot be reached: {why}",
        "away",
        undone=True,
    )


def _billing(settings: Settings, why: str) -> CloudError:
    provider = account(settings)
    return CloudError(
        f"the {provider.name} account of {provider.key} cannot pay: {why}. See to it at {provider.billing_at}",
        "billing",
        undone=True,
    )


def _other_program(settings: Settings, url: str) -> CloudError:
    provider = account(settings)
    return CloudError(
        f"{url} answers, but not as {provider.name} does: is {provider.url_setting} right, or does this network want "
        "a log-in?",
        "refused",
        undone=True,
    )


def _not_offered(settings: Settings, models: Sequence[str], lacking: str = "") -> CloudError:
    """With the models that are, the most alike first."""
    provider = account(settings)

    def likeness(name: str) -> float:
        return -difflib.SequenceMatcher(None, settings.model.lower(), name.lower()).ratio()

    shipped = settings.model == str(EMBEDDED_POLICY)
    if shipped:
        told = f"the shipped policy is on this machine alone; {provider.name} trains base models of its own"
    elif lacking:
        told = f"model = {settings.model} is not there {lacking} at {provider.name}"
    else:
        told = f"model = {settings.model} is not offered by {provider.name}"
    shown = sorted(models) if shipped else sorted(models, key=likeness)
    listed = ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
    told += ": set model (OPENCLAW_RL_MODEL, --model) to one that is"
    return CloudError(f"{told}: {listed}" if listed else told, "model", undone=True)
