"""Program text in other languages than English: one table by language, and the same few questions to each.

An order of work on the conversation needs the work, the conversation as its object, and one mark of a program, as in
`conversation_work`; a title needs the label, the conversation and brevity, as in `utility_prompts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from openclaw_rl.shared.text_reading import reads_text

_OPENING, _ENDING = 900, 600
_SENTENCE = re.compile(r"[.!?:]\s|[。！？：\n]")


class Language(msgspec.Struct, frozen=True, dict=True):
    """Patterns of one language (`languages.toml`), of which each field holds alternatives. One of `core`, in lower
    case, stands in every text that is looked for.

    `talk` is a conversation, `this` the one at hand, `ours` that of people who speak of theirs. `title` is a label,
    `make` orders one, `brief` says how long it may be. `work` condenses or extracts. `marks` are a program's; people
    prescribe a `manner`, too. `reader` is who reads the result, or the size of the context. `part` begins a system
    text. `built`: things that people have made. `elsewhere`: where, with whom or about what else people talk.
    `replaced` says that a summary stands for a history, `result` that a tool's output follows. `word`: spaces part the
    words.
    """

    code: str
    core: tuple[str, ...]
    talk: tuple[str, ...]
    this: tuple[str, ...]
    ours: tuple[str, ...]
    title: tuple[str, ...]
    make: tuple[str, ...]
    brief: tuple[str, ...]
    work: tuple[str, ...]
    marks: tuple[str, ...]
    manner: tuple[str, ...]
    reader: tuple[str, ...]
    part: tuple[str, ...]
    built: tuple[str, ...]
    elsewhere: tuple[str, ...]
    replaced: tuple[str, ...]
    result: tuple[str, ...]
    word: bool = True

    def _compile(self, *alternatives: str, before: str | None = None, after: str = "") -> re.Pattern[str]:
        edge = (r"\b" if self.word else "") if before is None else before
        pattern = "|".join(alternatives).replace("TALK", "|".join(self.talk))
        return re.compile(f"{edge}(?:{pattern}){after}", re.IGNORECASE | re.MULTILINE)

    @cached_property
    def talks(self) -> re.Pattern[str]:
        """The conversation at hand."""
        return self._compile(*self.this)

    @cached_property
    def any_talk(self) -> re.Pattern[str]:
        """Any conversation."""
        return self._compile(*self.talk)

    @cached_property
    def own_talk(self) -> re.Pattern[str]:
        """The conversation of people who speak of it."""
        return self._compile(*self.ours)

    @cached_property
    def titles(self) -> re.Pattern[str]:
        """A label."""
        return self._compile(*self.title)

    @cached_property
    def orders(self) -> re.Pattern[str]:
        """The verb of an order for one."""
        return self._compile(*self.make)

    @cached_property
    def short(self) -> re.Pattern[str]:
        """A bound on its length."""
        return self._compile(*self.brief)

    @cached_property
    def works(self) -> re.Pattern[str]:
        """The work on a conversation."""
        return self._compile(*self.work)

    @cached_property
    def marked(self) -> re.Pattern[str]:
        """A mark of a program."""
        return self._compile(*self.marks, *self.reader, "json", after="|</?[a-z_]+>")

    @cached_property
    def formal(self) -> re.Pattern[str]:
        """A mark of a program, next to an order for a label."""
        return self._compile(*self.manner, after=f"|{self.marked.pattern}")

    @cached_property
    def for_reader(self) -> re.Pattern[str]:
        """The one who reads the result, or the size of the context."""
        return self._compile(*self.reader)

    @cached_property
    def parts(self) -> re.Pattern[str]:
        """The beginning of a system text."""
        return self._compile(*self.part, before=r"\W*")

    @cached_property
    def makes(self) -> re.Pattern[str]:
        """Things that people have made, or talk about elsewhere."""
        return self._compile(*self.built, *self.elsewhere)

    @cached_property
    def replaces(self) -> re.Pattern[str]:
        """A summary stands for a history."""
        return self._compile(*self.replaced, before=r"^\W*")

    @cached_property
    def results(self) -> re.Pattern[str]:
        """A tool's output follows."""
        return self._compile(*self.result, before=r"\W*", after=r"\s*[:：]")


class _Table(msgspec.Struct):
    language: tuple[Language, ...]


LANGUAGES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Table).language


@reads_text(lambda read, text: read(text, quoted=False))
def orders_title(text: str, *, quoted: bool) -> bool:
    """A title of a conversation is ordered; of one that is not `quoted`, in words that only a program uses."""
    ends = _ends(text)
    for language in _spoken(ends):
        for sentence in _sentences(ends):
            label = language.titles.search(sentence)
            if label is None or not language.orders.search(sentence) or not language.talks.search(sentence):
                continue
            if language.makes.search(sentence) or language.own_talk.search(sentence):
                continue
            if language.short.search(ends) and (quoted or language.formal.search(ends)):
                return True
    return False


@reads_text(lambda read, text: (read(text), read(text, marked=False)))
def orders_work(text: str, *, marked: bool = True) -> bool:
    """Work on the conversation is ordered. Not `marked`: in words that a person may use as well."""
    ends = _ends(text)
    for language in _spoken(ends):
        if not any(_works(language, sentence, ends) for sentence in _sentences(ends)):
            continue
        if not marked or language.marked.search(text, 0, 12_000):
            return True
    return False


@reads_text(lambda read, text: read(text, has_tools=False))
def plays_part(system: str, *, has_tools: bool) -> bool:
    """A system text whose part is work on a conversation, or its title."""
    opening = system[:500]
    for language in _spoken(opening):
        if not language.parts.match(opening) or (has_tools and not language.for_reader.search(opening)):
            continue
        first = list(_sentences(opening))[:2]
        if any(map(language.makes.search, first)):
            continue
        for one in first:
            if language.any_talk.search(one) and (language.works.search(one) or language.titles.search(one)):
                return True
    return False


@reads_text()
def replaces_history(text: str) -> bool:
    """A summary stands for a history, and a program says so above it."""
    head = text[:300]
    return any(language.replaces.search(head) for language in _spoken(head))


@reads_text()
def is_result(text: str) -> bool:
    """A program gives a tool's output."""
    head = text[:80]
    return any(language.results.match(head) for language in _spoken(head))


def _works(language: Language, sentence: str, text: str) -> bool:
    work = language.works.search(sentence)
    if work is None or not language.talks.search(sentence):
        return False
    built = language.makes.search(sentence)
    if built is not None and not language.for_reader.search(text.replace(sentence, "")):
        return False
    return language.own_talk.search(sentence) is None or language.for_reader.search(text) is not None


def _spoken(text: str) -> Iterator[Language]:
    """The languages of which a core word is in the text: a quick test before the patterns."""
    lowered = text.lower()
    for language in LANGUAGES:
        for word in language.core:
            if word in lowered:
                yield language
                break


def _sentences(text: str) -> Iterator[str]:
    return (sentence for sentence in _SENTENCE.split(text) if sentence.strip())


def _ends(text: str) -> str:
    return text if len(text) <= _OPENING + _ENDING else f"{text[:_OPENING]}\n{text[-_ENDING:]}"
