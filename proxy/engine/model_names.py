"""The names of the policy: its own, with or without a version, the aliases of the settings, and any other id."""

from __future__ import annotations

import re
from typing import Any

from openclaw_rl.shared.errors import BadRequest, NotFound
from openclaw_rl.shared.settings.model_aliases import LONGEST, SETTING, is_version, parse_aliases


class ModelNames:
    """`own` is the policy's name; `listed` are the aliases without wildcards.

    An alias without wildcards comes before patterns, and of patterns the longest that fits counts. Any other id means
    the live version, unless `strict`: clients keep the ids of their former server.
    """

    def __init__(self, own: str, aliases: str = "", *, strict: bool = False) -> None:
        self.own = own
        self._strict = strict
        parsed = sorted(parse_aliases(aliases, own), key=lambda alias: ("*" in alias.pattern, -len(alias.pattern)))
        self._exact = {alias.pattern: alias.version for alias in parsed if "*" not in alias.pattern}
        self._patterns = [
            (re.compile(".*".join(map(re.escape, alias.pattern.split("*"))), re.DOTALL), alias.version)
            for alias in parsed
            if "*" in alias.pattern
        ]
        self.listed = tuple(sorted(self._exact))

    def read(self, model: Any) -> tuple[str, int | None]:
        """The model name to answer with, which is the one in the request, and the version that it means (`None` for
        the live one, as does no name). Raises `BadRequest` or `NotFound`.
        """
        if model is None or (model == "" and not self._strict):
            return self.own, None
        if not isinstance(model, str):
            raise BadRequest("model must be a string.", param="model", code="invalid_value")
        base, at, number = model.partition("@")
        if base == self.own:
            if at and not is_version(number):
                raise self.unknown(model)
            return model, int(number) if at else None
        if model in self._exact:
            return model, self._exact[model]
        for expression, version in self._patterns:
            if len(model) <= LONGEST and expression.fullmatch(model):
                return model, version
        # A version of an alias is asked for by number, and the live one would be a silent answer by another.
        if self._strict or len(model) > LONGEST or (base in self._exact and is_version(number)):
            raise self.unknown(model)
        return model, None

    def served(self, version: int | None) -> str:
        """The policy's own name for a version."""
        return self.own if version is None else f"{self.own}@{version}"

    def unknown(self, model: str) -> NotFound:
        """The error for a model or version that is not served."""
        known = (
            f"The model {model[:200]!r} does not exist. This service has {self.own!r}, and {self.own + '@N'!r} for "
            "version N (GET /v1/models lists them)."
        )
        how = f' To have other names served by it, set {SETTING}, for example to "{model}={self.own}"'
        how += ", or turn strict_model_names off." if self._strict else "."
        if len(model) > LONGEST:
            how = f" A model name has at most {LONGEST} characters."
        elif not model or model.partition("@")[0] in (self.own, *self._exact):
            how = ""
        return NotFound(known + how, code="model_not_found", param="model")
