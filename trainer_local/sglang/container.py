"""SGLang in a container: what the line that starts it needs, so that the container ends with its service.

A container is no child of its client (`docker run`). SIGKILL ends the client alone, and leaves the container with its
GPUs and its port. It is ended by its name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

NAME, VARIABLES = "{name}", "{env}"
_CLIENTS = ("docker", "podman", "nerdctl")
_GPUS = "{gpus}"


def is_container(program: Sequence[str]) -> bool:
    """True if a command starts a container, which does not see our files."""
    return bool(_clients(program)) and "run" in program


def removal(program: Sequence[str], name: str) -> list[str]:
    """The command that ends the container `name` of the command `program`; empty where that starts none by a name."""
    if "run" not in program or not any(NAME in word for word in program):
        return []
    return [*program[: program.index("run")], "rm", "--force", name]


def named(program: Sequence[str], name: str) -> list[str]:
    """The command `program` with the name of its container."""
    return [word.replace(NAME, name) for word in program]


def with_variables(program: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command `program` with the options that set environment variables in its container."""
    options = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    words: list[str] = []
    for word in program:
        words += options if word == VARIABLES else [word.replace(VARIABLES, " ".join(options))]
    return words


def faults(program: Sequence[str], gpus: int) -> Iterator[tuple[bool, str]]:
    """The faults of a command that starts a container whose server has `gpus` GPUs: whether each keeps it from
    starting, and its description. None for commands that start no container.
    """
    if not is_container(program):
        return
    clients = _clients(program)
    if gpus > 1 and Path(clients[0]).name == "docker" and (wrong := _unquoted(program)):
        yield (
            True,
            f"{wrong} has a comma, at which docker cuts it in two: with {gpus} GPUs it refuses to start. Write the "
            'quotes that docker needs so that they stay: --gpus \\"device={gpus}\\"',
        )
    if not any(NAME in word for word in program):
        yield (
            False,
            "the container has no name to end it by: it may stay when the service ends, with its GPUs and its port. "
            "Add: --name {name}",
        )
    if not any(VARIABLES in word for word in program):
        yield False, "SGLang in the container does not get the variables that it needs. Add: {env}"


def _unquoted(program: Sequence[str]) -> str:
    """The value of --gpus that docker takes apart at the comma between two GPUs. It reads the value as one line of CSV
    (docker/cli, opts/gpus.go), so a field with a comma needs double quotes of its own.
    """
    for place, word in enumerate(program):
        option, _, value = word.partition("=")
        if option != "--gpus":
            continue
        value = value or next(iter(program[place + 1 :]), "")
        fields = next(csv.reader([value.replace(_GPUS, "0,1")]), [])
        if _GPUS in value and "device=0,1" not in fields:
            return f"--gpus {value}"
    return ""


def _clients(program: Sequence[str]) -> list[str]:
    return [word for word in program if Path(word).name in _CLIENTS]
