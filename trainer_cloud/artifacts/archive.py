"""Adapters as providers hand them out, by their files or as a tar archive, which become a folder."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import httpx

from openclaw_rl.trainer_cloud.provider import CloudError

WANTED = ("adapter_config.json", "adapter_model.safetensors")


async def fetch_adapter(urls: Mapping[str, str], folder: Path, name: str, *, seconds: float) -> None:
    """Download the files of the adapter `name` from their `urls`, by file name, into `folder`. Raises `CloudError`."""
    by_name = {Path(file).name: url for file, url in urls.items()}
    check_complete(by_name)
    try:
        async with httpx.AsyncClient(timeout=seconds, follow_redirects=True) as http:
            for file in WANTED:
                with (folder / file).open("wb") as target:
                    await _fetch(http, by_name[file], target)
    except httpx.HTTPError as error:
        raise CloudError(f"{name} cannot be downloaded: {error}", "away", undone=True) from error


async def fetch_archive(http: httpx.AsyncClient, url: str, folder: Path) -> None:
    """Download the archive at `url` and put the adapter in it into `folder`. Raises `CloudError`, `httpx.HTTPError`."""
    with tempfile.TemporaryFile() as file:
        await _fetch(http, url, file)
        file.seek(0)
        unpack(file, folder)


async def _fetch(http: httpx.AsyncClient, url: str, target: IO[bytes]) -> None:
    async with http.stream("GET", url) as answer:
        answer.raise_for_status()
        async for chunk in answer.aiter_bytes():
            target.write(chunk)


def check_complete(found: Iterable[str]) -> None:
    """Raise `CloudError` if a file of an adapter is missing."""
    missing = sorted(set(WANTED) - set(found))
    if missing:
        raise CloudError(f"the provider sent no adapter: {' and '.join(missing)} missing", "refused", undone=True)


def unpack(file: IO[bytes], folder: Path) -> None:
    """Write the adapter's files of a tar archive, wherever they lie in it, into `folder`. Raises `CloudError`."""
    found: set[str] = set()
    try:
        with tarfile.open(fileobj=file, mode="r:*") as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if member.isfile() and name in WANTED else None
                if content is not None:
                    with (folder / name).open("wb") as target:
                        shutil.copyfileobj(content, target)
                    found.add(name)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CloudError(f"the archive of the adapter cannot be read: {error}", "away", undone=True) from error
    check_complete(found)
