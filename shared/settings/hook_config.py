"""The `config` of hooks written for other systems."""

from __future__ import annotations

import re
from typing import Any

from openclaw_rl.shared.settings import aliases
from openclaw_rl.shared.settings.model_reference import AUTO
from openclaw_rl.shared.settings.named_models import model_path

_MODELS = frozenset({"judge", "hint_model"})
_PREFIX, _URL = re.compile(r"^(engine|reward-model):"), re.compile(r"@?https?://\S+$")


class HookConfig(dict[str, Any]):
    """Settings by name, as `config["judge"]`, `config.get("judge")` and `config.judge`. Other systems' names work too:
    `config["prm_model_path"]` is the path in `judge`, whether it came by PRM_MODEL_PATH, a flag or the file.
    """

    def __missing__(self, name: str) -> Any:
        alias = next((one for one in aliases.ALIASES if _matches(one, name)), None)
        if alias is None:
            raise KeyError(name)
        # The second meaning comes first: it is set where both are (JUDGE_MODEL_PATH, the hint model).
        for setting in filter(None, (alias.second, *alias.settings)):
            value = self._value(setting)
            if value not in ("", None):
                return value
        raise KeyError(f"{name} is not set" + (f"; set {alias.environment[0]}" if alias.environment else ""))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __contains__(self, name: object) -> bool:
        return self.get(str(name), _ABSENT) is not _ABSENT

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default` for a name that is neither a setting nor another system's, or that is not set."""
        try:
            return self[name]
        except KeyError:
            return default

    def _value(self, setting: str) -> Any:
        value = super().get(setting)
        if setting not in _MODELS:
            return value
        if value in ("", None, AUTO, "rules", "policy"):
            return ""
        return model_path(_URL.sub("", _PREFIX.sub("", str(value))))


_ABSENT = object()


def _matches(alias: aliases.Alias, name: str) -> bool:
    names = (*(one.lower() for one in alias.environment), *(one.replace("-", "_") for one in alias.flags), *alias.keys)
    return name.lower() in names
