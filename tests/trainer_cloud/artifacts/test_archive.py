from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from openclaw_rl.trainer_cloud.artifacts.archive import unpack
from openclaw_rl.trainer_cloud.provider import CloudError


def packed(*files: tuple[str, bytes], kind: str = "w:gz") -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=kind) as archive:  # type: ignore[call-overload]
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("kind", ["w", "w:gz"])
def test_the_adapter_is_taken_out_wherever_it_lies_and_nothing_else_is(tmp_path: Path, kind: str) -> None:
    files = [("a/b/adapter_config.json", b"{}"), ("a/adapter_model.safetensors", b"weights"), ("../../evil", b"x")]
    unpack(packed(*files, kind=kind), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert (tmp_path / "adapter_model.safetensors").read_bytes() == b"weights"


def test_an_archive_without_an_adapter_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CloudError, match="adapter_model"):
        unpack(packed(("adapter_config.json", b"{}")), tmp_path)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CloudError, match="cannot be read"):
        unpack(io.BytesIO(b"not a tar archive at all"), tmp_path)
