"""Encoding long texts line by line: a text that differs from known ones in some lines costs those lines.

Exact, not nearly: a tokenizer's pattern cuts every text into words before anything is merged, and the patterns that are
known here always cut where a line ends and the next one begins with a visible character. None of their alternatives
continues after a line break with anything but more of them; `\\s*[\\r\\n]+` stands before the other white space and so
takes what ends in a line break, whatever follows; and none looks back. NFC composes nothing with a line break.
"""

from __future__ import annotations

import json
import re
import threading
from array import array
from collections.abc import Collection
from sys import getsizeof
from typing import Any

from tokenizers import Tokenizer, models

LONG = 2048
"""Characters from which on a text is worth cutting."""

_CUT = re.compile(r"\n(?=[\w!-~])")
_PATTERNS = frozenset(
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^\s{others}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    for letters, others in ((r"\p{L}", r"\p{L}"), (r"[\p{L}\p{M}]", r"\p{L}\p{M}"))
    for digits in (r"\p{N}", r"\p{N}{1,3}")
)
"""The patterns of Qwen 2 to 3, of Llama 3 and others with OpenAI's cl100k, and of Qwen 3.5."""
_ENTRY_BYTES = 100  # weight of a dictionary's entry without key and value


class Lines:
    """Ids of lines, at most `capacity` bytes of them; those used longest ago go first. Safe to use from several
    threads. `controls` are the ids that no text may be encoded to.
    """

    def __init__(self, tokenizer: Tokenizer, controls: Collection[int], *, capacity: int) -> None:
        self._tokenizer = tokenizer
        self._controls = frozenset(controls)
        self._capacity = capacity
        self._lock = threading.Lock()
        # Two generations: when the young one is full it becomes the old one, and what is still used comes back.
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._size = 0

    def encode(self, text: str) -> array[int] | None:
        """The ids of a text; `None` where a line is encoded to a control token."""
        *lines, last = _CUT.split(text)
        young, old = self._young, self._old
        missing = [line for line in lines if line not in young]
        fresh = {line: old[line] for line in missing if line in old}
        unknown = list(dict.fromkeys(line for line in missing if line not in fresh))
        encoded = self._encode([*(line + "\n" for line in unknown), last])
        if any(not self._controls.isdisjoint(ids) for ids in encoded):
            return None
        fresh.update(zip(unknown, (ids.tobytes() for ids in encoded), strict=False))  # `last` is left over
        if fresh:
            self._keep(fresh)
        joined = array("I")
        joined.frombytes(b"".join([young.get(line) or fresh[line] for line in lines]))
        joined.extend(encoded[-1])
        return joined

    def unknown(self, text: str) -> int:
        """The number of characters of a text in lines that were not encoded yet."""
        young, old = self._young, self._old
        return sum(len(line) for line in _CUT.split(text) if line not in young and line not in old)

    def _encode(self, texts: list[str]) -> list[array[int]]:
        # Of the library's encoding functions only the batch ones let other threads run meanwhile.
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False) if texts else []
        return [array("I", one.ids) for one in encoded]

    def _keep(self, fresh: dict[str, bytes]) -> None:
        with self._lock:
            for line, ids in fresh.items():
                self._young[line] = ids
                self._size += getsizeof(line) + getsizeof(ids) + _ENTRY_BYTES
            if self._size > self._capacity // 2:
                self._young, self._old, self._size = {}, self._young if self._size <= self._capacity else {}, 0


def can_be_cut(tokenizer: Tokenizer) -> bool:
    """True if a tokenizer is known to encode a text as it encodes its lines, one after the other."""
    normal, split, model = _state(tokenizer.normalizer), _state(tokenizer.pre_tokenizer), tokenizer.model
    if tokenizer.padding or tokenizer.truncation or normal.get("type") not in (None, "NFC"):
        return False
    if not isinstance(model, models.BPE) or model.dropout:
        return False
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip or token.single_word or "\n" in token.content.rstrip("\n"):
            return False
    steps: list[dict[str, Any]] = split.get("pretokenizers") or []
    if [step.get("type") for step in steps] != ["Split", "ByteLevel"]:
        return False
    cut, spelled = steps
    if cut.get("behavior") != "Isolated" or cut.get("invert") or cut["pattern"].get("Regex") not in _PATTERNS:
        return False
    return not spelled.get("use_regex") and not spelled.get("add_prefix_space")


def _state(part: Any) -> dict[str, Any]:
    """A part of a tokenizer as its file has it; empty where there is none."""
    state: dict[str, Any] = json.loads(part.__getstate__()) if part is not None else {}
    return state
