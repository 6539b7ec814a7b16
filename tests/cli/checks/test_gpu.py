"""Reports of doctor and serve on GPUs. There are none here: a program called nvidia-smi fakes them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.checks import gpu
from openclaw_rl.cli.checks.gpu import fitting, gpu_checks
from openclaw_rl.cli.main import app
from openclaw_rl.cli.service import preflight
from openclaw_rl.cli.service import supervisor as supervisor_module
from openclaw_rl.cli.service.plan import ROLES, ServicePlan
from openclaw_rl.cli.service.supervisor import Supervisor, all_answer
from openclaw_rl.shared import backends
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from tests.cli.commands.test_serve import command, environment, until
from tests.processes import ROOT
from tests.shared.faked_gpus import faked_smi, row
from tests.trainer_local.fake_fleet import FakeServer, running

FITS = ["--backend", "megatron", "--model", "Qwen/Qwen3-1.7B", "--recompute", "--max-sample-tokens", "8192"]
FITS += ["--context-length", "16384"]
TOO_LARGE = ["--backend", "megatron", "--model", "Qwen/Qwen3-32B"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    if importlib.util.find_spec("megatron") is None:
        core = ModuleType("megatron")
        core.__spec__ = ModuleSpec("megatron", None)
        monkeypatch.setitem(sys.modules, "megatron", core)  # as if it were installed
    monkeypatch.setattr(gpu, "why_no_compiler", lambda: "")


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, row(0, 24), row(1, 24))


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *rows: str) -> None:
    folder = tmp_path / "driver"
    folder.mkdir(exist_ok=True)
    faked_smi(folder, rows)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def doctor(*flags: str) -> dict[str, Any]:
    answer = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", *flags])
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def checks(found: dict[str, Any], name: str) -> list[tuple[bool | None, str]]:
    return [(check["ok"], check["message"]) for check in found["checks"] if check["name"] == name]


def test_doctor_says_which_faked_gpus_there_are_and_who_goes_where(two: None) -> None:
    found = doctor(*FITS)
    assert checks(found, "gpus") == [(True, "0: Faked 24 GB, 24.0 GiB; 1: Faked 24 GB, 24.0 GiB")]
    ((ok, message),) = checks(found, "placement")
    assert ok and "Megatron-core trains (LoRA) on GPU 0; SGLang serves the policy on GPU 1" in message
    parts = found["placement"]["parts"]
    assert {part["role"] for part in parts} == {"trainer", "policy"} and all(part["bytes"] > 0 for part in parts)


def test_doctor_shows_what_each_part_takes_of_faked_gpus(two: None) -> None:
    shown = CliRunner().invoke(app, ["doctor", "--port", "0", *FITS]).stdout
    table = shown[shown.index("Memory, as estimated") :]
    for line in ("weights, bfloat16", "activations, 8192 tokens", "KV cache, 16384 tokens", "total"):
        assert line in table
    assert "during a step" in table


def test_doctor_refuses_what_does_not_fit_on_faked_gpus(two: None) -> None:
    found = doctor(*TOO_LARGE)
    ((ok, message),) = checks(found, "placement")
    assert ok is False and "model = Qwen/Qwen3-32B does not fit on GPU 0: Faked 24 GB" in message
    assert CliRunner().invoke(app, ["doctor", "--port", "0", *TOO_LARGE]).exit_code == 1


def test_doctor_counts_what_other_programs_leave_of_faked_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, row(0, 24, free=2), row(1, 24, free=23.9))
    found = doctor(*FITS)
    (_, (ok, message)) = checks(found, "gpus")
    assert ok is None and message.startswith("GPU 0: other programs hold 22.0 of its 24.0 GiB")
    assert checks(found, "placement")[0][1].count("on GPU 1") == 2  # the other one does both
    fake(tmp_path, monkeypatch, row(0, 24, free=2), row(1, 24, free=2))
    assert checks(doctor(*FITS), "placement")[0][0] is False
    # Memory of the running service is its own.
    (tmp_path / "data" / "run").mkdir(parents=True)
    write_json(tmp_path / "data" / "run" / "engine.json", {"pid": os.getpid(), "url": "http://127.0.0.1:1"})
    assert checks(doctor(*FITS), "placement")[0][0]


def test_without_gpus_doctor_says_what_a_backend_lacks_and_else_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert checks(doctor(), "gpus") == checks(doctor(), "placement") == []
    assert doctor()["placement"] is None
    assert checks(doctor("--backend", "local"), "gpus") == [(True, "none: what is local runs on the CPU")]
    ((ok, message),) = checks(doctor("--backend", "megatron"), "placement")
    assert ok is False and "needs an NVIDIA GPU, and none is found" in message
    assert checks(doctor("--backend", "megatron", "--device", "cpu"), "placement") == []


def test_doctor_does_not_guess_who_trains_a_model_that_is_not_here(two: None) -> None:
    ((_, message), (noted, why)) = checks(doctor("--backend", "megatron", "--model", "author/unknown"), "placement")
    assert message.startswith("Megatron-core (transformers, if it is no dense Qwen3) trains (LoRA) on GPU 0")
    assert noted is None and "no config.json here yet" in why
    assert "if it is no dense" not in checks(doctor(*FITS), "placement")[0][1]


def test_doctor_plans_without_torchs_compiler_where_it_cannot_be_used(
    two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> str:
        return CliRunner().invoke(app, ["doctor", *FITS]).stdout

    assert "copied for a branch" not in rows()
    monkeypatch.setattr(gpu, "why_no_compiler", lambda: "Triton is not installed")
    _, (noted, why) = checks(doctor(*FITS), "placement")
    assert noted is None and why.startswith("planned without torch's compiler") and why.endswith("not installed")
    assert "copied for a branch" in rows()


def test_doctor_plans_for_gpus_that_are_not_here() -> None:
    found = doctor("--with-gpus", "2x24", *FITS[2:])
    ((ok, message),) = checks(found, "gpus")
    assert ok and message.startswith("planned for, with torch's compiler, not found here: 0: imagined, 24.0 GiB;")
    assert checks(found, "placement")[0][0]
    assert checks(doctor("--with-gpus", "12", *FITS[2:], "--no-recompute"), "placement")[0][0] is False
    wrong = CliRunner().invoke(app, ["doctor", "--with-gpus", "some", *FITS])
    assert isinstance(wrong.exception, ConfigError) and "2x24 means two of 24 GB each" in str(wrong.exception)


def test_a_faked_driver_that_fails_is_reported_by_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faked_smi(tmp_path, (), says="couldn't communicate with the NVIDIA driver", code=9)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    ((ok, message),) = checks(doctor(*FITS), "gpus")
    assert ok is False and "couldn't communicate" in message


def test_the_placement_on_several_faked_gpus_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, *(row(number, 80) for number in range(8)))
    flags = [*FITS, "--tensor-parallel", "2", "--judge", "engine:Qwen/Qwen3-4B", "--rollout-tensor-parallel", "1"]
    ((_, message),) = checks(doctor(*flags), "placement")
    assert "on GPU 0, 1, 2, 3, tensor parallel 2, data parallel 2" in message
    assert "the policy on GPU 4," in message and "the policy on GPU 5," in message
    assert "Qwen/Qwen3-4B (judge) on GPU 6, 7" in message


def ready(settings: Settings, *roles: str) -> list[str]:
    said: list[str] = []
    assert preflight.ready(settings, roles or ROLES, {}, said.append).settings == settings
    return [line for line in said if not line.startswith("leaves this machine")]


def large(**changes: Any) -> Settings:
    return Settings(backend="megatron", model="Qwen/Qwen3-32B", **changes)


def test_serve_refuses_in_doctors_words_what_does_not_fit_on_faked_gpus(two: None) -> None:
    with pytest.raises(ConfigError) as error:
        ready(large())
    ((_, message),) = checks(doctor(*TOO_LARGE), "placement")
    assert str(error.value) == message


def test_parts_that_use_no_gpu_are_not_held_up_by_faked_ones(two: None) -> None:
    assert ready(large(), "proxy") == []
    assert ready(large(device="cpu")) == []
    assert ready(Settings(model="Qwen/Qwen3-32B")) == []
    assert ready(Settings(backend="megatron", model="Qwen/Qwen3-1.7B"), "engine") == []
    # The first of two that would be too small for both, each doing its part.
    both = {"backend": "megatron", "model": "Qwen/Qwen3-4B", "actor_gpus": "0,", "rollout_gpus": "0,"}
    small = Settings.model_validate(both | {"max_sample_tokens": 8192, "context_length": 16384})
    engine, learner = fitting(small, ["engine"]), fitting(small, ["learner", "proxy"])
    assert not engine.train and len(engine.servers) == 1 and engine.sharing == "apart"
    assert not learner.servers and len(learner.train) == 1 and learner.sharing == "apart"
    assert fitting(small, ["proxy"]) == Placement()
    with pytest.raises(ConfigError, match=r"does not fit on GPU 0.*policy weights"):
        ready(large(), "engine")
    with pytest.raises(ConfigError, match=r"does not fit on GPU 0.*trainer weights"):
        ready(large(), "learner")


def test_serve_wants_an_engine_where_no_faked_gpu_is_to_serve(two: None) -> None:
    elsewhere = Settings(backend="megatron", model="Qwen/Qwen3-1.7B", rollout_gpus="0", recompute=True)
    with pytest.raises(ConfigError, match=r"rollout_gpus = 0 says that no GPU of this machine serves.*engine_url"):
        ready(elsewhere)
    assert [ok for ok, _ in checks(doctor(*FITS, "--rollout-gpus", "0"), "placement")] == [True, None]
    assert ready(elsewhere, "learner") == []
    assert ready(elsewhere.replace(engine_url="http://127.0.0.1:9")) == []


def test_a_learner_is_not_left_to_the_cpu_where_no_faked_gpu_is_to_train(two: None) -> None:
    elsewhere = Settings(backend="megatron", model="Qwen/Qwen3-1.7B", actor_gpus="0", context_length=16384)
    with pytest.raises(ConfigError, match=r"actor_gpus = 0 says that no GPU .*serve --only proxy --only engine"):
        ready(elsewhere)
    ((ok, _), (noted, message)) = checks(doctor(*FITS, "--actor-gpus", "0"), "placement")
    assert ok and noted is None and "would train on the CPU" in message
    nothing = checks(doctor(*FITS, "--actor-gpus", "0", "--rollout-gpus", "0"), "placement")
    assert nothing[0] == (True, "nothing is placed here") and len(nothing) == 3
    assert ready(elsewhere, "proxy", "engine") == [] == ready(elsewhere.replace(train=False))


def test_a_local_backend_stays_on_the_cpu_with_device_cpu(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    on_cpu = Settings(backend="local", device="cpu")
    assert backends.resolve_backend(on_cpu).engine.backend == "embedded" and gpu_checks(on_cpu)[1] is None
    assert backends.resolve_backend(Settings(backend="local")).engine.backend == "megatron"
    assert gpu_checks(Settings(backend="local"))[1]


def test_a_hint_model_that_shares_a_judges_running_engine_takes_no_faked_gpu(two: None) -> None:
    """A placed engine that is never started would be waited for."""
    judge = f"engine:{EMBEDDED_POLICY}"
    running = f"{judge}@http://127.0.0.1:9"
    chosen = Settings.model_validate({"backend": "megatron", "model": "Qwen/Qwen3-1.7B", "context_length": 16384})
    assert fitting(chosen.replace(judge=running, hint_model=running), ROLES).judges == ()
    assert [one.role for one in fitting(chosen.replace(judge=judge, hint_model=judge), ROLES).judges] == ["judge"]


def test_doctor_says_how_new_versions_reach_sglang(tmp_path: Path) -> None:
    def placement(cards: str, *flags: str) -> str:
        return checks(doctor("--with-gpus", cards, *FITS[2:], *flags), "placement")[0][1]

    assert placement("2x24").endswith("new versions reach SGLang as adapters, by files")
    assert placement("2x80", "--no-lora").endswith("new weights reach SGLang by nccl")
    assert placement("80", "--no-lora").endswith("new weights reach SGLang by disk")
    assert "SGLang gives its KV cache and weights back for each step" in placement("24", "--model", "Qwen/Qwen3-4B")


def test_serve_says_what_one_should_know_of_faked_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, row(0, 24))
    settings = Settings(backend="megatron", model="Qwen/Qwen3-4B", recompute=True, context_length=8192)
    (note,) = ready(settings)
    assert "training and serving alternate" in note


def test_serve_ends_before_anything_starts_where_faked_gpus_are_too_small(tmp_path: Path, two: None) -> None:
    done = subprocess.run(
        command("serve", *TOO_LARGE, "--data", str(tmp_path / "data")),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "does not fit on GPU 0: Faked 24 GB" in done.stderr
    assert "starting" not in done.stderr and not (tmp_path / "data").exists()


async def test_parts_on_one_faked_gpu_are_started_one_after_the_other_as_they_are_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program takes SGLang's place. The learner, which has nothing to train on, is not started."""
    fake(tmp_path, monkeypatch, row(0, 80))
    monkeypatch.setenv("FAKE_SGLANG_SECONDS", "2")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    log, model = tmp_path / "started", str(EMBEDDED_POLICY)
    program = f"{sys.executable} {ROOT / 'tests/trainer_local/fake_sglang.py'} {log} {{args}}"
    chosen = Settings(
        **{"backend": "megatron", "model": model, "judge": f"engine:{model}", "sglang_command": program},
        **{"data": tmp_path / "data", "train": False, "rollout_gpus": "0,", "judge_gpus": "0,"},
    )
    supervisor = Supervisor(ServicePlan.from_settings(chosen, ["engine", "learner"]), say=print)
    assert supervisor.roles == ("engine", "learner", "judge")
    placed = supervisor.placement
    running = [asyncio.create_task(one.run()) for one in supervisor.children if one.name != "learner"]
    try:
        await asyncio.to_thread(until, lambda: log.exists() and len(log.read_text().splitlines()) == 2, 90.0)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await supervisor._stop()
    policy, judging = (json.loads(one) for one in log.read_text().splitlines())
    assert policy["gpus"] == judging["gpus"] == "0"
    assert policy["--served-model-name"] == "policy" and judging["--port"] in supervisor.settings.judge.model
    assert judging["began"] > policy["answers"], "the second server measures what the first has left"
    fractions = [float(one["--mem-fraction-static"]) for one in (policy, judging)]
    assert fractions == [placed.servers[0].memory_fraction, placed.judges[0].memory_fraction] and min(fractions) > 0


