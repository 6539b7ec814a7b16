"""A model folder without weights: a small byte-level tokenizer with Qwen3's control tokens, trained on a few lines."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_TEXTS = [
    "The orchard holds twelve rows of pear trees, and each row gives about ninety baskets in a good year.",
    "Thanks, but please write it shorter, without any bullets. I would rather read two plain sentences.",
    '{"name": "read_file", "arguments": {"path": "notes/today.md", "lines": [1, 20], "strict": true}}',
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n<tools>\n</tools>\n\n",
    "For each function call, return a json object with function name and arguments within XML tags:\n",
    "**Step 1.** 12 + 30 = 42\n**Step 2.** 42 / 6 = 7\n\nSo the answer is 7.\n",
]


@cache
def tiny_model() -> Path:
    """The folder, made once per test run."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(_TEXTS * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKERS])
    folder = Path(mkdtemp(prefix="tiny-model-"))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_type": "qwen3", "vocab_size": 700, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
