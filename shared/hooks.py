"""Objects that people name in settings: `module:attribute`, `./file.py` or `./file.py:attribute`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, cast

from pydantic import AfterValidator

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command

_HOOK = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|[^:]+\.py(?::[A-Za-z_]\w*)?")


def is_hook(path: str) -> bool:
    """True if `path` has the form of a hook: `module:attribute`, `./file.py` or `./file.py:attribute`."""
    return _HOOK.fullmatch(path) is not None


def _hook(value: str) -> str:
    if value and not is_hook(value):
        raise ValueError("neither module:attribute nor a file such as ./custom_loss.py")
    return value


Hook = Annotated[str, AfterValidator(_hook)]
"""The type of settings that name a hook, "" for none."""


def resolve(path: str, *, extra: str = "", default: str = "") -> Callable[..., Any]:
    """The object that `module:attribute` or `./file.py:attribute` names; a file alone means its `default`.

    Raises `ConfigError` naming the path, and the extra to install when a module that it needs is missing.
    """
    module_name, _, attribute = path.partition(":")
    attribute = attribute or default
    try:
        module = _file_module(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = f"; install it with: {install_command(extra)}" if extra else ""
        raise ConfigError(f"{path} needs the module {error.name!r}, which is not installed{hint}") from error
    except ConfigError:
        raise
    except Exception as error:  # code that is not ours
        raise ConfigError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    try:
        return cast(Callable[..., Any], getattr(module, attribute))
    except AttributeError as error:
        where = "; docs/extending.md describes it" if default else ""
        raise ConfigError(f"{path}: the module has no {attribute!r}{where}") from error


def _file_module(path: str) -> ModuleType:
    """The module that a file holds, executed once a process. Raises `ConfigError` when it cannot be."""
    file = Path(path).expanduser().resolve()
    name = f"openclaw_rl_hook_{zlib.crc32(str(file).encode()):08x}_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    specification = importlib.util.spec_from_file_location(name, file)
    if not file.is_file() or specification is None or specification.loader is None:
        raise ConfigError(f"{path}: there is no such file ({file})")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
