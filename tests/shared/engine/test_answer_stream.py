"""Streamed answers of an engine that breaks off or sends something unexpected."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from openclaw_rl.shared.engine import answers
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from tests.trainer_local.scripted_sglang import DONE, OURS, Script, answer, event, plays


async def test_scripted_cumulative_events_are_distinguished_from_new_tokens() -> None:
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


async def test_scripted_labels_of_the_same_version_are_one_span() -> None:
    labels = ["default", "0", "1.0a", "1.0c", "2.0b"]
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


async def test_a_scripted_engine_that_stops_between_tokens_is_given_up_and_one_that_reads_a_long_prompt_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "STALL_SECONDS", 0.05)
    left = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(4 * answers.STALL_SECONDS)
        await response.write(event([5], 1))
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return response

    async with Script(handler, OURS, handler_cancellation=True) as script:
        stream = script.engine.generate([1, 2], Sampling())
        assert (await anext(stream)).ids == [5]
        with pytest.raises(EngineError, match="in the middle of an answer: no token for"):
            await anext(stream)
        async with asyncio.timeout(10):
            await left.wait()  # the engine's place is free
        assert len(script.requests) == 1


async def test_a_scripted_engine_is_not_given_up_while_its_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "STALL_SECONDS", 0.1)
    read = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event([5], 1) + event([6], 2))
        await read.wait()
        await response.write(event([7], 3, DONE))
        return response

    async with Script(handler, OURS) as script:
        stream = script.engine.generate([1, 2], Sampling())
        assert (await anext(stream)).ids == [5, 6]
        await asyncio.sleep(3 * answers.STALL_SECONDS)
        read.set()
        assert (await anext(stream)).ids == [7]


async def test_a_scripted_stream_cut_before_its_first_token_is_sent_again() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        return await (plays(cut=True) if calls < 3 else plays(event([5], 1, DONE)))(request)

    assert (await answer(handler)).ids == [5] and calls == 3


async def test_a_scripted_answer_that_was_cut_off_waits_until_its_id_is_free_again() -> None:
    """SGLang continues an abandoned answer until it checks the connection, and refuses the same id meanwhile."""
    calls = 0
    taken = b'{"error": {"message": "Duplicate request ID detected: gen_1"}}'

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls == 1:
            return await plays(cut=True)(request)
        return await (plays(taken, status=400) if calls < 4 else plays(event([5], 1, DONE)))(request)

    assert (await answer(handler)).ids == [5] and calls == 4


async def test_a_scripted_id_that_another_client_uses_is_refused_at_once() -> None:
    taken = b'{"error": {"message": "Duplicate request ID detected: gen_1"}}'
    async with Script(plays(taken, status=400), OURS) as script:
        with pytest.raises(EngineError, match="Duplicate request ID") as caught:
            await anext(script.engine.generate([1], Sampling(max_tokens=7)))
    assert caught.value.status == 400
