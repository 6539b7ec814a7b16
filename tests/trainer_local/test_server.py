"""The embedded engine over its wire: shapes, errors, priorities, versions, and work that nobody waits for any more."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from shared.engine import Priority
from shared.errors import EngineError
from shared.process import claim_port
from shared.records import Sampling
from shared.settings import Settings
from tests.trainer_local.serving import (
    CONTEXT,
    END,
    Reference,
    close_to,
    collect,
    prompt,
    serving,
    wait_for,
    write_adapter,
    write_model,
)
from trainer_local.checkpoint import load_version
from trainer_local.embedded.engine import EmbeddedEngine
from trainer_local.embedded.launch import command
from trainer_local.sglang import SglangEngine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def checkpoints(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1 to 6 as a trainer leaves them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for number in range(1, 7):
        write_adapter(model, folder / str(number) / "served", seed=number)
    return folder


@pytest.fixture(scope="module")
def served(model: Path, checkpoints: Path) -> Iterator[tuple[str, EmbeddedEngine]]:
    with serving(model, checkpoints=str(checkpoints), max_versions=3, max_batch=8) as pair:
        yield pair


@pytest.fixture(scope="module")
def url(served: tuple[str, EmbeddedEngine]) -> str:
    return served[0]


@pytest.fixture
async def client(url: str) -> AsyncIterator[SglangEngine]:
    engine = SglangEngine(url)
    yield engine
    await engine.close()


def post(url: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/generate", json=body, timeout=60)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [msgspec.json.decode(block.removeprefix("data: ")) for block in blocks[:-2]]


def running(url: str) -> int:
    info = httpx.get(f"{url}/model_info").json()
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
    for path in ("/generate",):
        answer = httpx.post(url + path, content=body)
        assert answer.status_code == 400 and word in answer.json()["error"]["message"]
    assert httpx.get(f"{url}/health").status_code == 200


def test_a_prompt_that_does_not_fit_is_told_as_sglang_does(url: str) -> None:
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


async def test_abort_request_ends_a_stream_with_the_reason_abort(client: SglangEngine) -> None:
    asked = Sampling(max_tokens=8000, ignore_eos=True)
    stream = client.generate(prompt(4), asked, request_id="to-abort")
    await anext(stream)
    await client.abort("to-abort")
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


async def test_short_answers_go_on_while_a_long_prompt_is_read(client: SglangEngine) -> None:
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


async def test_versions_on_disk_are_loaded_when_asked_for_and_the_oldest_makes_room(
    client: SglangEngine, served: tuple[str, EmbeddedEngine], model: Path, checkpoints: Path
) -> None:
    asked = Sampling(max_tokens=10, ignore_eos=True)
    await client.load(1, str(checkpoints / "1" / "served"), live=True)
    for number in (2, 3, 4, 2):
        answer = await collect(client.generate(prompt(6), asked, version=number))
        right = Reference(model, checkpoints / str(number) / "served").score(prompt(6), answer.ids)
        assert answer.version_numbers == {number} and close_to(answer.logprobs, right)
    info = await client.info()
    assert info.live == 1 and len(info.versions) <= 3 and {0, 1} <= set(info.versions)
    await client.load(0, str(model), live=True)


async def test_a_version_in_use_is_never_dropped(client: SglangEngine, model: Path, checkpoints: Path) -> None:
    asked = Sampling(max_tokens=600, ignore_eos=True)
    stream = client.generate(prompt(6), asked, version=5)
    first = await anext(stream)
    others = [collect(client.generate(prompt(6), Sampling(max_tokens=3), version=n)) for n in (1, 2, 3, 4, 6)]
    await asyncio.gather(*others)
    rest = await collect(stream)
    assert rest.version_numbers == {5} and len(first.ids) + len(rest.ids) == 600
    ids = [*first.ids, *rest.ids]
    right = Reference(model, checkpoints / "5" / "served").score(prompt(6), ids)
    assert close_to([*first.logprobs, *rest.logprobs], right)


async def test_a_checkpoint_written_anew_is_loaded_anew(client: SglangEngine, model: Path, tmp_path: Path) -> None:
    folder = write_adapter(model, tmp_path / "served", seed=50)
    await client.load(7, str(folder), live=False)
    before = await client.score(prompt(5), [3, 4], version=7)
    shutil.rmtree(folder)
    write_adapter(model, folder, seed=51)
    await client.load(7, str(folder), live=False)
    after = await client.score(prompt(5), [3, 4], version=7)
    assert not close_to(before.logprobs, after.logprobs)
    assert close_to(after.logprobs, Reference(model, folder).score(prompt(5), [3, 4]))


async def test_a_whole_model_folder_is_a_version_too(client: SglangEngine, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", seed=9)
    await client.load(8, str(other), live=False)
    answer = await collect(client.generate(prompt(6), Sampling(max_tokens=10), version=8))
    assert close_to(answer.logprobs, Reference(other).score(prompt(6), answer.ids))


def _nan(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(iter(weights))
    return weights | {name: torch.full_like(weights[name], float("nan"))}


async def test_broken_checkpoints_are_refused_with_a_reason_and_nothing_changes(
    client: SglangEngine, model: Path, tmp_path: Path
) -> None:
    adapter = write_adapter(model, tmp_path / "adapter")
    weights = load_file(adapter / "adapter_model.safetensors")

    def variant(name: str, changed: dict[str, torch.Tensor] | bytes) -> Path:
        folder = tmp_path / name
        shutil.copytree(adapter, folder)
        file = folder / "adapter_model.safetensors"
        file.write_bytes(changed) if isinstance(changed, bytes) else save_file(changed, file)
        return folder

    first = next(iter(weights))
    whole_nan = write_model(tmp_path / "nan")
    broken = AutoModelForCausalLM.from_pretrained(whole_nan)
    broken.model.norm.weight.data.fill_(float("nan"))
    broken.save_pretrained(whole_nan)
    cases = {
        variant("nan adapter", _nan(weights)): "not finite",
        variant("truncated", (adapter / "adapter_model.safetensors").read_bytes()[:1000]): "cannot be read",
        variant("half", {name: w for name, w in weights.items() if "lora_A" in name}): "pairs",
        variant("misnamed", {name.replace("layers.0", "layers.9"): w for name, w in weights.items()}): "layers.9",
        variant("misshapen", weights | {first: torch.zeros(4, 7)}): "do not fit",
        write_model(tmp_path / "wider", hidden_size=64): "architecture",
        whole_nan: "not finite",
        tmp_path / "nothing": "not a folder",
    }
    before = await client.info()
    for path, reason in cases.items():
        with pytest.raises(EngineError, match=reason) as caught:
            await client.load(9, str(path), live=True)
        assert caught.value.status == 400
    assert await client.info() == before
    with pytest.raises(EngineError, match="version 0 is the base"):
        await client.load(0, str(adapter), live=True)


async def test_a_new_live_version_has_read_the_long_prompts_of_the_old_one(
    client: SglangEngine, model: Path, tmp_path: Path
) -> None:
    shared = prompt(1500, seed=31)
    adapter = write_adapter(model, tmp_path / "served", seed=31)
    await collect(client.generate([*shared, 4, 5], Sampling(max_tokens=4, ignore_eos=True)))
    await client.load(90, str(adapter), live=True)
    answer = await collect(client.generate([*shared, 6, 7], Sampling(max_tokens=8, ignore_eos=True)))
    assert answer.version_numbers == {90} and answer.last.cached_tokens == 1500
    assert close_to(answer.logprobs, Reference(model, adapter).score([*shared, 6, 7], answer.ids))
    await client.load(0, "", live=True)


async def test_answers_go_on_while_a_version_is_slow_to_load(
    client: SglangEngine, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(path: str, base: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return load_version(path, base)

    monkeypatch.setattr("trainer_local.embedded.weights.load_version", slow)
    load = asyncio.create_task(client.load(70, str(checkpoints / "1" / "served"), live=False))
    assert await asyncio.to_thread(begun.wait, 30)
    answer = await collect(client.generate(prompt(6), Sampling(max_tokens=100, ignore_eos=True)))
    assert len(answer.ids) == 100 and not load.done()
    go_on.set()
    await load
    assert 70 in (await client.info()).versions


async def test_a_model_that_yields_nan_fails_its_requests_and_no_others(
    client: SglangEngine, served: tuple[str, EmbeddedEngine], checkpoints: Path
) -> None:
    await client.load(6, str(checkpoints / "6" / "served"), live=False)
    version = served[1].versions.acquire(6)
    assert version is not None
    weight: Any = version.model.model.norm.weight
    version.model.model.norm.weight = torch.nn.Parameter(weight * float("nan"), requires_grad=False)
    good = asyncio.create_task(collect(client.generate(prompt(6), Sampling(max_tokens=50, ignore_eos=True))))
    with pytest.raises(EngineError, match="not finite") as caught:
        await collect(client.generate(prompt(6), Sampling(max_tokens=5), version=6))
    assert caught.value.status == 500
    assert len((await good).ids) == 50
    served[1].versions.release(version)


async def test_the_base_is_made_live_again_by_its_number_alone(client: SglangEngine, checkpoints: Path) -> None:
    await client.load(1, str(checkpoints / "1" / "served"), live=True)
    await client.load(0, "", live=True)
    assert (await client.info()).live == 0


def test_an_engine_whose_scheduler_fails_answers_and_asks_to_be_ended(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_to_end = threading.Event()
    with serving(model, on_failure=asked_to_end.set) as (address, engine):
        assert httpx.get(f"{address}/health").status_code == 200
        monkeypatch.setattr(engine.scheduler._queues, "next", lambda: 1 / 0)
        params = {"max_new_tokens": 2}
        assert post(address, input_ids=prompt(3), sampling_params=params).status_code == 503
        assert asked_to_end.wait(5)
        assert httpx.get(f"{address}/health").status_code == 503
        assert post(address, input_ids=prompt(3), sampling_params=params).status_code == 503


def test_a_live_version_that_cannot_be_loaded_leaves_the_base_serving(model: Path, tmp_path: Path) -> None:
    with serving(model, live=(4, str(tmp_path / "gone"))) as (address, _):
        info = httpx.get(f"{address}/model_info").json()
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
            info = httpx.get(f"http://127.0.0.1:{port}/model_info").json()
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
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False
