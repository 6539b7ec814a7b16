"""Tiny models that see, samples whose prompts show pictures, and what plain transformers says about them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from peft import PeftModel
from PIL import Image
from transformers import AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from openclaw_rl.shared.messages.images import file_of
from openclaw_rl.shared.messages.normalize import ChatInput, normalize_messages
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.records import Message, PromptImage, Sample
from openclaw_rl.shared.rendering.prompter import Prompter
from tests.shared.tiny_vision import MERGE, PATCH, PIXELS, data_url, picture, vision_folder
from tests.trainer_local.tiny import sample

KINDS = ("qwen3_vl", "qwen3_5")
RED, BLUE = picture(96, 64, "red"), picture(128, 128, "blue")  # of sizes that no processor changes


def write_seeing(folder: Path, kind: str) -> Path:
    return vision_folder(folder, weights=True, model_type=kind)


def shown(text: str, *files: bytes) -> Message:
    """A user's message with pictures before its text."""
    parts = [{"type": "image_url", "image_url": {"url": data_url(file)}} for file in files]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


class Samples:
    """Makes samples for the model in a folder."""

    def __init__(self, folder: Path) -> None:
        self._prompter = Prompter(folder)

    def of(self, seed: int, messages: Sequence[Message], *, hints: Sequence[str] = (), **changes: Any) -> Sample:
        """A sample with these messages as its prompt; its answer is drawn from `seed`."""
        chat = ChatInput(messages=normalize_messages(list(messages), blind=""), tools=[], tools_json=b"")
        prompt = self._prompter.render(chat)
        hinted = [self._prompter.render(chat, hint=hint).ids() for hint in hints]
        plain = sample(seed, hints=0, **changes)
        return replace(plain, prompt_ids=prompt.ids(), images=prompt.placed_images(), hinted_prompts=hinted)

    def seeing(self, seed: int, *files: bytes, **changes: Any) -> Sample:
        """A sample whose prompt shows these pictures."""
        return self.of(seed, [shown(f"What is it? {seed}", *files)], **changes)

    def images_under(self, one: Sample, prompt: Sequence[int]) -> list[PromptImage]:
        """The pictures of a sample in a hinted prompt of it, located again."""
        assert self._prompter.vision is not None
        spans = self._prompter.vision.spans(prompt)
        return [replace(image, start=span.start, end=span.end) for image, span in zip(one.images, spans, strict=True)]


class Plain:
    """The whole of each row through transformers' model by itself, with transformers' own image processor. `version`
    is what an engine is given: another folder, or an adapter.
    """

    def __init__(self, folder: Path, version: Path | None = None) -> None:
        adapter = version is not None and (version / "adapter_config.json").is_file()
        whole = folder if version is None or adapter else version
        self.model: Any = AutoModelForImageTextToText.from_pretrained(whole, dtype=torch.float32).eval()
        if adapter:
            self.model = PeftModel.from_pretrained(self.model, version).merge_and_unload().eval()
        self._processor = Qwen2VLImageProcessorPil(
            patch_size=PATCH, merge_size=MERGE, size=PIXELS, image_mean=[0.5] * 3, image_std=[0.5] * 3
        )

    def log_probs(
        self, prompt: Sequence[int], response: Sequence[int], images: Sequence[PromptImage] = ()
    ) -> torch.Tensor:
        """`[R, V]`, with gradients."""
        ids = torch.tensor([[*prompt, *response]])
        seen: dict[str, Any] = {}
        if images:
            files = [file_of(image.url)[1] for image in images]
            seen = dict(self._processor(images=[Image.open(io.BytesIO(file)) for file in files], return_tensors="pt"))
            seen["mm_token_type_ids"] = torch.zeros_like(ids)
            for image in images:
                seen["mm_token_type_ids"][0, image.start : image.end] = 1
        logits = self.model(input_ids=ids, **seen).logits[0]
        return losses.log_softmax(logits[len(prompt) - 1 : -1])
