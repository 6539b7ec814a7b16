"""Adapters as providers hand them out, by their files or as a tar archive, which become a folder."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

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
                async with http.stream("GET", by_name[file]) as answer:
                    answer.raise_for_status()
                    with (folder / file).open("wb") as target:
                        async for chunk in answer.aiter_bytes():
                            target.write(chunk)
    except httpx.HTTPError as error:
        raise CloudError(f"{name} cannot be downloaded: {error}", "away", undone=True) from error


async def fetch_archive(http: httpx.AsyncClient, url: str, folder: Path) -> None:
    """Download the archive at `url` and put the adapter in it into `folder`. Raises `CloudError`, `httpx.HTTPError`."""
    with tempfile.TemporaryFile() as file:
        async with http.stream("GET", url) as answer:
            answer.raise_for_status()
            async for chunk in answer.aiter_bytes():
                file.write(chunk)
        file.seek(0)
        unpack(file, folder)


def check_complete(found: Iterable[str]) -> None:
    """Raise `CloudError` if a file of an adapter is missing."""
    missing = sorted(set(WANTED) - set(found))
    if missing:
        raise CloudError(f"the provider sent no adapter: {' and '.join(missing)} missing", "refused", undone=True)


def unpack(file: object, folder: Path) -> None:
    """Write the adapter's files of a tar archive, wherever they lie in it, into `folder`. Raises `CloudError`."""
    found: set[str] = set()
    try:
        with tarfile.open(fileobj=file, mode="r:*") as archive:  # type: ignore[call-overload]
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
