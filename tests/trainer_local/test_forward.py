"""Logits and gradients of answers do not depend on how rows are put together; in float64, so that "the same" can be
strict.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

from shared import losses
from trainer_local.batching import Row, group_rows, row
from trainer_local.forward import output_head, run_rows, shares_prefixes

from .tiny import VOCABULARY, write_policy

torch.set_num_threads(1)
PREFIX = [2 + index % 40 for index in range(200)]
ROWS = [
    row([*PREFIX, 5, 6], [7, 8, 9]),
    row([*PREFIX, 5, 9, 11, 13], [7]),
    row([*PREFIX], [3, 4]),
    row([4], [5, 6]),
    row([9, 8, 7, 6, 5], [4, 3, 2, 9, 12, 13]),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = write_policy(tmp_path_factory.mktemp("policy"))
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()


def one_by_one(model: Any, rows: Sequence[Row]) -> list[Tensor]:
    """Log-probabilities of each answer, the plain way: whole sequence, no padding, no cache."""
    found = []
    for line in rows:
        logits = model(input_ids=torch.tensor([line.ids])).logits[0]
        found.append(losses.log_softmax(logits[line.start - 1 : line.length - 1]))
    return found


def together(model: Any, rows: Sequence[Row], *, budget: int, share: bool) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Log-probabilities by `run_rows`, and the gradient of their sum at the answers' tokens."""
    found: dict[int, Tensor] = {}
    model.zero_grad()

    def use(indices: Sequence[int], logits: Tensor) -> Tensor:
        log_probs = losses.log_softmax(logits)
        ids = torch.tensor([token for index in indices for token in rows[index].ids[rows[index].start :]])
        parts = log_probs.detach().split([rows[index].response_length for index in indices])
        found.update(zip(indices, parts, strict=True))
        return losses.sampled_logprobs(log_probs, ids).sum()

    run_rows(
        model,
        rows,
        use,
        micro_batch_tokens=budget,
        device=torch.device("cpu"),
        head=output_head(model),
        share=share,
        backward=True,
    )
    gradients = {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}
    return [found[index] for index in range(len(rows))], gradients


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("budget", [1, 230, 100_000])
def test_logits_and_gradients_are_those_of_each_row_alone(model: Any, budget: int, share: bool) -> None:
    plain = one_by_one(model, ROWS)
    model.zero_grad()
    sum(
        losses.sampled_logprobs(part, torch.tensor(line.ids[line.start :])).sum()
        for part, line in zip(plain, ROWS, strict=True)
    ).backward()
    expected = {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}

    found, gradients = together(model, ROWS, budget=budget, share=share)

    for part, reference in zip(found, plain, strict=True):
        assert torch.allclose(part, reference, atol=1e-10)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], atol=1e-6), name  # norms round to float32 inside


def test_the_first_answer_token_is_scored_from_the_last_prompt_token(model: Any) -> None:
    found, _ = together(model, [row([4], [5, 6])], budget=100, share=True)
    after_prompt = losses.log_softmax(model(input_ids=torch.tensor([[4]])).logits[0])
    assert torch.allclose(found[0][0], after_prompt[0], atol=1e-10)


def test_an_answer_without_tokens_is_left_out(model: Any) -> None:
    seen: list[int] = []

    def use(indices: Sequence[int], logits: Tensor) -> None:
        seen.extend(indices)
        assert logits.shape == (2, VOCABULARY)

    run_rows(
        model,
        [row([4, 5], []), row([4], [5, 6])],
        use,
        micro_batch_tokens=100,
        device=torch.device("cpu"),
        head=output_head(model),
        share=True,
        backward=False,
    )
    assert seen == [1]


def test_vocabulary_logits_are_made_at_answer_positions_only(model: Any) -> None:
    widths: list[int] = []
    handle = output_head(model).register_forward_hook(lambda _, __, output: widths.append(output.shape[1]))
    try:
        together(model, ROWS, budget=100_000, share=True)
    finally:
        handle.remove()
    assert sum(widths) == sum(line.response_length for line in ROWS) + 1  # one for the shared prefix itself


def test_what_a_model_does_after_its_head_still_happens(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.5,
        sliding_window=8,
    )
    capped = Gemma2ForCausalLM(config).double().eval()
    assert not shares_prefixes(capped)  # a sliding window forgets the prefix: it must go through every time
    plain = one_by_one(capped, ROWS)
    found, _ = together(capped, ROWS, budget=100_000, share=shares_prefixes(capped))
    for part, reference in zip(found, plain, strict=True):
        assert torch.allclose(part, reference, atol=1e-10)


def test_rows_with_a_long_common_start_share_it_and_short_ones_do_not() -> None:
    groups = group_rows(ROWS, 100_000)
    assert [(group.prefix, sorted(index for chunk in group.chunks for index in chunk)) for group in groups] == [
        (199, [0, 1, 2]),
        (0, [3, 4]),
    ]


def test_every_row_is_in_one_chunk_and_chunks_keep_to_the_budget() -> None:
    rows = [row([1] * (1 + index % 7), [2] * (1 + index % 5)) for index in range(50)]
    groups = group_rows(rows, 40)
    chunks = [chunk for group in groups for chunk in group.chunks]
    assert sorted(index for chunk in chunks for index in chunk) == list(range(50))
    assert all(max(rows[index].length for index in chunk) * len(chunk) <= 40 for chunk in chunks)
