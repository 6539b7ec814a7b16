from __future__ import annotations

import json
import math
from collections import Counter

import pytest
import torch

from openclaw_rl.shared.engine.wire import Choice, Refused, SamplingParams, decode
from openclaw_rl.trainer_local.embedded.sampling import TokenSampler, sample


def draw(logits: list[float], count: int = 1, *, top_logprobs: int = 0, **params: object) -> list[Choice]:
    """`count` tokens in a row from the same logits, by one sampler."""
    sampler = TokenSampler(SamplingParams(**({"seed": 1} | params)))  # type: ignore[arg-type]
    row = torch.tensor([logits])
    drawn = [sample(row, [sampler], [()], [top_logprobs])[0] for _ in range(count)]
    return [choice for choice in drawn if choice is not None]


def log(*probabilities: float) -> list[float]:
    return [math.log(probability) if probability else float("-inf") for probability in probabilities]


def test_tokens_come_as_often_as_their_probability_says() -> None:
    counts = Counter(choice.id for choice in draw(log(0.5, 0.3, 0.2, 0.0), 4000))
    assert counts[3] == 0
    for token, probability in enumerate((0.5, 0.3, 0.2)):
        assert abs(counts[token] / 4000 - probability) < 0.03


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 2}, {0: 0.625, 1: 0.375}),
        ({"top_p": 0.7}, {0: 0.625, 1: 0.375}),
        ({"top_p": 0.45}, {0: 1.0}),
        ({"min_p": 0.5}, {0: 0.625, 1: 0.375}),
        ({"top_k": 3, "top_p": 0.9, "min_p": 0.25}, {0: 0.5 / 0.95, 1: 0.3 / 0.95, 2: 0.15 / 0.95}),
        ({"top_k": 1}, {0: 1.0}),
    ],
)
def test_filters_renormalise_and_the_logprob_is_of_what_is_left(
    params: dict[str, float], kept: dict[int, float]
) -> None:
    choices = draw(log(0.5, 0.3, 0.15, 0.05), 300, top_logprobs=4, **params)
    assert {choice.id for choice in choices} == set(kept)
    for choice in choices:
        assert math.isclose(math.exp(choice.logprob), kept[choice.id], rel_tol=1e-4)
    assert {token: round(math.exp(logprob), 4) for logprob, token in choices[0].top} == {
        token: round(probability, 4) for token, probability in kept.items()
    }


def test_temperature_sharpens_and_greedy_reports_temperature_one() -> None:
    cold = draw(log(0.6, 0.4), 1, temperature=0.5, top_logprobs=2)[0]
    assert math.isclose(math.exp(cold.top[0][0]), 0.36 / 0.52, rel_tol=1e-4)
    greedy = draw(log(0.4, 0.6), 5, temperature=0)
    assert {choice.id for choice in greedy} == {1}
    assert math.isclose(math.exp(greedy[0].logprob), 0.6, rel_tol=1e-4)


def test_frequency_and_presence_penalties_subtract_from_what_was_said() -> None:
    first, second, third = draw([0.0, -10.0], 3, temperature=0, frequency_penalty=1.0, presence_penalty=0.5)
    assert (first.id, second.id, third.id) == (0, 0, 0)
    assert math.isclose(third.logprob, -math.log1p(math.exp(-10.0 + 2.5)), rel_tol=1e-3)
    said = [choice.id for choice in draw([0.0, -1.0], 4, temperature=0, frequency_penalty=2.0)]
    assert said == [0, 1, 0, 1]


def test_a_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    said = [choice.id for choice in draw([1.0, 0.9], 2, temperature=0, repetition_penalty=2.0)]
    assert said == [0, 1]
    said = [choice.id for choice in draw([-1.0, -1.5], 2, temperature=0, repetition_penalty=2.0)]
    assert said == [0, 1]


def test_rows_of_one_batch_keep_their_own_rules() -> None:
    rules = [{"temperature": 0}, {"top_k": 1}, {"seed": 4}, {"frequency_penalty": 2.0}]
    samplers = [TokenSampler(SamplingParams(**rule)) for rule in rules]  # type: ignore[arg-type]
    logits = torch.tensor([log(0.1, 0.7, 0.2)] * 4)
    choices = [choice for choice in sample(logits, samplers, [(), (), (1,), ()], [0, 2, 3, 0]) if choice]
    assert choices[0].id == choices[1].id == 1 and choices[2].id != 1
    assert [len(choice.top) for choice in choices] == [0, 1, 2, 0]
    assert torch.equal(logits, torch.tensor([log(0.1, 0.7, 0.2)] * 4))


def test_the_same_seed_draws_the_same_tokens() -> None:
    even = [0.0] * 50
    first = [choice.id for choice in draw(even, 20, sampling_seed=7)]
    assert first == [choice.id for choice in draw(even, 20, sampling_seed=7)]
    assert first != [choice.id for choice in draw(even, 20, sampling_seed=8)]


def test_logits_that_are_not_finite_fail_their_own_row() -> None:
    samplers = [TokenSampler(SamplingParams(seed=1)) for _ in range(3)]
    found = sample(torch.tensor([[0.0, 1.0], [float("nan"), 0.0], [0.0, 1.0]]), samplers, [()] * 3, [0] * 3)
    assert [choice is None for choice in found] == [False, True, False]


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1.0},
        {"temperature": 1e999},
        {"top_p": 0.0},
        {"top_k": 0},
        {"min_p": 1.5},
        {"frequency_penalty": 3.0},
        {"presence_penalty": -3.0},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 5e-324},
        {"max_new_tokens": -1},
        {"min_new_tokens": -1},
        {"n": 2},
    ],
)
def test_values_out_of_range_are_named(values: dict[str, float]) -> None:
    with pytest.raises(Refused, match=next(iter(values))):
        decode(json.dumps(values).replace("Infinity", "1e999").encode(), SamplingParams)
