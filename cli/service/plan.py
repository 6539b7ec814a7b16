"""The parts of a service, worked out once from its settings, for `serve` and `demo`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.cli.checks.data_flows import data_flows
from openclaw_rl.cli.checks.gpu import fitting
from openclaw_rl.cli.model_files import local_folder, provided_tokenizer, tokenizer_folder
from openclaw_rl.shared.backends import resolve_backend
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.named_models import find_original
from openclaw_rl.shared.settings.settings import Settings

ROLES = ("engine", "proxy", "learner")


class ServicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The parts `roles` of a service. `settings` name the backend itself, never `local` or `cloud`; `policy` is the
    model as its owner wrote it; `placement` puts the parts on GPUs; `data_flows` say what goes to other machines.
    """

    settings: Settings
    policy: str
    roles: tuple[str, ...]
    judges: JudgeModels
    placement: Placement
    data_flows: tuple[str, ...]

    @classmethod
    def from_settings(cls, settings: Settings, roles: Iterable[str] = ROLES, *, policy: str = "") -> ServicePlan:
        """Raises `ConfigError` for a backend or judge that is none, and for parts that do not fit on the GPUs."""
        settings = resolve_backend(settings)
        judges = JudgeModels.from_settings(settings)
        roles = tuple(role for role in ROLES if role in set(roles))
        return cls(
            settings=settings,
            policy=policy or settings.engine.model,
            roles=roles,
            judges=judges,
            placement=fitting(settings, roles),
            data_flows=tuple(data_flows(settings, judges.asked)),
        )

    def with_settings(self, **changes: Any) -> ServicePlan:
        """The same plan with some settings changed that decide on none of its parts."""
        return msgspec.structs.replace(self, settings=self.settings.replace(**changes))

    def downloaded(self) -> ServicePlan:
        """The same plan with a folder for every hub name, downloaded where it is missing, as children may not do.
        Raises `ConfigError`.
        """
        engine = self.settings.engine
        changes: dict[str, Any] = {}
        if engine.is_cloud:
            changes["tokenizer"] = provided_tokenizer(self.settings)
        else:
            changes["model"] = local_folder(engine.model, setting="model")
            if engine.temperature == "auto" and (twin := find_original(engine.model)):
                changes["temperature"] = twin.temperature
            if engine.tokenizer:
                changes["tokenizer"] = tokenizer_folder(engine.tokenizer, setting="tokenizer")
        if "learner" in self.roles:
            folders = {
                model.name: str(Path(local_folder(str(Path(model.name).expanduser()), setting=model.setting)).resolve())
                for model in self.judges.asked
                if model.kind in ("engine", "reward-model") and model.name and not model.url
            }
            changes |= self.judges.changes(folders, {})
        return ServicePlan.from_settings(self.settings.replace(**changes), self.roles, policy=self.policy)
