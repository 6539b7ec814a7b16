"""SGLang's command lines. That the real one takes them is in `tests/real/test_sglang_launch.py`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.shared import backends
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import GIB, Gpu
from openclaw_rl.shared.placement import Server
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.place import current_placement
from openclaw_rl.trainer_local.sglang.container import faults, named, removal, with_variables
from openclaw_rl.trainer_local.sglang.launch import (
    FleetPlan,
    arguments,
    command,
    container_name,
    environment,
    filled,
    router_line,
    server_line,
    serving,
)
from tests.shared.faked_gpus import faked_smi, row
from tests.shared.tiny_vision import vision_folder
from tests.trainer_local.serving import write_adapter, write_model


@pytest.fixture(autouse=True)
def eight_faked_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    faked = faked_smi(tmp_path_factory.mktemp("driver"), [row(number, 24) for number in range(8)])
    monkeypatch.setenv("PATH", faked["PATH"] + os.pathsep + os.environ["PATH"])


def settings(**changes: Any) -> Settings:
    return Settings(**{"backend": "megatron", "sglang_python": sys.executable, "engine_port": 31000} | changes)


def value_of(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def planned(line: list[str]) -> FleetPlan:
    return msgspec.json.decode(value_of(line, "--plan"), type=FleetPlan)


def test_a_machine_with_gpus_has_megatron_as_its_local_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends.resolve_backend(Settings(backend="local")).engine.backend == "megatron"
    assert backends.engine_command(settings())[:3] == [
        sys.executable,
        "-m",
        "openclaw_rl.trainer_local.sglang.controller",
    ]  # type: ignore[index]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert backends.resolve_backend(Settings(backend="local")).engine.backend == "embedded"


def test_missing_programs_are_reported_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"pip install sglang==0\.5\.23.*sglang_python.*sglang_command"):
        command(settings(sglang_python=""))
    with pytest.raises(ConfigError, match="'/nowhere/python' is no program"):
        command(settings(sglang_python="/nowhere/python"))
    with pytest.raises(ConfigError, match="sglang_command, or name sglang_python too"):
        command(settings(sglang_python="", sglang_command="docker run sglang", rollout_tensor_parallel=1))
    with pytest.raises(ConfigError, match="rollout_tensor_parallel = 3 does not divide"):
        command(settings(rollout_tensor_parallel=3))


def test_a_lora_policy_is_served_with_adapters_and_priorities() -> None:
    line = arguments(settings(lora_rank=8, context_length=4096, model="/policy"))
    assert (value_of(line, "--max-lora-rank"), value_of(line, "--max-loras-per-batch")) == ("8", "5")
    assert (value_of(line, "--context-length"), value_of(line, "--model-path")) == ("4096", "/policy")
    assert line[line.index("--lora-target-modules") + 1 :][:3] == ["q_proj", "k_proj", "v_proj"]
    assert {"--enable-priority-scheduling", "--schedule-low-priority-values-first", "--sleep-on-idle"} <= {*line}
    assert value_of(line, "--priority-scheduling-preemption-threshold") == "0"
    assert not {"--enable-memory-saver", "--quantization"} & {*line}
    assert "--enable-lora" not in arguments(settings(lora=False))


@pytest.mark.parametrize(
    ("targets", "missing"), [("q_proj,k_proj", "v_proj"), ("up_proj", "gate_proj"), ("k_proj", "q_proj, v_proj")]
)
def test_adapters_that_sglang_cannot_hold_are_refused(targets: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"Add {missing},"):
        arguments(settings(lora_targets=targets))
    assert "o_proj" in arguments(settings(lora_targets="q_proj, v_proj, o_proj"))


def test_experts_have_adapters_in_all_their_projections_or_in_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe"}))
    moe = str(tmp_path)
    line = arguments(settings(model=moe))
    assert value_of(line, "--moe-runner-backend") == "triton" and "--lora-strict-loading" in line
    with pytest.raises(ConfigError, match=r"of experts with down_proj.*Add down_proj,"):
        arguments(settings(model=moe, lora_targets="q_proj,v_proj,gate_proj,up_proj"))
    attention = arguments(settings(model=moe, lora_targets="q_proj,k_proj,v_proj,o_proj"))
    assert "gate_proj" not in attention and "--lora-strict-loading" in attention
    assert "--moe-runner-backend" not in arguments(settings(lora_targets="gate_proj,up_proj,down_proj"))


def test_a_gpu_that_is_shared_with_the_trainer_is_not_all_sglangs() -> None:
    plan = planned(command(settings(gpus="3,")))
    ((fraction, size),) = plan.memory
    assert 0 < fraction < 1 and size and "--enable-memory-saver" not in plan.arguments
    given = server_line(["sglang"], ["--foo"], gpus=["3"], host="h", port=1, memory_fraction=fraction)
    assert float(value_of(given, "--mem-fraction-static")) == fraction
    assert given.index("--mem-fraction-static") < given.index("--foo"), "what a person gives wins"
    apart = planned(command(settings(rollout_gpus="3,", actor_gpus="4,")))
    assert apart.memory[0][0] == 0


def test_a_server_that_lends_its_memory_is_started_so() -> None:
    card = Gpu(number=0, handle="0", name="", memory=GIB, free=GIB)
    server = Server(role="policy", model="/policy", gpus=(card,), lends_memory=True)
    assert {"--enable-memory-saver", "--enable-weights-cpu-backup"} <= {*arguments(settings(), [server])}
    assert "--enable-memory-saver" in planned(command(settings(), [server])).arguments


@pytest.mark.parametrize("name", ["fp8", "awq", "gptq"])
def test_quantization_is_passed_on_and_learns_by_adapters_alone(name: str, tmp_path: Path) -> None:
    given = {"sglang_args": f"--quantization {name}"}
    assert value_of(arguments(settings(**given)), "--quantization") == name
    assert settings(sglang_args=f"--max-running-requests 8 --quantization={name}").gpu.quantization == name
    assert arguments(settings(**given, lora=False, train=False))
    with pytest.raises(ConfigError, match=rf"quantized \({name}\).*Train a LoRA"):
        arguments(settings(**given, lora=False))
    (tmp_path / "config.json").write_text(f'{{"quantization_config": {{"quant_method": "{name}"}}}}')
    with pytest.raises(ConfigError, match=rf"quantized \({name}\)"):
        arguments(settings(model=str(tmp_path), lora=False))
    assert "--quantization" not in arguments(settings(model=str(tmp_path)))
    assert "--enable-fp32-lm-head" in arguments(settings(**given))
    assert "--enable-fp32-lm-head" not in arguments(settings(sglang_args="--quantization gguf"))


def test_further_arguments_come_last() -> None:
    line = arguments(settings(sglang_args="--mem-fraction-static 0.7 --foo 'a b'"))
    assert line[-4:] == ["--mem-fraction-static", "0.7", "--foo", "a b"]


def test_the_key_goes_by_a_file_unless_a_person_has_one_for_sglang() -> None:
    assert planned(command(settings())).key_file.endswith(".yaml")
    for given in ("--config own.yaml", "--config=own.yaml"):
        assert not planned(command(settings(sglang_args=given))).key_file
    for given in ("--api-key mine", "--api-key=mine"):
        with pytest.raises(ConfigError, match="sglang_args has --api-key"):
            command(settings(sglang_args=given))


@pytest.mark.parametrize(
    ("given", "takes"),
    [
        ("--tokenizer-worker-num 4", False),
        ("--tokenizer-worker-num=4", False),
        ("--served-model-name not--tokenizer-worker-num", True),
        ("", True),
    ],
)
def test_sglang_takes_no_key_with_several_tokenizer_workers(given: str, takes: bool) -> None:
    assert backends.takes_key(settings(sglang_args=given)) is takes
    assert backends.takes_key(settings(sglang_args=given, backend="embedded"))


def test_servers_share_the_gpus_that_serve() -> None:
    def groups(**changes: Any) -> list[list[str]]:
        return serving(current_placement(settings(**changes)).servers)

    assert groups() == [["4", "5", "6", "7"]]
    assert groups(rollout_gpus="0,1,2,3", rollout_tensor_parallel=2) == [["0", "1"], ["2", "3"]]
    plan = planned(command(settings(rollout_gpus="0,1", rollout_tensor_parallel=1)))
    assert plan.gpus == [["0"], ["1"]]
    assert plan.router == [sys.executable, "-m", "sglang_router.launch_router"]
    assert not planned(command(settings())).router


def test_a_machine_without_gpus_leaves_it_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = planned(command(settings(device="cpu")))
    assert plan.gpus == [[]] and not plan.memory
    assert "CUDA_VISIBLE_DEVICES" not in environment([], {}, {}) and serving(()) == [[]]


def test_a_server_counts_gpus_as_the_driver_does() -> None:
    """CUDA itself would count the fastest first, where they differ."""
    inherited = {"CUDA_VISIBLE_DEVICES": "0,1", "PYTHONPATH": "here"}
    inherited |= {name: "expandable_segments:True" for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
    seen = environment(["1"], {"OWN": "1"}, inherited)
    assert seen == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OWN": "1"}


def test_the_live_version_is_an_adapter_or_the_model_itself(tmp_path: Path) -> None:
    base = write_model(tmp_path / "base")
    adapter = write_adapter(base, tmp_path / "7" / "served")
    common = ["--model-path", str(base)]
    line = server_line(["sglang"], common, gpus=["0"], host="h", port=1, live=(7, str(adapter)), adapters=True)
    name, _, path = value_of(line, "--lora-paths").partition("=")
    assert name.startswith("policy-v7-") and path == str(adapter) and value_of(line, "--weight-version") == name
    whole = server_line(["sglang"], common, gpus=["0", "1"], host="h", port=1, live=(7, "/7/served"))
    assert (value_of(whole, "--model-path"), value_of(whole, "--tokenizer-path")) == ("/7/served", str(base))
    assert value_of(whole, "--weight-version").startswith("7.") and value_of(whole, "--tp-size") == "2"
    plain = server_line(["sglang"], common, gpus=["0"], host="h", port=1)
    assert plain == ["sglang", *common, "--host", "h", "--port", "1"]


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"text_config": {"dtype": "bfloat16"}}, "bfloat16"),
        ({"dtype": "float32"}, ""),
    ],
    ids=str,
)
def test_a_version_in_single_precision_is_served_in_the_type_of_its_base(
    tmp_path: Path, config: dict[str, Any], dtype: str
) -> None:
    """SGLang alone would take float16 for it. A base in single precision it serves so as well."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    given = ["--model-path", str(tmp_path)]
    line = server_line(["sglang"], given, gpus=["0"], host="h", port=1, live=(7, "/7/served"))
    assert value_of(line, "--model-path") == "/7/served"
    assert (value_of(line, "--dtype") if "--dtype" in line else "") == dtype
    chosen = server_line(["sglang"], [*given, "--dtype", "half"], gpus=[], host="h", port=1, live=(7, "/7/served"))
    assert chosen[len(chosen) - chosen[::-1].index("--dtype")] == "half", "of several SGLang takes the last"


