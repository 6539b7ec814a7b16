"""Models that see on the embedded engine, which takes their text only: what it samples, and versions of the trainer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from openclaw_rl.shared.records import Sampling
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from openclaw_rl.trainer_local.transformers_trainer import create
from tests.trainer_local.seeing import KINDS, Plain, Samples, write_seeing
from tests.trainer_local.serving import close_to, collect, serving
from tests.trainer_local.tiny import settings

torch.set_num_threads(1)


@pytest.mark.parametrize("kind", KINDS)
async def test_concurrent_answers_have_the_logprobs_of_their_version(kind: str, tmp_path: Path) -> None:
    policy = write_seeing(tmp_path / "policy", kind)
    samples = Samples(policy)
    trainer = create(settings(policy))
    await trainer.step([samples.seeing(1, hints=["Shorter."])], Recipe(learning_rate=2e-2, epochs=3))
    checkpoint = await trainer.save(str(tmp_path / "checkpoints" / "1"))
    await trainer.close()
    models = [Plain(policy), Plain(policy, Path(checkpoint.served))]
    prompts = [samples.seeing(2), samples.of(3, [{"role": "user", "content": "A longer question, this one is. " * 5}])]
    with serving(policy, checkpoints=str(tmp_path / "checkpoints"), max_batch=8) as (url, _):
        engine = SglangEngine(url)
        await engine.load(1, checkpoint.served, live=True)
        assert not (await engine.info()).sees
        asked = [(one, version) for one in prompts for version in (0, 1)]
        answers = await asyncio.gather(
            *(
                collect(engine.generate(list(one.prompt_ids), Sampling(max_tokens=6), version=version))
                for one, version in asked
            )
        )
        await engine.close()
    for (one, version), answer in zip(asked, answers, strict=True):
        with torch.no_grad():
            rows = models[version].log_probs(one.prompt_ids, answer.ids)
        assert close_to([float(row[token]) for row, token in zip(rows, answer.ids, strict=True)], answer.logprobs, 1e-4)
