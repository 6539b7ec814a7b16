"""The interpreter behind the tool `python`: it keeps the variables from call to call.

It runs alone in a sandbox, with `python -I`, in a folder with the FIFOs `in` and `done`. A line in `in` asks it to run
the file `code`; output, the value of a last expression and a trace go to the file `out`, and the line `ok` or `error`
into `done`; the first line there is `ready`. The argument is the number of seconds that a call may take.
"""

from __future__ import annotations

import ast
import linecache
import os
import signal
import sys
import traceback
from types import CodeType, FrameType
from typing import Any


def run(source: str, name: str, variables: dict[str, Any]) -> bool:
    """Run `source`, and print the value of its last expression, or the trace; True if it raised nothing."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        tree = ast.parse(source, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), variables)
        if isinstance(last, ast.Expr):
            code: CodeType = compile(ast.Expression(last.value), name, "eval")
            value = eval(code, variables)
            if value is not None:
                print(repr(value))
    except BaseException as error:  # SystemExit too: the interpreter stays
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        error.__traceback__ = trace  # without our own frames
        traceback.print_exception(error)
        return False
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    return True


def main() -> None:
    """Serve calls, until the process is ended."""
    seconds = float(sys.argv[1])
    place = os.getcwd()
    os.chdir("/workspace")
    sys.path.insert(0, "/workspace")
    asked = os.fdopen(os.open(f"{place}/in", os.O_RDWR))  # for writing too, so that there is never an end
    variables: dict[str, Any] = {"__name__": "__main__"}

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    signal.signal(signal.SIGALRM, end)
    _say(place, "ready")
    number = 0
    while asked.readline():
        number += 1
        out = os.open(f"{place}/out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.close(out)
        with open(f"{place}/code", encoding="utf-8") as file:
            source = file.read()
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            good = run(source, f"<call {number}>", variables)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        _say(place, "ok" if good else "error")


def _say(place: str, word: str) -> None:
    with open(f"{place}/done", "w") as done:
        done.write(f"{word}\n")


if __name__ == "__main__":
    main()
