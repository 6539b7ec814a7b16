"""Keys of single episodes, for agents that an environment runs: with such a key an agent is in its session without a
header, and can use the model routes of it and nothing else.

A key holds the claim, which episode it is for and by whose key that was begun, and the claim's HMAC-SHA256 with one of
the service's keys. Nothing of it is stored, so it survives restarts; it is void with the service's key.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress

import msgspec

PREFIX = "clawrl-episode-"
_PURPOSE = b"openclaw-rl episode key\n"
"""Stands before the claim in what is signed: nothing else that is ever signed with these keys begins like it."""


class EpisodeClaim(msgspec.Struct, frozen=True, array_like=True):
    """The episode of a key, which began at `started` (Unix seconds). `number` is that of the stored key that began it,
    0 for a key of the settings.
    """

    session_id: str
    episode: int
    started: float
    number: int = 0


def issue_key(claim: EpisodeClaim, secret: str) -> str:
    """The key for a claim, signed with a key of the service."""
    body = _encode(msgspec.json.encode(claim))
    return f"{PREFIX}{body}.{_encode(_sign(body, secret))}"


def read_key(key: str, secrets: Sequence[str]) -> tuple[EpisodeClaim, int] | None:
    """The claim of a key and the index of the service's key that signed it; `None` if none of them did."""
    body, _, signature = key.removeprefix(PREFIX).partition(".")
    for index, secret in enumerate(secrets):
        if hmac.compare_digest(signature.encode(), _encode(_sign(body, secret)).encode()):
            with suppress(ValueError, msgspec.MsgspecError):  # where no keys are set, anyone can sign anything
                return msgspec.json.decode(_decode(body), type=EpisodeClaim), index
    return None


def _sign(body: str, secret: str) -> bytes:
    return hmac.digest(secret.encode(), _PURPOSE + body.encode(), "sha256")


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
