"""The client with an engine that restarts, breaks off or misbehaves; `tests/contract` has it with one that is well."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from shared.engine import PromptImage
from shared.errors import ConfigError, ContextLengthExceeded, EngineError
from shared.process import claim_port
from shared.records import Sampling, VersionSpan
from shared.settings import Settings
from tests.trainer_local.serving import collect, prompt, serving, write_model
from trainer_local.sglang import SglangEngine, connect
from trainer_local.sglang_labels import updating

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def event(ids: list[int], total: int, finish: dict[str, Any] | None = None, **meta: Any) -> bytes:
    """A streamed event with logprobs −id/10."""
    body = {
        "output_ids": ids,
        "meta_info": {
            "finish_reason": finish,
            "completion_tokens": total,
            "prompt_tokens": 3,
            "weight_version": "default",
            "output_token_logprobs": [[-token / 10, token, None] for token in ids],
            **meta,
        },
    }
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


class Script:
    """A server that plays one handler for `/generate`, and counts the requests."""

    def __init__(self, handler: Handler, info: dict[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._handler = handler
        self._info = info

    async def __aenter__(self) -> Script:
        async def generate(request: web.Request) -> web.StreamResponse:
            self.requests.append(msgspec.json.decode(await request.read()))
            return await self._handler(request)

        async def info(_: web.Request) -> web.Response:
            return web.json_response(self._info)

        app = web.Application()
        app.add_routes([web.post("/generate", generate), web.get("/model_info", info)])
        app.add_routes([web.get("/server_info", info), web.get("/v1/models", info)])
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.engine = SglangEngine(f"http://127.0.0.1:{port}", request_timeout=5, patience=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()
        await self._runner.cleanup()


OURS = {"openclaw_rl": True, "live": 0, "versions": [0], "context_length": 100, "vocab_size": 50}
SGLANGS = {
    "weight_version": "default",
    "model_path": "m",
    "max_total_num_tokens": 200,
    "data": [{"max_model_len": 300}],
    "sampling_mask_max_tokens": 50,
}


def plays(*pieces: bytes, status: int = 200, cut: bool = False) -> Handler:
    """Write the pieces, each in a packet of its own; with `cut` drop the connection instead of ending properly."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.01)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


async def answer(handler: Handler, *, info: dict[str, Any] = OURS, **arguments: Any) -> Any:
    async with Script(handler, info) as script:
        return await collect(script.engine.generate([1, 2, 3], Sampling(max_tokens=20), **arguments))


DONE = {"type": "stop", "matched": 7}


async def test_scripted_cumulative_events_are_told_apart_from_new_tokens() -> None:
    found = await answer(plays(event([5], 1), event([5, 6], 2), event([5, 6, 7], 3, DONE), b"data: [DONE]\n\n"))
    assert found.ids == [5, 6, 7] and found.logprobs == [-0.5, -0.6, -0.7]


async def test_scripted_incremental_events_are_put_together() -> None:
    found = await answer(plays(event([5], 1), event([6, 7], 3, DONE), b"data: [DONE]\n\n"))
    assert found.ids == [5, 6, 7] and found.last.finish_reason == "stop"


async def test_scripted_events_may_be_cut_and_joined_anywhere() -> None:
    raw = event([5], 1) + event([6], 2) + event([7], 3, DONE) + b"data: [DONE]\n\n"
    for size in (1, 7, 50, len(raw)):
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        found = await answer(plays(*pieces) if size > 1 else plays(b"".join(pieces[:40]), b"".join(pieces[40:])))
        assert found.ids == [5, 6, 7]


async def test_scripted_last_events_without_a_new_token_end_the_answer() -> None:
    found = await answer(plays(event([5], 1), event([5], 1, {"type": "abort", "message": "bye"})))
    assert found.ids == [5] and found.last.finish_reason == "abort" and found.last.ids == []


async def test_scripted_weight_versions_become_spans() -> None:
    spans = [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 2}]
    found = await answer(plays(event([5], 1, weight_version="4"), event([6], 2, DONE, weight_versions=spans)))
    assert list(found.last.versions) == [VersionSpan(4, 0, 1), VersionSpan(5, 1, 2)]
    assert (await answer(plays(event([5, 6], 2, DONE)))).last.versions == [VersionSpan(0, 0, 2)]


