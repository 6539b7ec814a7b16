"""Time: no function that reads a text which others wrote takes more than linear time, whatever the text is made of."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable
from types import ModuleType

import pytest

import openclaw_rl.learner.judge
import openclaw_rl.proxy.conversation
import openclaw_rl.shared.messages
from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.text_reading import READERS, reads_text
from tests.fixtures.openclaw import CONTEXT_BEGIN

PACKAGES = (openclaw_rl.proxy.conversation, openclaw_rl.learner.judge, openclaw_rl.shared.messages)
TEXT = {"text", "words", "system", "last", "body"}
"""Names of a first parameter that is a text of others."""

PARTS = (
    *(" ", "\n", "\t", "\n\n ", " \n", "a", "A", "é", "ab", "a b ", "-a", "1 ", "I ", "if ", "a - ", "[x] ", "<a>"),
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "<",
        ">",
        "`",
        "*",
        "-",
        ".",
        "!",
        "'",
        '"',
        "\\n",
        "... ",
        "# ",
        "\n> ",
        "\n- ",
        "```\n",
    ),
    *("no ", "no\n", "not ", "please ", "too long ", "shorter ", "wrong, ", "thanks, ", "don't ", "why did you "),
    *("you said ", "the user ", "Your task is ", "error ", "Error: ", "Traceback ", "exit code ", "summary ", "title "),
    *("[Request interrupted ", "[Request", "<system-reminder>", "<command-name>", "System: [x] y\n", "Runtime: agent="),
    *('{"a":', "\\boxed{", "HINT: "),
)
FRAMES = ("{}", "no{}x", "<{}x", "Please answer in one sentence.{}", "{}no, that is wrong", "{}?", "👍{}")
FACTOR = 2.6
"""Times that twice the text may take at most: 2 and some noise. A quadratic function takes 4."""
FIRST, LAST = 1_000, 32_000
ENOUGH = 0.002
"""Seconds of processor time that can be compared: a text grows until reading it takes that long."""


def _modules(package: ModuleType) -> list[ModuleType]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(module.name) for module in found]


MODULES = [module for package in PACKAGES for module in _modules(package)]


def seconds(read: Callable[[str], object], text: str, repeats: int) -> float:
    """Processor time of this thread: what else runs on the machine does not count."""
    found = []
    for _ in range(repeats):
        start = time.thread_time()
        with contextlib.suppress(OpenClawRLError):
            read(text)
        found.append(time.thread_time() - start)
    return min(found)


def growth(read: Callable[[str], object], frame: str, part: str, repeats: int = 2) -> float:
    """Times that reading a text takes for each doubling of it; 0 where it never takes long."""

    def text(size: int) -> str:
        return frame.format(part * (size // len(part)))

    size = FIRST
    while (first := seconds(read, text(size), repeats)) < ENOUGH:
        if size >= LAST:
            return 0.0
        linear = int(1.25 * size * ENOUGH / first)  # long enough if the time is linear, longer than needed otherwise
        size = min(max(2 * size, linear), LAST)
    return float((seconds(read, text(4 * size), repeats) / first) ** 0.5)


def slow(read: Callable[[str], object]) -> list[str]:
    """The texts on which a function is slower than linear, measured again and better before it is blamed."""
    found = []
    for frame in FRAMES:
        for part in PARTS:
            if all(growth(read, frame, part, repeats) > FACTOR for repeats in (1, 2, 3)):
                found.append(frame.format(repr(part)))
    return found


SPEAKER = "proxy.conversation.speaker.read_user"
RULES = "learner.judge.rules.rules.read_message"
ONCE_SLOW = [
    *((SPEAKER, "<context>{}", " "), (SPEAKER, "I ran this command:{}make", "\n")),
    *((SPEAKER, "{}memory", "using the above "), (SPEAKER, "{}", "Extract the facts of our conversation. ")),
    *((SPEAKER, "{}", CONTEXT_BEGIN), (SPEAKER, "{}", "Runtime: "), (SPEAKER, "{}", "System: [")),
    *((RULES, "{}", part) for part in ("in as the same ", "you just ", "nice and ", "kind, nice, well put, ")),
    *((RULES, "say{}", " them"), (RULES, "{}", "please be kind, ")),
]


@pytest.mark.parametrize(("name", "frame", "part"), ONCE_SLOW)
def test_texts_that_took_long_once_take_linear_time(name: str, frame: str, part: str) -> None:
    assert min(growth(READERS[name], frame, part, repeats) for repeats in (1, 2, 3)) <= FACTOR


def test_twice_the_messages_of_a_user_take_about_twice_as_long() -> None:
    def read(text: str) -> object:
        said = [{"role": "user", "content": line} for line in text.splitlines()]
        return Chain([{"role": "assistant", "content": "I said this. And that is all."}, *said])

    few, many = "Observation: fine\n" * 1500, "Observation: fine\n" * 6000
    assert any((seconds(read, many, 1) / seconds(read, few, 2)) ** 0.5 <= FACTOR for _ in range(3))


@pytest.mark.parametrize("name", sorted(READERS))
def test_twice_the_text_takes_about_twice_as_long(name: str) -> None:
    assert slow(READERS[name]) == []


def test_the_measure_finds_a_quadratic_function() -> None:
    def quadratic(text: str) -> int:
        return len(re.findall(r"\s+x", text))

    assert growth(quadratic, "{}", " ") > FACTOR
    assert growth(lambda text: sum(map(ord, text)), "{}", " ") <= FACTOR


def test_every_function_that_reads_a_text_is_registered() -> None:
    forgotten = []
    for module in MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("_") or function.__module__ != module.__name__ or inspect.iscoroutinefunction(function):
                continue
            first = next(iter(inspect.signature(function).parameters.values()), None)
            if first is not None and first.annotation == "str" and first.name in TEXT:
                full = f"{module.__name__.removeprefix('openclaw_rl.')}.{name}"
                forgotten += [] if full in READERS else [full]
    assert forgotten == []


def test_registering_leaves_the_function_as_it_is() -> None:
    def read(text: str) -> str:
        return text

    try:
        assert reads_text()(read) is read
        assert READERS.popitem()[1]("x") == "x"
    finally:
        READERS.pop(f"tests.test_text_time.{read.__qualname__}", None)
