from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import StrictUndefined, Template

from openclaw_rl.environments.agents.mini_swe_agent import settings
from openclaw_rl.shared.errors import ConfigError


def rendered(template: str, **values: object) -> str:
    return Template(template, undefined=StrictUndefined).render(**values)


def test_the_templates_are_short_and_name_the_word_that_ends_the_loop() -> None:
    found = settings()
    first = rendered(found["agent"]["instance_template"], task="Delete a.txt.")
    assert first.startswith("Delete a.txt.\n") and first.endswith("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    assert len(first) + len(found["agent"]["system_template"]) < 250
    assert rendered(found["model"]["format_error_template"], error="No call.", actions=[], has_tool_calls=False)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"output": "two\n", "returncode": 0, "exception_info": ""}, "two\n[exit 0]"),
        ({"output": "", "returncode": 1, "exception_info": ""}, "[exit 1]"),
        ({"output": "half", "returncode": -1, "exception_info": "timed out"}, "half\n[timed out]"),
    ],
)
def test_a_result_reads_like_one_of_our_own_agent(output: dict[str, object], text: str) -> None:
    assert rendered(settings()["model"]["observation_template"], output=output) == text


def test_a_file_of_your_own_replaces_ours(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[agent]\nsystem_template = "Hello."\n')
    assert settings(str(own)) == {"agent": {"system_template": "Hello."}}
    for text in ("[environment]\n", "["):
        own.write_text(text)
        with pytest.raises(ConfigError, match=r"own\.toml"):
            settings(str(own))