async def test_scripted_what_is_sampled_while_weights_change_is_one_span_with_what_comes_before() -> None:
    labels = ["default", updating(1, 0, "host:1:change"), "1.0a", updating(2, 1, "host:1:change"), "2.0b"]
    spans = [{"version": label, "start": place, "end": place + 1} for place, label in enumerate(labels)]
    found = await answer(plays(event([5, 6, 7, 8, 9], 5, DONE, weight_version="2.0b", weight_versions=spans)))
    assert list(found.last.versions) == [VersionSpan(0, 0, 2), VersionSpan(1, 2, 4), VersionSpan(2, 4, 5)]


async def test_a_scripted_engine_that_drops_logprobs_is_caught() -> None:
    with pytest.raises(EngineError, match="logprobs for 2 tokens"):
        await answer(plays(event([5], 2)))


@pytest.mark.parametrize("cut", [True, False], ids=["connection dropped", "ended without a finish reason"])
async def test_a_scripted_stream_that_breaks_off_is_an_error_and_not_sent_again(cut: bool) -> None:
    async with Script(plays(event([5], 1), cut=cut), OURS) as script:
        stream = script.engine.generate([1, 2], Sampling())
        assert (await anext(stream)).ids == [5]
        with pytest.raises(EngineError):
            await anext(stream)
        assert len(script.requests) == 1


async def test_a_scripted_stream_cut_before_its_first_token_is_sent_again() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        return await (plays(cut=True) if calls < 3 else plays(event([5], 1, DONE)))(request)

    assert (await answer(handler)).ids == [5] and calls == 3


async def test_a_scripted_answer_that_was_cut_off_waits_until_its_id_is_free_again() -> None:
    """SGLang goes on with what nobody listens to until it looks, and refuses the same id meanwhile."""
    calls = 0
    taken = b'{"error": {"message": "Duplicate request ID detected: gen_1"}}'

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls == 1:
            return await plays(cut=True)(request)
        return await (plays(taken, status=400) if calls < 4 else plays(event([5], 1, DONE)))(request)

    assert (await answer(handler)).ids == [5] and calls == 4


async def test_a_scripted_id_that_somebody_else_uses_is_refused_at_once() -> None:
    taken = b'{"error": {"message": "Duplicate request ID detected: gen_1"}}'
    async with Script(plays(taken, status=400), OURS) as script:
        with pytest.raises(EngineError, match="Duplicate request ID") as caught:
            await anext(script.engine.generate([1], Sampling(max_tokens=7)))
    assert caught.value.status == 400


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


async def test_the_embedded_engine_is_told_the_temperature() -> None:
    async with Script(scored(), OURS) as script:
        assert (await script.engine.score([3], [5, 6], temperature=1.5)).logprobs == [-0.5, -1.5]
        assert script.requests[0]["score_temperature"] == 1.5 and script.requests[0]["top_logprobs_num"] == 0


@pytest.mark.parametrize(("temperature", "unscaled"), [(0.7, True), (1.0, False)])
async def test_a_scripted_engine_may_tell_logprobs_at_temperature_1_alone(temperature: float, unscaled: bool) -> None:
    info = OURS | {"scales": False, "trouble": "the provider is away", "beside": False}
    handler = plays(event([1], 1), event([2], 2, DONE))
    async with Script(handler, info) as script:
        tokens = [one async for one in script.engine.generate([1, 2], Sampling(temperature=temperature))]
        told = await script.engine.info()
    assert {one.unscaled for one in tokens} == {unscaled}
    assert (told.scales, told.trouble, told.beside) == (False, "the provider is away", False)


async def test_an_engine_that_says_nothing_of_it_scales_and_is_well() -> None:
    async with Script(plays(event([2], 1, DONE)), OURS) as script:
        tokens = [one async for one in script.engine.generate([1, 2], Sampling(temperature=0.7))]
        told = await script.engine.info()
    assert not any(one.unscaled for one in tokens)
    assert (told.scales, told.trouble, told.beside) == (True, "", True)


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
    code = "import sys, trainer_local.sglang, trainer_local.embedded.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