def test_a_command_has_its_arguments_where_it_wants_them() -> None:
    assert filled(["run", "{args}", "-x"], ["a", "b c"], "0") == ["run", "a", "b c", "-x"]
    assert filled(["sh", "-c", "run {args}"], ["a", "b c"], "0") == ["sh", "-c", "run a 'b c'"]
    assert filled(["docker", "--gpus", "device={gpus}"], ["a"], "0,1") == ["docker", "--gpus", "device=0,1", "a"]


def test_a_container_has_a_name_of_its_data_folder_and_role_and_the_variables_that_sglang_needs(tmp_path: Path) -> None:
    given = "docker run --name {name} {env} --gpus all sglang {args}"
    plan = planned(command(settings(sglang_python="", sglang_command=given, data=tmp_path)))
    health = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
    assert plan.variables[health] == "0"
    assert plan.program[:6] == ["docker", "run", "--name", "{name}", "-e", f"{health}=0"]
    assert named(plan.program, "x-0")[3] == "x-0"
    assert removal(plan.program, "x-0") == ["docker", "rm", "--force", "x-0"]
    others = {container_name(settings(data=tmp_path / "other")), container_name(settings(data=tmp_path))}
    assert plan.name in others and len(others) == 2
    (judge, *_) = current_placement(settings(judge="engine:/judge", judge_gpus="2", rollout_gpus="0,1")).judges
    assert container_name(settings(data=tmp_path), [judge]) == plan.name.replace("policy", "judge")
    assert with_variables(["sh", "-c", "docker run {env} x"], {"A": "1"})[2] == "docker run -e A=1 x"


