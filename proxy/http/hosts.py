"""Names by which the service may be called, against pages of other sites: by a name that such a site made point here
(DNS rebinding), or by a request that a browser sends from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from openclaw_rl.shared.errors import Forbidden
from openclaw_rl.shared.process import is_local_name, is_loopback

_READS = ("GET", "HEAD", "OPTIONS")


class KnownHosts:
    """The names of a service that binds `host`: those that only this machine can have (`is_local_name`), `host`, and
    `public` ones, comma-separated.
    """

    def __init__(self, host: str, public: str = "") -> None:
        self._public = frozenset(name.strip().lower() for name in public.split(",") if name.strip())
        self._names = self._public | {host.lower()}
        self._everywhere = is_loopback(host)
        self._is_known = lru_cache(64)(lambda name: is_local_name(name) or _hostname(name) in self._names)

    def check(self, headers: Mapping[str, str], method: str, *, private: bool) -> None:
        """Raise `Forbidden` for a request to a foreign `Host`, or one that changes something from a page of a foreign
        `Origin`. `headers` have lower-case names. Where the service is bound to more than loopback, clients may know it
        by any name, and only `private` routes (the dashboard and its sign-in) look at `Host`.
        """
        host = headers.get("host", "")
        if (private or self._everywhere) and not self._is_known(host):
            raise Forbidden(
                f"{host[:100]!r} is no name of this service. If it is reached by it (through a reverse proxy), set "
                f"public_hosts = {_hostname(host)[:100]} (OPENCLAW_RL_PUBLIC_HOSTS).",
                code="foreign_host",
            )
        origin = headers.get("origin")
        if origin is not None and method not in _READS and not self._is_own(origin.lower(), host.lower()):
            raise Forbidden(
                f"A page of {origin[:100]} changes nothing here. If the service is reached by that name, set "
                "public_hosts (OPENCLAW_RL_PUBLIC_HOSTS).",
                code="foreign_origin",
            )

    def _is_own(self, origin: str, host: str) -> bool:
        """True for a page of this service, and for a program that names itself by a scheme of its own: no web site has
        one.
        """
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https"):
            return origin != "null"
        return place == host or _hostname(place) in self._public


def _hostname(host: str) -> str:
    """The name in `NAME:PORT`, in lower case."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
