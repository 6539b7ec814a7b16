"""The digest of the code that a cell runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cells import code_digest

SOURCES = {
    "bench/__init__.py": "",
    "bench/run.py": '"""Run."""\nfrom bench.tools import help\n\ndef later():\n    import openclaw_rl.deep.inner\n',
    "bench/tools/__init__.py": "",
    "bench/tools/help.py": "import json\nVALUE = 1\n",
    "bench/page.py": "VALUE = 1\n",
    "openclaw_rl/deep/inner.py": "VALUE = 2\n",
    "openclaw_rl/deep/words.toml": "a = 1\n",
    "openclaw_rl/deep/weights/model.bin": "weights",
    "openclaw_rl/deep/README.md": "words",
    "openclaw_rl/deep/other/__init__.py": "",
    "openclaw_rl/deep/other/table.toml": "b = 1\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(code_digest, "ROOT", tmp_path)
    monkeypatch.setattr(code_digest, "BY_NAME", ())
    forget()
    return tmp_path


def forget() -> None:
    for one in (code_digest.digest, code_digest.files, code_digest.modules, code_digest._imports):
        one.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> None:
    forget()


def test_the_code_is_what_is_imported_and_the_data_next_to_it(root: Path) -> None:
    found = {str(path.relative_to(root)) for path in code_digest.files(("bench.run",))}
    assert found == {
        "bench/run.py",
        "bench/tools/__init__.py",
        "bench/tools/help.py",
        "openclaw_rl/deep/inner.py",
        "openclaw_rl/deep/words.toml",
        "openclaw_rl/deep/weights/model.bin",
    }


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("bench/tools/help.py", "import json\nVALUE = 3\n", True),
        ("openclaw_rl/deep/weights/model.bin", "other weights", True),
        ("openclaw_rl/deep/inner.py", '"""Say it better."""\n\n\nVALUE = 2\n', False),
        ("bench/page.py", "VALUE = 3\n", False),
        ("openclaw_rl/deep/README.md", "other words", False),
        ("openclaw_rl/deep/other/table.toml", "b = 2\n", False),
    ],
)
def test_only_what_runs_makes_another_state(root: Path, name: str, text: str, changes: bool) -> None:
    before = code_digest.digest(("bench.run",))
    (root / name).write_text(text)
    forget()
    assert (code_digest.digest(("bench.run",)) != before) is changes


def test_a_folder_without_a_checkout_has_nothing_to_commit(root: Path) -> None:
    assert code_digest.uncommitted(("bench.run",)) == []
