"""Token ids to bytes and text, one id at a time.

A byte-level tokenizer writes every byte of a token as one printable character (GPT-2's table); undone once for the
whole vocabulary, an id is a list index away from its bytes. That is exact for broken UTF-8 too, which the tokenizers
library's own stream decoder is not.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer

from shared.errors import ConfigError

_DECODER = codecs.getincrementaldecoder("utf-8")
_SAMPLES = (
    "Hello, world! 12 + 30 = 42.\n\n  indented\ttext",
    "naïve café — “quotes” … 你好 🙂👩‍🚀",
    '{"name": "read", "arguments": {}}',
)


class Vocab:
    """The bytes of every token of a byte-level tokenizer, and its control tokens.

    `bytes_of[id]` are a token's bytes (empty for ids the tokenizer does not know, up to `size`); `text_of[id]` is its
    text where the bytes are valid UTF-8 by themselves, else None; `added` maps the text of each control token to its
    id. Raises `ConfigError` when the tokenizer is not byte-level.
    """

    __slots__ = ("added", "bytes_of", "size", "text_of")

    def __init__(self, tokenizer: Tokenizer, *, size: int = 0, name: str = "tokenizer") -> None:
        added = {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
        self.added: dict[str, int] = {content: number for number, content in added.items()}
        self.size: int = max(size, tokenizer.get_vocab_size(), 1 + max(added, default=0))
        alphabet = _byte_alphabet()
        self.bytes_of: list[bytes] = []
        for number in range(self.size):
            token = tokenizer.id_to_token(number)
            if number in added:
                self.bytes_of.append(added[number].encode())
            elif token is None:
                self.bytes_of.append(b"")
            else:
                try:
                    self.bytes_of.append(bytes([alphabet[character] for character in token]))
                except KeyError as error:
                    raise ConfigError(_not_byte_level(name, token)) from error
        self.text_of: list[str | None] = [_text_or_none(piece) for piece in self.bytes_of]
        self._check(tokenizer, name)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """The exact text of `ids`; broken UTF-8 becomes U+FFFD. Ids out of range raise `IndexError`."""
        if skip_special_tokens:
            controls = set(self.added.values())
            ids = (number for number in ids if number not in controls)
        table = self.bytes_of
        return b"".join([table[number] for number in ids]).decode("utf-8", "replace")

    def decoder(self) -> codecs.IncrementalDecoder:
        """A fresh incremental UTF-8 decoder that writes U+FFFD for broken bytes."""
        return _DECODER("replace")

    def _check(self, tokenizer: Tokenizer, name: str) -> None:
        for sample in _SAMPLES:
            ids = tokenizer.encode(sample, add_special_tokens=False).ids
            if self.decode(ids) != tokenizer.decode(ids, skip_special_tokens=False):
                raise ConfigError(_not_byte_level(name, sample))


def load_tokenizer(folder: Path) -> Tokenizer:
    """The `tokenizer.json` of a model folder, so that no text can become a control token.

    Every added token is marked special and special tokens in text are encoded as ordinary text: whoever wants a control
    token has to emit its id. Raises `ConfigError`.
    """
    path = folder / "tokenizer.json"
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read as a tokenizer: {error}. Point the model setting at a folder that has one."
        ) from error
    for token in spec.get("added_tokens") or ():
        token["special"] = True
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.encode_special_tokens = True
    return tokenizer


def _byte_alphabet() -> dict[str, int]:
    """Character to byte of the byte-level alphabet: printable Latin-1 stands for itself, the other bytes for U+0100 and
    up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


def _text_or_none(piece: bytes) -> str | None:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _not_byte_level(name: str, where: str) -> str:
    return (
        f"The tokenizer of {name} is not a byte-level one (it fails at {where!r}), so answers cannot be decoded "
        "exactly. Serve a model of a family with a byte-level tokenizer, such as Qwen3."
    )
