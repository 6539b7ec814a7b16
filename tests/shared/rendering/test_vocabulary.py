from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.rendering.vocabulary import Vocab, load_tokenizer
from tests.shared.tiny_tokenizers import byte_level, sentencepiece, write_folder

TEXTS = ["Ninety baskets.", " twelve  rows\n\n\tof pear trees", "naïve café 你好 🙂", "▁ is a character too", "<0x41>"]


@pytest.mark.parametrize("kind", ["byte-level", "none", "first", "always"])
def test_pieces_of_text_put_together_are_the_text(kind: str, tmp_path: Path) -> None:
    made = byte_level([]) if kind == "byte-level" else sentencepiece([], space=kind)
    tokenizer = load_tokenizer(write_folder(tmp_path, made))
    vocab = Vocab(tokenizer)
    assert vocab.spaced is (kind != "byte-level")
    for text in TEXTS:
        if kind != "byte-level" and "▁" in text:
            continue  # these tokenizers cannot tell it from a space
        decoded = vocab.decode(tokenizer.encode(text, add_special_tokens=False).ids)
        assert text in (decoded, decoded.removeprefix(" ") if kind in ("first", "always") else decoded)


def test_bytes_of_half_a_character_wait_for_the_rest(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, sentencepiece([])))
    vocab = Vocab(tokenizer)
    ids = tokenizer.encode("🙂", add_special_tokens=False).ids
    assert [vocab.text_of[number] for number in ids] == [None] * 4
    assert vocab.decode(ids) == "🙂"
    assert vocab.decode(ids[:2]) == "\ufffd"


def test_markers_are_control_tokens_and_words_white_space_and_html_are_text(tmp_path: Path) -> None:
    plain = ["<think>", "[TOOL]", "\n\n", "<table>", "</li>", "baskets", "turn"]
    folder = write_folder(tmp_path, byte_level(["<|im_end|>"], plain))
    assert set(Vocab(load_tokenizer(folder)).added) == {"<|im_end|>", "<think>", "[TOOL]"}
    assert "turn" in Vocab(load_tokenizer(folder, "{{ 'turn' + message.role }}")).added
    vocab = Vocab(load_tokenizer(folder))
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode("<table>\n\nbaskets<|im_end|>").ids
    assert [vocab.bytes_of[number] for number in ids[:3]] == [b"<table>", b"\n\n", b"baskets"]
    assert not set(ids) & set(vocab.added.values())
    assert vocab.decode(ids) == "<table>\n\nbaskets<|im_end|>"


def test_a_token_outside_the_byte_alphabet_is_its_own_text(tmp_path: Path) -> None:
    spec = json.loads(byte_level([]).to_str())
    spec["model"]["vocab"]["pear tree"] = len(spec["model"]["vocab"])
    vocab = Vocab(load_tokenizer(write_folder(tmp_path, Tokenizer.from_str(json.dumps(spec)))))
    assert b"pear tree" in vocab.bytes_of


def test_tokenizers_without_bytes_of_their_own_are_refused(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"<unk>": 0, "Hello": 1}, unk_token="<unk>"))
    words.decoder = decoders.WordPiece()
    with pytest.raises(ConfigError, match=r"neither a byte-level one nor one of SentencePiece's kind.*WordLevel"):
        Vocab(load_tokenizer(write_folder(tmp_path, words)), name="the model")
    bare = byte_level([])
    bare.decoder = decoders.Fuse()
    with pytest.raises(ConfigError, match="decoder Fuse"):
        Vocab(load_tokenizer(write_folder(tmp_path, bare)), name="the model")


def test_a_folder_without_a_readable_tokenizer_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.json cannot be read.*save_pretrained"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(ConfigError, match="not a JSON object"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a tokenizer that the tokenizers library reads"):
        load_tokenizer(tmp_path)
