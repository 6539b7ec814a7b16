"""The tokenizer that `renderers` writes through: a cache of encoded pieces, in which only a template can write control
tokens.

A renderer encodes a prompt in pieces (a message with its role tag, a tool's answer, a line break), and consecutive
prompts of a conversation share nearly all of them. Text that came from outside passes `protect` first, which breaks
every spelled-out control token (`<|im_end|>`, `<think>`, `<tool_call>`) with a noncharacter; `encode` reads what is
still whole as a control token, as the Hugging Face template does, and takes the noncharacters out again. So a forged
marker is encoded as the letters it is made of.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer

from shared.vocab import Vocab

_BREAK = "\ufdd0"  # never interchanged as text (Unicode 23.7); one that comes in from outside is doubled and survives
_ENTRY_OVERHEAD = 200


class PieceTokenizer:
    """What `renderers.Tokenizer` asks for, over a `tokenizers.Tokenizer`; safe to use from several threads.

    The cache holds at most `capacity` bytes and drops the pieces used longest ago. Encoding releases the GIL.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab: Vocab, *, name: str, eos_token_id: int | None, capacity: int = 64 << 20
    ) -> None:
        self.name_or_path = name
        self.unk_token_id: int | None = None
        self.eos_token_id = eos_token_id
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._capacity = capacity
        self._size = 0
        self._pieces: dict[str, array[int]] = {}
        self._lock = threading.Lock()
        markers = sorted((marker for marker in vocab.added if len(marker) > 1), key=len, reverse=True)
        self._initials = {marker[0] for marker in markers}
        self._markers = re.compile("(" + "|".join(map(re.escape, markers)) + ")") if markers else re.compile("(?!)()")

    def encode(self, text: str, *_: Any, **__: Any) -> list[int]:
        """Ids of one piece of a prompt, without begin or end tokens."""
        pieces = self._pieces
        with self._lock:
            ids = pieces.pop(text, None)
            if ids is not None:
                pieces[text] = ids
        if ids is None:
            ids = array("I", self._encode(text))
            with self._lock:
                self._keep(text, ids)
        return ids.tolist()

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

    def __contains__(self, text: str) -> bool:
        return text in self._pieces

    def _id(self, token: str) -> int | None:
        found = self._tokenizer.token_to_id(token)
        return self.unk_token_id if found is None else found

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for index, part in enumerate(self._markers.split(text)):
            if index % 2:
                ids.append(self._vocab.added[part])
            elif part:
                ids.extend(self._encode_plain(_mend(part) if _BREAK in part else part))
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        # Of the library's encoding functions only the batch ones let other threads run meanwhile.
        encoded: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return encoded

    def _keep(self, text: str, ids: array[int]) -> None:
        cost = _cost(text, ids)
        if cost > self._capacity // 4:
            return
        replaced = self._pieces.pop(text, None)
        self._pieces[text] = ids
        self._size += cost if replaced is None else 0
        while self._size > self._capacity:
            oldest = next(iter(self._pieces))
            self._size -= _cost(oldest, self._pieces.pop(oldest))


def _mend(text: str) -> str:
    return re.sub(f"{_BREAK}({_BREAK}?)", r"\1", text)


def _cost(text: str, ids: array[int]) -> int:
    return len(text) + 4 * len(ids) + _ENTRY_OVERHEAD
