"""Processes that train together: how they start, how they end when one of them does, and what a checkpoint of theirs
is to others.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.gpus import GIB, Gpu
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.settings.settings import Settings, to_environment
from openclaw_rl.shared.trainer import Trainer
from openclaw_rl.trainer_local.transformers_trainer import create as create_transformers
from tests.processes import ROOT, Engine
from tests.trainer_local.tiny import settings, write_policy

pytest.importorskip("megatron.core", reason="test_megatron.py runs this where Megatron-core is")

from openclaw_rl.trainer_local.megatron.launch import TORCHRUN, ranks_for
from tests.real.megatron_program import BATCH, HANG_SECONDS, NEXT, RECIPE, resume
from tests.real.megatron_trainers import PROCESSES, create

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200), pytest.mark.usefixtures("trainers_closed")]
alone = pytest.mark.skipif(PROCESSES > 1, reason="it starts processes of its own")
shared = pytest.mark.skipif(PROCESSES != 2, reason="test_megatron.py runs this in two processes")

TWO: dict[str, dict[str, Any]] = {"tensor-parallel": {"tensor_parallel": 2}, "data-parallel": {"actor_gpus": "2"}}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in TORCHRUN}
END_SECONDS = 60.0
"""For all of them to end after one has."""

FAILING = """
import os

def loss(tokens):
    if os.environ.get("RANK") == "1":
        raise ValueError("this rank does not like it")
    return -tokens.logits.float().log_softmax(-1).gather(-1, tokens.token_ids[:, None])[:, 0]
