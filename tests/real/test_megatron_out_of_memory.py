"""Ranks that run out of memory: all of them make the step again in smaller passes, or none has made it.

The losses raise torch's error, or fail to allocate, on a rank that gets more tokens than it has room for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.errors import TrainerOutOfMemory
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training.memory_limit import FILE
from tests.out_of_memory import REAL_LOSS
from tests.trainer_local.tiny import sample, settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron.process_group import Failure, RankFailed, RankOutOfMemory, _joined
from tests.real.megatron_trainers import LAYOUTS, create
from tests.real.test_megatron_ranks import IMPATIENT, alone, program

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200), pytest.mark.usefixtures("trainers_closed")]

RECIPE = Recipe(epochs=2, learning_rate=1e-2)
TURNS = [sample(number, prompt=10 + number, hints=0, reward=1.0) for number in range(1, 9)]

SMALL = """
import os
import torch

def loss(tokens):
    \"\"\"Stands for devices, those of RANKS, with room for MOST tokens of answers.\"\"\"
    if os.environ.get("RANK", "0") in RANKS and len(tokens.token_ids) > MOST:
        raise torch.OutOfMemoryError("CUDA out of memory.")
    return -tokens.logits.float().log_softmax(-1).gather(-1, tokens.token_ids[:, None])[:, 0]
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def recipe(folder: Path, ranks_: str, most: int) -> Recipe:
    """The recipe with a loss that fails on these ranks above `most` tokens."""
    hook = folder / f"loss_{ranks_}_{most}.py"
    hook.write_text(SMALL.replace("RANKS", repr(ranks_)).replace("MOST", str(most)))
    return RECIPE.replace(custom_loss=f"{hook}:loss")


async def weights(trainer: Any, folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = await trainer.save(str(folder))
    found: dict[str, torch.Tensor] = torch.load(Path(checkpoint.path) / "trainer.pt", weights_only=True)["weights"]
    return found


# One of two that share layers would wait for the other: see the last test.
WHERE = {"alone": "0", "data-parallel": "1", "tensor-parallel": "01"}


@pytest.mark.parametrize("layout", list(LAYOUTS))
async def test_all_ranks_make_smaller_passes_where_one_raises(policy: Path, layout: str, tmp_path: Path) -> None:
    trainer = create(settings(policy, **LAYOUTS[layout]))
    small = recipe(tmp_path, WHERE[layout], 9)
    first = await trainer.step(TURNS, small)
    tokens = first.metrics["micro_batch_tokens"]
    assert tokens < 128 < RECIPE.micro_batch_tokens
    assert (await trainer.step(TURNS, small)).metrics["micro_batch_tokens"] == tokens
    found = await weights(trainer, tmp_path / "small")
    await trainer.close()

    roomy = create(settings(policy, **LAYOUTS[layout]))
    for _ in range(2):
        await roomy.step(TURNS, recipe(tmp_path, WHERE[layout], 1000))
    expected = await weights(roomy, tmp_path / "roomy")
    assert max(float((found[name] - expected[name]).abs().max()) for name in expected) < 1e-5


@pytest.mark.parametrize("layout", list(LAYOUTS))
async def test_rank_0_names_the_answer_that_does_not_fit_on_a_rank_that_raises(
    policy: Path, layout: str, tmp_path: Path
) -> None:
    trainer = create(settings(policy, **LAYOUTS[layout]))
    before = await weights(trainer, tmp_path / "before")
    long = sample(20, prompt=40, response=30, hints=0, reward=1.0)
    turns = [*TURNS[:2], long]
    with pytest.raises(TrainerOutOfMemory, match="does not fit in memory even alone") as raised:
        await trainer.step(turns, recipe(tmp_path, "01", 20))
    assert raised.value.sample_id == "sample_20"
    after = await weights(trainer, tmp_path / "after")
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert (await trainer.step(TURNS, RECIPE)).step == 1


async def test_an_allocation_that_really_fails_halves_passes(policy: Path, tmp_path: Path) -> None:
    hook = tmp_path / "loss.py"
    hook.write_text(REAL_LOSS.replace("MOST", "9"))
    trainer = create(settings(policy))
    report = await trainer.step(TURNS, RECIPE.replace(custom_loss=f"{hook}:loss"))
    assert report.metrics["micro_batch_tokens"] < 128


@alone
def test_failures_of_several_ranks_are_one_error() -> None:
    whole, row = Failure("a pass", True, "", 80), Failure("a row", True, "sample_1", 0)
    both = _joined({0: row, 1: whole, 2: Failure("a pass", True, "", 60)}, 3)
    assert isinstance(both, RankOutOfMemory) and (both.tokens, both.sample_id) == (60, "")
    one = _joined({0: Failure("the optimizer", True), 1: row}, 2)
    assert isinstance(one, RankOutOfMemory) and (one.tokens, one.sample_id) == (0, "sample_1")
    other = _joined({1: Failure("a hook")}, 2)
    assert type(other) is RankFailed and str(other) == "rank 1 of 2: a hook"
    assert Failure.from_error(TrainerOutOfMemory("a row", sample_id="sample_1")) == row


@alone
def test_a_rank_that_raises_while_another_waits_in_a_layer_hands_its_limit_to_the_next_start(
    policy: Path, tmp_path: Path
) -> None:
    hook = tmp_path / "loss.py"
    hook.write_text(IMPATIENT + SMALL.replace("RANKS", "'1'").replace("MOST", "5"))
    folder, chosen = tmp_path / "run", {"tensor_parallel": 2, "data": str(tmp_path / "data")}
    left = tmp_path / "data" / "checkpoints" / FILE
    with program(policy, folder, chosen, f"{hook}:loss") as process:
        assert process.wait(240) == 1
    assert "rank 1 failed, and the others wait for it elsewhere: a pass of" in (folder / "log").read_text()
    tokens = json.loads(left.read_text())["tokens"]
    with program(policy, folder, chosen, f"{hook}:loss") as process:
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, (folder / "log").read_text()[-3000:]
    assert json.loads(said)["micro_batch_tokens"] == tokens and not left.exists()
