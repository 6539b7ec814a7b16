"""Answers of ours in a text that quotes a conversation: a transcript that a client has summarised, or the summary."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import msgspec

_MOST = 400
"""Pieces at the end of a text that are looked up."""
_LONGEST = 200_000
_ELEMENT = re.compile(r"<([a-z][\w-]{1,40})\b[^<>\n]{0,200}>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
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


def quoted_texts(text: str) -> list[str]:
    """The texts that may be quoted in this one, in their order: inside elements, below or behind the
    label of a speaker, in JSON.
    """
    text = text[-_LONGEST:]
    found = sorted([*_elements(text), *_labelled(text), *_strings(text)])[-_MOST:]
    return list(dict.fromkeys(one for _, one in found if one))


def _elements(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    for element in _ELEMENT.finditer(text):
        inner = element[2]
        yield start + element.start(), html.unescape(inner).strip()
        if "</" in inner:
            yield from _elements(inner, start + element.start(2))


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
