"""Values of the user that are far from their preset, in words for `doctor` and `serve`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from openclaw_rl.shared.settings.settings import SETTINGS, Settings, preset_of, usual_values

FAR = 4.0
"""A value is far from its preset if it is more than this many times larger or smaller."""
_DECIDES = ("backend", "model", "tokenizer", "method", "lora")
_NOT_COMPARED = ("step_seconds",)
"""A matter of patience, not of the model."""


def far_values(settings: Settings, sources: Mapping[str, str]) -> Iterator[str]:
    """A line for each value that is far from its preset, with what to do. `sources` are those of `load`; 0, which
    switches a thing off, is far from nothing.
    """
    values = {name: settings.value(name) for name in _DECIDES}
    preset = preset_of(values)
    if preset is None:
        return
    for name, fitting in usual_values(values).items():
        if name not in SETTINGS or name in _NOT_COMPARED or sources[name].startswith(("default", "preset")):
            continue
        value = settings.value(name)
        if not isinstance(value, int | float) or not value or not fitting:
            continue
        ratio = value / fitting
        if 1 / FAR <= ratio <= FAR:
            continue
        larger = f"{_short(max(ratio, 1 / ratio))} times {'larger' if ratio > 1 else 'smaller'} than"
        yield (
            f"{name} = {value:g} (from {sources[name].removesuffix(' (alias)')}) is {larger} the preset for a "
            f"{preset.name}, {fitting:g}: leave {name} out, or set a value from {_short(fitting / FAR)} to "
            f"{_short(fitting * FAR)}"
        )


def _short(number: float) -> str:
    """A number with two digits, or as a whole one."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"
