"""A Qwen3-VL or Qwen3.5 folder with random weights, a small tokenizer and the files of its image processor, all made
here.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from openclaw_rl.shared.rendering.families import FAMILIES
from tests.shared.tiny_model import MARKERS
from tests.shared.tiny_tokenizers import byte_level, write_folder

PATCH, MERGE = 16, 2
PIXELS = {"shortest_edge": 4 * 32 * 32, "longest_edge": 64 * 32 * 32}
"""Between 4 and 64 tokens an image: small, and both bounds are met by images of a test."""


def vision_folder(folder: Path, *, weights: bool = False, model_type: str = "qwen3_vl") -> Path:
    """Config, tokenizer and processor files in `folder`; with `weights` a whole model that engines load (slow)."""
    needs = FAMILIES["qwen3-vl"].needs
    tokenizer = byte_level([token for token in needs if token not in MARKERS], [t for t in needs if t in MARKERS])
    ends = [tokenizer.token_to_id(stop) for stop in FAMILIES["qwen3-vl"].grammar.stops]
    config = _config(model_type, tokenizer.get_vocab_size(), ends)
    config |= {
        "image_token_id": tokenizer.token_to_id("<|image_pad|>"),
        "video_token_id": tokenizer.token_to_id("<|video_pad|>"),
        "vision_start_token_id": tokenizer.token_to_id("<|vision_start|>"),
        "vision_end_token_id": tokenizer.token_to_id("<|vision_end|>"),
    }
    write_folder(folder, tokenizer, config=config, eos="<|im_end|>", pad_token="<|endoftext|>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    shape = {"patch_size": PATCH, "temporal_patch_size": 2, "merge_size": MERGE, "size": PIXELS}
    colours = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    kinds = {
        "preprocessor_config.json": "image_processor_type",
        "video_preprocessor_config.json": "video_processor_type",
    }
    names = {"image_processor_type": "Qwen2VLImageProcessorFast", "video_processor_type": "Qwen3VLVideoProcessor"}
    for name, kind in kinds.items():
        processor = {kind: names[kind], "processor_class": "Qwen3VLProcessor", **shape, **colours}
        (folder / name).write_text(json.dumps(processor))
    if weights:
        _write_weights(folder, config)
    return folder


def picture(width: int, height: int, colour: str = "teal", kind: str = "PNG", *, noise: bytes = b"") -> bytes:
    """An image file: one colour with a white square in the middle, or the pixels of `noise`."""
    image = Image.new("RGB", (width, height), colour)
    image.paste("white", (width // 4, height // 4, width // 2, height // 2))
    if noise:
        image = Image.frombytes("RGB", (width, height), noise)
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _config(model_type: str, vocabulary: int, ends: list[int]) -> dict[str, Any]:
    hybrid = model_type.startswith("qwen3_5")
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    text: dict[str, Any] = {
        **{"model_type": f"{model_type}_text", "vocab_size": vocabulary, "hidden_size": 64, "intermediate_size": 128},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
        **{"max_position_embeddings": 4096, "eos_token_id": ends, "rope_parameters": rope, "rope_scaling": rope},
        **{"rms_norm_eps": 1e-6, "rope_theta": 10000.0},
    }
    vision = {
        **{"model_type": model_type, "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2},
        **{"patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2, "out_hidden_size": 64},
        **{"num_position_embeddings": 64, "deepstack_visual_indexes": [] if hybrid else [0, 1]},
    }
    if hybrid:  # every other layer a gated delta net; half of a head is rotated
        rope |= {"partial_rotary_factor": 0.5}
        text |= {
            **{"head_dim": 32, "partial_rotary_factor": 0.5, "full_attention_interval": 2},
            **{"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2},
            **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4},
            **{"linear_key_head_dim": 16, "linear_value_head_dim": 16, "attn_output_gate": True},
        }
    architecture = "Qwen3_5ForConditionalGeneration" if hybrid else "Qwen3VLForConditionalGeneration"
    return {
        **{"model_type": model_type, "architectures": [architecture], "tie_word_embeddings": False},
        **{"text_config": text, "vision_config": vision, "eos_token_id": ends},
    }


def _write_weights(folder: Path, config: dict[str, Any]) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    torch.manual_seed(11)
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight *= 4  # wide enough that every image and word moves the answer
        model.lm_head.weight *= 5
        model.lm_head.weight[min(config["eos_token_id"]) :] = 0  # control tokens are hardly ever sampled
    kept = (folder / "config.json").read_text()
    model.to(torch.float32).save_pretrained(folder)
    (folder / "config.json").write_text(kept)
