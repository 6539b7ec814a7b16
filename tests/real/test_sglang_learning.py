"""Chats that show pictures, from the answer to a version that learned from it, on the real SGLang: a small Qwen3-VL and
a small Qwen3.5 of random weights, behind the proxy and the learner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from openclaw_rl.learner.main import run
from openclaw_rl.shared.engine.protocol import EngineInfo
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.messages.images import images_of
from openclaw_rl.shared.records import Message, PromptImage, Turn
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.backend import adapter_folder, sglang_targets
from openclaw_rl.trainer_local.models.vision import Sight, run_all_rows
from openclaw_rl.trainer_local.prefix.capability import Sharing
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from openclaw_rl.trainer_local.sglang.images import attach
from openclaw_rl.trainer_local.training.batching import row
from openclaw_rl.trainer_local.training.slices import AnswerStates
from openclaw_rl.trainer_local.transformers_trainer import create
from tests.processes import Engine, Proxy, run_proxy
from tests.real.test_sglang_images import unusual
from tests.rigs.sglang_cpu import run_sglang
from tests.trainer_local.seeing import BLUE, RED, Plain, Samples, shown, write_seeing
from tests.trainer_local.serving import close_to
from tests.trainer_local.tiny import settings as trainer_settings

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

ADAPTERS = ("--enable-lora", "--max-lora-rank", "8", "--max-loras-per-batch", "4", "--lora-backend", "torch_native")


WAYS = [("qwen3_vl", False), ("qwen3_vl", True), ("qwen3_5", True), ("qwen3_5", False)]


@pytest.fixture(scope="module", params=WAYS, ids=str)
def served(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """A kind of model, and whether its versions are adapters or full weights."""
    kind: tuple[str, bool] = request.param
    return kind


@pytest.fixture
def adapters(served: tuple[str, bool]) -> None:
    if not served[1]:
        pytest.skip("the server that holds adapters shows it")


@pytest.fixture(scope="module")
def policy(served: tuple[str, bool], tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_seeing(tmp_path_factory.mktemp("seeing"), served[0])


@pytest.fixture(scope="module")
def sglang(served: tuple[str, bool], policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    targets = ("--lora-target-modules", *sglang_targets(Settings(backend="megatron", model=str(policy))))
    arguments = (*ADAPTERS, *targets) if served[1] else ()
    with run_sglang(policy, tmp_path_factory.mktemp("sglang"), *arguments) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(sglang: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with run_proxy(sglang, tmp_path_factory.mktemp("proxy"), audit_fraction=0.0) as running:
        yield running


def logprobs(model: Plain, turn: Turn) -> list[float]:
    """Of the turn's response, by plain transformers."""
    with torch.no_grad():
        rows = model.log_probs(turn.prompt_ids, turn.response_ids, images_of(turn))
    return [float(row[token]) for row, token in zip(rows, turn.response_ids, strict=True)]


def answered(proxy: Proxy, messages: list[Message]) -> Turn:
    """The turn of a chat. Random weights say anything: an untrainable answer is asked for again."""
    for _ in range(6):
        reply = proxy.chat(messages, max_tokens=6)
        assert reply.status_code == 200, reply.text
        turn = proxy.journal().turn(reply.headers["x-openclaw-rl-turn"])
        assert turn is not None
        if not turn.untrainable:
            return turn
    raise AssertionError(turn.untrainable)


def sampled(sglang: Engine, prompt_ids: list[int], images: list[PromptImage], **extra: Any) -> tuple[list[int], Any]:
    """Ids and logprobs of an answer, straight from the server."""
    request: dict[str, Any] = {"sampling_params": {"max_new_tokens": 5}, "return_logprob": True, **extra}
    sent = list(prompt_ids)
    if images:
        info = SglangEngine(sglang.url)
        sent = attach(request, prompt_ids, images, asyncio.run(_info(info)))
    answer = httpx.post(f"{sglang.url}/generate", json={"input_ids": sent, **request}, timeout=300).json()
    return answer["output_ids"], [one[0] for one in answer["meta_info"]["output_token_logprobs"]]


async def _info(engine: SglangEngine) -> Any:
    try:
        return await engine.info()
    finally:
        await engine.close()


@pytest.mark.usefixtures("adapters")
def test_the_trainer_computes_on_every_kind_of_picture_what_sglang_computed(
    served: tuple[str, bool], sglang: Engine, policy: Path
) -> None:
    samples, plain = Samples(policy), Plain(policy)
    sight = Sight.from_model(plain.model, str(policy))
    slow = served[0] == "qwen3_5"  # and its pixels are made the same way
    for name, file in unusual().items():
        if slow and name not in ("turned", "dot"):
            continue
        one = samples.seeing(1, file)
        ids, expected = sampled(sglang, list(one.prompt_ids), list(one.images))
        found: list[torch.Tensor] = []
        keep = partial(lambda to, _, logits: to.append(logits.log_softmax(dim=-1)), found)
        run_all_rows(
            plain.model,
            [row(one.prompt_ids, ids, one.images)],
            partial(AnswerStates.each_slice, use=keep, whole=True),
            sight=sight,
            micro_batch_tokens=10_000,
            share=Sharing.ALONE,
            backward=False,
        )
        values = [float(line[token]) for line, token in zip(found[0], ids, strict=True)]
        assert close_to(values, expected, 1e-4), name


