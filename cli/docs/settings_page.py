"""Writes docs/settings.md out of the code: `python -m openclaw_rl.cli.docs.settings_page`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.cloud import CloudSettings, cloud_defaults
from openclaw_rl.shared.settings.gpu import GpuSettings
from openclaw_rl.shared.settings.learning import LearningSettings
from openclaw_rl.shared.settings.method_defaults import METHOD_DEFAULTS
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings, flag_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"

_HEAD = """\
# Settings

Made from the code by `make docs`; do not edit.

Sources, weakest first: default, alias (wherever it stands), `openclaw-rl.toml` in the folder where `openclaw-rl` is
started (or the file that `OPENCLAW_RL_CONFIG` or `--config` names), environment, flag. `openclaw-rl doctor` shows every
value and the source that decided it.

- In the file: `batch_size = 4`, one a line, without sections.
- In the environment: `OPENCLAW_RL_BATCH_SIZE=4`.
- As a flag of `openclaw-rl serve`: `--batch-size 4`; switches are `--lora` and `--no-lora`.

A value out of its bounds, an unknown key and a misspelt `OPENCLAW_RL_` variable are errors that name their source.
"""

_METHODS = """
## Defaults of the other methods

The defaults above are those of `rehearse`. A setting that nobody chose takes the value of the method in use.

| method | its own defaults |
|---|---|
"""

_ALIASES = """
## Names from other systems

These are understood as variables (capitals), as flags, and, written like `num_judges`, also in `openclaw-rl.toml`. Our
own name wins over them; two that disagree are an error that names both. Flags that are spelled as our own settings
(`--host`, `--batch-size`, `--lora-rank`, …) are our own.

| name | what it means here |
|---|---|
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_settings()) + _METHODS + "".join(_methods()) + _ALIASES + "".join(_aliases())


def _settings() -> Iterator[str]:
    sections = _sections()
    later = {**LearningSettings.model_fields, **CloudSettings.model_fields, **GpuSettings.model_fields}
    fields = {name: field for name, field in Settings.model_fields.items() if name not in later} | later
    for name, field in fields.items():
        if name in sections:
            yield f"\n## {sections[name]}\n\n| setting | flag | default | meaning |\n|---|---|---|---|\n"
        default = "the shipped policy" if field.default == str(EMBEDDED_POLICY) else field.default
        shown = ("on" if default else "off") if isinstance(default, bool) else str(default)
        meaning = (field.description or "").replace("|", "\\|") + _choices(field.annotation)
        yield f"| `{name}` | `--{flag_of(name)}` | {shown} | {meaning}{_bounds(name)} |\n"


def _methods() -> Iterator[str]:
    for method, own in METHOD_DEFAULTS.items():
        if own:
            yield f"| `{method}` | {_values(own)} |\n"
    own = cloud_defaults("cloud", Settings.model_fields["method"].default)
    yield f"\nWith a cloud backend these are {_values(own)}; a method's own smaller learning rate stays.\n"


def _values(own: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}` {value}" for name, value in own.items())


def _sections() -> dict[str, str]:
    """The comment above each group of settings, by the group's first setting."""
    sections: dict[str, str] = {}
    heading = ""
    source = "".join(map(inspect.getsource, (Settings, LearningSettings, CloudSettings, GpuSettings)))
    for line in source.splitlines():
        text = line.strip()
        if text.startswith("# "):
            heading = text[2:]
        elif heading and text.split(":")[0] in Settings.model_fields:
            sections[text.split(":")[0]] = heading
            heading = ""
    return sections


def _choices(annotation: Any) -> str:
    """The values that a setting takes, where they are words of a fixed list."""
    words = [f"`{word}`" for word in get_args(annotation)] if get_origin(annotation) is Literal else []
    return f"; one of {', '.join(words)}" if words else ""


def _bounds(name: str) -> str:
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        f"{sign} {getattr(limit, word):g}"
        for limit in Settings.model_fields[name].metadata
        for word, sign in words.items()
        if hasattr(limit, word)
    ]
    return f" ({', '.join(limits)})" if limits else ""


def _aliases() -> Iterator[str]:
    for alias in aliases.ALIASES:
        names = [*alias.environment, *(f"--{flag}" for flag in alias.flags), *alias.keys]
        meaning = " and ".join(f"`{setting}`" for setting in alias.settings) or f"nothing yet: {alias.instead}"
        yield f"| {' '.join(f'`{name}`' for name in names)} | {meaning} |\n"
    methods = ", ".join(f"`{theirs}` = `{ours}`" for theirs, ours in aliases.METHODS.items())
    yield f"\nMethods: {methods}. Those that this version has are listed with `method` above.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE}")
