"""The engines that `judge` and `hint_model` need: started with the learner on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from openclaw_rl.cli.service.plan import ServicePlan
from openclaw_rl.shared.backends import engine_command, own_engine


class JudgeEngines(NamedTuple):
    """By role the command line and the URL of each engine, and the settings that name the models there."""

    commands: dict[str, Callable[[], list[str]]]
    urls: dict[str, str]
    settings: dict[str, str]


def judge_engines(plan: ServicePlan, free_port: Callable[[], int]) -> JudgeEngines:
    """The engines that the plan's judge models need, each at a port of `free_port` on loopback: SGLang where the plan
    has GPUs for it, else the embedded engine.
    """
    engines = JudgeEngines({}, {}, {})
    by_folder: dict[str, str] = {}
    for role, folder in plan.judges.to_serve.items() if "learner" in plan.roles else ():
        port = free_port()
        servers = [server for server in plan.placement.judges if server.role == role]
        own = own_engine(plan.settings, folder, port=port, on_gpus=bool(servers))
        engines.commands[role] = partial(engine_command, own, servers)
        engines.urls[role] = by_folder[folder] = f"http://127.0.0.1:{port}"
    return engines._replace(settings=plan.judges.changes({}, by_folder))
