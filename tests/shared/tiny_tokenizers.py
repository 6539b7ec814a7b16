"""Small tokenizers and model folders (config and tokenizer, no weights) with any control tokens and chat template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from openclaw_rl.shared.rendering.families import FAMILIES, MODEL_TYPES
from tests.shared.tiny_model import MARKERS

_TEXTS = [
    "The orchard holds twelve rows of pear trees, and each row gives about ninety baskets in a good year.",
    "Thanks, but please write it shorter, without any bullets. I would rather read two plain sentences.",
    '{"name": "read_file", "arguments": {"path": "notes/today.md", "lines": [1, 20], "strict": true}}',
    "User: How many baskets?\nAssistant: Ninety.\n\nsystem\nuser\nassistant\n",
    "<function=read>\n<parameter=path>\nnotes/today.md\n</parameter>\n</function>\n",
]
CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def byte_level(special: Sequence[str], plain: Sequence[str] = ()) -> Tokenizer:
    """A byte-level BPE like GPT-2's; `special` and `plain` are added tokens, marked special or not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_TEXTS * 3, trainer)
    return _with_tokens(tokenizer, special, plain)


def sentencepiece(special: Sequence[str], plain: Sequence[str] = (), *, space: str = "none") -> Tokenizer:
    """A BPE with `▁` for spaces and byte fallback. `space` is where it puts one more: before every stretch of text
    (`always`, as Llama 2's), before the first one (`first`, as newer Mistrals), or nowhere (`none`, as Gemma's)."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    replace = normalizers.Replace(" ", "▁")
    if space == "first":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        always = normalizers.Sequence([normalizers.Prepend("▁"), replace])
        tokenizer.normalizer = always if space == "always" else replace
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([] if space == "none" else [decoders.Strip(" ", 1, 0)])])
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", *byte_tokens], show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(_TEXTS * 3, trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] == "<unk>"]
    return _with_tokens(Tokenizer.from_str(json.dumps(spec)), special, plain)


def write_folder(
    folder: Path,
    tokenizer: Tokenizer,
    *,
    config: dict[str, Any] | None = None,
    template: str = "",
    eos: str = "",
    **named: str,
) -> Path:
    """Writes `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` (if any) and, if given, `config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    kept: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    if eos:
        kept["eos_token"] = eos
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    if config is not None:
        size = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 4096}
        (folder / "config.json").write_text(json.dumps(size | config))
    return folder


def _with_tokens(tokenizer: Tokenizer, special: Sequence[str], plain: Sequence[str]) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    return tokenizer


@cache
def family_folder(name: str) -> Path:
    """A folder of the library's family `name`: its control tokens on a small tokenizer, no template, no weights."""
    model_type = next(kind for kind, family in MODEL_TYPES.items() if family == name)
    needs = FAMILIES[name].needs
    plain = [token for token in needs if token in MARKERS]
    tokenizer = byte_level([token for token in needs if token not in MARKERS], plain)
    folder = Path(mkdtemp(prefix=f"tiny-{name}-"))
    ends = [tokenizer.token_to_id(stop) for stop in FAMILIES[name].grammar.stops]
    return write_folder(folder, tokenizer, config={"model_type": model_type, "eos_token_id": ends})
