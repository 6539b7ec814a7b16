from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

from openclaw_rl.shared.rendering.line_cache import Lines, can_be_cut
from openclaw_rl.shared.rendering.vocabulary import load_tokenizer
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.shared.tiny_model import tiny_model
from tests.shared.tiny_tokenizers import byte_level, sentencepiece

LETTERS, MARKS, THREE = r"\p{L}", r"[\p{L}\p{M}]", r"\p{N}{1,3}"
POLICY = load_tokenizer(EMBEDDED_POLICY)


def split_by(pattern: str) -> Tokenizer:
    """A small tokenizer that cuts words as the pattern says."""
    tokenizer = load_tokenizer(tiny_model())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def family(letters: str, digits: str, others: str) -> Tokenizer:
    return split_by(
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^\s{others}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


TOKENIZERS = {
    "the shipped policy": POLICY,
    "qwen 3": family(LETTERS, r"\p{N}", LETTERS),
    "llama 3": family(LETTERS, THREE, LETTERS),
    "qwen 3.5": family(MARKS, r"\p{N}", r"\p{L}\p{M}"),
}
PIECES = [
    *("\n", "\n", "\n\n", "\r\n", "\r", " ", "  ", "\t", "\v", "\f", "\x1c", "\x85", "\u00a0", "\u2028", "\u3000"),
    *("word", "Ünïcode", "'s", "'", "12", "-", "!", "/", "```", "_", "é", "e\u0301", "\u0301", "\u0338", "你好", "한"),
    *("\u1112", "\u1161", "🙂", "\u200d", "{", "}", '"a": 1,', "<|im_end|>", "ﬁ", "Å"),
]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=250, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.characters(exclude_categories=["Cs"])), max_size=30).map("".join))
def test_lines_have_the_ids_of_the_whole(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert can_be_cut(tokenizer)
    lines = Lines(tokenizer, (), capacity=1 << 20)
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    for _ in range(2):  # the second time from memory
        found = lines.encode(text)
        assert found is not None
        assert found.tolist() == whole


def test_known_lines_are_not_encoded_again() -> None:
    lines = Lines(POLICY, (), capacity=1 << 20)
    text = "\n".join(f"- line {number}" for number in range(100))
    assert lines.unknown(text) > 800
    lines.encode(text)
    changed = text.replace("line 50", "something else")
    assert lines.unknown(changed) < 40
    assert [*(lines.encode(changed) or ())] == POLICY.encode(changed, add_special_tokens=False).ids


def test_a_little_memory_is_enough_and_none_is_held_beyond_it() -> None:
    lines = Lines(POLICY, (), capacity=20_000)
    for number in range(50):
        text = "\n".join(f"- item {number} of {index}" for index in range(60))
        assert [*(lines.encode(text) or ())] == POLICY.encode(text, add_special_tokens=False).ids
        assert sum(map(len, (lines._young, lines._old))) * 200 < 20_000 + 60 * 200


def test_a_line_that_the_merges_make_a_control_token_of_is_not_taken() -> None:
    control = POLICY.encode("e", add_special_tokens=False).ids
    lines = Lines(POLICY, control, capacity=1 << 20)
    assert lines.encode("a\ne\nb") is None
    assert lines.encode("a\nb\ne") is None
    assert lines.encode("a\nb\n") is not None


def test_tokenizers_that_are_not_known_to_cut_there_are_left_alone(tmp_path: Path) -> None:
    assert not can_be_cut(byte_level([]))  # GPT-2's pattern splits white space by what follows it
    assert not can_be_cut(sentencepiece([]))
    assert not can_be_cut(split_by(r"\p{L}+|[\s\S]"))
    taken = load_tokenizer(tiny_model())
    taken.add_tokens([AddedToken("\nUser:", special=False, normalized=False)])
    assert not can_be_cut(taken)
    eats = load_tokenizer(tiny_model())
    eats.add_tokens([AddedToken("note", lstrip=True, special=False, normalized=False)])
    assert not can_be_cut(eats)
    stripped = load_tokenizer(tiny_model())
    stripped.normalizer = normalizers.Strip()
    assert not can_be_cut(stripped)
    dropping = json.loads(load_tokenizer(tiny_model()).to_str())
    dropping["model"]["dropout"] = 0.5
    assert not can_be_cut(Tokenizer.from_str(json.dumps(dropping)))
