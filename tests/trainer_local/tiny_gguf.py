"""A tiny Llama model with random weights, as Hugging Face has it and as a GGUF file of the package `gguf`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from tests.shared.tiny_tokenizers import CHATML

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>"]
_TEXTS = [
    "The orchard holds twelve rows of trees.",
    "Thanks, but please don't write lists.",
    "system\nuser\nassistant\n",
]
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


class TinyGguf(NamedTuple):
    """The file, and the model and the tokenizer it was made from."""

    path: Path
    model: LlamaForCausalLM
    tokenizer: Tokenizer


def tokenizer() -> Tokenizer:
    """A BPE that splits digits, as SmolLM2's does; its control tokens come first."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        _TEXTS * 3,
        trainers.BpeTrainer(vocab_size=320, special_tokens=TOKENS, initial_alphabet=alphabet, show_progress=False),
    )
    return made


def write_gguf(
    path: Path,
    *,
    kind: str = "F32",
    tied: bool = True,
    architecture: str = "llama",
    splitting: str = "smollm",
    without: str = "",
    changed: dict[str, Any] | None = None,
    seed: int = 3,
) -> TinyGguf:
    """Write the model with its matrices as `kind`. `without` leaves one tensor out; `changed` adds 32-bit numbers to
    the metadata.
    """
    torch.manual_seed(seed)
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=words.get_vocab_size(),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    writer = gguf.GGUFWriter(path, architecture)
    _write_shape(writer, config)
    for key, value in (changed or {}).items():
        writer.add_float32(key, value)
    _write_tokenizer(writer, words, splitting)
    weights = {name: weight.detach().numpy() for name, weight in model.state_dict().items()}
    tensors = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    tensors |= {} if tied else {"output": "lm_head"}
    tensors |= {f"blk.{n}.{theirs}": f"model.layers.{n}.{ours}" for n in range(2) for theirs, ours in _LAYER.items()}
    heads = {"attn_q": 4, "attn_k": 2}
    for theirs, ours in tensors.items():
        weight = weights[f"{ours}.weight"]
        if (part := theirs.rpartition(".")[2]) in heads:
            weight = _side_by_side(weight, heads[part])
        stored = gguf.GGMLQuantizationType[kind if weight.ndim == 2 else "F32"]
        if theirs != without:
            writer.add_tensor(f"{theirs}.weight", gguf.quantize(weight, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return TinyGguf(path, model, words)


def _write_shape(writer: gguf.GGUFWriter, config: LlamaConfig) -> None:
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(16)


def _write_tokenizer(writer: gguf.GGUFWriter, words: Tokenizer, splitting: str) -> None:
    spec = json.loads(words.to_str())["model"]
    tokens = sorted(spec["vocab"], key=spec["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in TOKENS else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in spec["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHATML)


def _side_by_side(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a projection as GGUF has them: for each i row i of a head's first half, then row i of its second half."""
    size = weight.shape[0] // heads
    rows = [
        head * size + half * (size // 2) + row for head in range(heads) for row in range(size // 2) for half in (0, 1)
    ]
    return np.ascontiguousarray(weight[rows])


def write_wheel(folder: Path, file: Path, *, name: str = "tiny-model", version: str = "1.0") -> Path:
    """A wheel with the file as `tiny_model/model.gguf`, and a licence."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, f"{module}/model.gguf")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/LICENSE", "the licence of the tiny model")
        archive.writestr(f"{info}/RECORD", "")
    return wheel
