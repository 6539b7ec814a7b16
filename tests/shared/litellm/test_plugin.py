"""The distribution `integrations/litellm`; tests/real drives it in a LiteLLM Proxy."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

PLUGIN = Path(__file__).resolve().parents[3] / "integrations" / "litellm"


def test_it_needs_httpx_and_msgspec_and_nothing_of_ours() -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    assert [line.partition(">")[0] for line in project["dependencies"]] == ["httpx", "msgspec"]
    program = (
        "import sys, openclaw_rl_litellm as plugin; assert plugin.policy_llm and plugin.policy_callback; "
        "print([name for name in sys.modules if name.partition('.')[0] == 'openclaw_rl'])"
    )
    answer = subprocess.run([sys.executable, "-c", program], cwd=PLUGIN, capture_output=True, text=True, timeout=100)
    assert answer.stdout.strip() == "[]", answer.stderr
