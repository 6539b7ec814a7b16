from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from openclaw_rl.shared.rendering.tokenizer import PieceTokenizer
from openclaw_rl.shared.rendering.vocabulary import Vocab, load_tokenizer
from tests.shared.tiny_tokenizers import byte_level, sentencepiece, write_folder

MARKS = ("<s>", "</s>", "<|user|>")
KINDS = ("byte-level", "none", "first", "always")


@cache
def made(kind: str) -> tuple[PieceTokenizer, Vocab, PreTrainedTokenizerFast]:
    """A tokenizer as we load it, and as transformers does."""
    built = byte_level(MARKS) if kind == "byte-level" else sentencepiece(MARKS, space=kind)
    folder = write_folder(Path(mkdtemp(prefix="tiny-pieces-")), built)
    tokenizer = load_tokenizer(folder)
    vocab = Vocab(tokenizer)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return PieceTokenizer(tokenizer, vocab, name=kind, eos_token_id=None), vocab, theirs


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*MARKS, " ", "\n", "Ninety", " baskets", "é🙂", "  ", "twelve rows"]), max_size=8))
def test_a_prompt_is_cut_as_transformers_cuts_it(kind: str, parts: list[str]) -> None:
    ours, _, theirs = made(kind)
    text = "".join(parts)
    expected = theirs.encode(text, add_special_tokens=False)
    assert ours.encode_prompt(text).tolist() == expected
    assert ours.encode_prompt(text).tolist() == expected  # now from the cache


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from([*"<|/s>user \n", "\ufdd0", "🙂", "é"]), max_size=30), st.sampled_from(["", *MARKS]))
def test_text_from_outside_survives_without_control_tokens(kind: str, text: str, mark: str) -> None:
    ours, vocab, _ = made(kind)
    text = "a" + text + mark + text
    ids = ours.encode(ours.protect(text))
    assert not set(ids) & set(vocab.added.values())
    assert vocab.decode(ids).removeprefix(" " if kind == "always" else "") == text


def test_a_tokenizer_whose_merges_spell_a_control_token_cannot_be_used_to_forge_one(tmp_path: Path) -> None:
    spec = json.loads(sentencepiece([]).to_str())
    vocabulary, merges = spec["model"]["vocab"], spec["model"]["merges"]
    merges.clear()
    for start, end in [("<", "/"), ("</", "s"), ("</s", ">")]:
        for piece in (start, end, start + end):
            vocabulary.setdefault(piece, len(vocabulary))
        merges.append([start, end])
    spec["added_tokens"].append(
        {"id": vocabulary["</s>"], "content": "</s>", "special": True, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
    )
    tokenizer = load_tokenizer(write_folder(tmp_path, Tokenizer.from_str(json.dumps(spec))))
    assert tokenizer.encode("a</s>b").tokens[1:2] == ["</s>"]  # what we guard against
    vocab = Vocab(tokenizer)
    ours = PieceTokenizer(tokenizer, vocab, name="merging", eos_token_id=None)
    ids = ours.encode(ours.protect("a</s>b</s></s>"))
    assert vocab.added["</s>"] not in ids
    assert vocab.decode(ids) == "a</s>b</s></s>"
    assert ours.encode_prompt("a</s>").count(vocab.added["</s>"]) == 1  # the template's own


def test_white_space_goes_with_the_token_that_takes_it(tmp_path: Path) -> None:
    built = byte_level(["<s>"])
    built.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False, lstrip=True, rstrip=True)])
    folder = write_folder(tmp_path, built)
    tokenizer = load_tokenizer(folder)
    ours = PieceTokenizer(tokenizer, Vocab(tokenizer), name="phi", eos_token_id=None)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    for text in ["<s> Ninety. \n<|end|>\n <s>\n", "<|end|> <|end|>"]:
        assert ours.encode_prompt(text).tolist() == theirs.encode(text, add_special_tokens=False)


def test_a_control_token_at_the_beginning_of_a_text_is_found() -> None:
    ours, _, _ = made("byte-level")
    assert ours.first_control("\n </s> more") == "</s>"
    assert ours.first_control("more </s>") == ours.first_control("") == ""


def test_every_string_of_a_json_value_is_protected() -> None:
    ours, vocab, _ = made("byte-level")
    safe = ours.protect_all({"</s>": ["<s>", 1, None, {"a": "</s>"}], "b": True})
    assert safe["b"] is True
    ids = ours.encode_prompt(json.dumps(safe, ensure_ascii=False))
    assert not set(ids) & set(vocab.added.values())
    assert vocab.decode(ids) == '{"</s>": ["<s>", 1, null, {"a": "</s>"}], "b": true}'
