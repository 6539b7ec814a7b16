"""Demonstrations on a page: its elements by role and name, and the tools `click` and `fill`, which take a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from bench.shipped_policy.dialogues.tools import call_message, definition
from openclaw_rl.environments.tasks.families.words import TaskWords

RIGHT = 0.4
CLICK = definition("click", "Click an element of the page", {"element": {"type": "string"}})
FILL = definition(
    "fill", "Type a text into a field of the page", {name: {"type": "string"} for name in ("element", "text")}
)
SUBMIT = ("Submit", "OK", "Send", "Save")
ENDS = ("button", "link")
"""Roles of elements whose click ends a task."""

Messages = list[dict[str, Any]]
Step = tuple[str, ...]
"""The element to click, or the field and the text to type."""


@dataclass(frozen=True)
class Element:
    """An element: its role, its name, and the state of a checkbox or the text of a field."""

    role: str
    name: str
    state: str | None = None

    def __str__(self) -> str:
        state = "" if self.state is None else f": {self.state}"
        return f'{self.role} "{self.name}"{state}'


@dataclass(frozen=True)
class PageTask:
    """A request, the page, and the steps of a solution, of which the last ends the task."""

    request: str
    page: tuple[Element, ...]
    steps: tuple[Step, ...]


def page_dialogue(random: Random) -> tuple[Messages, list[dict[str, Any]]]:
    """Messages and tools of a demonstration, right or with a mistake."""
    task = random.choice((_button, _link, _checkbox, _field, _login))(random, TaskWords(random))
    steps = task.steps if random.random() < RIGHT else _mistake(random, task)
    messages: Messages = [{"role": "user", "content": f"{task.request}\n\n{_shown(task.page)}"}]
    page = task.page
    for step in steps:
        page = _after(page, step)
        name = "click" if len(step) == 1 else "fill"
        messages.append(call_message(name, dict(zip(("element", "text"), step, strict=False))))
        if any(element.name == step[0] and element.role in ENDS for element in page):
            break
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": _shown(page)})
    else:
        messages.append({"role": "assistant", "content": "Done."})
    return messages, [CLICK, FILL]


def _shown(page: Sequence[Element]) -> str:
    return "\n".join(map(str, page))


def _after(page: tuple[Element, ...], step: Step) -> tuple[Element, ...]:
    """The page after a step."""
    state = f'"{step[1]}"' if len(step) == 2 else "on"
    return tuple(
        replace(element, state=state)
        if element.name == step[0] and element.role == ("field" if len(step) == 2 else "checkbox")
        else element
        for element in page
    )


def _button(random: Random, words: TaskWords) -> PageTask:
    names = _names(random, words)
    request = random.choice(
        ('Click on the "{n}" button.', 'Press the button "{n}".', 'Click the button with the name "{n}".')
    )
    return _one_click(random, request, names, "button")


def _link(random: Random, words: TaskWords) -> PageTask:
    request = random.choice(
        ('Click on the link "{n}".', 'Follow the link "{n}".', 'Open the link with the text "{n}".')
    )
    return _one_click(random, request, _names(random, words), "link")


def _one_click(random: Random, request: str, names: list[str], role: str) -> PageTask:
    other = "link" if role == "button" else "button"
    page = [Element(role, names[0]), *(Element(random.choice((role, role, other)), name) for name in names[1:])]
    random.shuffle(page)
    return PageTask(request.format(n=names[0]), tuple(page), ((names[0],),))


def _checkbox(random: Random, words: TaskWords) -> PageTask:
    names, submit = _names(random, words), random.choice(SUBMIT)
    wanted = random.sample(names, random.choice((1, 1, 2)))
    request = random.choice(("Select {n} and click {s}.", "Check {n}, then press {s}."))
    listed = " and ".join(f'"{name}"' for name in wanted)
    page = (*(Element("checkbox", name, "off") for name in names), Element("button", submit))
    return PageTask(request.format(n=listed, s=f'"{submit}"'), page, (*((name,) for name in wanted), (submit,)))


def _field(random: Random, words: TaskWords) -> PageTask:
    field, text, submit = words.word(), words.word(), random.choice(SUBMIT)
    request = random.choice(
        ('Enter "{t}" into the field "{n}" and click "{s}".', 'Type "{t}" into "{n}", then press "{s}".')
    )
    page = (Element("field", field, '""'), Element("button", submit))
    return PageTask(request.format(t=text, n=field, s=submit), page, ((field, text), (submit,)))


def _login(random: Random, words: TaskWords) -> PageTask:
    user, password, submit = words.word(), words.word(), random.choice(("Login", "Sign in"))
    names = random.choice((("Username", "Password"), ("User", "Password"), ("Name", "Code")))
    request = random.choice(
        (
            'Log in as "{u}" with the password "{p}" and click "{s}".',
            'Enter the user "{u}" and the password "{p}", then press "{s}".',
        )
    )
    page = (*(Element("field", name, '""') for name in names), Element("button", submit))
    steps = ((names[0], user), (names[1], password), (submit,))
    return PageTask(request.format(u=user, p=password, s=submit), page, steps)


def _names(random: Random, words: TaskWords) -> list[str]:
    return [words.word() for _ in range(random.randint(3, 5))]


def _mistake(random: Random, task: PageTask) -> tuple[Step, ...]:
    """Steps with a mistake in one decision: another element, a text in another field, a step left out."""
    place = random.randrange(len(task.steps))
    step = task.steps[place]
    others = [element.name for element in task.page if element.name not in (step[0], task.steps[-1][0])]
    if len(task.steps) > 1 and (random.random() < 0.4 or not others):
        return (*task.steps[:place], *task.steps[place + 1 :])
    other = (random.choice(others or [task.steps[-1][0]]), *step[1:])
    return (*task.steps[:place], other, *task.steps[place + 1 :])
