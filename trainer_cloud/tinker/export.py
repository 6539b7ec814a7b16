"""An adapter out of Tinker, as PEFT writes it: exported to be downloaded where the service can do that, else the
archive of the sampler's weights, as older services and clients have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import preflight
from openclaw_rl.trainer_cloud.artifacts import archive
from openclaw_rl.trainer_cloud.failures import status_of
from openclaw_rl.trainer_cloud.provider import CloudError

KEPT_SECONDS = 3600


class Awaited(Protocol):
    """Awaits a future of the library."""

    async def __call__(self, given: Any, doing: str) -> Any:
        """The result of the future. Raises `CloudError`."""
        ...


async def exported(client: Any, rest: Any, folder: Path, *, done: Awaited, seconds: float) -> None:
    """Have a training client's weights exported, and download them into `folder`. Raises `CloudError`: `refused` where
    library or service cannot do it.
    """
    if not hasattr(client, "save_weights_external") or not hasattr(rest, "get_external_weights_urls"):
        raise CloudError("this version of the Tinker library exports no weights", "refused", undone=True)
    path = (await done(client.save_weights_external("export", ttl_seconds=KEPT_SECONDS), "exporting the weights")).path
    urls = (await done(rest.get_external_weights_urls(path), f"asking where {path} is")).urls
    await archive.fetch_adapter(urls, folder, path, seconds=seconds)


async def archived(path: str, folder: Path, settings: Settings) -> None:
    """Download the archive of a sampler's weights at `path` into `folder`. Raises `CloudError`."""
    run, _, rest = path.removeprefix("tinker://").partition("/")
    name = rest.rpartition("/")[2]
    root = f"{preflight.base_url(settings)}/api/v1/training_runs/{quote(run, safe='')}/checkpoints"
    headers = {"X-API-Key": settings.cloud.tinker_api_key}
    last: Exception | None = None
    async with httpx.AsyncClient(
        timeout=settings.serve.request_timeout, follow_redirects=True, headers=headers
    ) as http:
        for url in (f"{root}/{quote(rest)}/archive", f"{root}/{quote(name)}/archive"):
            try:
                await archive.fetch_archive(http, url, folder)
                return
            except httpx.HTTPError as error:
                last = error
                if status_of(error) not in (400, 404, 405, 422):
                    break
    raise CloudError(f"the archive of {path} cannot be downloaded: {last}", "away", undone=True) from last
