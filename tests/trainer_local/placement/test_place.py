"""Placements on GPUs that are only described: nothing here asks a GPU anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import GIB, Gpu, imagined
from openclaw_rl.shared.placement import VARIABLE, Placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.memory import CONTEXT, between_steps, during_step, fraction_at, total, usable
from openclaw_rl.trainer_local.placement.model_shape import known_models
from openclaw_rl.trainer_local.placement.place import current_placement, place, possible, wants_gpus
from tests.shared.faked_gpus import faked_smi, row

SMALL = {"model": "Qwen/Qwen3-0.6B", "recompute": True, "max_sample_tokens": 8192, "context_length": 8192}
TORCHRUN = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "RANK": "0"}
VISION = {
    "model_type": "qwen3_vl",
    "text_config": {
        **{"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 262144},
    },
    "vision_config": {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 2560},
}


def settings(**changes: Any) -> Settings:
    return Settings(**{"backend": "megatron", **SMALL, **changes})


def placed(cards: str, environ: dict[str, str] | None = None, **changes: Any) -> Placement:
    return possible(place(settings(**changes), imagined(cards), environ or {}))


def test_without_torchs_compiler_more_is_planned_and_said() -> None:
    def plan(no_compiler: str, **changes: Any) -> Placement:
        mine = {"recompute": False, "max_sample_tokens": 2048, **changes}
        return place(settings(**mine), imagined("80"), {}, no_compiler=no_compiler)

    def needed(found: Placement) -> int:
        return total(part for part in found.parts if part.role == "trainer")

    without, usual = plan("no Triton"), plan("")
    assert needed(without) > needed(usual)
    assert "planned without torch's compiler, so a step takes more memory and time: no Triton" in without.notes
    assert not any("compiler" in note for note in usual.notes)
    assert not any("compiler" in note for note in plan("no Triton", train=False).notes), "nothing is trained"


def refusal(cards: str, environ: dict[str, str] | None = None, **changes: Any) -> str:
    with pytest.raises(ConfigError) as error:
        placed(cards, environ, **changes)
    return str(error.value)


def numbers(gpus: Sequence[Gpu]) -> str:
    return "".join(str(gpu.number) for gpu in gpus)


def who(found: Placement) -> tuple[str, list[str], list[str]]:
    return (
        numbers(found.train),
        [numbers(server.gpus) for server in found.servers],
        [numbers(server.gpus) for server in found.judges],
    )


JUDGED = {"judge": "engine:Qwen/Qwen3-1.7B"}


@pytest.mark.parametrize(
    ("gpus", "changes", "expected"),
    [
        ("24", {}, ("0", ["0"], [])),
        ("2x24", {}, ("0", ["1"], [])),
        ("8x80", {}, ("0123", ["4567"], [])),
        ("8x80", {"rollout_tensor_parallel": 1}, ("0123", ["4", "5", "6", "7"], [])),
        ("8x80", {"rollout_tensor_parallel": 2}, ("0123", ["45", "67"], [])),
        ("8x80", JUDGED, ("0123", ["45"], ["67"])),
        ("8x80", {**JUDGED, "hint_model": "engine:Qwen/Qwen3-4B"}, ("0123", ["45"], ["67", "67"])),
        ("8x80", {**JUDGED, "hint_model": "engine:Qwen/Qwen3-1.7B"}, ("0123", ["45"], ["67"])),
        ("8x80", {"gpus": "2"}, ("0", ["1"], [])),
        ("8x80", {"gpus": "5,6,7", "rollout_tensor_parallel": 1}, ("5", ["6", "7"], [])),
        ("8x80", {"gpus": "7,"}, ("7", ["7"], [])),
        ("8x80", {"actor_gpus": "4", "rollout_gpus": "2", "judge_gpus": "2", **JUDGED}, ("0123", ["45"], ["67"])),
        ("8x80", {"actor_gpus": "6", "rollout_gpus": "2"}, ("012345", ["67"], [])),
        ("8x80", {"rollout_gpus": "2"}, ("234567", ["01"], [])),
        ("8x80", {"rollout_gpus": "0,1"}, ("234567", ["01"], [])),
        ("8x80", {"actor_gpus": "0,1", "rollout_gpus": "0,1"}, ("01", ["01"], [])),
        ("4x80", {"actor_gpus": "3,1", "rollout_gpus": "2"}, ("31", ["02"], [])),
        ("8x80", {"actor_gpus": "8"}, ("01234567", ["01234567"], [])),
        ("80", {"actor_gpus": "1", "rollout_gpus": "1"}, ("0", ["0"], [])),
        ("2x80", {"actor_gpus": "1", "rollout_gpus": "1", "judge_gpus": "1", **JUDGED}, ("0", ["0"], ["0"])),
        ("2x24", JUDGED, ("0", ["1"], ["1"])),
        ("80", JUDGED, ("0", ["0"], ["0"])),
        ("2x24", {"engine_url": "http://elsewhere:30001"}, ("01", [], [])),
        ("2x24", {"train": False}, ("", ["01"], [])),
        ("4x24", {"actor_gpus": "0"}, ("", ["0123"], [])),
        ("8x24", {"device": "cuda:3"}, ("3", ["3"], [])),
        ("5x24", {"tensor_parallel": 2}, ("01", ["23"], [])),
        ("24,80", {"model": "Qwen/Qwen3-8B"}, ("1", ["0"], [])),
    ],
)
def test_described_gpus_are_distributed(gpus: str, changes: dict[str, Any], expected: Any) -> None:
    assert who(placed(gpus, **changes)) == expected


def test_a_parts_processes_see_its_own_gpus_and_no_others() -> None:
    found = placed("8x80", actor_gpus="2", rollout_gpus="4", rollout_tensor_parallel=2)
    seen = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert seen.items() <= found.trainer_environment.items()
    assert [[gpu.handle for gpu in one.gpus] for one in found.servers] == [["2", "3"], ["4", "5"]]


def test_gpus_that_were_chosen_by_uuid_are_handed_on_so() -> None:
    gpus = [
        msgspec.structs.replace(gpu, handle=f"GPU-{gpu.number}a", uuid=f"GPU-{gpu.number}abc")
        for gpu in imagined("4x24")
    ]
    found = place(settings(actor_gpus="GPU-3", rollout_gpus="1,"), gpus, {})
    assert found.train[0].handle == "GPU-3a" and found.servers[0].gpus[0].handle == "GPU-1a"


def test_parts_that_fit_together_share_a_card_and_others_alternate() -> None:
    together, alternating = placed("24"), placed("8", max_sample_tokens=4096, micro_batch_tokens=4096, method="binary")
    assert together.sharing == "together" and not together.servers[0].lends_memory
    assert alternating.sharing == "alternating" and alternating.servers[0].lends_memory
    assert any("alternate" in note for note in alternating.notes)
    assert placed("2x24").sharing == "apart" and not placed("2x24").colocated


def test_gpus_of_their_own_are_preferred_to_shared_ones_and_these_to_alternating() -> None:
    assert placed("2x24").sharing == "apart"
    assert placed("2x24", tensor_parallel=2).sharing == "together"
    assert placed("2x11", tensor_parallel=2).sharing == "alternating"


@pytest.mark.parametrize("gpus", ["24", "80"])
@pytest.mark.parametrize("judge", [{}, JUDGED])
def test_parts_that_share_a_card_leave_each_other_room(gpus: str, judge: dict[str, Any]) -> None:
    found = placed(gpus, **judge)
    (gpu,) = found.train
    others = [part for part in found.parts if not part.tag and part.role != "policy"]
    statics = sum(server.static_bytes for server in (*found.servers, *found.judges))
    around = sum(part.bytes for part in found.parts if part.role == "policy" and not part.tag)
    assert statics + total(during_step(others)) + around <= usable(gpu.memory)
    (server,) = found.servers
    assert server.memory_fraction * (gpu.memory - CONTEXT) <= server.static_bytes
    assert server.kv_tokens >= 8192


def test_a_server_that_starts_next_to_others_takes_a_larger_share_of_less() -> None:
    (server,) = placed("24").servers

    def fraction(free: int) -> float:
        return fraction_at(free, server.memory_fraction, server.static_bytes)

    assert fraction(24 * GIB) == server.memory_fraction
    assert fraction(16 * GIB) > server.memory_fraction
    assert fraction(16 * GIB) * (16 * GIB - CONTEXT) == pytest.approx(server.static_bytes, rel=0.01)
    assert fraction(0) == server.memory_fraction, "the driver does not tell"


def test_a_server_with_gpus_of_its_own_is_left_to_sglangs_arithmetic() -> None:
    (server,) = placed("2x24").servers
    assert server.memory_fraction == 0.0 and server.kv_tokens > 100_000


@pytest.mark.parametrize("gpus", ["24", "2x24"])
def test_full_weights_go_the_way_that_the_placement_allows(gpus: str) -> None:
    found = placed(gpus, model="Qwen/Qwen3-0.6B", lora=False, offload_optimizer=True)
    assert found.weight_transfer == ("disk" if gpus == "24" else "nccl")
    assert placed(gpus, engine_url="http://elsewhere:30001").weight_transfer == "disk"


def test_a_model_that_megatron_does_not_cover_is_trained_by_transformers_on_one_gpu(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(VISION))
    found = placed("4x80", model=str(tmp_path))
    assert (found.trainer, numbers(found.train)) == ("transformers", "0")
    assert "qwen3_vl" in found.why_not_megatron
    assert "Set actor_gpus = 1" in refusal("4x80", model=str(tmp_path), actor_gpus="2")
    assert "Set tensor_parallel = 1" in refusal("4x80", model=str(tmp_path), tensor_parallel=2)


def test_a_model_that_is_not_here_is_placed_without_an_estimate() -> None:
    found = placed("2x24", model="author/unheard-of")
    assert who(found)[:2] == ("0", ["1"]) and not found.parts
    assert any("not estimated" in note for note in found.notes)


def test_a_gpu_whose_memory_is_unknown_is_used_with_a_note() -> None:
    (gpu,) = imagined("24")
    found = place(settings(), [msgspec.structs.replace(gpu, memory=0)], {})
    assert numbers(found.train) == "0" and found.servers[0].memory_fraction == 0.0
    assert any("memory is unknown" in note for note in found.notes)


def test_gpus_without_work_are_noted() -> None:
    assert any("judge_gpus = 2 is not used" in note for note in placed("8x24", judge_gpus="2").notes)
    assert any("nothing to do" in note for note in placed("3x24", actor_gpus="1", rollout_gpus="1").notes)
    assert placed("2x24", judge_gpus="0").notes == ()


def test_a_note_on_an_engine_elsewhere_does_not_show_its_secret() -> None:
    found = placed("2x24", engine_url="http://bearer:hidden@elsewhere:30001", rollout_gpus="1")
    shown = " ".join(found.notes)
    assert "the engine is at http://elsewhere:30001" in shown and "hidden" not in shown


def test_under_torchrun_each_machine_has_its_share() -> None:
    elsewhere = {"engine_url": "http://first:30001"}
    first = placed("8x80", TORCHRUN, **elsewhere, tensor_parallel=4)
    assert (numbers(first.train), first.nodes, first.data_parallel) == ("01234567", 2, 4)
    other = placed("8x80", {**TORCHRUN, "RANK": "8"}, judge_gpus="2", **JUDGED)
    assert who(other) == ("01234567", [], []) and any("first machine serves" in note for note in other.notes)
    four = placed("8x80", {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"})
    assert who(four)[:2] == ("0123", ["4567"]) and four.nodes == 1


def test_a_process_gets_its_placement_and_need_not_see_all_gpus(tmp_path: Path) -> None:
    made = placed("2x24")
    assert current_placement(settings(), made.variables) == made
    seen = faked_smi(tmp_path, [row(0, 24)])
    assert who(current_placement(settings(), seen))[:2] == ("0", ["0"])
    assert current_placement(Settings(), seen) == current_placement(settings(device="cpu"), seen) == Placement()
    assert current_placement(settings(), {**seen, "CUDA_VISIBLE_DEVICES": ""}) == Placement()
    assert VARIABLE in made.variables and not VARIABLE.startswith("OPENCLAW_RL_")


def test_local_means_gpus_where_there_are_some() -> None:
    here, nowhere = {"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": ""}
    assert wants_gpus(Settings(backend="local"), here) and not wants_gpus(Settings(backend="local"), nowhere)
    assert wants_gpus(settings(), nowhere) and not wants_gpus(Settings(), here)
    assert not wants_gpus(settings(device="cpu"), here)


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("", {}, "backend = megatron needs an NVIDIA GPU, and none is found", "device = cpu"),
    ("2x24", {"gpus": "4"}, "gpus = 4, but 2 GPUs can be seen", "a number up to 2"),
    ("2x24", {"gpus": "0"}, "gpus = 0", 'GPU 0 alone is "0,"'),
    ("2x24", {"gpus": "0,5"}, "gpus names GPU 5, and there are: 0, 1", "doctor"),
    ("2x24", {"gpus": "0,0"}, "names GPU 0 twice", ""),
    ("2x24", {"gpus": "all"}, "'all' is neither a number of GPUs nor a list", "2 means two"),
    ("2x24", {"device": "cuda:2"}, "device = cuda:2, but 2 GPUs can be seen", "device = auto"),
    (
        "4x24",
        {"actor_gpus": "3", "rollout_gpus": "2"},
        "is more than the 4 GPUs",
        "actor_gpus = 0,1 and rollout_gpus = 0,1",
    ),
    (
        "4x24",
        {"actor_gpus": "0,1", "rollout_gpus": "3"},
        "more than the 2 GPUs that the lists leave of 4",
        "ask for fewer",
    ),
    ("4x24", {"actor_gpus": "0,1", "rollout_gpus": "1,2"}, "share some GPUs and not others", "the same ones for both"),
    ("8x80", {"tensor_parallel": 3}, "does not divide the 8 key-value heads", "set it to a number that does"),
    (
        "8x80",
        {"tensor_parallel": 2, "actor_gpus": "3"},
        "does not divide the 3 GPUs",
        "set it to a number that does, or actor_gpus to a multiple of 2",
    ),
    (
        "8x80",
        {"rollout_gpus": "3", "rollout_tensor_parallel": 2},
        "does not divide the 3 GPUs of rollout_gpus",
        "set it to a number that does, or rollout_gpus to a multiple of 2",
    ),
    (
        "8x80",
        {"rollout_gpus": "3"},
        "3 GPUs cannot share one server of the policy's",
        "set rollout_tensor_parallel to a number that divides both",
    ),
    (
        "8x80",
        {"judge_gpus": "3", **JUDGED},
        "3 GPUs cannot share one server of the judge's model",
        "set judge_gpus to a number that divides both",
    ),
    (
        "2x80",
        {"sglang_args": "--quantization fp8", "lora": False},
        "served quantized (fp8), and lora = false",
        "set lora = true",
    ),
]


@pytest.mark.parametrize(("gpus", "changes", "said", "remedy"), REFUSED)
def test_contradictory_settings_are_refused_with_the_way_out(
    gpus: str, changes: dict[str, Any], said: str, remedy: str
) -> None:
    message = place(settings(**changes), imagined(gpus) if gpus else [], {}).refusal
    assert said in message and remedy in message
    assert len(message) < 400 and "  " not in message


def test_torchrun_and_settings_must_agree() -> None:
    message = refusal("8x80", TORCHRUN, actor_gpus="4")
    assert "torchrun has started 8 processes" in message and "--nproc-per-node and actor_gpus the same" in message
    assert "same --nproc-per-node on every node" in refusal("8x80", {"WORLD_SIZE": "12", "LOCAL_WORLD_SIZE": "8"})


def test_a_quantized_folder_trains_by_adapters_alone(tmp_path: Path) -> None:
    config = {**VISION["text_config"], "model_type": "qwen3", "quantization_config": {"quant_method": "awq"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "quantized (awq), and lora = false" in refusal("80", model=str(tmp_path), lora=False)
    assert placed("80", model=str(tmp_path)).trainer == "transformers"


TOO_LARGE: list[tuple[str, dict[str, Any], list[str]]] = [
    ("24", {"model": "Qwen/Qwen3-1.7B", "recompute": False}, ["recompute = auto"]),
    (
        "2x24",
        {"model": "Qwen/Qwen3-4B", "max_sample_tokens": 32768, "context_length": 32768},
        ["a smaller max_sample_tokens (now 32768)"],
    ),
    ("80", {"model": "Qwen/Qwen3-4B", "lora": False}, ["offload_optimizer = true", "lora = true"]),
    ("8x80", {"model": "Qwen/Qwen3-32B"}, ["a larger tensor_parallel"]),
    ("24", {"model": "Qwen/Qwen3-8B", "train": False, "context_length": 65536}, ["--quantization fp8", "(now 65536)"]),
    ("12", {"model": "Qwen/Qwen3-32B"}, []),
]


@pytest.mark.parametrize(("gpus", "changes", "hints"), TOO_LARGE)
def test_a_model_that_cannot_fit_is_refused_with_hints(gpus: str, changes: dict[str, Any], hints: list[str]) -> None:
    message = refusal(gpus, **changes)
    assert message.startswith(f"model = {changes['model']} does not fit on GPU 0: imagined") and " GiB" in message
    assert message.endswith("a smaller model, or GPUs with more memory")
    for hint in hints:
        assert hint in message.partition("To need less, set ")[2]


def test_a_hint_names_no_setting_that_is_as_small_as_it_can_be() -> None:
    message = refusal("80", model="Qwen/Qwen3-32B", lora=False, offload_optimizer=True)
    assert "offload_optimizer = true" not in message and "recompute = true" not in message and "lora = true" in message
    assert "quantization" not in message, "full updates of quantized weights are refused"


def test_a_gpu_that_another_program_uses_is_left_to_it() -> None:
    small, large = imagined("2,24")
    found = place(settings(), [small, large], {})
    assert not found.refusal and who(found)[:2] == ("1", ["1"])


def test_the_host_must_hold_what_is_put_there() -> None:
    mine = settings(model="Qwen/Qwen3-4B", lora=False, offload_optimizer=True)
    assert not place(mine, imagined("2x80"), {}, host_memory=256 * GIB).refusal
    message = place(mine, imagined("2x80"), {}, host_memory=64 * GIB).refusal
    assert "machine's own memory (offload_optimizer), which has 64.0" in message


CARDS = st.sampled_from([8, 12, 16, 24, 32, 40, 48, 60, 80, 96, 141])
CHOICES = st.fixed_dictionaries(
    {
        "model": st.sampled_from(sorted(known_models("qwen3"))),
        "lora": st.booleans(),
        "recompute": st.booleans(),
        "offload_optimizer": st.booleans(),
        "max_sample_tokens": st.sampled_from([4096, 8192, 32768]),
        "context_length": st.sampled_from([0, 8192, 32768]),
        "judge": st.sampled_from(["rules", "engine:Qwen/Qwen3-1.7B"]),
        "method": st.sampled_from(["rehearse", "binary", "combined"]),
    }
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(card=CARDS, more=st.floats(0, 64), count=st.integers(1, 4), changes=CHOICES)
def test_more_memory_never_turns_a_fit_into_a_refusal(
    card: float, more: float, count: int, changes: dict[str, Any]
) -> None:
    mine = settings(**changes)
    smaller, larger = (_fits(mine, f"{count}x{size:.2f}") for size in (card, card + more))
    assert larger or not smaller


@hypothesis_settings(max_examples=40, deadline=None)
@given(card=CARDS, count=st.integers(1, 5), changes=CHOICES)
def test_one_more_gpu_never_turns_a_fit_into_a_refusal(card: int, count: int, changes: dict[str, Any]) -> None:
    mine = settings(**changes)
    assert _fits(mine, f"{count + 1}x{card}") or not _fits(mine, f"{count}x{card}")


@hypothesis_settings(max_examples=40, deadline=None)
@given(card=CARDS, count=st.integers(1, 4), changes=CHOICES)
def test_every_placement_fits_by_its_own_estimate(card: int, count: int, changes: dict[str, Any]) -> None:
    gpus = imagined(f"{count}x{card}")
    found = place(settings(**changes), gpus, {})
    if found.refusal:
        return
    roles = {"trainer": found.train, "policy": tuple(gpu for one in found.servers for gpu in one.gpus)}
    roles |= {one.role: one.gpus for one in found.judges}
    alternating = found.sharing == "alternating"
    for gpu in gpus:
        held = [part for part in found.parts if gpu in roles[part.role]]
        assert max(total(during_step(held, alternating=alternating)), total(between_steps(held))) <= usable(gpu.memory)


def _fits(mine: Settings, gpus: str) -> bool:
    return not place(mine, imagined(gpus), {}).refusal
