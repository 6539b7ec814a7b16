"""The files in docs/tool-calls.md are read as written."""

from __future__ import annotations

import re
from pathlib import Path

from openclaw_rl.environments.tools.functions import load_functions
from openclaw_rl.environments.tools.task_file import TaskFile

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tool-calls.md"


def test_the_files_of_the_page(tmp_path: Path) -> None:
    blocks = re.findall(r"^```json\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    line, described = blocks
    (tmp_path / "tasks.jsonl").write_text(line)
    task = next(TaskFile(tmp_path / "tasks.jsonl").tasks("train", 0))
    assert (task.id, task.data["answer"]) == ("sum-1", 92.0)
    (tmp_path / "my_tools.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "tools_config.json").write_text(described.replace("./my_tools.py", str(tmp_path / "my_tools.py")))
    entries = load_functions(tmp_path / "tools_config.json")
    assert [entry.name for entry in entries] == ["add", "words"]
