"""The proxy on the real SGLang, which streams incrementally here: what is said is recorded as it was sampled."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from openclaw_rl.shared.records import Sampling, Turn
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.processes import Engine, Proxy, run_proxy
from tests.rigs.sglang_cpu import run_sglang
from tests.trainer_local.serving import Reference, close_to, prompt

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

ASKED = [{"role": "user", "content": "What is 12 + 30?"}]


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(EMBEDDED_POLICY)


@pytest.fixture(scope="module")
def sglang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with run_sglang(EMBEDDED_POLICY, tmp_path_factory.mktemp("sglang"), "--incremental-streaming-output") as server:
        yield server


@pytest.fixture(scope="module")
def proxy(sglang: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with run_proxy(sglang, tmp_path_factory.mktemp("proxy")) as running:
        yield running


def recorded(proxy: Proxy, turn_id: str) -> Turn:
    turn = proxy.journal().turn(turn_id)
    assert turn is not None
    return turn


async def test_incremental_events_are_put_together(sglang: Engine, reference: Reference) -> None:
    engine = SglangEngine(sglang.url)
    ids: list[int] = []
    logprobs: list[float] = []
    events = 0
    async for tokens in engine.generate(prompt(20), Sampling(top_k=50, max_tokens=60, ignore_eos=True), top_logprobs=2):
        assert len(tokens.ids) == len(tokens.logprobs) == len(tokens.top_logprobs)
        ids += tokens.ids
        logprobs += tokens.logprobs
        events += 1
    await engine.close()
    assert len(ids) == 60 and events > 5
    rows = reference.logprobs([*prompt(20), *ids])[19:-1]
    kept = rows.topk(50).values.exp().sum(dim=-1).log()
    assert close_to(logprobs, [float(row[token] - mass) for row, token, mass in zip(rows, ids, kept, strict=True)])


@pytest.mark.parametrize("parameters", [{}, {"temperature": 0.7}, {"temperature": 0}], ids=str)
def test_a_chat_is_recorded_with_the_logprobs_of_the_training_forward(
    proxy: Proxy, reference: Reference, parameters: dict[str, float]
) -> None:
    response = proxy.chat(ASKED, max_tokens=40, **parameters)
    turn = recorded(proxy, response.headers["x-openclaw-rl-turn"])
    assert response.json()["choices"][0]["message"]["content"] == turn.answer["content"]
    assert turn.status == "complete" and not turn.untrainable
    wanted = reference.score(turn.prompt_ids, turn.response_ids, parameters.get("temperature", 1.0) or 1.0)
    assert close_to(turn.logprobs, wanted)


def test_a_stream_says_what_is_recorded(proxy: Proxy, reference: Reference) -> None:
    response = proxy.chat(ASKED, max_tokens=40, stream=True, top_p=0.9, logprobs=True, top_logprobs=2)
    chunks = [
        json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line.startswith("data: {")
    ]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    turn = recorded(proxy, response.headers["x-openclaw-rl-turn"])
    assert turn.answer["content"] == text and not turn.untrainable
    unfiltered = reference.score(turn.prompt_ids, turn.response_ids)
    # Behind top-p a token is at most 1 / 0.9 times as likely.
    assert all(-1e-4 < found - free < 0.106 for found, free in zip(turn.logprobs, unfiltered, strict=True))


def test_a_prompt_that_does_not_fit_is_refused_as_too_long(proxy: Proxy) -> None:
    response = proxy.chat([{"role": "user", "content": "one two three " * 15000}])
    assert response.status_code == 400 and response.json()["error"]["code"] == "context_length_exceeded"
