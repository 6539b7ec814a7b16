"""SkyRL's Tinker server: `launch.py api` + the arguments of `skyrl.tinker.api`, `--shim` and `--recognise`. Runs in the
rig's own environment.

Its API begins its engine as a second process, this file again as `launch.py engine`. What is put in place here, so
that it runs without uv, on Python 3.11 and on two cores; numbers are its own:

- models are held in float32 whatever their folder says: an adapter in bfloat16 loses the small steps of a test;
- the engine looks for work, and the API for results, more often than they do by themselves;
- what `slots` and `routes` add. `--shim` lets newer clients in, `--recognise` knows training requests that come again
  (`wire`).
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import sys
import time
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # SkyRL's models use it; pydantic refuses it on Python < 3.12

ENGINE_SECONDS = 0.03
RESULT_SECONDS = 0.05
READY = ".ready"
"""The file among the checkpoints that says that the engine has loaded the model."""


def run_engine(arguments: list[str]) -> None:
    """The process that computes."""
    _end_with_parent()
    import jax.numpy as jnp
    import skyrl.backends.jax
    import skyrl.tinker.engine
    from skyrl.tinker.config import EngineConfig, add_model
    from slots import Engine

    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    config = EngineConfig.model_validate(vars(parser.parse_args(arguments)))
    skyrl.backends.jax.get_dtype = lambda dtype: jnp.float32
    skyrl.tinker.engine.time = SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(ENGINE_SECONDS))
    engine = Engine(config)
    Path(config.checkpoints_base, READY).touch()
    engine.run()


def _end_with_parent() -> None:
    """The API does not end its engine when it is killed, and an engine without an API looks for work for ever."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit(1)


def run_api(arguments: list[str]) -> None:
    """The process that clients talk to."""
    import uvicorn
    from routes import add_routes
    from skyrl.tinker import api
    from wire import recognising, shimmed

    parser = argparse.ArgumentParser()
    api.add_model(parser, api.EngineConfig)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--shim", action="store_true")
    parser.add_argument("--recognise", action="store_true")
    given = vars(parser.parse_args(arguments))

    def engine_command(parent: list[str], config: Any) -> list[str]:
        return [sys.executable, __file__, "engine", *api.config_to_argv(config)]

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, RESULT_SECONDS))

    api._build_uv_run_cmd_engine = engine_command
    api.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": sleep})
    fields = api.EngineConfig.model_fields
    api.app.state.engine_config = api.EngineConfig.model_validate({key: given[key] for key in fields})
    ready = Path(given["checkpoints_base"], READY)
    ready.parent.mkdir(parents=True, exist_ok=True)
    ready.unlink(missing_ok=True)
    add_routes(api.app, ready)
    served: Any = recognising(api.app) if given["recognise"] else api.app
    uvicorn.run(shimmed(served) if given["shim"] else served, host="127.0.0.1", port=given["port"])


if __name__ == "__main__":
    {"api": run_api, "engine": run_engine}[sys.argv[1]](sys.argv[2:])