def test_only_a_command_that_names_a_container_has_one_to_end() -> None:
    assert removal(["sudo", "podman", "--log-level", "error", "run", "--name={name}"], "x") == [
        *("sudo", "podman", "--log-level", "error", "rm", "--force", "x")
    ]
    assert removal(["docker", "run", "sglang"], "x") == removal(["./run.sh", "{name}"], "x") == []


@pytest.mark.parametrize(
    ("line", "gpus", "found"),
    [
        ('docker run --name {name} {env} --gpus \\"device={gpus}\\" sglang', 2, []),
        ("docker run --name {name} {env} '--gpus=\"device={gpus}\",capabilities=utility' sglang", 2, []),
        ('docker run --name {name} {env} --gpus "device={gpus}" sglang', 2, [(True, "comma")]),
        ("docker run --name {name} {env} --gpus=device={gpus} sglang", 2, [(True, "comma")]),
        ("docker run --name {name} {env} --gpus device={gpus} sglang", 1, []),
        ("docker run --name={name} {env} --gpus all sglang", 2, []),
        ("docker run {env} --gpus all sglang", 1, [(False, "--name {name}")]),
        ("podman run --device nvidia.com/gpu=all sglang", 2, [(False, "--name {name}"), (False, "Add: {env}")]),
        ("env A=b python serve.py", 2, []),
    ],
)
def test_the_faults_of_a_line_that_starts_a_container_are_found(
    line: str, gpus: int, found: list[tuple[bool, str]]
) -> None:
    seen = list(faults(shlex.split(line), gpus))
    assert [fatal for fatal, _ in seen] == [fatal for fatal, _ in found]
    assert all(words in message for (_, message), (_, words) in zip(seen, found, strict=True))


