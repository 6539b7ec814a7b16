"""Convert a GGUF file of a Llama model into a Hugging Face folder with float32 weights:
`python -m openclaw_rl.trainer_local.models.convert_gguf FILE FOLDER`.

GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Only what is known here exactly is converted: another
architecture, tokenizer or tensor is refused. transformers reads GGUF files too, but it leaves out the digit splitting
of SmolLM2's tokenizer, and does not save what it read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openclaw_rl.shared.errors import ConfigError

_ARCHITECTURE = "llama"
_SPLITTING = {  # by tokenizer.ggml.pre; the regular expressions of llama.cpp's llama-vocab.cpp
    "gpt-2": ["bytes"],
    "smollm": ["digits", "bytes"],
}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # tokenizer.ggml.token_type
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",  # absent if the embedding is used for the output too
}


class _Metadata:
    """The metadata of a GGUF file."""

    def __init__(self, reader: Any, path: Path) -> None:
        self._fields, self.path = reader.fields, path

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        return self._fields[key].contents() if key in self._fields else default

    def need(self, key: str) -> Any:
        """The value of a key. Raises `ConfigError` if the file has none."""
        value = self.get(key)
        if value is None:
            raise ConfigError(f"{self.path} has no {key}: it is no complete model")
        return value

    def starting(self, *beginnings: str) -> Iterator[str]:
        """The keys that begin with one of `beginnings`."""
        return (key for key in self._fields if key.startswith(beginnings))


def convert(source: Path, folder: Path) -> None:
    """Write the model in `source` to the existing `folder`: weights, config, tokenizer and chat template.

    Raises `ConfigError` for a file that is no GGUF file or no model of a known form, `OSError` where the folder cannot
    be written.
    """
    import gguf

    try:
        reader = gguf.GGUFReader(source)
        metadata = _Metadata(reader, source)
        config = _config(metadata, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
        files = {
            "config.json": config,
            "generation_config.json": _special_ids(metadata),
            "tokenizer_config.json": _tokenizer_config(metadata),
        }
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        (folder / "chat_template.jinja").write_text(metadata.need("tokenizer.chat_template"), "utf-8")
        _tokenizer(metadata).save(str(folder / "tokenizer.json"))
        _write_weights(reader, config, folder / "model.safetensors", source)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:  # how the reader meets a broken file
        raise ConfigError(f"{source} cannot be read as a GGUF file: {type(error).__name__}: {error}") from error


def _config(metadata: _Metadata, *, tied: bool) -> dict[str, Any]:
    """The content of `config.json`."""
    architecture = metadata.need("general.architecture")
    if architecture != _ARCHITECTURE:
        raise ConfigError(f"{metadata.path} is of the architecture {architecture!r}; only {_ARCHITECTURE} is converted")
    for key in metadata.starting(f"{_ARCHITECTURE}.rope.scaling", f"{_ARCHITECTURE}.expert"):
        raise ConfigError(f"{metadata.path} has {key}, which is not converted")

    def shape(key: str) -> Any:
        return metadata.need(f"{_ARCHITECTURE}.{key}")

    heads, hidden = int(shape("attention.head_count")), int(shape("embedding_length"))
    head = int(metadata.get(f"{_ARCHITECTURE}.attention.key_length", hidden // heads))
    if metadata.get(f"{_ARCHITECTURE}.rope.dimension_count", head) != head:
        raise ConfigError(f"{metadata.path} rotates only a part of each head, which is not converted")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": len(metadata.need("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "intermediate_size": int(shape("feed_forward_length")),
        "num_hidden_layers": int(shape("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(metadata.get(f"{_ARCHITECTURE}.attention.head_count_kv", heads)),
        "head_dim": head,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": _short(shape("attention.layer_norm_rms_epsilon")),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _short(metadata.get(f"{_ARCHITECTURE}.rope.freq_base", 10000.0)),
        },
        "max_position_embeddings": int(shape("context_length")),
        "tie_word_embeddings": tied,
        **_special_ids(metadata),
    }


def _short(value: float) -> float:
    """The decimal number that a 32-bit float was written as: 1e-05, not 9.999999747378752e-06."""
    return float(f"{value:.7g}")


def _special_ids(metadata: _Metadata) -> dict[str, int]:
    """Ids of the tokens with a role; an answer ends at `eos_token_id`."""
    names = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "padding_token_id": "pad_token_id"}
    found = {ours: metadata.get(f"tokenizer.ggml.{theirs}") for theirs, ours in names.items()}
    if found["eos_token_id"] is None:
        raise ConfigError(f"{metadata.path} has no tokenizer.ggml.eos_token_id: its answers would not end")
    return {name: int(value) for name, value in found.items() if value is not None}


def _tokenizer_config(metadata: _Metadata) -> dict[str, Any]:
    tokens = metadata.need("tokenizer.ggml.tokens")
    ids = {name.removesuffix("_id"): number for name, number in _special_ids(metadata).items()}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    if unknown is not None:
        ids["unk_token"] = int(unknown)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{role: tokens[number] for role, number in ids.items()},
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(metadata.need(f"{_ARCHITECTURE}.context_length")),
    }


def _tokenizer(metadata: _Metadata) -> Any:
    """The byte-level BPE tokenizer (`tokenizers.Tokenizer`) that the file describes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind, splitting = metadata.need("tokenizer.ggml.model"), metadata.need("tokenizer.ggml.pre")
    if kind != "gpt2" or splitting not in _SPLITTING:
        raise ConfigError(
            f"{metadata.path} has a tokenizer of the kind {kind}, {splitting}; converted are gpt2 with one of "
            f"{', '.join(_SPLITTING)}"
        )
    if metadata.get("tokenizer.ggml.add_bos_token") or metadata.get("tokenizer.ggml.add_space_prefix"):
        raise ConfigError(f"{metadata.path} adds a token or a space before each text, which is not converted")
    tokens, types = metadata.need("tokenizer.ggml.tokens"), metadata.need("tokenizer.ggml.token_type")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens) or len(types) != len(tokens):
        raise ConfigError(f"{metadata.path} has tokens twice, or without a type")
    merges = [tuple(merge.split(" ")) for merge in metadata.need("tokenizer.ggml.merges")]
    wrong = [merge for merge in merges if len(merge) != 2 or "".join(merge) not in vocabulary]
    if wrong:
        raise ConfigError(f"{metadata.path} has a merge of the tokenizer that gives no token: {wrong[0]}")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    steps = {
        "digits": pre_tokenizers.Digits(individual_digits=True),
        "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    }
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([steps[step] for step in _SPLITTING[splitting]])
    tokenizer.decoder = decoders.ByteLevel()
    for token, number in zip(tokens, types, strict=True):
        if number in (_CONTROL, _UNKNOWN, _USER_DEFINED):
            special = number != _USER_DEFINED
            tokenizer.add_tokens([AddedToken(token, special=special, normalized=False)])
        elif number not in (_NORMAL, _UNUSED):
            raise ConfigError(f"{metadata.path}: token {token!r} is of type {number}, which a gpt2 tokenizer lacks")
    return tokenizer


def _write_weights(reader: Any, config: dict[str, Any], path: Path, source: Path) -> None:
    import gguf
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    names = dict(_OUTSIDE)
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours in _LAYER.items():
            names[f"blk.{layer}.{theirs}.weight"] = f"model.layers.{layer}.{ours}.weight"
    if config["tie_word_embeddings"]:
        del names["output.weight"]
    found = {tensor.name: tensor for tensor in reader.tensors}
    if difference := names.keys() ^ found.keys():
        one = min(difference)
        raise ConfigError(f"{source} {'lacks' if one in names else 'has'} the tensor {one}, so it is no Llama model")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = {}
    for name, tensor in found.items():
        weight = gguf.dequantize(tensor.data, tensor.tensor_type).astype("float32")
        part = name.removesuffix(".weight").rpartition(".")[2]
        weights[names[name]] = _split_halves(weight, heads[part]) if part in heads else weight
    wanted = (config["vocab_size"], config["hidden_size"])
    if weights["model.embed_tokens.weight"].shape != wanted:
        raise ConfigError(f"{source} has an embedding of {weights['model.embed_tokens.weight'].shape}, not {wanted}")
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def _split_halves(weight: Any, heads: int) -> Any:
    """Rows of a query or key projection in the order of Hugging Face. GGUF has the two numbers that rotate together
    next to each other; Hugging Face has all first ones of a head before all second ones. Shape (heads · head, hidden).
    """
    rows, hidden = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden).copy()


def main() -> int:
    """Convert the file named in the command line; exit status 1, with the reason on stderr, if that is impossible."""
    source, folder = (Path(argument) for argument in sys.argv[1:])
    try:
        convert(source, folder)
    except ModuleNotFoundError as error:
        print(f"the package {error.name} is missing", file=sys.stderr)
        return 1
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
