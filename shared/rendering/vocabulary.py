"""Token ids to bytes and text, one id at a time.

A byte-level tokenizer writes every byte of a token as one printable character (GPT-2's table); a SentencePiece-style
one writes text, with `▁` for a space and `<0x0A>` for a byte. Undone once for the whole vocabulary, an id is a list
index away from its bytes. That is exact for broken UTF-8 too, which the tokenizers library's own stream decoder is not.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models

from openclaw_rl.shared.errors import ConfigError

_DECODER = codecs.getincrementaldecoder("utf-8")
_SAMPLES = (
    "Hello, world! 12 + 30 = 42.\n\n  indented\ttext",
    "naïve café — “quotes” … 你好 🙂👩‍🚀",
    '{"name": "read", "arguments": {}}',
)
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_MARKER = re.compile(r"[<\[|｜].*[>\]|｜]", re.DOTALL)
_HTML = re.compile(
    r"</?(a|b|blockquote|br|caption|code|del|div|em|h[1-6]|i|img|ins|li|ol|p|pre|s|span|strong|sub|sup|table|tbody|td"
    r"|tfoot|th|thead|tr|u|ul)/?>"
)


class Vocab:
    """The bytes of every token, and the control tokens, of a tokenizer from `load_tokenizer`.

    `bytes_of[id]` are a token's bytes (empty for ids the tokenizer does not know, up to `size`); `text_of[id]` is its
    text where the bytes are valid UTF-8 by themselves, else None; `added` maps the text of each control token to its
    id. `spaced` says that the tokenizer may put a space before the first word of a text (SentencePiece). Raises
    `ConfigError` for a tokenizer whose tokens have no bytes of their own.
    """

    __slots__ = ("added", "bytes_of", "size", "spaced", "text_of")

    def __init__(self, tokenizer: Tokenizer, *, size: int = 0, name: str = "tokenizer") -> None:
        tokens = tokenizer.get_added_tokens_decoder()
        added = {number: token.content for number, token in tokens.items()}
        self.added: dict[str, int] = {token.content: number for number, token in tokens.items() if token.special}
        self.size: int = max(size, tokenizer.get_vocab_size(), 1 + max(added, default=0))
        self.spaced = not _is_byte_level(tokenizer, name)
        alphabet = _byte_alphabet()
        self.bytes_of: list[bytes] = []
        for number in range(self.size):
            token = tokenizer.id_to_token(number)
            if number in added:
                self.bytes_of.append(added[number].encode())
            elif token is None:
                self.bytes_of.append(b"")
            elif self.spaced:
                self.bytes_of.append(_sentencepiece_bytes(token))
            else:
                self.bytes_of.append(_byte_level_bytes(token, alphabet))
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
            theirs: str = tokenizer.decode(ids, skip_special_tokens=False)
            own = self.decode(ids)
            if own != theirs and not (self.spaced and own.removeprefix(" ") == theirs.removeprefix(" ")):
                raise ConfigError(_not_exact(name, sample))


def load_tokenizer(folder: Path, template: str = "") -> Tokenizer:
    """The `tokenizer.json` of a model folder, so that no text can become a control token.

    Every added token that looks like a marker, or that the chat template spells out, is marked special, and special
    tokens in text are encoded as ordinary text: a control token comes by its id only. Added tokens that are
    words, white space or HTML stay part of the text. Raises `ConfigError`.
    """
    path = folder / "tokenizer.json"
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(spec, dict):
            raise ValueError("it is not a JSON object")
        for token in spec.get("added_tokens") or ():
            token["special"] = bool(token.get("special")) or _is_control(token["content"], template)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read as a tokenizer: {error}. Point the model setting at a folder that has one; a "
            "folder with an older tokenizer gets one when AutoTokenizer.from_pretrained(FOLDER) of transformers is "
            "saved into it with save_pretrained(FOLDER)."
        ) from error
    try:
        tokenizer = Tokenizer.from_str(json.dumps(spec))
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"{path} is not a tokenizer that the tokenizers library reads: {error}.") from error
    tokenizer.encode_special_tokens = True
    # The library shares out even a few short lines among all cores, which takes longer than to encode them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return tokenizer


def _is_control(content: str, template: str) -> bool:
    """True if an added token that is not marked special marks something in a conversation all the same (`<think>`)."""
    if not content.strip() or _HTML.fullmatch(content):
        return False
    return _MARKER.fullmatch(content) is not None or (len(content) > 2 and content in template)


def _is_byte_level(tokenizer: Tokenizer, name: str) -> bool:
    """True if tokens spell bytes; False for SentencePiece's way. Raises `ConfigError` for every other kind."""
    state: dict[str, Any] = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder is not None else {}
    steps = {step.get("type") for step in state.get("decoders") or [state]}
    if not isinstance(tokenizer.model, models.BPE | models.Unigram):
        raise ConfigError(_not_exact(name, type(tokenizer.model).__name__))
    if "ByteLevel" in steps:
        return True
    if steps & {"Metaspace", "ByteFallback", "Replace"}:
        return False
    raise ConfigError(_not_exact(name, f"decoder {state.get('type')}"))


def _byte_alphabet() -> dict[str, int]:
    """Character to byte of the byte-level alphabet: printable Latin-1 stands for itself, the other bytes for U+0100 and
    up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


def _byte_level_bytes(token: str, alphabet: dict[str, int]) -> bytes:
    try:
        return bytes([alphabet[character] for character in token])
    except KeyError:
        return token.encode()  # as the library's decoder does with tokens that are not spelled in the alphabet


def _sentencepiece_bytes(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()


def _text_or_none(piece: bytes) -> str | None:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _not_exact(name: str, where: str) -> str:
    return (
        f"The tokenizer of {name} is neither a byte-level one nor one of SentencePiece's kind (seen at {where!r}), so "
        "answers cannot be decoded exactly. Serve a model with a BPE or Unigram tokenizer, as nearly all have."
    )
