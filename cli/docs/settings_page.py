"""Writes docs/settings.md from the code: `python -m openclaw_rl.cli.docs.settings_page`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.far_values import FAR
from openclaw_rl.shared.settings.method_defaults import METHOD_DEFAULTS
from openclaw_rl.shared.settings.presets import EXPONENTS, HIDDEN_SIZE, PRESETS, Preset
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, SETTINGS, flag_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"

TITLES = {
    "serve": "Serving",
    "engine": "Engine",
    "judge": "Judge",
    "learning": "Learning",
    "guard": "Guard",
    "cloud": "Cloud backends",
    "gpu": "GPUs",
}
FIRST = {
    "serve": "host port api_key admin_key model_name data capture max_output_tokens side_model fallback_model thinking "
    "log_level log_format",
    "engine": "backend model context_length device engine_url",
    "judge": "judge votes hint_model judge_prompt custom_reward",
    "learning": "train method batch_size learning_rate epochs w_rl w_opd lora lora_rank keep_checkpoints report_to",
    "guard": "guard guard_probes",
    "cloud": "tinker_api_key fireworks_api_key cloud_daily_train_tokens cloud_redact",
    "gpu": "gpus sglang_python",
}
"""Settings that people set first; the others are advanced."""

_HEAD = """\
# Settings

Generated from the code by `make docs`; do not edit.

A setting can be given in several places. Each place in this list overrides those before it:

