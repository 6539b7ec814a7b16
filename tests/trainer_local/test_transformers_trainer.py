"""The trainer beyond the contract: its choice of a teacher, the files it keeps, the settings it refuses."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.files import atomic_folder
from openclaw_rl.shared.objective import losses
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local import transformers_trainer
from openclaw_rl.trainer_local.training import distributions
from openclaw_rl.trainer_local.training import targets as teacher
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create
from tests.trainer_local.tiny import VOCABULARY, anchor, sample, settings, write_policy

RECIPE = Recipe(learning_rate=1e-2)


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


def plain_log_probs(policy: Path, prompt: Any, response: Any) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0]
    return losses.log_softmax(logits[len(prompt) - 1 : -1])


async def first_loss(trainer: TransformersTrainer, samples: list[Sample], **changes: Any) -> dict[str, float]:
    """Metrics of one epoch, whose losses are those of the untouched policy."""
    return dict((await trainer.step(samples, Recipe(epochs=1, **changes))).metrics)


async def test_the_distillation_loss_is_the_one_worked_out_with_plain_transformers(policy: Path) -> None:
    samples = [sample(1, hints=3, response=5), sample(2, hints=1, response=2)]
    total, tokens = 0.0, 0
    for one in samples:
        targets = [plain_log_probs(policy, hinted, one.response_ids) for hinted in one.hinted_prompts]
        student = plain_log_probs(policy, one.prompt_ids, one.response_ids)
        total += float(losses.reverse_kl(student, losses.ensemble_target(torch.stack(targets))).sum())
        tokens += len(one.response_ids)
    metrics = await first_loss(create(settings(policy)), samples)
    assert metrics["loss/distill"] == pytest.approx(total / tokens, rel=1e-4)


async def test_the_policy_loss_is_taken_at_the_temperature_of_the_sampling(policy: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    one = sample(1, hints=0, reward=1.0, explicit=True, temperature=0.5)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*one.prompt_ids, *one.response_ids]])).logits[0]
    log_probs = losses.log_softmax(logits[len(one.prompt_ids) - 1 : -1], 0.5)
    behavior = losses.sampled_logprobs(log_probs, torch.tensor(one.response_ids)).tolist()
    metrics = await first_loss(create(settings(policy)), [replace(one, logprobs=behavior)])
    assert metrics["ratio/mean"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["loss/binary"] == pytest.approx(-1.0, abs=1e-4)


async def test_an_anchor_costs_nothing_at_the_base_and_holds_the_policy_back_later(policy: Path) -> None:
    always = RECIPE.replace(early_stop=0.0)
    trainer = create(settings(policy))
    assert (await first_loss(trainer, [anchor(1)]))["loss/anchor"] == pytest.approx(0.0, abs=1e-6)

    free, held = create(settings(policy)), create(settings(policy))
    anchors = [anchor(seed) for seed in range(10, 14)]
    for _ in range(5):
        await free.step([sample(1)], always)
        await held.step([sample(1), *anchors], always)
    drift = [(await first_loss(one, anchors))["loss/anchor"] for one in (free, held)]
    assert drift[1] < 0.5 * drift[0]


async def test_the_teacher_stays_the_base_while_the_policy_moves(policy: Path) -> None:
    for lora in (True, False):
        trainer = create(settings(policy, lora=lora))
        for _ in range(3):
            await trainer.step([sample(1)], RECIPE)
        one = sample(2)
        target = losses.ensemble_target(
            torch.stack([plain_log_probs(policy, hinted, one.response_ids) for hinted in one.hinted_prompts])
        )
        await trainer.export(str(policy.parent / f"moved{lora}"))
        student = plain_log_probs(policy.parent / f"moved{lora}", one.prompt_ids, one.response_ids)
        metrics = await first_loss(trainer, [one])
        assert metrics["loss/distill"] == pytest.approx(float(losses.reverse_kl(student, target).mean()), rel=1e-3)


async def test_teaching_in_slices_that_fit_in_memory_learns_the_same(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [sample(seed) for seed in range(1, 6)] + [anchor(9)]
    whole = await create(settings(policy)).step(samples, RECIPE)
    held = 2 * 4 * VOCABULARY * 4
    monkeypatch.setattr(teacher, "TARGET_BYTES", held)
    sliced = await create(settings(policy)).step(samples, RECIPE)
    assert sliced.metrics["loss/total"] == pytest.approx(whole.metrics["loss/total"], rel=1e-4)


@pytest.mark.parametrize("large", [True, False])
async def test_targets_of_large_vocabularies_are_computed_once_for_all_passes(
    policy: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(distributions, "LARGE_VOCABULARY", VOCABULARY - 1 if large else VOCABULARY)
    monkeypatch.setattr(distributions, "LIKELIEST", 8)
    monkeypatch.setattr(teacher, "TARGET_BYTES", 4 * 4 * 12 * 8)
    asked: list[int] = []
    compute = teacher.targets_of

    def counted(samples: Any, *others: Any, **named: Any) -> Any:
        asked.append(len(samples))
        return compute(samples, *others, **named)

    monkeypatch.setattr("openclaw_rl.trainer_local.training.step.targets_of", counted)
    samples = [sample(seed) for seed in range(1, 6)] + [anchor(9)]
    report = await create(settings(policy)).step(samples, RECIPE.replace(epochs=3, early_stop=0.0))
    runs = len(asked) if large else len(asked) // 3
    assert report.updates == 3 and runs > 1 and sum(asked) == len(samples) * (1 if large else 3)


async def test_the_target_modules_are_a_setting(policy: Path, tmp_path: Path) -> None:
    trainer = create(settings(policy, lora_targets="q_proj, v_proj"))
    checkpoint = await trainer.save(str(tmp_path / "1"))
    config = json.loads((Path(checkpoint.served) / "adapter_config.json").read_text())
    assert sorted(config["target_modules"]) == ["q_proj", "v_proj"]
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8.0, str(policy))


def test_settings_that_cannot_work_are_refused_in_words(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lora_targets"):
        create(settings(policy, lora_targets="no_such_module"))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        create(settings(tmp_path))
    with pytest.raises(ConfigError, match="device"):
        create(settings(policy).replace(device="quantum"))


async def test_a_checkpoint_of_other_settings_is_refused(policy: Path, tmp_path: Path) -> None:
    checkpoint = await create(settings(policy)).save(str(tmp_path / "1"))
    with pytest.raises(TrainerError, match="lora_rank"):
        await create(settings(policy, lora_rank=8)).restore(checkpoint.path)
    with pytest.raises(TrainerError, match="other weights"):
        await create(settings(policy, lora=False)).restore(checkpoint.path)


def test_a_folder_that_could_not_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "1") as folder:
        (folder / "a").write_text("old")
    with pytest.raises(TrainerError, match="space"), atomic_folder(tmp_path / "1") as folder:
        (folder / "a").write_text("new")
        raise OSError(28, "No space left on device")
    assert (tmp_path / "1" / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


@pytest.mark.parametrize("write", [torch.save, save_file], ids=["torch", "safetensors"])
def test_a_disk_that_is_full_while_weights_are_written_is_reported_as_full(tmp_path: Path, write: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))  # writing fails half-way
    try:
        with pytest.raises(TrainerError, match="space"), atomic_folder(tmp_path / "1") as folder:
            write({"part": torch.zeros(1 << 16)}, str(folder / "weights"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


async def test_an_adapter_of_another_scale_is_not_restored(policy: Path, tmp_path: Path) -> None:
    """It would be another policy than the one that is served."""
    trainer = create(settings(policy, lora_alpha=32.0))
    checkpoint = await trainer.save(str(tmp_path / "1"))
    other = create(settings(policy, lora_alpha=16.0))
    for known in ("meta.json", "served/adapter_config.json"):
        with pytest.raises(TrainerError, match=r"was trained with lora_alpha = 32, not 16: set it as it was"):
            await other.restore(checkpoint.path)
        (tmp_path / "1" / known).unlink()
    await other.restore(checkpoint.path)  # its scale is unknown


async def test_a_step_whose_average_cannot_be_kept_is_undone(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = create(settings(policy))
    before = (await trainer.save(str(tmp_path / "1"))).path

    def full(*_: Any) -> Any:
        raise MemoryError("no memory for the average")

    monkeypatch.setattr(transformers_trainer, "moving_average", full)
    with pytest.raises(TrainerError, match=r"Step 1 failed and was undone: no memory for the average"):
        await trainer.step([sample(1)], RECIPE.replace(teacher="ema"))
    after = (await trainer.save(str(tmp_path / "2"))).path
    held = [torch.load(Path(one) / "trainer.pt", weights_only=True) for one in (before, after)]
    assert held[0]["step"] == held[1]["step"] == 0
    assert all(torch.equal(part, held[1]["weights"][name]) for name, part in held[0]["weights"].items())
    assert torch.equal(held[0]["random_state"]["cpu"], held[1]["random_state"]["cpu"])
