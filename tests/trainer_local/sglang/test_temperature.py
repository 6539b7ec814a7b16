from __future__ import annotations

import pytest
import torch

from openclaw_rl.trainer_local.sglang.client import cooled


@pytest.mark.parametrize("temperature", [0.99, 0.7, 0.2, 0.01])
@pytest.mark.parametrize("kept", [1, 8, 64, 1000])
def test_the_true_logprob_lies_within_the_slack(temperature: float, kept: int) -> None:
    torch.manual_seed(kept)
    logits = 3 * torch.randn(1000, dtype=torch.float64)
    plain, wanted = logits.log_softmax(0), (logits / temperature).log_softmax(0)
    values, ids = plain.topk(kept)
    top = list(zip(values.tolist(), ids.tolist(), strict=True))
    for token in (int(ids[0]), 17, 500):
        found, slack = cooled(float(plain[token]), top, temperature)
        assert abs(found - float(wanted[token])) <= slack + 1e-9
        if kept == 1000 or (kept == 64 and temperature == 0.01):
            assert slack < 1e-9


def test_a_colder_distribution_is_known_better() -> None:
    torch.manual_seed(0)
    values, ids = torch.randn(5000).mul(3).log_softmax(0).topk(128)
    top = list(zip(values.tolist(), ids.tolist(), strict=True))
    slacks = [cooled(top[0][0], top, temperature)[1] for temperature in (0.95, 0.7, 0.4)]
    assert slacks == sorted(slacks, reverse=True) and slacks[2] < 0.01