@pytest.mark.usefixtures("adapters")
async def test_an_adapter_of_the_trainer_is_swapped_in_next_to_the_base(
    sglang: Engine, policy: Path, tmp_path: Path
) -> None:
    samples = Samples(policy)
    trainer = create(trainer_settings(policy))
    batch = [samples.seeing(1, RED, hints=["Shorter."]), samples.seeing(2, BLUE, reward=1.0, explicit=True)]
    await trainer.step(batch, Recipe(learning_rate=2e-2, epochs=4))
    checkpoint = await trainer.save(str(tmp_path / "1"))
    await trainer.export(str(tmp_path / "whole"))
    await trainer.close()
    loaded = {"lora_name": "one", "lora_path": adapter_folder(checkpoint.served)}
    reply = await asyncio.to_thread(httpx.post, f"{sglang.url}/load_lora_adapter", json=loaded, timeout=300)
    assert reply.status_code == 200, reply.text
    base, moved = Plain(policy), Plain(tmp_path / "whole")
    for one in (samples.seeing(3), samples.seeing(4, BLUE, RED)):
        for model, other, extra in ((moved, base, {"lora_path": "one"}), (base, moved, {})):
            ids, expected = await asyncio.to_thread(sampled, sglang, list(one.prompt_ids), list(one.images), **extra)
            with torch.no_grad():
                right, wrong = (part.log_probs(one.prompt_ids, ids, one.images) for part in (model, other))
            assert close_to([float(line[token]) for line, token in zip(right, ids, strict=True)], expected, 2e-4)
            assert not torch.allclose(right, wrong, atol=1e-2)


async def test_a_chat_with_a_picture_becomes_a_version_that_learned_from_it(
    served: tuple[str, bool], sglang: Engine, proxy: Proxy, policy: Path
) -> None:
    """Last, since it leaves the server with other weights."""
    base = Plain(policy)
    praised = answered(proxy, [shown("What is it?", RED)])
    blamed = answered(proxy, [shown("And these?", BLUE, RED)])
    for turn in (praised, blamed):
        assert turn.image_spans and close_to(turn.logprobs, logprobs(base, turn), 2e-4)
    with proxy.client() as client:
        bodies = (
            {"turn_id": praised.turn_id, "thumb": "up"},
            {"turn_id": blamed.turn_id, "text": "Say it in one word."},
        )
        for body in bodies:
            assert client.post("/rl/feedback", json=body).status_code == 200
    version = await learned(proxy.settings.replace(lora=served[1]), proxy.journal())
    report = version.metrics
    assert report["samples/binary"] == 1 and report["samples/distill"] >= 1
    after = Plain(policy, Path(version.checkpoint) / "served")
    assert sum(logprobs(after, praised)) > sum(logprobs(base, praised)) + 0.1
    engine = SglangEngine(sglang.url)
    assert (await answering(engine)).live == 1
    scores = await engine.score(praised.prompt_ids, praised.response_ids, fresh=True, images=images_of(praised))
    await engine.close()
    assert scores.version == 1 and close_to(scores.logprobs, logprobs(after, praised), 2e-4)


async def answering(engine: SglangEngine) -> EngineInfo:
    """Return the engine's info, once it is done with the learner's last request: its interpreter takes long."""
    async with asyncio.timeout(300):
        while True:
            try:
                return await engine.info()
            except EngineError:
                await asyncio.sleep(0.5)


async def learned(served: Settings, journal: Journal) -> Any:
    """The version that the learner makes of what the journal holds, once it is live."""
    # Small steps: ten times larger ones overshoot on a tiny model of random weights, and the praised answer may lose.
    changes: dict[str, Any] = {
        **{"batch_size": 2, "epochs": 4, "learning_rate": 1e-3 if served.learning.lora else 1e-4, "device": "cpu"},
        **{"rehearsals": 2, "anchors": 1, "rehearsal_max_tokens": 4, "guard_held_back": 0.0, "guard_max_kl": 50.0},
        **{"lora_rank": 4, "guard_answers": 2, "guard_max_kl_base": 100.0, "guard_max_degenerate": 1.0},
    }
    stop = asyncio.Event()
    process = asyncio.create_task(run(served.replace(**changes), stop))
    try:
        async with asyncio.timeout(600):
            while not ((live := journal.live_version()) and live.number == 1):
                assert not process.done(), process.exception()
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"the learner says {journal.processes()}")
    finally:
        stop.set()
        await process
    return live
