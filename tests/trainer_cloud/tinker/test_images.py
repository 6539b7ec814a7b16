"""Prompts with images over Tinker's wire, as the pinned client sends them. `TinkerFake` stands in for the service."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

from openclaw_rl.shared.engine.client import EngineClient
from openclaw_rl.shared.errors import EngineError, TrainerError
from openclaw_rl.shared.records import PromptImage, Sample, Sampling
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.provider import ScoreRequest
from openclaw_rl.trainer_cloud.tinker.provider import Tinker
from openclaw_rl.trainer_cloud.training.trainer import CloudTrainer
from tests.shared.tiny_vision import data_url, picture
from tests.trainer_cloud.front import Front
from tests.trainer_cloud.serving import serving_cloud, tinker_settings
from tests.trainer_cloud.tinker_fake import PLACEHOLDER, TinkerFake
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import sample

pytest_plugins = ("tests.trainer_cloud.tinker_fixtures",)

RED, BLUE = picture(96, 64, "red"), picture(64, 64, "blue", "JPEG")
IDS = [5, *[PLACEHOLDER] * 3, 6, *[PLACEHOLDER] * 2, 7, 8]
IMAGES = [PromptImage(data_url(RED), 1, 4), PromptImage(data_url(BLUE, "image/jpeg"), 5, 7)]
FILES = [(1, "png", RED), (5, "jpeg", BLUE)]


@pytest.fixture(scope="module")
def seeing(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a model that sees."""
    folder = Path(shutil.copytree(policy, tmp_path_factory.mktemp("seeing") / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vision_config": {}}))
    return folder


async def test_images_stand_in_the_place_of_their_tokens_with_a_fake(
    front: Front, fake: TinkerFake, policy: Path, seeing: Path, tmp_path: Path
) -> None:
    settings = tinker_settings(front.url, policy, tmp_path, request_timeout=20.0, tokenizer=str(seeing))
    greedy = Sampling(temperature=0.0, max_tokens=4, ignore_eos=True)
    with serving_cloud(settings) as url:
        client = EngineClient(url)
        assert (await client.info()).sees
        answers = [
            [token async for tokens in client.generate(IDS, greedy, images=images) for token in tokens.ids]
            for images in (IMAGES, [])
        ]
        assert answers[0] == answers[1] and fake.images == FILES
        scores = [(await client.score(IDS, [3, 4], images=images)).logprobs for images in (IMAGES, [])]
        assert list(scores[0]) == pytest.approx(list(scores[1])) and fake.images == FILES * 2
        with pytest.raises(EngineError, match="one after the other"):
            await client.score(IDS, [3, 4], images=IMAGES[::-1])
        await client.close()


async def test_an_engine_of_a_model_that_reads_only_refuses_images_with_a_fake(
    front: Front, policy: Path, tmp_path: Path
) -> None:
    with serving_cloud(tinker_settings(front.url, policy, tmp_path, request_timeout=20.0)) as url:
        client = EngineClient(url)
        assert not (await client.info()).sees
        with pytest.raises(EngineError, match="text only"):
            await client.score(IDS, [3, 4], images=IMAGES)
        await client.close()


async def test_another_format_is_sent_as_png_with_a_fake(front: Front, fake: TinkerFake, policy: Path) -> None:
    provider = Tinker(tinker_settings(front.url, policy, policy, request_timeout=20.0))
    webp = picture(32, 32, "green", "WEBP")
    await (await provider.sampler("")).score(
        ScoreRequest(IDS, 8, images=[PromptImage(data_url(webp, "image/webp"), 1, 4)])
    )
    ((place, form, file),) = fake.images
    assert (place, form) == (1, "png")
    with Image.open(io.BytesIO(file)) as found, Image.open(io.BytesIO(webp)) as wanted:
        assert found.convert("RGB").tobytes() == wanted.convert("RGB").tobytes()
    await provider.close()


def shown(images: Sequence[PromptImage]) -> list[Sample]:
    """Samples that see `images`, which the hint of the first moves."""
    plain = sample(1, hints=0, prompt_ids=IDS, reward=1.0, explicit=True)
    seen = replace(plain, images=images)
    return [replace(seen, hinted_prompts=[[2, 3, *IDS]]), replace(seen, sample_id="sample_2", reward=-1.0)]


@pytest.mark.parametrize("method", ["rehearse", "combined"])
async def test_a_step_shows_the_images_to_policy_teacher_and_base_with_a_fake(
    front: Front, fake: TinkerFake, policy: Path, tmp_path: Path, method: str
) -> None:
    recipe = Recipe(topk=8, epochs=1, distillation="full" if method == "rehearse" else "token", rewards="all")
    losses = []
    for number, images in enumerate((IMAGES, [])):
        settings = tinker_settings(front.url, policy, tmp_path / str(number), request_timeout=20.0)
        settings.serve.data.mkdir()
        trainer = CloudTrainer(settings, Tinker(settings))
        losses.append((await trainer.step(shown(images), recipe)).metrics["loss/total"])
        await trainer.close()
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    moved = [(place + 2, form, file) for place, form, file in FILES]
    assert set(fake.images) == {*FILES, *moved}, "under the plain prompt, and under the hinted one"


async def test_a_provider_that_reads_only_is_sent_no_sample_with_images(policy: Path, tmp_path: Path) -> None:
    provider = TorchProvider(policy)
    trainer = CloudTrainer(tinker_settings("http://127.0.0.1:1", policy, tmp_path), provider)
    with pytest.raises(TrainerError, match="text only here; nothing was sent"):
        await trainer.step(shown(IMAGES), Recipe(distillation="none", rewards="all"))
    assert not provider.trainings and not provider.scored