def test_the_router_gets_its_servers() -> None:
    program = ["docker", "--gpus={gpus}", "router"]
    line = router_line(program, gpus=["4", "5"], host="h", port=1, servers=["http://h:2", "http://h:3"])
    assert line[:3] == ["docker", "--gpus=4,5", "router"]
    assert line[line.index("--worker-urls") + 1 :][:2] == ["http://h:2", "http://h:3"]


def test_a_judge_with_gpus_of_its_own_is_served_by_sglang_there() -> None:
    policy = settings(rollout_gpus="0,1", judge_gpus="2", sglang_args="--quantization fp8", judge="engine:/judge")
    judges = current_placement(policy).judges
    own = backends.own_engine(policy, "/judge", port=31001, on_gpus=True)
    line = backends.engine_command(own, judges)
    assert line is not None
    plan = planned(line)
    assert value_of(plan.arguments, "--model-path") == "/judge" and (plan.port, plan.gpus) == (31001, [["2", "3"]])
    assert not {"--enable-lora", "--quantization", "--enable-memory-saver"} & {*plan.arguments} and not plan.adapters
    assert backends.own_engine(settings(), "/judge").engine.backend == "embedded"


def test_models_that_see_are_served_with_the_adapters_that_sglang_takes_of_them(tmp_path: Path) -> None:
    seeing, hybrid = (str(vision_folder(tmp_path / kind, model_type=kind)) for kind in ("qwen3_vl", "qwen3_5"))
    line = arguments(settings(model=seeing))
    place = line.index("--lora-target-modules")
    assert line[place + 1 : place + 4] == ["q_proj", "k_proj", "v_proj"]
    assert value_of(arguments(settings(model=hybrid)), "--lora-target-modules") == "all"
    chosen = settings(model=seeing, lora_targets="q_proj,v_proj,qkv")
    assert "--enable-lora" not in arguments(chosen) and not planned(command(chosen)).adapters
    assert planned(command(chosen)).variables["SGLANG_VLM_CACHE_SIZE_MB"] == "0"
    live = write_adapter(write_model(tmp_path / "model"), tmp_path / "7" / "served")
    (live / "sglang").mkdir()
    begun = server_line(["sglang"], [], gpus=[], host="h", port=1, live=(7, str(live)), adapters=True)
    assert value_of(begun, "--lora-paths").endswith(f"={live / 'sglang'}")
