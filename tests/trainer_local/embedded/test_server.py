"""The embedded engine over its wire: shapes, errors, priorities, and abandoned work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import msgspec
import pytest

from openclaw_rl.shared.engine.protocol import Priority
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.records import Sampling
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.embedded.launch import command
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.processes import HTTP
from tests.trainer_local.serving import CONTEXT, END, Reference, close_to, collect, prompt, serving, wait_for


def post(url: str, **body: Any) -> httpx.Response:
    return HTTP.post(f"{url}/generate", json=body, timeout=60)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [msgspec.json.decode(block.removeprefix("data: ")) for block in blocks[:-2]]


def running(url: str) -> int:
    info = HTTP.get(f"{url}/model_info").json()
    return int(info["running"] + info["waiting"])


def test_a_whole_answer_has_sglangs_shape(url: str) -> None:
    params = {"max_new_tokens": 5, "ignore_eos": True}
    body = post(url, input_ids=prompt(4), rid="mine", sampling_params=params, return_logprob=True).json()
    meta = body["meta_info"]
    assert meta["id"] == "mine" and meta["finish_reason"] == {"type": "length", "length": 5}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (4, 5)
    assert meta["weight_version"] == "0" and meta["weight_versions"] == [{"version": "0", "start": 0, "end": 5}]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == body["output_ids"]
    assert all(entry[0] < 0 and entry[2] is None for entry in meta["output_token_logprobs"])
    assert len(body["text"]) >= 1


def test_incremental_events_carry_each_token_once(url: str) -> None:
    params = {"max_new_tokens": 20, "ignore_eos": True, "seed": 3}
    whole = post(url, input_ids=prompt(4), sampling_params=params, return_logprob=True).json()
    found = events(post(url, input_ids=prompt(4), sampling_params=params, return_logprob=True, stream=True))
    assert [token for event in found for token in event["output_ids"]] == whole["output_ids"]
    assert [event["meta_info"]["finish_reason"] for event in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1]["meta_info"]["completion_tokens"] == 20


async def test_cumulative_events_repeat_what_was_sent_and_the_client_does_not(model: Path) -> None:
    with serving(model, incremental=False) as (address, _):
        params = {"max_new_tokens": 9, "ignore_eos": True, "seed": 4}
        body = {"input_ids": prompt(4), "sampling_params": params, "return_logprob": True, "stream": True}
        found = events(await asyncio.to_thread(post, address, **body))
        client = SglangEngine(address)
        answer = await collect(client.generate(prompt(4), Sampling(max_tokens=9, ignore_eos=True, seed=4)))
        await client.close()
        assert answer.ids == found[-1]["output_ids"]
    ids = [event["output_ids"] for event in found]
    assert len(ids[-1]) == 9 and all(later[: len(earlier)] == earlier for earlier, later in pairwise(ids))
    assert all(len(event["meta_info"]["output_token_logprobs"]) == len(event["output_ids"]) for event in found)


def test_scoring_needs_no_new_token_and_starts_with_an_entry_without_logprob(url: str, model: Path) -> None:
    ids = prompt(12)
    body = post(
        url,
        input_ids=ids,
        sampling_params={"max_new_tokens": 0},
        return_logprob=True,
        logprob_start_len=5,
        top_logprobs_num=2,
    ).json()
    meta = body["meta_info"]
    assert body["output_ids"] == [] and meta["completion_tokens"] == 0
    first, *rest = meta["input_token_logprobs"]
    assert first == [None, ids[5], None] and [entry[1] for entry in rest] == ids[6:]
    assert close_to([entry[0] for entry in rest], Reference(model).score(ids[:6], ids[6:]))
    assert meta["input_top_logprobs"][0] is None and all(len(top) == 2 for top in meta["input_top_logprobs"][1:])


@pytest.mark.parametrize("field", ["image_data", "video_data", "audio_data"])
def test_media_are_refused(url: str, field: str) -> None:
    refused = post(url, input_ids=prompt(4), stream=True, **{field: ["data:image/png;base64,AAAA"]})
    assert refused.status_code == 400 and "text only" in refused.json()["error"]["message"]


def test_prompt_scores_come_with_an_answer_too(url: str, model: Path) -> None:
    ids = prompt(12, seed=9)
    params = {"max_new_tokens": 4, "ignore_eos": True}
    body = post(url, input_ids=ids, sampling_params=params, return_logprob=True, logprob_start_len=0).json()
    meta = body["meta_info"]
    reference = Reference(model)
    assert close_to([entry[0] for entry in meta["input_token_logprobs"][1:]], reference.score(ids[:1], ids[1:]))
    assert close_to([entry[0] for entry in meta["output_token_logprobs"]], reference.score(ids, body["output_ids"]))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "body"),
        (b"[]", "object"),
        (b'{"input_ids": "hello"}', "input_ids"),
        (b'{"text": "hello"}', "input_ids"),
        (b'{"input_ids": []}', "empty"),
        (b'{"input_ids": [1, 100000]}', "vocabulary"),
        (b'{"input_ids": [1, -2]}', "vocabulary"),
        (b'{"input_ids": [1, true]}', "input_ids"),
        (b'{"input_ids": [[1], [2]]}', "input_ids"),
        (b'{"input_ids": [2], "sampling_params": {"temperature": -1}}', "temperature"),
        (b'{"input_ids": [2], "sampling_params": {"json_schema": "{}"}}', "json_schema"),
        (b'{"input_ids": [2], "sampling_params": {"stop_token_ids": [5000]}}', "stop_token_ids"),
        (b'{"input_ids": [2], "return_logprob": true, "logprob_start_len": 4}', "logprob_start_len"),
        (b'{"input_ids": [2], "top_logprobs_num": 99999}', "top_logprobs_num"),
        (b'{"input_ids": [99999999999999999999999]}', "input_ids"),
        (b"\xff\xfe", "body"),
    ],
)
def test_a_body_that_cannot_be_honoured_is_a_400_that_says_why(url: str, body: bytes, word: str) -> None:
    answer = HTTP.post(f"{url}/generate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and word in answer.json()["error"]["message"]
    assert HTTP.get(f"{url}/health").status_code == 200


def test_a_prompt_that_does_not_fit_is_refused_as_by_sglang(url: str) -> None:
    params = {"max_new_tokens": 10}
    plain = post(url, input_ids=prompt(CONTEXT), sampling_params=params)
    assert plain.status_code == 400 and str(CONTEXT) in plain.json()["error"]["message"]
    streamed = post(url, input_ids=prompt(CONTEXT), sampling_params=params, stream=True)
    assert streamed.status_code == 200 and "context length" in events(streamed)[0]["error"]["message"]


def test_stop_strings_and_stop_tokens_end_the_answer(url: str) -> None:
    params = {"max_new_tokens": 200, "ignore_eos": True, "seed": 5}
    body = post(url, input_ids=prompt(4), sampling_params=params).json()
    text, ids = body["text"], body["output_ids"]
    at = next(i for i in range(10, 100) if END not in ids[: i + 2] and 0 not in ids[: i + 2])
    stop = text[at : at + 2]
    stopped = post(url, input_ids=prompt(4), sampling_params={**params, "stop": [stop, "never said"]}).json()
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert stopped["text"] == text[: text.index(stop) + 2]
    stopped = post(url, input_ids=prompt(4), sampling_params={**params, "stop_token_ids": [ids[7]]}).json()
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": ids[7]}
    assert stopped["output_ids"] == ids[: ids.index(ids[7]) + 1]


def test_an_answer_is_at_least_as_long_as_asked(url: str) -> None:
    for seed in range(12):
        params = {"max_new_tokens": 60, "min_new_tokens": 50, "seed": seed}
        body = post(url, input_ids=prompt(4, seed), sampling_params=params).json()
        assert len(body["output_ids"]) >= 50 and END not in body["output_ids"][:50]


async def test_a_client_that_hangs_up_ends_the_work(url: str) -> None:
    for stream in (True, False):
        body = {
            "input_ids": prompt(4),
            "stream": stream,
            "sampling_params": {"max_new_tokens": 8000, "ignore_eos": True},
        }
        async with aiohttp.ClientSession() as session:
            task = asyncio.create_task(session.post(f"{url}/generate", json=body))
            await asyncio.to_thread(wait_for, lambda: running(url) == 1)
            task.cancel() if not task.done() else task.result().close()
        await asyncio.to_thread(wait_for, lambda: running(url) == 0, 3.0)


async def test_abort_request_ends_a_stream_with_the_reason_abort(url: str, client: SglangEngine) -> None:
    asked = Sampling(max_tokens=8000, ignore_eos=True)
    stream = client.generate(prompt(4), asked, request_id="to-abort")
    await anext(stream)
    assert (await asyncio.to_thread(HTTP.post, f"{url}/abort_request", json={"rid": "to-abort"})).status_code == 200
    answer = await collect(stream)
    assert answer.last.finish_reason == "abort" and len(answer.ids) < 8000


async def test_chat_goes_first_and_rehearsals_get_what_is_left(client: SglangEngine) -> None:
    progress = [0] * 8

    async def rehearse(index: int) -> None:
        asked = Sampling(max_tokens=4000, ignore_eos=True)
        async for tokens in client.generate(prompt(40, index), asked, priority=Priority.REHEARSAL):
            progress[index] += len(tokens.ids)

    rehearsals = [asyncio.create_task(rehearse(index)) for index in range(8)]
    while min(progress) < 5:
        await asyncio.sleep(0.005)
    before = sum(progress)
    chat = await collect(client.generate(prompt(40), Sampling(max_tokens=400, ignore_eos=True)))
    gained = (sum(progress) - before) / 8
    assert len(chat.ids) == 400
    assert 0 < gained < 200  # together with chat in every step each would have gained 400
    for task in rehearsals:
        task.cancel()
    await asyncio.gather(*rehearsals, return_exceptions=True)


async def test_a_chat_that_comes_later_is_not_charged_for_what_chat_used_before(client: SglangEngine) -> None:
    await collect(client.generate(prompt(40), Sampling(max_tokens=1000, ignore_eos=True)))
    progress = 0

    async def rehearse() -> None:
        nonlocal progress
        asked = Sampling(max_tokens=4000, ignore_eos=True)
        async for tokens in client.generate(prompt(40), asked, priority=Priority.REHEARSAL):
            progress += len(tokens.ids)

    rehearsal = asyncio.create_task(rehearse())
    while progress < 20:
        await asyncio.sleep(0.005)
    before = progress
    await collect(client.generate(prompt(40), Sampling(max_tokens=1)))
    assert progress - before < 60
    rehearsal.cancel()
    await asyncio.gather(rehearsal, return_exceptions=True)


async def test_short_answers_continue_while_a_long_prompt_is_read(client: SglangEngine) -> None:
    started = time.monotonic()

    async def times(ids: list[int], count: int) -> list[float]:
        asked = Sampling(max_tokens=count, ignore_eos=True)
        return [time.monotonic() - started async for _ in client.generate(ids, asked)]

    long = asyncio.create_task(times(prompt(8000, seed=77), 2))
    short = await asyncio.gather(*(times(prompt(30, seed), 40) for seed in range(4)))
    first_of_long = (await long)[0]
    for moments in short:
        assert moments[0] < first_of_long / 2
        assert max(later - earlier for earlier, later in pairwise(moments)) < first_of_long / 2


async def test_a_full_queue_is_a_503(model: Path) -> None:
    with serving(model, max_batch=1, max_queue=2) as (address, _):
        client = SglangEngine(address)
        asked = Sampling(max_tokens=4000, ignore_eos=True)
        streams = [client.generate(prompt(4, seed), asked) for seed in range(2)]
        await anext(streams[0])
        waiting = asyncio.create_task(anext(streams[1]))
        await asyncio.to_thread(wait_for, lambda: running(address) == 2)
        with pytest.raises(EngineError) as caught:
            await anext(client.generate(prompt(4), asked))
        assert caught.value.status == 503
        # Another priority has a queue of its own.
        other = await anext(client.generate(prompt(4), Sampling(max_tokens=1), priority=Priority.AUDIT))
        assert len(other.ids) == 1
        await streams[0].aclose()
        assert (await waiting).ids
        await streams[1].aclose()
        await client.close()


def test_an_engine_whose_scheduler_fails_answers_and_asks_to_be_ended(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_to_end = threading.Event()
    with serving(model, on_failure=asked_to_end.set) as (address, engine):
        assert HTTP.get(f"{address}/health").status_code == 200
        monkeypatch.setattr(engine.scheduler._queues, "next", lambda: 1 / 0)
        params = {"max_new_tokens": 2}
        assert post(address, input_ids=prompt(3), sampling_params=params).status_code == 503
        assert asked_to_end.wait(5)
        assert HTTP.get(f"{address}/health").status_code == 503
        assert post(address, input_ids=prompt(3), sampling_params=params).status_code == 503


def test_a_live_version_that_cannot_be_loaded_leaves_the_base_serving(model: Path, tmp_path: Path) -> None:
    with serving(model, live=(4, str(tmp_path / "gone"))) as (address, _):
        info = HTTP.get(f"{address}/model_info").json()
        assert info["live"] == 0 and "gone" in info["live_error"]
        assert post(address, input_ids=prompt(3), sampling_params={"max_new_tokens": 2}).status_code == 200


def test_the_process_starts_from_its_command_line_and_ends_on_sigterm_at_once(
    model: Path, checkpoints: Path, tmp_path: Path
) -> None:
    port = claim_port("127.0.0.1", 0, setting="engine_port")
    settings = Settings(model=str(model), engine_port=port, data=tmp_path, device="cpu", context_length=500)
    words = [*command(settings), "--live", f"2={checkpoints / '2' / 'served'}"]
    with subprocess.Popen(words, env=os.environ | {"OPENCLAW_RL_PARENT_PID": str(os.getpid())}) as process:
        try:
            wait_for(lambda: _answers(f"http://127.0.0.1:{port}/health"), 60)
            info = HTTP.get(f"http://127.0.0.1:{port}/model_info").json()
            assert (info["live"], info["context_length"], info["openclaw_rl"]) == (2, 500, True)
            body = {
                "input_ids": prompt(4),
                "sampling_params": {"max_new_tokens": 400, "ignore_eos": True},
                "stream": True,
            }
            with httpx.stream("POST", f"http://127.0.0.1:{port}/generate", json=body) as response:
                next(response.iter_bytes())
                process.send_signal(signal.SIGTERM)
                assert process.wait(8) is not None
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return HTTP.get(url).status_code == 200
    except httpx.TransportError:
        return False
