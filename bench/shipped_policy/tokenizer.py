"""The embedded policy's tokenizer: byte-level BPE of 4,096 entries, laid out as Qwen3's.

    python -m bench.shipped_policy.tokenizer [--out DIR]

The BPE learns from the dialogues' own words and from English, Python, Markdown and JSON found on this machine (the
standard library, installed packages, Debian's documentation), so that an agent's long system prompt is cheap as well.
That text differs from machine to machine: the trained `tokenizer.json` is committed and pre-training reuses it.

transformers loads Qwen3's tokenizer as `Qwen2Tokenizer`, which takes vocabulary and merges from `tokenizer.json` and
builds normalizer and pre-tokenizer anew; ours are therefore exactly those: NFC, Qwen's pattern, ByteLevel.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from bench.shipped_policy import POLICY
from bench.shipped_policy.dialogues import sample_dialogue
from bench.shipped_policy.dialogues.problems import world
from openclaw_rl.evaluation.problems import PEOPLE, THINGS, singular

VOCABULARY = 4096
CONTEXT = 32768

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's pre-tokenizer: each digit by itself, a word with the space before it, line ends with the marks before them."""

CONTROL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Special in the sense of `skip_special_tokens`, as in Qwen3's tokenizer."""

MARK_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""One id each, but part of the text that decoding returns, as in Qwen3's tokenizer."""


def train_tokenizer(texts: Iterator[str]) -> Tokenizer:
    """A byte-level BPE of `VOCABULARY` entries, Qwen3's added tokens last and in Qwen3's order."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(CONTROL_TOKENS) - len(MARK_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(
        [AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS]
        + [AddedToken(token, special=False, normalized=False) for token in MARK_TOKENS]
    )
    return tokenizer


def dialogue_texts(seed: int, count: int) -> Iterator[str]:
    """The text of `count` dialogues, tools included."""
    random = Random(seed)
    for _ in range(count):
        dialogue = sample_dialogue(random)
        for tool in dialogue.tools:
            yield json.dumps(tool, ensure_ascii=False)
        for message in dialogue.messages:
            yield f"{message['role']}\n"
            yield message["content"]
            for call in message.get("tool_calls", ()):
                yield json.dumps(call["function"])


def lexicon_texts(times: int) -> Iterator[str]:
    """Names and objects alone, often enough that each becomes one token, at the start of a sentence as well."""
    pairs = [*((singular(things), things) for things in THINGS), *world().containers]
    yield from (name for name in PEOPLE for _ in range(times))
    yield from (f" {word}" for word in PEOPLE for _ in range(times))
    yield from (f" {word}" for pair in pairs for word in pair for _ in range(times))


def general_texts(budget: int) -> Iterator[str]:
    """English, Python, Markdown and JSON of this machine: at most `budget` characters of each of four sorts."""
    standard_library = Path(sysconfig.get_path("stdlib"))
    packages = Path(sysconfig.get_path("purelib"))
    sorts = (
        sorted(standard_library.glob("*.py")) + sorted(standard_library.glob("asyncio/*.py")),
        sorted(packages.glob("*.dist-info/METADATA")) + sorted(packages.glob("**/*.md")),
        [path for path in sorted(Path("/usr/share/doc").glob("*/*")) if path.suffix in {"", ".txt", ".md"}],
        sorted(packages.glob("**/*.json")),
    )
    for paths in sorts:
        left = budget
        for path in paths:
            if left <= 0:
                break
            if not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="ignore")[: min(left, 20_000)]
            left -= len(text)
            yield text


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes `tokenizer.json` and the `tokenizer_config.json` that makes transformers load it as `Qwen2Tokenizer`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token in CONTROL_TOKENS,
        }
        for token in (*CONTROL_TOKENS, *MARK_TOKENS)
    }
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": list(CONTROL_TOKENS[1:]),
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": CONTEXT,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains the embedded policy's tokenizer.")
    parser.add_argument("--out", type=Path, default=POLICY, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    def texts() -> Iterator[str]:
        yield from dialogue_texts(arguments.seed, 6_000)
        yield from lexicon_texts(1_000)
        yield from general_texts(1_500_000)

    tokenizer = train_tokenizer(texts())
    write_tokenizer(tokenizer, arguments.out)
    print(f"{tokenizer.get_vocab_size()} entries in {arguments.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