1. The default.
2. A name from another system ([below](#names-from-other-systems)), given in the file, in the environment or as a
   flag. The setting's own name, given anywhere, overrides it.
3. The file `openclaw-rl.toml` in the folder where `openclaw-rl` is started, or the file that `OPENCLAW_RL_CONFIG` or
   `--config` names. Write `batch_size = 4` at the top level or in the table of its group, `[learning]`. A name
   that begins with its group's name may be written without it there: `max_kl = 0.3` in `[guard]` is `guard_max_kl`.
   A file `….yaml`, `….yml` or `….json` holds the same as YAML or JSON.
4. The environment: `OPENCLAW_RL_BATCH_SIZE=4`.
5. A flag of `openclaw-rl serve`: `--batch-size 4`; a setting that is on or off has two flags, `--lora` and `--no-lora`.

`openclaw-rl doctor` shows every value and where it was given. A value out of its bounds, an unknown key and a misspelt
`OPENCLAW_RL_` variable are errors that name the place.
"""

_TABLE = """
## {title}

| setting | flag | default | meaning |
|---|---|---|---|
"""

_PRESETS = """
## Presets

The defaults above are those of the tiny policy. For any other model an unset setting follows this table
(`shared/settings/presets.toml`, which also explains each number). The first row that fits is taken. The size comes from
the model's files, or from its name (`Qwen3-4B`); a model of unknown size counts as a chat model.

- **Published methods** (all but `rehearse`) keep their own numbers, except for those in the last column. They publish
  the same learning rates for all weights and for a LoRA, which hardly moves at them.
- **Hidden size.** Rates with a star are those of a hidden size of {hidden:,}. Another size H multiplies them by
  ({hidden} / H) to the power of {exponents}. The result is rounded to two digits. Other
  families take the rate as it is.
- **Names without code style** are no settings; [methods.md](methods.md) explains them.
- **Your own value** overrides the preset. `doctor` and `serve` name each value that is more than {far:g} times larger
  or smaller than its preset.

`openclaw-rl doctor` shows where each value comes from. The judge is no part of the table: [judging.md](judging.md).

| preset | backend | parameters | `rehearse`, and methods of your own | published methods | source |
|---|---|---|---|---|---|
"""
_METHODS = """
## Defaults of the other methods

The defaults above are those of `rehearse`. Other methods have other defaults for these settings:

| method | defaults |
|---|---|
"""

_ALIASES = """
## Names from other systems

The service accepts these names of other systems. Names in capitals are variables, and names with dashes are flags. A
name like `num_judges` is a key of the file, and also a variable (`NUM_JUDGES`) and a flag (`--num-judges`). A name with
a dot is a key in a table of another system's file. A name in the tables above overrides them. If two of these names
give one setting different values, the error names both. A flag in the tables above (`--host`, `--batch-size`,
`--lora-rank`, …) always has the meaning given there.

- **Configuration files.** `--config FILE` (TOML, YAML or JSON) also reads these tables, with the keys below and names
  of settings: {tables}.
- **Variables with flags.** `LORA_ARGS="--lora-rank 64"` counts as a variable. These hold flags:
  {arguments}.
- **Names without a counterpart.** On the command line and as a key of `openclaw-rl.toml` such a name is an error, which
  says what to do instead. In a variable, or in a table of another system's file, `serve` and `doctor` print that
  message, and the service starts. A value that always holds here is accepted; `doctor` says so.

| name | meaning here |
|---|---|
"""

_NO_MODEL = "the data folder's policy; in a new folder smollm2, or tiny if smollm2 was not fetched"


def page() -> str:
    """The complete page."""
    chosen = {name for names in FIRST.values() for name in names.split()}
    first = "".join(_tables(name for name in SETTINGS if name in chosen))
    advanced = "".join(_tables((name for name in SETTINGS if name not in chosen), prefix="Advanced: "))
    return "".join((_HEAD, first, advanced, _METHODS, *_methods(), *_presets(), _aliases_head(), *_aliases()))


def _tables(names: Iterable[str], *, prefix: str = "") -> Iterator[str]:
    group = ""
    for name in names:
        setting = SETTINGS[name]
        if setting.group != group:
            group = setting.group
            yield _TABLE.format(title=prefix + TITLES[group])
        default = _NO_MODEL if setting.field.default == str(EMBEDDED_POLICY) else setting.field.default
        shown = ("on" if default else "off") if isinstance(default, bool) else str(default)
        meaning = (setting.field.description or "").replace("|", "\\|") + _choices(setting.field.annotation)
        yield f"| `{name}` | `--{flag_of(name)}` | {shown} | {meaning}{_bounds(name)} |\n"


def _methods() -> Iterator[str]:
    for method, own in METHOD_DEFAULTS.items():
        if listed := {name: value for name, value in own.items() if name in SETTINGS}:
            yield f"| `{method}` | {_values(listed)} |\n"


def _presets() -> Iterator[str]:
    exponents = ", ".join(f"{exponent:g} ({family})" for family, exponent in EXPONENTS.items())
    yield _PRESETS.format(hidden=HIDDEN_SIZE, exponents=exponents, far=FAR)
    for preset in PRESETS:
        backends = "tinker, fireworks" if preset.backend == "cloud" else "embedded, megatron"
        least, below = f"{preset.parameters / 1e6:,.0f} million", f"{preset.below / 1e6:,.0f}"
        size = (f"{least} to {below}" if preset.below else f"{least} up") if preset.parameters else "any"
        columns = (preset.name, backends, size, _row(preset, preset.values), _row(preset, preset.for_published))
        yield f"| {' | '.join(columns)} | {preset.source} |\n"


def _row(preset: Preset, values: Mapping[str, Any]) -> str:
    """The values; a star marks a rate that follows the hidden size."""
    listed = dict(values)
    if preset.by_hidden_size and "learning_rate" in listed:
        listed["learning_rate"] = f"{listed['learning_rate']:g}*"
    return _values(listed) or "their own"


def _values(own: Mapping[str, Any]) -> str:
    """Names in code style are settings."""
    return ", ".join(
        f"`{name}` {value}" if name in SETTINGS else f"{name.replace('_', ' ')} {value}" for name, value in own.items()
    )


def _choices(annotation: Any) -> str:
    """The values that a setting takes, where they are words of a fixed list."""
    words = [f"`{word}`" for word in get_args(annotation) if word] if get_origin(annotation) is Literal else []
    return f"; one of {', '.join(words)}" if len(words) > 1 else ""


def _bounds(name: str) -> str:
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        f"{sign} {getattr(limit, word):g}"
        for limit in SETTINGS[name].field.metadata
        for word, sign in words.items()
        if hasattr(limit, word)
    ]
    return f" ({', '.join(limits)})" if limits else ""


def _aliases_head() -> str:
    tables = ", ".join(f"`{table}`" for table in aliases.TABLES)
    arguments = textwrap.fill(", ".join(f"`{name}`" for name in aliases.ARGUMENTS), 117, subsequent_indent="  ")
    return _ALIASES.format(tables=tables, arguments=arguments)


def _aliases() -> Iterator[str]:
    for alias in aliases.ALIASES:
        names = [*alias.environment, *(f"--{flag}" for flag in alias.flags), *alias.keys, *alias.tables]
        yield f"| {' '.join(f'`{name}`' for name in names)} | {_meaning(alias)} |\n"
    methods = ", ".join(f"`{theirs}` = `{ours}`" for theirs, ours in aliases.METHODS.items())
    yield f"\nMethods: {methods}. The setting `method` lists all methods.\n"


def _meaning(alias: aliases.Alias) -> str:
    if not alias.settings:
        held = ", ".join(f"`{value}`" for value in alias.holds if value != "*")
        return f"no setting: {alias.instead}" + (f" (accepted: {held})" if held else "")
    meaning = " and ".join(f"`{setting}`" for setting in alias.settings)
    if not alias.second:
        return meaning
    first = (one for one in aliases.ALIASES if one.first and set(one.settings) & set(alias.next_to))
    names = (name for one in first for name in (*one.environment, *(f"--{flag}" for flag in one.flags), *one.tables))
    return f"{meaning}; next to another of {', '.join(f'`{name}`' for name in names)}: `{alias.second}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE}")
