"""`GET /v1/models` and `GET /v1/models/{model}`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openclaw_rl.proxy.engine.versions import available
from openclaw_rl.proxy.http.json import json_response
from openclaw_rl.proxy.service import ProxyService


async def list_models(request: Request) -> Response:
    """The policy's names: its own, its versions, and the aliases that mean one of them."""
    service: ProxyService = request.app.state.service
    aliases = [name for name in service.names.listed if await _exists(service, service.names.read(name)[1])]
    names = [*await service.versions.names(), *aliases]
    return json_response({"object": "list", "data": [_card(service, name) for name in names]})


async def show_model(request: Request) -> Response:
    """One of them."""
    service: ProxyService = request.app.state.service
    name = request.path_params["model"]
    _, version = service.names.read(name)
    if not await _exists(service, version):
        raise service.names.unknown(service.names.served(version))
    return json_response(_card(service, name))


async def _exists(service: ProxyService, version: int | None) -> bool:
    if version is None or service.names.served(version) in await service.versions.names():
        return True
    known = await service.journal.version(version)
    return known is not None and available(known)


def _card(service: ProxyService, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "root": service.names.served(service.names.read(name)[1]),
        "object": "model",
        "created": int(service.started),
        "owned_by": "openclaw-rl",
        "context_length": service.watch.context_length,
        "max_model_len": service.watch.context_length,
        "input_modalities": ["text"] if service.watch.blind else ["text", "image"],
    }
