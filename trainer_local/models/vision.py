"""Rows with images through a vision-language model (Qwen3-VL, Qwen3.5).

Each image goes through the vision encoder alone, once a step where the encoder is frozen, else once a chunk with
gradients. Rows are padded on the right and share no prefix. The model computes positions in time, height and width from
the ids and the images' grids.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.shared.cache import SharedCache
from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.trainer_local.models.forward import forward_answers, padded, run_rows
from openclaw_rl.trainer_local.models.pixels import Pixels
from openclaw_rl.trainer_local.prefix.capability import Sharing
from openclaw_rl.trainer_local.training.batching import PASS_TOKENS, Row, chunks, images_under
from openclaw_rl.trainer_local.training.memory_limit import naming_pass
from openclaw_rl.trainer_local.training.slices import UseAnswers

FEATURE_BYTES = 1 << 30
"""Features of images held in memory at once; those used last stay."""


@dataclass(frozen=True)
class Features:
    """Vision encoder output for an image of T tokens: `tokens` `[T, d]`; `deep`, the same for each DeepStack layer
    (none in Qwen3.5); `grid` of `Patches`.
    """

    tokens: Tensor
    deep: tuple[Tensor, ...]
    grid: Tensor

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.numel() * part.element_size() for part in (self.tokens, *self.deep))


@dataclass
class Sight:
    """A model's image processor, and its vision features, kept while the encoder is `frozen`."""

    pixels: Pixels
    frozen: bool
    _kept: SharedCache[tuple[int, bytes], Features] = field(
        default_factory=lambda: SharedCache(FEATURE_BYTES, lambda features: features.size)
    )

    @classmethod
    def from_model(cls, model: Any, source: str) -> Sight | None:
        """The sight of `model` in the folder `source`; `None` if it takes text only. Raises `ConfigError`."""
        if not callable(getattr(model, "get_image_features", None)):
            return None
        if "mm_encoder_outputs" not in inspect.signature(type(model).forward).parameters:
            raise ConfigError(
                f"{type(model).__name__} of this transformers takes no features of images: pip install "
                "'transformers>=5.23'"
            )
        encoder = [part for name, part in model.named_parameters() if ".visual." in f".{name}"]
        return cls(Pixels(source, model.device), frozen=not any(part.requires_grad for part in encoder))

    def features(self, model: Any, url: str, device: torch.device) -> Features:
        """Features of the image at `url`; with gradients if the encoder is trained."""
        key = (id(model), hashlib.blake2b(url.encode(), digest_size=16).digest())
        kept = self._kept.get(key) if self.frozen else None
        if kept is not None:
            return kept
        patches = self.pixels.patches(url)
        grid = patches.grid.to(device)
        with torch.no_grad() if self.frozen else nullcontext():
            found = model.get_image_features(patches.pixel_values.to(device), grid, return_dict=True)
        deep = getattr(found, "deepstack_features", None) or ()
        made = Features(torch.cat(tuple(found.pooler_output)), tuple(torch.cat(tuple(part)) for part in deep), grid)
        if self.frozen:
            self._kept.put(key, made)
        return made

    def forget(self) -> None:
        """Keep no features any longer."""
        self._kept.clear()


def check_images(samples: Sequence[Sample], sight: Sight | None) -> None:
    """Raise `TrainerError` unless every image of the samples takes as many tokens as stand for it, under every hint."""
    counts: dict[str, int] = {}
    for sample in samples:
        if sample.images and sight is None:
            raise TrainerError(f"sample {sample.sample_id}: its prompt holds images, and the model takes text only")
        for number, image in enumerate(sample.images, start=1):
            assert sight is not None
            if image.url not in counts:
                try:
                    counts[image.url] = sight.pixels.tokens(image.url)
                except TrainerError as error:
                    raise TrainerError(f"sample {sample.sample_id}: {error}") from error
            if counts[image.url] != image.end - image.start:
                raise TrainerError(
                    f"sample {sample.sample_id}: image {number} of its prompt takes {counts[image.url]} tokens by the "
                    f"model's image processor, but {image.end - image.start} stand for it: it was sampled with "
                    "another processor and cannot be trained on"
                )
        if sample.images and sample.prompt_ids[sample.images[0].start] in sample.response_ids:
            raise TrainerError(f"sample {sample.sample_id}: its answer holds the placeholder of an image")
        if list(images_under(sample, sample.prompt_ids)) != list(sample.images):
            raise TrainerError(f"sample {sample.sample_id}: its images stand elsewhere than their placeholders")
        for prompt in sample.hinted_prompts:
            images_under(sample, prompt)


def run_all_rows(
    model: Any,
    rows: Sequence[Row],
    use: UseAnswers,
    *,
    sight: Sight | None,
    micro_batch_tokens: int,
    share: Sharing,
    backward: bool,
) -> None:
    """`run_rows`, of rows with images too."""
    plain = [index for index, line in enumerate(rows) if not line.images]
    if plain:
        run_rows(
            model,
            [rows[index] for index in plain],
            lambda answers: use(replace(answers, rows=[plain[index] for index in answers.rows])),
            micro_batch_tokens=micro_batch_tokens,
            share=share,
            backward=backward,
        )
    seeing = [index for index, line in enumerate(rows) if line.images and line.response_length > 0]
    if not seeing:
        return
    if sight is None:
        raise TrainerError(f"{type(model).__name__} takes text only, and a prompt holds images")
    with torch.set_grad_enabled(backward):
        for run in chunks([rows[index].length for index in seeing], micro_batch_tokens, PASS_TOKENS):
            chunk = [seeing[index] for index in run]
            mine = [rows[index] for index in chunk]
            with naming_pass(mine, len(chunk) * max(line.length for line in mine), divisible=len(chunk) > 1):
                _run_seeing(model, sight, rows, chunk, use)


def _run_seeing(model: Any, sight: Sight, rows: Sequence[Row], chunk: Sequence[int], use: UseAnswers) -> None:
    device = next(model.parameters()).device
    ids = padded([rows[index].ids for index in chunk])
    kinds = torch.zeros_like(ids)
    images = [(line, image) for line, index in enumerate(chunk) for image in rows[index].images]
    made = {url: sight.features(model, url, device) for url in dict.fromkeys(image.url for _, image in images)}
    shown = [made[image.url] for _, image in images]
    for (line, image), features in zip(images, shown, strict=True):
        kinds[line, image.start : image.end] = 1
        if len(features.tokens) != image.end - image.start:
            raise TrainerError(
                f"an image takes {len(features.tokens)} tokens, but {image.end - image.start} stand for it"
            )
    encoded = SimpleNamespace(
        pooler_output=tuple(one.tokens for one in shown),
        deepstack_features=[tuple(layer) for layer in zip(*(one.deep for one in shown), strict=True)],
    )
    forward_answers(
        model,
        ids,
        None,
        [(index, line, range(rows[index].start - 1, rows[index].length - 1)) for line, index in enumerate(chunk)],
        use,
        mm_token_type_ids=kinds.to(device),
        image_grid_thw=torch.cat([one.grid for one in shown]),
        mm_encoder_outputs={"image": encoded},
    ).differentiate()
