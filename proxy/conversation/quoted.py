"""Answers of ours in a text that quotes a conversation: a transcript that a client has summarised, or the summary."""

from __future__ import annotations

import bisect
import html
import re
from collections.abc import Iterator

import msgspec

from openclaw_rl.shared.text_reading import reads_text

_MOST = 400
"""Pieces at the end of a text that are looked up."""
_LONGEST = 200_000
_TAG = re.compile(r"<(?:/([a-z][\w-]{1,40})|([a-z][\w-]{1,40})\b[^<>\n]{0,200})>", re.IGNORECASE)
_ROLE = (
    r"(?:user|human|person|customer|assistant|ai|model|agent|bot|tool|function|system|policy|用户|助手|nutzer|assistent"
    r"|usuario|asistente|utilisateur|usu[áa]rio|assistente|ユーザー|アシスタント|пользователь|ассистент|사용자|어시스턴트)"
)
_LABEL = re.compile(
    rf"^[ \t]*(?:[#*_\[<(>-]+[ \t]*)?{_ROLE}(?:[ \t]+(?:message|response|says?|said)|[ \t]*\(?\d+\)?)?[ \t]*"
    r"[\])>*_]{0,3}"
    r"(?:[:：][*_ \t]*|(?<=[\]*])[ \t]*|[ \t]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_STRING = re.compile(r'"(?:content|text|message|value)"\s*:\s*("(?:[^"\\]|\\.)*")')


@reads_text()
def quoted_texts(text: str) -> list[str]:
    """The texts that may be quoted in this one, in their order: inside elements, below or behind the
    label of a speaker, in JSON.
    """
    text = text[-_LONGEST:]
    found = sorted([*_elements(text), *_labelled(text), *_strings(text)])[-_MOST:]
    return list(dict.fromkeys(one for _, one in found if one))


def _elements(text: str) -> Iterator[tuple[int, str]]:
    """The last elements, each up to the nearest end of its name inside the element around it."""
    closings: dict[str, list[int]] = {}
    openings = []
    for tag in _TAG.finditer(text):
        if tag[1]:
            closings.setdefault(tag[1].lower(), []).append(tag.start())
        else:
            openings.append(tag)
    found: list[tuple[int, int, int]] = []
    around = [len(text)]  # the ends of the elements that an opening stands in
    for tag in openings:
        while tag.start() >= around[-1] and len(around) > 1:
            around.pop()
        ends = closings.get(tag[2].lower(), [])
        place = bisect.bisect_left(ends, tag.end())
        if place < len(ends) and ends[place] < around[-1]:
            found.append((tag.start(), tag.end(), ends[place]))
            around.append(ends[place])
    for start, first, end in found[-_MOST:]:
        yield start, html.unescape(text[first:end]).strip()


def _labelled(text: str) -> Iterator[tuple[int, str]]:
    labels = list(_LABEL.finditer(text))
    ends = [*(label.start() for label in labels[1:]), len(text)]
    for label, end in zip(labels, ends, strict=False):
        yield label.start(), text[label.end() : end].strip()


def _strings(text: str) -> Iterator[tuple[int, str]]:
    for string in _STRING.finditer(text):
        try:
            yield string.start(), msgspec.json.decode(string[1], type=str).strip()
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
