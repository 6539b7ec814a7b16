from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.shared.placement import Placement, _allocator


def test_a_trainers_allocator_grows_its_segments_unless_the_user_set_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert _allocator({}, tmp_path) == grown
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        assert _allocator({name: ""}, tmp_path) == {}
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    assert not grown.keys() & Placement().trainer_environment.keys()


def test_a_trainers_allocator_is_left_alone_under_windows(tmp_path: Path) -> None:
    (tmp_path / "dxg").touch()
    assert _allocator({}, tmp_path) == {}
