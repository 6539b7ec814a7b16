"""Numbers and times as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text without characters that command a terminal: what people and models wrote may hold such."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class VisibleConsole(Console):
    """A console whose own styles reach the terminal, and no command in the text that it shows."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of something, their text made visible."""
        for segment in super().render(renderable, options):
            if segment.control is None and _CONTROLS.search(segment.text):
                yield Segment(visible(segment.text), segment.style)
            else:
                yield segment


def console(*, width: int = 160, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """The terminal, or a file that gets plain text, `width` characters wide. Text is shown as it is: what people and
    models wrote may look like markup or name an emoji.
    """

    out = VisibleConsole(highlight=False, markup=False, emoji=False, stderr=stderr, soft_wrap=soft_wrap)
    if not out.is_terminal and not soft_wrap:
        out.width = width
    return out


def table(*columns: str, title: str = "") -> Table:
    """A quiet table: header, no frames; columns named with a leading `#` hold numbers."""
    made = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column.removeprefix("#"), justify="right" if column.startswith("#") else "left")
    return made