"""
IMPATIENT = "from openclaw_rl.trainer_local.megatron import process_group\nprocess_group.GRACE_SECONDS = 2.0\n"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@contextmanager
def program(policy: Path, folder: Path, changes: dict[str, Any], then: str = "") -> Iterator[subprocess.Popen[str]]:
    """The program of `megatron_program`; it does not outlive the block."""
    command = [sys.executable, "-m", "tests.real.megatron_program", str(policy), str(folder), json.dumps(changes), then]
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ranks(process: subprocess.Popen[Any]) -> dict[int, psutil.Process]:
    """The processes that train, by rank."""
    return {int(one.environ()["RANK"]): one for one in psutil.Process(process.pid).children()}


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(checkpoint / "trainer.pt", weights_only=True)["weights"]
    return found


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def finish(policy: Path, folder: Path, changes: dict[str, Any]) -> None:
    """Run the program to its end."""
    with program(policy, folder, changes) as process:
        assert process.wait(240) == 0, (folder / "log").read_text()[-3000:]


@pytest.fixture(scope="module", params=list(TWO))
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def undisturbed(policy: Path, layout: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights after two steps with a restart between them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for _ in range(2):
        finish(policy, folder, TWO[layout])
    return weights(folder / "2")


@alone
@pytest.mark.parametrize("then", ["step", "wait"])
def test_a_rank_that_is_killed_ends_all_and_the_next_start_resumes_exactly(
    policy: Path, layout: str, undisturbed: dict[str, torch.Tensor], then: str, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    with program(policy, folder, TWO[layout], then) as process:
        assert process.stdout is not None and process.stdout.readline() == "saved\n"
        found = ranks(process)
        assert found.keys() == {0, 1}
        found[1].kill()
        assert process.wait(END_SECONDS) == 1
        assert psutil.wait_procs([*found.values()], timeout=END_SECONDS)[1] == []
    assert "rank 1 of the trainer ended (SIGKILL), and all the others with it" in (folder / "log").read_text()
    finish(policy, folder, TWO[layout])
    assert equal(weights(folder / "2"), undisturbed)


@alone
def test_a_rank_that_hangs_ends_all_in_words_and_the_next_start_resumes_exactly(
    policy: Path, layout: str, undisturbed: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    folder = tmp_path / "hung"
    with program(policy, folder, TWO[layout], "hang") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["saved\n", "stepping\n"]
        found = ranks(process)
        found[1].suspend()
        assert process.wait(END_SECONDS) == 1
        assert psutil.wait_procs([*found.values()], timeout=END_SECONDS)[1] == []
    said = (folder / "log").read_text()
    assert f"rank 1 of 2 hangs: rank 0 waited 0:00:0{HANG_SECONDS:.0f} for it in " in said
    assert "starts again from the checkpoint of the live version" in said
    finish(policy, folder, TWO[layout])
    assert equal(weights(folder / "2"), undisturbed)


@alone
def test_a_rank_that_hangs_between_commands_ends_all_at_the_next(policy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hung"
    with program(policy, folder, TWO["data-parallel"], "idle") as process:
        assert process.stdout is not None and process.stdout.readline() == "saved\n"
        found = ranks(process)
        found[1].suspend()
        (folder / "go").touch()
        assert process.wait(END_SECONDS) == 1
        assert psutil.wait_procs([*found.values()], timeout=END_SECONDS)[1] == []
    said = (folder / "log").read_text()
    assert f"rank 1 of 2 hangs: rank 0 waited 0:00:0{HANG_SECONDS:.0f} for it to take a command" in said


@alone
@pytest.mark.parametrize("victim", ["agent", "learner"])
def test_no_rank_outlives_the_others(policy: Path, victim: str, tmp_path: Path) -> None:
    with program(policy, tmp_path / "run", TWO["tensor-parallel"], "step") as process:
        assert process.stdout is not None and process.stdout.readline() == "saved\n"
        found = ranks(process)
        (process if victim == "agent" else found[0]).kill()
        assert psutil.wait_procs([*found.values()], timeout=END_SECONDS)[1] == []
        assert process.wait(END_SECONDS) != 0


@alone
def test_a_rank_that_fails_where_others_wait_for_it_ends_all(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text(IMPATIENT + FAILING)
    with program(policy, tmp_path / "run", TWO["tensor-parallel"], f"{tmp_path}/loss.py:loss") as process:
        assert process.wait(240) == 1
    log = (tmp_path / "run" / "log").read_text()
    assert "rank 1 failed, and the others wait for it elsewhere: custom_loss" in log
    assert "this rank does not like it" in log


@alone
def test_a_rank_that_cannot_start_ends_all(policy: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from openclaw_rl.trainer_local.megatron import launch\n"
        "from tests.trainer_local.tiny import settings\n"
        "launch.WORKER = 'tests.no_such_module'\n"
        f"exit(launch.launch(settings(Path({str(policy)!r}), tensor_parallel=2)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and "No module named tests.no_such_module" in done.stderr


@alone
def test_several_processes_have_to_be_started_by_torchrun(policy: Path) -> None:
    with pytest.raises(ConfigError, match="2 processes are to train, and this is the only one: start it with torchrun"):
        create(settings(policy, tensor_parallel=2))


@alone
async def test_the_learner_is_rank_0_and_ends_with_the_others(engine_server: Engine, tmp_path: Path) -> None:
    """The complete process, as the supervisor starts it."""
    chosen = Settings(
        data=tmp_path,
        backend="megatron",
        model=str(engine_server.policy),
        engine_url=engine_server.url,
        device="cpu",
        actor_gpus="2",
        lora_rank=2,
    )
    journal = Journal(chosen.serve.journal_path)
    for ends, ending, code in (("rank 1", signal.SIGKILL, 1), ("agent", signal.SIGTERM, 0)):
        process = subprocess.Popen(
            [sys.executable, "-m", "openclaw_rl.learner.main"],
            cwd=ROOT,
            env=ENVIRONMENT | to_environment(chosen),
            stderr=subprocess.PIPE,
        )
        try:
            found = await asyncio.wait_for(beating(journal, process), 240)
            (found[1] if ends == "rank 1" else process).send_signal(ending)
            _, said = await asyncio.to_thread(process.communicate, timeout=END_SECONDS)
            assert process.returncode == code, said.decode()[-3000:]
            assert psutil.wait_procs([*found.values()], timeout=END_SECONDS)[1] == []
        finally:
            process.kill()
            process.wait()
    journal.close()


async def beating(journal: Journal, process: subprocess.Popen[bytes]) -> dict[int, psutil.Process]:
    """The ranks of a learner, once it has loaded the policy and beats."""
    while process.poll() is None:
        found = journal.processes().get("learner")
        beats = found is not None and found.pid in (one.pid for one in psutil.Process(process.pid).children())
        if found is not None and beats and found.status["state"] not in ("starting", "loading the policy"):
            return ranks(process)
        await asyncio.sleep(0.1)
    raise AssertionError("the learner ended")


async def saved(chosen: Settings, folder: Path, *batches: Any) -> dict[str, torch.Tensor]:
    """The weights after steps in which nothing happens."""
    trainer = create(chosen)
    for one in batches:
        await trainer.step(one, RECIPE)
    checkpoint = await trainer.save(str(folder))
    await trainer.close()
    return weights(Path(checkpoint.path))


@shared
async def test_a_part_of_the_batch_that_fails_undoes_the_step_everywhere(policy: Path, tmp_path: Path) -> None:
    expected = await saved(settings(policy), tmp_path / "expected", BATCH, NEXT)
    (tmp_path / "loss.py").write_text(FAILING)
    trainer = create(settings(policy))
    await trainer.step(BATCH, RECIPE)
    with pytest.raises(TrainerError, match=r"rank 1 of 2: custom_loss .* this rank does not like it"):
        await trainer.step(NEXT, RECIPE.replace(custom_loss=f"{tmp_path}/loss.py:loss"))
    await trainer.step(NEXT, RECIPE)
    checkpoint = await trainer.save(str(tmp_path / "2"))
    assert equal(weights(Path(checkpoint.path)), expected)


@shared
async def test_a_model_that_one_rank_cannot_open_is_refused_by_all(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "loss.py").write_text("import os\nassert os.environ['RANK'] == '0'\ndef loss(tokens): ...\n")
    with pytest.raises(TrainerError, match=r"rank 1 of 2: .*loss.py"):
        create(settings(policy, custom_loss=f"{tmp_path}/loss.py:loss"))
    assert (await create(settings(policy)).step(BATCH, RECIPE)).step == 1


@shared
async def test_ranks_that_are_arranged_again_leave_no_threads_of_their_former_groups(policy: Path) -> None:
    async def arrange(tensor_parallel: int) -> int:
        trainer = create(settings(policy, tensor_parallel=tensor_parallel))
        await trainer.step(BATCH, RECIPE)
        await trainer.close()
        return sum(rank.num_threads() for rank in psutil.Process(os.getppid()).children())

    counted = {parallel: await arrange(parallel) for parallel in (2, 1)}
    rounds = 4
    for parallel in (2, 1) * rounds:
        # Each process may start a thread of its libraries meanwhile; groups that stay leave two or more each round.
        assert await arrange(parallel) < counted[parallel] + 2 * rounds


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"tensor_parallel": 2, "actor_gpus": "3"}, r"does not divide the 3 processes"),
    ({}, {"lora_targets": "q_proj, lm_head"}, r"lm_head is none of all-linear, q_proj"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, {}, r"yarn.*backend = embedded"),
    ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, {}, r"sliding window"),
]


@alone
@pytest.mark.parametrize(("shape", "changes", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_models_and_settings_that_it_cannot_train_are_refused_in_words(
    shape: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        create(settings(write_policy(tmp_path / "policy", **shape), **changes))


def test_another_architecture_is_sent_to_the_transformers_trainer(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tiny = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    LlamaForCausalLM(LlamaConfig(**tiny, num_attention_heads=4)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"is llama, .*; for this one set backend = embedded with device = cuda"):
        create(settings(tmp_path))


Resume = Callable[[Path, Path, bool], Awaitable[None]]
"""Restores the checkpoint of a first path and leaves two in a second, as `resume` does."""


def resumed_by(make: Callable[[Settings], Trainer], policy: Path, **changes: Any) -> Resume:
    async def run(checkpoint: Path, folder: Path, lora: bool) -> None:
        trainer = make(settings(policy, lora=lora, **changes))
        await resume(trainer, checkpoint, folder)
        await trainer.close()

    return run


def resumed_by_one_process(policy: Path) -> Resume:
    async def run(checkpoint: Path, folder: Path, lora: bool) -> None:
        folder.mkdir()
        (folder / "1").symlink_to(checkpoint)
        await asyncio.to_thread(finish, policy, folder, {"lora": lora})

    return run


@shared
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
async def test_a_checkpoint_is_resumed_by_any_number_of_ranks_and_by_the_transformers_trainer(
    policy: Path, lora: bool, tmp_path: Path
) -> None:
    """Through all of them in turn: the restored state is the same to the bit, and learns the same next."""
    ways = [
        resumed_by_one_process(policy),
        resumed_by(create_transformers, policy),
        resumed_by(create, policy),
        resumed_by(create, policy, tensor_parallel=2),
    ]
    trainer = create(settings(policy, lora=lora, tensor_parallel=2))
    await trainer.step(BATCH, RECIPE)
    path = Path((await trainer.save(str(tmp_path / "first"))).path)
    await trainer.close()
    after: list[dict[str, torch.Tensor]] = []
    for number, way in enumerate(ways):
        folder = tmp_path / str(number)
        await way(path, folder, lora)
        first, second = (torch.load(one / "trainer.pt", weights_only=True) for one in (path, folder / "resumed"))
        for part in ("weights", "average"):
            assert list(first[part]) == list(second[part]) and equal(first[part], second[part]), (number, part)
        assert first["optimizer"]["state"].keys() == second["optimizer"]["state"].keys()
        for index, held in first["optimizer"]["state"].items():
            assert equal(held, second["optimizer"]["state"][index])
        path = folder / "resumed"
        assert json.loads((folder / "2" / "meta.json").read_text())["step"] == 2
        after.append(weights(folder / "2"))
    for other in after[1:]:
        assert max(float((after[0][name] - other[name]).abs().max()) for name in other) < 1e-5


@alone
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
