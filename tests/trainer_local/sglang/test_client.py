"""The client with an engine that restarts, breaks off or misbehaves; `tests/contract` has it with one that is well."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from openclaw_rl.shared.engine.protocol import PromptImage
from openclaw_rl.shared.errors import ConfigError, ContextLengthExceeded, EngineError
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.records import Sampling
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.sglang.client import SglangEngine, connect
from tests.trainer_local.scripted_sglang import DONE, OURS, SGLANGS, Handler, Script, event, plays
from tests.trainer_local.serving import collect, prompt, serving, write_model


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (
            b'data: {"error": {"message": "9 tokens are longer than the model\'s context length (8 tokens)."}}\n\n',
            200,
            ContextLengthExceeded,
        ),
        (b'data: {"error": {"message": "bad thing", "code": 400}}\n\n', 200, EngineError),
        (b'{"error": {"message": "too many"}}', 503, EngineError),
        (b"<html>", 502, EngineError),
        (b"data: nonsense\n\n", 200, EngineError),
    ],
    ids=["overlong", "error event", "refused", "not json", "nonsense"],
)
async def test_scripted_errors_come_before_the_first_token(body: bytes, status: int, kind: type[EngineError]) -> None:
    async with Script(plays(body, status=status), OURS) as script:
        with pytest.raises(kind) as caught:
            await anext(script.engine.generate([1, 2, 3], Sampling(max_tokens=7)))
    if isinstance(caught.value, ContextLengthExceeded):
        assert (caught.value.prompt_tokens, caught.value.requested_tokens, caught.value.context_length) == (3, 7, 8)
    elif status != 200:
        assert caught.value.status == status


async def test_a_scripted_sglang_is_sent_nothing_that_it_does_not_know() -> None:
    async with Script(plays(event([5], 1, DONE)), SGLANGS) as script:
        info = await script.engine.info()
        assert (info.live, info.versions, info.context_length) == (0, (0,), 200)
        await collect(script.engine.generate([1], Sampling(stop=("x",), seed=4), version=0))
        assert not {"weight_version", "priority"} & script.requests[0].keys()
        assert script.requests[0]["sampling_params"]["stop"] == ["x"]
        with pytest.raises(EngineError, match="live version only"):
            await anext(script.engine.generate([1], Sampling(), version=3))
        with pytest.raises(EngineError, match="one version"):
            await script.engine.load(3, "folder", live=False)


@pytest.mark.parametrize(("top_k", "sent"), [(-1, 50), (7, 7), (80, 50)])
async def test_a_scripted_sglang_is_asked_for_the_logprobs_behind_the_filters(top_k: int, sent: int) -> None:
    handler = plays(event([5, 6], 2, DONE, output_token_sampling_logprobs=[-0.1, -0.2]))
    async with Script(handler, SGLANGS) as script:
        asked = Sampling(top_p=0.9, top_k=top_k)
        assert (await collect(script.engine.generate([1], asked))).logprobs == [-0.1, -0.2]
        assert script.requests[0]["return_sampling_mask"] and script.requests[0]["sampling_params"]["top_k"] == sent
        await collect(script.engine.generate([1], Sampling(top_p=0.9, temperature=0)))
        assert "return_sampling_mask" not in script.requests[1]


async def test_a_scripted_sglang_that_cannot_tell_them_samples_nothing() -> None:
    async with Script(plays(event([5], 1, DONE)), SGLANGS | {"sampling_mask_max_tokens": None}) as script:
        with pytest.raises(EngineError, match=r"0\.5\.23"):
            await anext(script.engine.generate([1], Sampling(min_p=0.1)))
        assert not script.requests


def scored(*meta: Any) -> Handler:
    """Answers every score of the tokens 5 and 6 with these fields of `meta_info`."""

    async def handler(_: web.Request) -> web.StreamResponse:
        entries = [[None, 3, None], [-0.5, 5, None], [-1.5, 6, None]]
        return web.json_response({"meta_info": {"input_token_logprobs": entries, **dict(meta)}})

    return handler


async def test_a_scripted_sglang_is_asked_for_what_tells_a_lower_temperature() -> None:
    top = [[-0.5, 5, None], [-1.5, 6, None]]
    async with Script(scored(("input_top_logprobs", [None, top, top])), SGLANGS) as script:
        scores = await script.engine.score([3], [5, 6], temperature=0.5, fresh=True)
        sent = script.requests[0]
        assert sent["top_logprobs_num"] == 128 and sent["sampling_params"]["temperature"] == 1.0
        assert sent["extra_key"] == sent["rid"] and "score_temperature" not in sent
        # The squares of the two probabilities, and between 0 and (1 − p − q)·q for all other tokens.
        p, q = math.exp(-0.5), math.exp(-1.5)
        for one, width, share in zip(scores.logprobs, scores.slack, (p, q), strict=True):
            assert one + width == pytest.approx(math.log(share**2 / (p * p + q * q)))
            assert one - width == pytest.approx(math.log(share**2 / (p * p + q * q + (1 - p - q) * q)))
        assert not scores.top
        with pytest.raises(EngineError, match="up to 1") as caught:
            await script.engine.score([3], [5, 6], temperature=1.5)
        assert caught.value.status == 501
        assert (await script.engine.score([3], [5, 6])).logprobs == [-0.5, -1.5]
        assert "extra_key" not in script.requests[1]


async def test_a_scripted_sglang_that_leaves_the_top_logprobs_out_scores_nothing() -> None:
    async with Script(scored(("input_top_logprobs", [None, None, None])), SGLANGS) as script:
        with pytest.raises(EngineError, match="top logprobs"):
            await script.engine.score([3], [5, 6], temperature=0.5)


async def test_the_embedded_engine_gets_the_temperature() -> None:
    async with Script(scored(), OURS) as script:
        assert (await script.engine.score([3], [5, 6], temperature=1.5)).logprobs == [-0.5, -1.5]
        assert script.requests[0]["score_temperature"] == 1.5 and script.requests[0]["top_logprobs_num"] == 0


@pytest.mark.parametrize(("temperature", "unscaled"), [(0.7, True), (1.0, False)])
async def test_a_scripted_engine_may_report_logprobs_at_temperature_1_alone(temperature: float, unscaled: bool) -> None:
    info = OURS | {"scales": False, "trouble": "the provider is away", "beside": False}
    handler = plays(event([1], 1), event([2], 2, DONE))
    async with Script(handler, info) as script:
        tokens = [one async for one in script.engine.generate([1, 2], Sampling(temperature=temperature))]
        reported = await script.engine.info()
    assert {one.unscaled for one in tokens} == {unscaled}
    assert (reported.scales, reported.trouble, reported.several_versions) == (False, "the provider is away", False)


async def test_an_engine_that_says_nothing_of_it_scales_and_is_well() -> None:
    async with Script(plays(event([2], 1, DONE)), OURS) as script:
        tokens = [one async for one in script.engine.generate([1, 2], Sampling(temperature=0.7))]
        reported = await script.engine.info()
    assert not any(one.unscaled for one in tokens)
    assert (reported.scales, reported.trouble, reported.several_versions) == (True, "", True)


async def test_a_scripted_engine_that_is_silent_is_given_up_in_time() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    async with Script(handler, OURS) as script:
        script.engine._request_timeout = 0.2
        with pytest.raises(EngineError):
            await anext(script.engine.generate([1], Sampling()))


PICTURE = PromptImage("data:image/png;base64,AAAA", 1, 4)
SEEN = [5, 9, 9, 9, 6]  # 9 is the placeholder, three tokens of the picture


async def test_an_engine_without_sight_is_sent_no_images() -> None:
    async with Script(plays(), OURS) as script:
        with pytest.raises(EngineError, match="text only") as refused:
            await anext(script.engine.generate(SEEN, Sampling(), images=[PICTURE]))
        with pytest.raises(EngineError, match="text only"):
            await script.engine.score(SEEN, [1], images=[PICTURE])
    assert refused.value.status == 400 and script.requests == []


async def test_a_scripted_engine_is_sent_one_placeholder_an_image() -> None:
    sees = {**SGLANGS, "has_image_understanding": True}
    async with Script(plays(event([1], 1, DONE)), sees) as script:
        assert (await script.engine.info()).sees
        await collect(script.engine.generate([*SEEN, *SEEN], Sampling(), images=[PICTURE, PromptImage("data:b", 6, 9)]))
    (request,) = script.requests
    assert request["input_ids"] == [5, 9, 6, 5, 9, 6] and request["image_data"] == [PICTURE.url, "data:b"]


@pytest.mark.parametrize("read", [[5, 9, 9, 9, 6, 1, 2], [5, 9, 9, 6, 1, 2], None])
async def test_scores_count_only_where_a_scripted_engine_read_the_very_tokens(read: list[int] | None) -> None:
    entries = [[None, 6, None], [-0.1, 1, None], [-0.2, 2, None]]
    body = {"meta_info": {"input_token_logprobs": entries, "prompt_tokens": 7}, "prompt_token_ids": read}

    async def handler(_: web.Request) -> web.Response:
        return web.json_response(body)

    async with Script(handler, {**SGLANGS, "has_image_understanding": True}) as script:
        scoring = script.engine.score(SEEN, [1, 2], images=[PICTURE])
        if read is not None and len(read) == 7:
            assert (await scoring).logprobs == [-0.1, -0.2]
        else:
            with pytest.raises(EngineError, match="image processing") as refused:
                await scoring
            assert refused.value.status == 501
    (request,) = script.requests
    assert request["input_ids"] == [5, 9, 6, 1, 2] and request["logprob_start_len"] == 4


async def test_an_answer_that_holds_the_placeholder_cannot_be_scored() -> None:
    async with Script(plays(), {**SGLANGS, "has_image_understanding": True}) as script:
        with pytest.raises(EngineError, match="placeholder") as refused:
            await script.engine.score(SEEN, [1, 9], images=[PICTURE])
    assert refused.value.status == 501 and script.requests == []


async def test_an_engine_that_is_not_there_is_an_error_after_a_while() -> None:
    port = claim_port("127.0.0.1", 0, setting="engine_port")
    engine = SglangEngine(f"http://127.0.0.1:{port}", patience=0.3)
    with pytest.raises(EngineError, match="cannot be reached"):
        await anext(engine.generate([1], Sampling()))
    with pytest.raises(EngineError, match="cannot be reached"):
        await engine.info()
    await engine.close()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    yield claim_port("127.0.0.1", 0, setting="engine_port")


async def test_requests_wait_for_an_engine_that_restarts(port: int, tmp_path: Path) -> None:
    model = write_model(tmp_path)
    engine = SglangEngine(f"http://127.0.0.1:{port}")
    asked = Sampling(max_tokens=5, ignore_eos=True)
    waiting = asyncio.create_task(collect(engine.generate(prompt(4), asked)))
    for _ in range(2):
        with serving(model, port=port):
            assert len((await waiting).ids) == 5
            assert len((await engine.score(prompt(4), [5])).logprobs) == 1
        waiting = asyncio.create_task(collect(engine.generate(prompt(4), asked)))
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await engine.close()


def test_the_url_comes_from_the_settings() -> None:
    assert connect(Settings(engine_url="http://one:1/")).url == "http://one:1"
    assert connect(Settings(engine_port=9)).url == "http://127.0.0.1:9"
    assert connect(Settings(engine_port=9, engine_host="::1")).url == "http://[::1]:9"
    with pytest.raises(ConfigError, match="ENGINE_URL"):
        connect(Settings())


def test_the_client_imports_no_torch() -> None:
    code = "import sys, trainer_local.sglang.client, trainer_local.embedded.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