async def test_a_part_waits_on_a_faked_gpu_as_long_as_the_fake_engine_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program takes SGLang's place, which loads for longer than the wait for an engine that does not run."""
    fake(tmp_path, monkeypatch, row(0, 80))
    monkeypatch.setattr(supervisor_module, "TURN_SECONDS", 0.3)
    monkeypatch.setenv("FAKE_SGLANG_SECONDS", "3")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    log, model = tmp_path / "started", str(EMBEDDED_POLICY)
    said: list[str] = []
    chosen = Settings(
        **{"backend": "megatron", "model": model, "data": tmp_path / "data", "rollout_gpus": "0,", "actor_gpus": "0,"},
        sglang_command=f"{sys.executable} {ROOT / 'tests/trainer_local/fake_sglang.py'} {log} {{args}}",
    )
    supervisor = Supervisor(ServicePlan.from_settings(chosen, ["engine", "learner"]), say=said.append)
    (engine,) = [child for child in supervisor.children if child.name == "engine"]
    await supervisor._up_before("learner")
    assert engine.pid is None and not log.exists(), "an engine that does not run is not waited for"
    running = asyncio.create_task(engine.run())
    try:
        await asyncio.to_thread(until, lambda: engine.pid is not None, 30.0)
        await supervisor._up_before("learner")
        assert log.exists() and engine.restarts == 0
        assert any(
            f"learner still waits for engine, which loads or compiles: see {engine.log_path}" in one for one in said
        )
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await supervisor._stop()


async def test_a_router_whose_fake_servers_are_not_all_there_is_waited_for() -> None:
    servers = [FakeServer(), FakeServer()]
    async with running(*servers) as url, httpx.AsyncClient() as client:
        assert await all_answer(client, url, 2) and not await all_answer(client, url, 3)
        servers[1].gone = True
        assert not await all_answer(client, url, 2)
        assert await all_answer(client, servers[0].url, 1)
    async with httpx.AsyncClient() as client:
        assert not await all_answer(client, url, 2)


def test_nothing_is_asked_of_a_driver_if_no_gpus_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faked_smi(tmp_path, (), says="asked", code=9)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpu_checks(Settings()) == ([], None)
