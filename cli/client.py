"""Talks to a running service: finds its address and key, turns failures into one line each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from openclaw_rl.shared.errors import ConfigError, OpenClawRLError
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.process import alive
from openclaw_rl.shared.settings.settings import Settings


class ServiceError(OpenClawRLError):
    """The service does not answer, or answers with an error; the message says what to do."""


def running(data: Path, role: str) -> dict[str, Any] | None:
    """The card of a part of the service on a data folder (`pid`, `url`, `settings`); `None` if it does not run."""
    card = read_json(data / "run" / f"{role}.json")
    return card if card is not None and alive(int(card["pid"])) else None


class Service:
    """A running proxy. `get` and `post` return decoded JSON and raise `ServiceError`."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=30.0, trust_env=False
        )

    @classmethod
    def find(cls, settings: Settings, *, url: str = "", key: str = "", as_client: bool = False) -> Service:
        """The service at `url`, else the one that runs on the settings' data folder, else the settings' own address;
        with the admin key, or `as_client` with the key that clients are given.
        """
        card = running(settings.serve.data, "proxy")
        if not url and card is not None:
            url = str(card["url"])
        if not url:
            host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.serve.host, settings.serve.host)
            url = f"http://{host}:{settings.serve.port}"
        url = url.rstrip("/").removesuffix("/v1")
        of_card = card if card is not None and url == card["url"] else {}
        if as_client:
            key = key or settings.serve.key or str(of_card.get("client_key", ""))
            return cls(url, key or _key_file(settings.serve.data, "api_key"))
        key = key or settings.serve.admin_key or str(of_card.get("key", "")) or settings.serve.key
        return cls(url, key or _key_file(settings.serve.data, "admin_key") or _key_file(settings.serve.data, "api_key"))

    def get(self, path: str, **query: str | int) -> Any:
        """The answer to a GET."""
        return self._call("GET", path, params=query)

    def post(
        self,
        path: str,
        content: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
    ) -> Any:
        """The answer to a POST with a JSON body."""
        return self._call("POST", path, json=content, headers=headers, timeout=seconds)

    def delete(self, path: str) -> Any:
        """The answer to a DELETE."""
        return self._call("DELETE", path)

    def policy(self) -> str:
        """The policy's own name, without a version."""
        listed = [str(entry["id"]) for entry in self.get("/v1/models").get("data", ())]
        for name in listed:
            if "@" not in name:
                return name
        raise ServiceError(f"{self.url} lists no model")

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx.ConnectError as error:
            raise ServiceError(
                f"no service answers at {self.url}. Start one with: openclaw-rl serve (or make run); "
                f"name another with --url, or its data folder with --data"
            ) from error
        except httpx.HTTPError as error:
            raise ServiceError(f"{method} {self.url}{path} failed: {error or type(error).__name__}") from error
        if answer.status_code == 401:
            raise ServiceError(
                f"{self.url} refuses this key. The right one is in the file admin_key of the service's data folder: "
                f"pass it with --key (OPENCLAW_RL_ADMIN_KEY), or run this command where that folder is (--data)"
            )
        try:
            content = answer.json()
        except ValueError as error:
            raise ServiceError(
                f"{self.url}{path} answered {answer.status_code} without JSON; is another program on this port?"
            ) from error
        if answer.is_error:
            detail = content.get("error") if isinstance(content, dict) else None
            message = detail.get("message") if isinstance(detail, dict) else detail
            raise ServiceError(f"{method} {path}: {message or answer.status_code}")
        return content


def _key_file(data: Path, name: str) -> str:
    """The key that `serve` keeps in a data folder, "" without one. Raises `ConfigError` if it cannot be read."""
    path = data / name
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); pass the key with --key") from error
