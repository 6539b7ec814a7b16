"""Processes that train together: one that dies, one that fails, one that cannot start, and torchrun's."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.gpus import GIB, Gpu
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.transformers_trainer import create as create_transformers
from tests.processes import ROOT
from tests.trainer_local.tiny import sample, settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron.leader import RanksLost, ranks_for
from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer
from tests.real.megatron_trainers import create

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200), pytest.mark.usefixtures("trainers_closed")]

TWO: dict[str, dict[str, Any]] = {"tensor-parallel": {"tensor_parallel": 2}, "data-parallel": {"actor_gpus": "2"}}
RECIPE = Recipe(epochs=2, learning_rate=1e-2)
BATCH = [sample(1), sample(2, hints=0, reward=1.0, explicit=True)]
NEXT = [sample(3), sample(4)]

FAILING = """
import os

def loss(tokens):
    if os.environ.get("RANK") == "1":
        raise ValueError("this rank does not like it")
    return -tokens.logits.float().log_softmax(-1).gather(-1, tokens.token_ids[:, None])[:, 0]
"""
IMPATIENT = "from openclaw_rl.trainer_local.megatron import world\nworld.GRACE_SECONDS = 2.0\n"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def others() -> list[psutil.Process]:
    """The ranks that this process has started."""
    return [
        one
        for one in psutil.Process().children()
        if "openclaw_rl.trainer_local.megatron.worker" in " ".join(one.cmdline())
    ]


async def weights(trainer: MegatronTrainer, folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = await trainer.save(str(folder))
    found: dict[str, torch.Tensor] = torch.load(Path(checkpoint.path) / "trainer.pt", weights_only=True)["weights"]
    return found


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


async def untroubled(policy: Path, folder: Path, *batches: Any, **changes: Any) -> dict[str, torch.Tensor]:
    """The weights after steps in which nothing happens."""
    trainer = create(settings(policy, **changes))
    for one in batches:
        await trainer.step(one, RECIPE)
    found = await weights(trainer, folder)
    await trainer.close()
    return found


@pytest.mark.parametrize("layout", list(TWO))
async def test_a_rank_that_is_killed_in_a_step_fails_it_and_is_started_again(
    policy: Path, layout: str, tmp_path: Path
) -> None:
    expected = await untroubled(policy, tmp_path / "expected", BATCH, NEXT, **TWO[layout])
    trainer = create(settings(policy, **TWO[layout]))
    await trainer.step(BATCH, RECIPE)
    checkpoint = await trainer.save(str(tmp_path / "1"))
    (victim,) = others()
    step = asyncio.create_task(trainer.step(NEXT, RECIPE.replace(epochs=1000)))
    while not trainer._leader._busy:
        await asyncio.sleep(0.01)
    victim.kill()
    with pytest.raises(RanksLost, match="Rank 1 of the trainer was ended by signal 9"):
        await step
    with pytest.raises(TrainerError, match="signal 9"):
        await trainer.step(NEXT, RECIPE)
    assert await trainer.obstacle() == "", "they are started again, with the weights of the last checkpoint"
    assert (await trainer.step(NEXT, RECIPE)).step == 2
    assert equal(await weights(trainer, tmp_path / "2"), expected)
    await trainer.restore(checkpoint.path)
    assert len(others()) == 1
    await trainer.close()
    assert others() == []


async def test_a_rank_that_dies_between_steps_is_noticed_and_restoring_starts_it_again(
    policy: Path, tmp_path: Path
) -> None:
    trainer = create(settings(policy, **TWO["tensor-parallel"]))
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.step(BATCH, RECIPE)
    (victim,) = others()
    victim.kill()
    while not trainer._leader.lost:
        await asyncio.sleep(0.01)
    assert "in no checkpoint" in await trainer.obstacle(), "the step was not saved"
    await trainer.restore(checkpoint.path)
    assert await trainer.obstacle() == ""
    assert (await trainer.step(BATCH, RECIPE)).step == 1
    await trainer.close()


async def test_a_part_of_the_batch_that_fails_undoes_the_step_everywhere(policy: Path, tmp_path: Path) -> None:
    changes = TWO["data-parallel"]
    expected = await untroubled(policy, tmp_path / "expected", BATCH, NEXT, **changes)
    (tmp_path / "loss.py").write_text(FAILING)
    trainer = create(settings(policy, **changes))
    await trainer.step(BATCH, RECIPE)
    (before,) = others()
    with pytest.raises(TrainerError, match=r"rank 1 of 2: custom_loss .* this rank does not like it"):
        await trainer.step(NEXT, RECIPE.replace(custom_loss=f"{tmp_path}/loss.py:loss"))
    await trainer.step(NEXT, RECIPE)
    assert equal(await weights(trainer, tmp_path / "2"), expected)
    assert others() == [before], "nobody had to end for it"
    await trainer.close()


async def test_a_rank_that_fails_where_others_wait_for_it_ends_and_all_begin_anew(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text(IMPATIENT + FAILING)
    trainer = create(settings(policy, **TWO["tensor-parallel"]))
    checkpoint = await trainer.save(str(tmp_path / "1"))
    with pytest.raises(RanksLost, match=r"Rank 1 .* exit code 1 \(rank 1: .* this rank does not like it"):
        await trainer.step(NEXT, RECIPE.replace(custom_loss=f"{tmp_path}/loss.py:loss"))
    await trainer.restore(checkpoint.path)
    assert (await trainer.step(NEXT, RECIPE)).step == 1
    await trainer.close()


def test_ranks_end_when_the_learner_is_killed(policy: Path) -> None:
    program = (
        "import os, psutil, signal\n"
        "from pathlib import Path\n"
        "from tests.trainer_local.tiny import settings\n"
        "from openclaw_rl.trainer_local.megatron.trainer import create\n"
        f"trainer = create(settings(Path({str(policy)!r}), tensor_parallel=2))\n"
        "print(*(child.pid for child in psutil.Process().children()), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ranks = [int(one) for one in killed.stdout.split()]
    assert len(ranks) == 1
    for rank in ranks:
        if psutil.pid_exists(rank):
            psutil.wait_procs([psutil.Process(rank)], timeout=60)
        assert not psutil.pid_exists(rank)


def test_a_rank_that_cannot_start_is_told(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(TrainerError, match=r"Rank 1 of the trainer ended with exit code 1 before it was ready"):
        create(settings(policy, tensor_parallel=2))
    monkeypatch.undo()
    asyncio.run(create(settings(policy)).close())


def test_under_torchrun_rank_0_trains_and_the_others_follow(policy: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from tests.real.test_megatron_ranks import BATCH, RECIPE\n"
        "from tests.trainer_local.tiny import settings\n"
        "from openclaw_rl.trainer_local.megatron import worker\n"
        "from openclaw_rl.trainer_local.megatron.trainer import create\n"
        "async def main():\n"
        f"    trainer = create(settings(Path({str(policy)!r}), tensor_parallel=2))\n"
        "    report = await trainer.step(BATCH, RECIPE)\n"
        f"    await trainer.save({str(tmp_path / 'saved')!r})\n"
        "    await trainer.close()\n"
        "    print('step', report.step)\n"
        "sys.exit(worker.main() if os.environ['RANK'] != '0' else asyncio.run(main()))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0 and "step 1" in done.stdout, done.stderr[-3000:]
    held = torch.load(tmp_path / "saved" / "trainer.pt", weights_only=True)["weights"]
    assert equal(held, asyncio.run(untroubled(policy, tmp_path / "own", BATCH, tensor_parallel=2)))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"tensor_parallel": 2, "actor_gpus": "3"}, r"does not divide the 3 processes"),
    ({}, {"tensor_parallel": 3}, r"does not divide the 2 key-value heads"),
    ({}, {"lora_targets": "q_proj, lm_head"}, r"lm_head is none of all-linear, q_proj"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, {}, r"yarn.*backend = embedded"),
    ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, {}, r"sliding window"),
]


@pytest.mark.parametrize(("shape", "changes", "told"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_it_cannot_do_is_refused_in_words(
    shape: dict[str, Any], changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=told):
        create(settings(write_policy(tmp_path / "policy", **shape), **changes))
    assert others() == []


def test_another_architecture_is_sent_to_the_transformers_trainer(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tiny = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    LlamaForCausalLM(LlamaConfig(**tiny, num_attention_heads=4)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"is llama; for this one set backend = embedded with device = cuda"):
        create(settings(tmp_path))


Create = Callable[..., Any]


@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_a_checkpoint_is_resumed_by_any_number_of_ranks_and_by_the_transformers_trainer(
    policy: Path, lora: bool, tmp_path: Path
) -> None:
    """Through all of them in turn: what is resumed is the same to the bit, and learns the same next."""
    recipe = RECIPE.replace(teacher="ema", epsilon=1e-4)  # so that no gradient is too small to go by
    ways: list[tuple[Create, dict[str, Any]]] = [
        (create, TWO["tensor-parallel"]),
        (create, {}),
        (create_transformers, {}),
        (create, TWO["data-parallel"]),
        (create, TWO["tensor-parallel"]),
    ]
    make, changes = ways[0]
    trainer = make(settings(policy, lora=lora, **changes))
    for batch in (BATCH, NEXT):
        await trainer.step(batch, recipe)
    path = (await trainer.save(str(tmp_path / "0"))).path
    await trainer.close()
    after: list[dict[str, torch.Tensor]] = []
    for number, (make, changes) in enumerate(ways[1:], 1):
        trainer = make(settings(policy, lora=lora, **changes))
        await trainer.restore(path)
        saved = await trainer.save(str(tmp_path / str(number)))
        first, second = (torch.load(Path(one) / "trainer.pt", weights_only=True) for one in (path, saved.path))
        for part in ("weights", "average"):
            assert list(first[part]) == list(second[part]) and equal(first[part], second[part]), (number, part)
        assert first["optimizer"]["state"].keys() == second["optimizer"]["state"].keys()
        for index, held in first["optimizer"]["state"].items():
            assert equal(held, second["optimizer"]["state"][index])
        path = saved.path
        report = await trainer.step(BATCH, recipe)
        assert report.step == 3
        after.append(torch.load(Path((await trainer.save(str(tmp_path / "after"))).path) / "trainer.pt")["weights"])
        await trainer.close()
    for other in after[1:]:
        assert max(float((after[0][name] - other[name]).abs().max()) for name in other) < 1e-5


def test_as_many_train_as_the_placement_has_gpus_for_it_with_gpus_that_are_faked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    cuda, chosen = torch.device("cuda"), Settings(actor_gpus="3")
    assert ranks_for(chosen, cuda) == 3 and ranks_for(Settings(actor_gpus="5,"), cuda) == 1
    assert ranks_for(Settings(), cuda) == 4
    cpu = torch.device("cpu")
    assert [ranks_for(Settings(actor_gpus=said), cpu) for said in ("", "3", "7,", "4,7")] == [1, 3, 1, 2]
    cards = tuple(Gpu(number=one, handle=str(one), name="", memory=GIB, free=GIB) for one in range(2))
    for name, value in Placement(train=cards).variables.items():
        monkeypatch.setenv(name, value)
    assert ranks_for(chosen, cuda) == 2
