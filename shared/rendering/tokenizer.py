"""The tokenizer that prompts are written through: a cache of encoded pieces, in which only a template can write control
tokens.

A prompt is encoded in pieces (a message with its role tag, a tool's answer, a line break), and consecutive prompts of a
conversation share nearly all of them. Text that came from outside passes `protect` first, which breaks every
spelled-out control token (`<|im_end|>`, `<think>`, `<tool_call>`) with a noncharacter; `encode` reads what is still
whole as a control token, as the Hugging Face template does, and takes the noncharacters out again. So a forged marker
is encoded as the letters it is made of.

Where the tokenizer allows it, a long piece is encoded line by line (`shared.rendering.line_cache`).
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from tokenizers import AddedToken, Tokenizer

from openclaw_rl.shared.cache import SharedCache
from openclaw_rl.shared.rendering.line_cache import LONG, Lines, can_be_cut
from openclaw_rl.shared.rendering.vocabulary import Vocab

_BREAK = "\ufdd0"  # never interchanged as text (Unicode 23.7); one that comes in from outside is doubled and survives
_AFTER_TOKEN = "\ufdd1"  # stands for the control token before a piece, where the tokenizer cares about that
_ENTRY_OVERHEAD = 200
_LETTERS = 4  # of a piece stand for one id, about
_LINES_SHARE = 4  # of the cache one part in so many is for lines


class PieceTokenizer:
    """The tokenizer that `renderers.Tokenizer` asks for, over one from `load_tokenizer`; safe to use from several
    threads.

    The cache holds at most `capacity` bytes and drops the pieces used longest ago. Encoding releases the GIL.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab: Vocab, *, name: str, eos_token_id: int | None, capacity: int = 32 << 20
    ) -> None:
        self.name_or_path = name
        self.unk_token_id: int | None = None
        self.eos_token_id = eos_token_id
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._control_ids = frozenset(vocab.added.values())
        self._lines: Lines | None = None
        if can_be_cut(tokenizer):
            self._lines = Lines(tokenizer, self._control_ids, capacity=capacity // _LINES_SHARE)
            capacity -= capacity // _LINES_SHARE
        self._pieces: SharedCache[str, array[int]] = SharedCache(capacity, _weight, largest=capacity // 4)
        self._writing = _Writing()
        markers = sorted((marker for marker in vocab.added if len(marker) > 1), key=len, reverse=True)
        self._initials = {marker[0] for marker in markers}
        self._markers = re.compile("(" + "|".join(map(re.escape, markers)) + ")") if markers else re.compile("(?!)()")
        tokens = tokenizer.get_added_tokens_decoder().values()
        self._eats_before = {token.content for token in tokens if token.special and token.lstrip}
        self._eats_after = {token.content for token in tokens if token.special and token.rstrip}
        if vocab.spaced:
            tokenizer.add_tokens([AddedToken(_AFTER_TOKEN, special=False, normalized=False)])
        self._after_token: int | None = tokenizer.token_to_id(_AFTER_TOKEN) if vocab.spaced else None

    def encode(self, text: str, *_: Any, **__: Any) -> list[int]:
        """Ids of one piece of a prompt, without begin or end tokens."""
        ids = self._cached(text, text)
        pieces = self._writing.pieces
        if pieces is None:
            return ids.tolist()
        pieces.append(ids)
        return [-len(pieces)]

    def put_together(self, write: Callable[[], Iterable[int]]) -> array[int]:
        """The ids that `write` puts together from what it encodes here. Meanwhile, and in this thread, `encode` gives
        one negative number for a whole piece, so that `write` does not handle the tokens of long texts one by one; it
        must do nothing with them but put them in order.
        """
        pieces = self._writing.pieces = []
        ids = array("I")
        try:
            for number in write():
                if number >= 0:
                    ids.append(number)
                else:
                    ids.extend(pieces[-number - 1])
        finally:
            self._writing.pieces = None
        return ids

    def unknown(self, text: str) -> int:
        """The approximate number of characters of a text that would have to be encoded."""
        if text in self._pieces:
            return 0
        return self._lines.unknown(text) if self._lines is not None and len(text) >= LONG else len(text)

    def encode_prompt(self, text: str) -> array[int]:
        """Ids of a whole prompt as a template wrote it; each stretch between two control tokens is a piece."""
        parts = self._split(text)
        ids = array("I")
        for index, part in enumerate(parts):
            if index % 2:
                ids.append(self._vocab.added[part])
            elif part:
                first = index == 0 and self._after_token is not None
                ids.extend(self._cached(_AFTER_TOKEN + part if first else part, part, first=first))
        return ids

    def first_control(self, text: str) -> str:
        """The control token that `text` begins with, white space aside; "" where it begins with something else."""
        found = self._markers.match(text.lstrip())
        return found[0] if found else ""

    def decode(self, token_ids: int | Iterable[int], *_: Any, skip_special_tokens: bool = False, **__: Any) -> str:
        """Exact text of `token_ids`."""
        ids = (token_ids,) if isinstance(token_ids, int) else token_ids
        return self._vocab.decode(ids, skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> int | list[int | None] | None:
        """Id of a token as the vocabulary spells it, None where it has none; a list for a list."""
        if isinstance(tokens, str):
            return self._id(tokens)
        return [self._id(token) for token in tokens]

    def protect(self, text: str) -> str:
        """The text so that `encode` sees no control token in it; the same object where there is nothing to do."""
        if _BREAK in text:
            text = text.replace(_BREAK, _BREAK * 2)
        if any(initial in text for initial in self._initials):
            while self._markers.search(text):
                text = self._markers.sub(lambda found: found[0][0] + _BREAK + found[0][1:], text)
        return text

    def unprotect(self, text: str) -> str:
        """The inverse of `protect`."""
        return re.sub(f"{_BREAK}({_BREAK}?)", r"\1", text) if _BREAK in text else text

    def marked_text(self, ids: Iterable[int]) -> str:
        """The text of `ids`, in which a control token is whole only where it was one; `unprotect` undoes the rest."""
        parts: list[str] = []
        for control, run in groupby(ids, key=self._control_ids.__contains__):
            text = self._vocab.decode(run)
            parts.append(text if control else self.protect(text))
        return "".join(parts)

    def protect_all(self, value: Any) -> Any:
        """`protect` for every string in a JSON value, keys included."""
        if isinstance(value, str):
            return self.protect(value)
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect_all(one) for key, one in value.items()}
        if isinstance(value, Sequence):
            return [self.protect_all(one) for one in value]
        return value

    @property
    def controls(self) -> Collection[str]:
        """The texts of the control tokens."""
        return self._vocab.added.keys()

    def _id(self, token: str) -> int | None:
        found = self._tokenizer.token_to_id(token)
        return self.unk_token_id if found is None else found

    def _cached(self, key: str, text: str, *, first: bool = False) -> array[int]:
        ids = self._pieces.get(key)
        if ids is None:
            ids = self._encode(text, first=first)
            self._pieces.put(key, ids)
        return ids

    def _split(self, text: str) -> list[str]:
        """The text cut at its control tokens, which stand at the odd positions; white space that a token takes with it
        is gone."""
        parts: list[str] = self._markers.split(text)
        if self._eats_before or self._eats_after:
            for index in range(1, len(parts), 2):
                if parts[index] in self._eats_before:
                    parts[index - 1] = parts[index - 1].rstrip()
                if parts[index] in self._eats_after:
                    parts[index + 1] = parts[index + 1].lstrip()
        return parts

    def _encode(self, text: str, *, first: bool) -> array[int]:
        ids = array("I")
        for index, part in enumerate(self._split(text)):
            if index % 2:
                ids.append(self._vocab.added[part])
            elif part:
                ids.extend(self._encode_text(self.unprotect(part), first=first and index == 0))
        return ids

    def _encode_text(self, text: str, *, first: bool) -> Sequence[int]:
        by_lines = self._lines.encode(text) if self._lines is not None and len(text) >= LONG else None
        if by_lines is not None:
            return by_lines
        ids = self._encode_plain(text, first=first)
        if self._control_ids.isdisjoint(ids):
            return ids
        # The tokenizer's own merges spell a control token out of plain letters: cut each such marker in two.
        cuts = [0, *(found.start() + 1 for found in self._markers.finditer(text)), len(text)]
        halves = [text[start:end] for start, end in pairwise(cuts) if start < end]
        ids = [number for half in halves for number in self._encode_plain(half, first=False)]
        if self._control_ids.isdisjoint(ids):
            return ids
        letters = [number for letter in text for number in self._encode_plain(letter, first=False)]
        return [number for number in letters if number not in self._control_ids]

    def _encode_plain(self, text: str, *, first: bool) -> list[int]:
        # Of the library's encoding functions only the batch ones let other threads run meanwhile.
        if self._after_token is None:
            encoded: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
            return encoded
        text = text.replace(_AFTER_TOKEN, "\ufffd")
        start = "" if first else _AFTER_TOKEN
        ids: list[int] = self._tokenizer.encode_batch_fast([start + text], add_special_tokens=False)[0].ids
        return ids if first else ids[1:]


class _Writing(threading.local):
    """The pieces that the current thread is putting together, `None` when it is not."""

    pieces: list[array[int]] | None = None


def _weight(ids: array[int]) -> int:
    return _ENTRY_OVERHEAD + (ids.itemsize + _LETTERS) * len(ids)
