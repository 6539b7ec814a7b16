from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.trainer_local.models.convert_gguf import convert
from tests.shared.tiny_tokenizers import CHATML
from tests.trainer_local.tiny_gguf import write_gguf

MODULE = "openclaw_rl.trainer_local.models.convert_gguf"
TEXTS = [
    "The orchard holds 12 rows, don't count  345 of them.\n\n  12+30 = 42",
    "<|im_start|>user\nThanks<|im_end|>\n<file_sep>",
    "été ½ 日本 🙂 ٣٤",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "converted"
    made.mkdir()
    return made


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_those_of_the_model_that_was_written(tmp_path: Path, folder: Path, tied: bool) -> None:
    made = write_gguf(tmp_path / "model.gguf", tied=tied)
    convert(made.path, folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert model.dtype == torch.float32
    expected = made.model.state_dict()
    assert expected.keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, expected[name]), name
    ids = torch.tensor([[5, 17, 200, 3, 90]])
    with torch.no_grad():
        assert torch.equal(model(ids).logits, made.model(ids).logits)
    assert ("lm_head.weight" in load_file(folder / "model.safetensors")) != tied


def test_quantized_weights_are_read_as_transformers_reads_them(tmp_path: Path, folder: Path) -> None:
    made = write_gguf(tmp_path / "model.gguf", kind="Q4_1")
    convert(made.path, folder)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    ours = AutoModelForCausalLM.from_pretrained(folder)
    original = made.model.state_dict()
    for name, weight in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], weight), name
        if weight.ndim == 2:
            assert 0 < (weight - original[name]).abs().max() < 0.3, name


def test_a_block_of_sixteen_levels_has_exactly_these_values() -> None:
    """Q4_1 is `scale · level + minimum` with 16 levels in a block of 32: here 2 · level - 8."""
    block = np.array([[2.0 * level - 8 for level in (*range(16), *range(16))]], dtype=np.float32)
    stored = gguf.quantize(block, gguf.GGMLQuantizationType.Q4_1)
    assert stored.nbytes == 20  # two 16-bit numbers and 32 times four bits
    assert np.array_equal(gguf.dequantize(stored, gguf.GGMLQuantizationType.Q4_1), block)


def test_the_config_is_that_of_the_model(tmp_path: Path, folder: Path) -> None:
    convert(write_gguf(tmp_path / "model.gguf").path, folder)
    config = json.loads((folder / "config.json").read_text())
    wanted = {
        "model_type": "llama",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        "tie_word_embeddings": True,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "eos_token_id": 2,
    }
    assert {name: config[name] for name in wanted} == wanted
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    assert (folder / "chat_template.jinja").read_text() == CHATML


def test_texts_get_the_ids_of_the_original_tokenizer(tmp_path: Path, folder: Path) -> None:
    made = write_gguf(tmp_path / "model.gguf")
    convert(made.path, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        assert ids == made.tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == text
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    # The digits are split before the spaces, so that two spaces before a number stay together.
    assert tokenizer.tokenize("\n  12")[-2:] == ["1", "2"]
    assert tokenizer.model_max_length == 256


def test_the_service_writes_conversations_for_it(tmp_path: Path, folder: Path) -> None:
    made = write_gguf(tmp_path / "model.gguf")
    convert(made.path, folder)
    described = Prompter(str(folder)).describe()
    assert "chat template" in described and "<|im_end|>" in described


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architecture": "qwen2"}, "architecture 'qwen2'; only llama is converted"),
        ({"splitting": "deepseek-llm"}, "tokenizer of the kind gpt2, deepseek-llm"),
        ({"without": "blk.1.ffn_up"}, "lacks the tensor blk.1.ffn_up.weight"),
        ({"changed": {"llama.rope.scaling.factor": 8.0}}, "has llama.rope.scaling.factor, which is not converted"),
    ],
)
def test_a_file_that_is_not_known_exactly_is_refused(
    tmp_path: Path, folder: Path, changes: dict[str, Any], reason: str
) -> None:
    made = write_gguf(tmp_path / "model.gguf", **changes)
    with pytest.raises(ConfigError, match=reason):
        convert(made.path, folder)


@pytest.mark.parametrize("share", [0, 8, 1000, 0.5])
def test_a_cut_file_is_refused(tmp_path: Path, folder: Path, share: float) -> None:
    path = write_gguf(tmp_path / "model.gguf").path
    content = path.read_bytes()
    path.write_bytes(content[: int(share if share > 1 else share * len(content))])
    with pytest.raises(ConfigError, match=r"model\.gguf"):
        convert(path, folder)


def run(path: Path, folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", MODULE, str(path), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, **options)


def test_a_full_disk_is_said(tmp_path: Path, folder: Path) -> None:
    """With a limit of the size of a file, which a write meets as it meets a full disk."""
    path = write_gguf(tmp_path / "model.gguf").path
    limit = 100_000
    done = run(path, folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 1
    assert "model.safetensors cannot be written" in done.stderr and "Traceback" not in done.stderr


def test_the_program_says_what_is_wrong_with_a_file(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "model.gguf").write_text("no model")
    done = run(tmp_path / "model.gguf", folder)
    assert done.returncode == 1
    assert "cannot be read as a GGUF file" in done.stderr and "Traceback" not in done.stderr
