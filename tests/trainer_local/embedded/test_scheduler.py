"""The worker thread of the embedded engine at its end."""

from __future__ import annotations

import asyncio

import pytest

from openclaw_rl.shared.engine.wire import Event, GenerateRequest, SamplingParams
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from openclaw_rl.trainer_local.embedded.engine import EmbeddedEngine, EngineOptions


async def test_an_engine_that_stops_answers_every_request_whatever_is_to_be_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failure of the model nothing can be computed any more, and nothing cached."""
    engine = EmbeddedEngine(EngineOptions(model=str(EMBEDDED_POLICY)))
    scheduler = engine.scheduler
    engine.start(asyncio.get_running_loop())
    request = GenerateRequest(
        input_ids=[5, 6, 7], sampling_params=SamplingParams(max_new_tokens=400, ignore_eos=True), stream=True
    )
    events: list[asyncio.Queue[Event]] = [asyncio.Queue() for _ in range(2)]
    jobs = [await engine.submit(request, one.put_nowait) for one in events]
    for one in events:
        await asyncio.wait_for(one.get(), 30)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(scheduler, "_remember", broken)
    with scheduler._wake:
        scheduler.abort(jobs[0])
        recent = scheduler.recent_prompts(jobs[1].version)
        scheduler._stopping = True
    for one in events:
        last = await asyncio.wait_for(one.get(), 30)
        while not last.last:
            last = await asyncio.wait_for(one.get(), 30)
        assert last.error is not None and last.error.status == 503
    assert recent.result(5) == []


async def test_an_answer_whose_logits_overflow_ends_alone() -> None:
    engine = EmbeddedEngine(EngineOptions(model=str(EMBEDDED_POLICY)))
    engine.start(asyncio.get_running_loop())
    try:
        plain = SamplingParams(max_new_tokens=60, ignore_eos=True)
        overflowing = SamplingParams(
            max_new_tokens=60, ignore_eos=True, repetition_penalty=5e-324
        )  # as no wire lets in
        ends: list[asyncio.Queue[Event]] = []
        for params in (plain, plain, overflowing, plain):
            events: asyncio.Queue[Event] = asyncio.Queue()
            ends.append(events)
            await engine.submit(GenerateRequest(input_ids=[5, 6, 7], sampling_params=params), events.put_nowait)
        last = [await asyncio.wait_for(_last(events), 60) for events in ends]
    finally:
        await engine.close()
    assert [event.error is None for event in last] == [True, True, False, True]
    assert "not finite" in str(last[2].error)


async def _last(events: asyncio.Queue[Event]) -> Event:
    while not (event := await events.get()).last:
        pass
    return event
