"""Rows with images: logits and gradients are those of plain transformers, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.records import PromptImage, Sample
from openclaw_rl.trainer_local.models.vision import Sight, check_images, run_all_rows
from openclaw_rl.trainer_local.prefix.capability import Sharing, sharing_of
from openclaw_rl.trainer_local.training.batching import images_under, row, row_of
from openclaw_rl.trainer_local.training.slices import Slice, differentiating, gather_slices
from tests.shared.tiny_vision import data_url, picture
from tests.trainer_local.seeing import BLUE, KINDS, RED, Plain, Samples, write_seeing

torch.set_num_threads(1)


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing(tmp_path_factory.mktemp("seeing"), request.param)


@pytest.fixture(scope="module")
def plain(folder: Path) -> Plain:
    return Plain(folder)


@pytest.fixture(scope="module")
def samples(folder: Path) -> Samples:
    return Samples(folder)


def batch(samples: Samples) -> list[Sample]:
    """With one picture, with three, with none, and with the first one's again."""
    return [
        samples.seeing(1, RED, hints=["Shorter."]),
        samples.seeing(2, BLUE, RED, BLUE),
        samples.seeing(3),
        samples.seeing(4, RED),
    ]


def together(
    folder: Path, model: Any, wanted: list[Sample], *, budget: int = 100_000, frozen: bool = False
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Log-probabilities of all answers, and the gradients of the sum of those of their tokens."""
    model.requires_grad_(True)
    if frozen:
        model.model.visual.requires_grad_(False)
    model.zero_grad()
    rows = [row_of(one) for one in wanted]
    found: dict[int, Tensor] = {}

    def use(slices: Sequence[Slice], logits: Tensor) -> Tensor:
        log_probs = losses.log_softmax(logits)
        ids = torch.tensor([token for one in slices for token in wanted[one.row].response_ids])
        parts = log_probs.detach().split([one.tokens for one in slices])
        found.update(zip([one.row for one in slices], parts, strict=True))
        return losses.sampled_logprobs(log_probs, ids).sum()

    run_all_rows(
        model,
        rows,
        differentiating(use, whole=True),
        sight=Sight.from_model(model, str(folder)),
        micro_batch_tokens=budget,
        share=sharing_of(model),
        backward=True,
    )
    gradients = {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}
    return [found[index] for index in range(len(rows))], gradients


@pytest.mark.parametrize("frozen", [False, True], ids=["whole", "language"])
@pytest.mark.parametrize("budget", [1, 100_000])
def test_logits_and_gradients_are_those_of_each_row_alone(
    folder: Path, plain: Plain, samples: Samples, budget: int, frozen: bool
) -> None:
    wanted = batch(samples)
    found, gradients = together(folder, plain.model, wanted, budget=budget, frozen=frozen)
    plain.model.zero_grad()
    expected = []
    for one in wanted:
        log_probs = plain.log_probs(one.prompt_ids, one.response_ids, one.images)
        losses.sampled_logprobs(log_probs, torch.tensor(one.response_ids)).sum().backward()
        expected.append(log_probs.detach())
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    known = {name: part.grad for name, part in plain.model.named_parameters() if part.grad is not None}
    assert gradients.keys() == known.keys()
    assert any("visual" in name for name in gradients) is not frozen
    for name, gradient in gradients.items():
        assert torch.isfinite(gradient).all()
        assert torch.allclose(gradient, known[name], rtol=1e-3, atol=1e-4 * float(known[name].abs().max())), name


def test_another_picture_makes_another_answer_likely(folder: Path, plain: Plain, samples: Samples) -> None:
    one = samples.seeing(1, RED)
    (other,) = samples.seeing(1, picture(96, 64, "blue")).images
    changed = replace(one, images=[PromptImage(other.url, one.images[0].start, one.images[0].end)])
    red, blue = together(folder, plain.model, [one, changed])[0]
    assert not torch.allclose(red, blue, atol=1e-2)


def test_a_hint_before_a_picture_moves_it(folder: Path, plain: Plain, samples: Samples) -> None:
    """A tool shows a picture after the user's last words, which the hint is put behind."""
    call = {"type": "function", "id": "1", "function": {"name": "look", "arguments": "{}"}}
    tool = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "image_url", "image_url": {"url": data_url(RED)}}],
    }
    messages = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": "", "tool_calls": [call]}, tool]
    one = samples.of(1, messages, hints=["Be brief, please."])
    (hinted,) = one.hinted_prompts
    (image,), (moved,) = one.images, images_under(one, hinted)
    assert moved.start > image.start and moved.end - moved.start == image.end - image.start
    under = row(hinted, one.response_ids, images_under(one, hinted))
    run = partial(
        run_all_rows,
        plain.model,
        sight=Sight.from_model(plain.model, str(folder)),
        micro_batch_tokens=10_000,
        share=Sharing.ROWS,
        backward=False,
    )
    (found,) = gather_slices(run, [under], lambda _, logits: losses.log_softmax(logits))[0]
    expected = plain.log_probs(hinted, one.response_ids, under.images)
    assert torch.allclose(found, expected.detach(), atol=1e-5)


def test_a_picture_of_another_size_than_its_place_is_refused_by_name(folder: Path, samples: Samples) -> None:
    sight = Sight.from_model(Plain(folder).model, str(folder))
    one = samples.seeing(7, RED)
    (place,) = one.images
    (large,) = samples.seeing(7, BLUE).images
    wrong = replace(one, images=[PromptImage(large.url, place.start, place.end)])
    check_images([one], sight)
    with pytest.raises(TrainerError, match=r"sample_7: image 1 .* takes 16 tokens .* but 6 stand for it"):
        check_images([one, wrong], sight)
    with pytest.raises(TrainerError, match=r"sample_7: .*hinted prompt"):
        check_images([replace(one, hinted_prompts=[[1, 2, 3]])], sight)
    with pytest.raises(TrainerError, match=r"sample_7: .*text only"):
        check_images([one], None)
    broken = replace(one, images=[PromptImage("data:image/png;base64,AAAA", place.start, place.end)])
    with pytest.raises(TrainerError, match=r"sample_7: .*cannot be read"):
        check_images([broken], sight)
