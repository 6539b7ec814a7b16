"""A cloud backend's engine over a real socket, in a thread of the test process, and settings for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openclaw_rl.shared.engine.server import http_server
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import launch
from openclaw_rl.trainer_cloud.engine.server import application
from openclaw_rl.trainer_cloud.provider import Provider
from tests.rigs.tinker_server import KEY
from tests.trainer_local.serving import wait_for


def tinker_settings(url: str, model: Path | str, data: Path, **changes: Any) -> Settings:
    """Settings of a service at the Tinker-compatible server at `url`."""
    own = {"backend": "tinker", "model": str(model), "data": data, "tinker_api_key": KEY, "tinker_base_url": url}
    quick = {"lora_rank": 8, "request_timeout": 120.0, "cloud_redact": "off"}
    return Settings(**(own | quick | changes))


@contextmanager
def serving_cloud(
    settings: Settings, provider: Provider | None = None, *, live: tuple[int, str] | None = None
) -> Iterator[str]:
    """The engine's URL until the block ends."""
    app = application(settings, provider or launch.create_provider(settings), live=live)
    server = http_server(app, host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
