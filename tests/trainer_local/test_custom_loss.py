"""A loss of the user's own trains in place of every other, and one that goes wrong changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.transformers_trainer import create
from tests.trainer_local import plain
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import anchor, sample, settings

SAMPLES = [
    sample(1, hints=3, response=5),
    sample(2, prompt=3, hints=1, response=1, temperature=0.7),
    sample(3, hints=0, response=7, reward=-1.0, explicit=True, weight=0.5),
    anchor(4),
]

# The default recipe's distillation, from what the hook is given.
THE_SAME_AS_OURS = """
def loss(tokens):
    log_probs = tokens.logits.float().log_softmax(-1)
    distill = (log_probs.exp() * (log_probs - tokens.teacher_log_probs)).sum(-1)
    return distill * tokens.has_hint
"""
REINFORCE = """
def loss(tokens):
    at = (tokens.logits / tokens.temperatures.unsqueeze(-1)).log_softmax(-1)
    sampled = at.gather(-1, tokens.token_ids.unsqueeze(-1)).squeeze(-1)
    return -tokens.advantages * tokens.has_ratio * (sampled - tokens.behavior_logprobs).exp()
"""
TO_THE_BASE = """
def compute_loss(policy_logits, reference_logits, rewards, advantages, config):
    policy, reference = policy_logits.log_softmax(-1), reference_logits.log_softmax(-1)
    return (policy.exp() * (policy - reference)).sum(-1).mean()
"""
WRONG = {
    "raises": ("raise RuntimeError('mine')", "raised RuntimeError: mine"),
    "shape": ("return tokens.logits", "shape"),
    "nan": ("return tokens.logits.sum(-1) / 0 - tokens.logits.sum(-1) / 0", "not finite"),
    "nan gradient": ("return (tokens.logits.sum(-1) * 0).sqrt() * 1.0", "not finite"),
    "in place": ("t = tokens.logits.exp(); r = t.sum(-1); t.mul_(2); return r", "failed and was undone"),
    "leaves": ("raise SystemExit(3)", "raised SystemExit: 3"),
}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


def written(folder: Path, text: str) -> str:
    file = folder / "custom.py"
    file.write_text(text)
    return str(file)


async def test_a_greedy_answer_can_be_divided_by_its_temperature(moved: Moved, tmp_path: Path) -> None:
    hook = written(tmp_path, REINFORCE)
    greedy = replace(SAMPLES[2], temperature=0.0, no_ratio="decoded greedily")
    found = await moved.metrics([SAMPLES[2], greedy], custom_loss=hook)
    alone = await moved.metrics([SAMPLES[2]], custom_loss=hook)
    assert found["loss/custom"] == pytest.approx(alone["loss/custom"] / 2, rel=1e-4)


async def test_our_own_formula_as_a_hook_learns_what_it_learns_built_in(moved: Moved, tmp_path: Path) -> None:
    hook = written(tmp_path, THE_SAME_AS_OURS)
    built_in = await moved.metrics(SAMPLES[:2], epochs=3)
    for budget in (8192, 1):
        own = await moved.metrics(SAMPLES[:2], epochs=3, custom_loss=hook, micro_batch_tokens=budget)
        for name, as_built_in in (("loss/custom", "loss/distill"), ("loss/total",) * 2, ("weights/change",) * 2):
            assert own[name] == pytest.approx(built_in[as_built_in], rel=1e-3)
    assert own["samples/custom"] == 2 and own["loss/distill"] == own["samples/distill"] == 0


async def test_it_takes_the_place_of_every_term_and_sees_every_answer(moved: Moved, tmp_path: Path) -> None:
    hook = written(tmp_path, REINFORCE)
    praised = replace(SAMPLES[1], advantage=0.5)
    excluded = replace(SAMPLES[0], reward=1.0, no_ratio="sampled with top_p 0.9")
    batch = [excluded, praised, *SAMPLES[2:]]
    total, weight = 0.0, 0.0
    for one, advantage in zip(batch, (0.0, 0.5, -1.0, 0.0), strict=True):
        table = plain.log_probs(moved.policy, one.prompt_ids, one.response_ids, one.temperature)
        now = torch.tensor(plain.sampled(table, one.response_ids)) - torch.tensor(one.logprobs)
        total += one.weight * float(-(advantage * now.exp()).sum())
        weight += one.weight * len(one.response_ids)
    metrics = await moved.metrics(batch, custom_loss=hook, kl_base=1.0, entropy=1.0)
    assert metrics["loss/total"] == metrics["loss/custom"] == pytest.approx(total / weight, rel=1e-3)
    assert metrics["samples/custom"] == 4
    assert metrics["loss/anchor"] == metrics["loss/kl_base"] == 0


async def test_a_loss_by_the_contract_of_openclaw_rl_trains(moved: Moved, tmp_path: Path) -> None:
    recipe = Recipe(custom_loss=written(tmp_path, TO_THE_BASE), learning_rate=5e-3)
    trainer = await moved.trainer()
    distances = [(await trainer.step(SAMPLES, recipe)).metrics["kl/base"] for _ in range(6)]
    await trainer.close()
    assert distances[-1] < 0.5 * distances[0]


@pytest.mark.parametrize("wrong", list(WRONG))
async def test_one_that_goes_wrong_changes_nothing_and_is_named(moved: Moved, tmp_path: Path, wrong: str) -> None:
    body, message = WRONG[wrong]
    trainer, untroubled = await moved.trainer(), await moved.trainer()
    # It goes wrong in the second epoch, when the first has changed the weights.
    counted = f"    calls.append(1)\n    if len(calls) < 2: return tokens.logits.float().sum(-1)\n    {body}\n"
    hook = written(tmp_path, "calls = []\ndef loss(tokens):\n" + counted)
    with pytest.raises(TrainerError, match=message) as failure:
        await trainer.step(SAMPLES, Recipe(custom_loss=hook))
    assert hook in str(failure.value)
    found = [(await one.step(SAMPLES, Recipe())).metrics for one in (trainer, untroubled)]
    for name in ("loss/total", "weights/change", "learning_rate"):
        assert found[0][name] == found[1][name]
    await trainer.close()
    await untroubled.close()


async def test_a_hook_that_is_not_there_is_said_at_the_start(moved: Moved, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        create(settings(moved.base, custom_loss=str(tmp_path / "missing.py")))
    trainer = await moved.trainer()
    with pytest.raises(TrainerError, match=r"missing\.py"):
        await trainer.step(SAMPLES, Recipe(custom_loss=str(tmp_path / "missing.py")))
    await trainer.close()
