from __future__ import annotations

import json
from typing import Any

from openclaw_rl.proxy.http.sse import DONE, ChunkWriter, error_event, merge
from openclaw_rl.shared.errors import Overloaded
from openclaw_rl.shared.messages.answer import Delta


def decoded(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in data.decode().split("\n\n") if line]


def writer(*, usage: bool = True) -> ChunkWriter:
    return ChunkWriter("chatcmpl-1", 'po"licy', 7, "version-3", with_usage=usage)


def test_deltas_of_one_kind_leave_together_and_calls_keep_their_index() -> None:
    deltas = [
        Delta("reasoning", "hm "),
        Delta("reasoning", "so"),
        Delta("content", "Say \u2028"),
        Delta("content", '"hi"'),
        Delta("call_start", index=0, call_id="call_a", name="read"),
        Delta("call_arguments", '{"path"', 0),
        Delta("call_arguments", ':"x"}', 0),
        Delta("call_start", index=1, call_id="call_b", name="exec"),
        Delta("call_arguments", "{}", 1),
    ]
    sent = [chunk["choices"][0]["delta"] for chunk in decoded(writer().deltas(deltas))]
    assert sent[0] == {"reasoning_content": "hm so"}
    assert sent[1] == {"content": 'Say \u2028"hi"'}
    first, arguments, second, more = (delta["tool_calls"][0] for delta in sent[2:])
    assert first == {"index": 0, "id": "call_a", "type": "function", "function": {"name": "read", "arguments": ""}}
    assert arguments == {"index": 0, "function": {"arguments": '{"path":"x"}'}}
    assert (second["index"], second["id"], more["index"]) == (1, "call_b", 1)


def test_two_calls_in_a_row_are_not_one() -> None:
    starts = [Delta("call_start", index=index, call_id=str(index), name="f") for index in (0, 0)]
    assert len(merge(starts)) == 2
    assert len(merge([Delta("call_arguments", "a", 0), Delta("call_arguments", "b", 1)])) == 2


def test_the_end_has_one_reason_usage_if_asked_and_one_done() -> None:
    end = writer().end("stop") + writer().close({"total_tokens": 5})
    assert end.endswith(DONE) and end.count(DONE) == 1
    last, usage = decoded(end[: -len(DONE)])
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert (last["model"], last["system_fingerprint"], last["created"]) == ('po"licy', "version-3", 7)
    assert (usage["choices"], usage["usage"]) == ([], {"total_tokens": 5})
    assert len(decoded((writer(usage=False).end("stop") + writer(usage=False).close({}))[: -len(DONE)])) == 1


def test_logprobs_travel_with_the_last_delta_or_alone() -> None:
    entry = {"token": "a", "logprob": -1.0}
    with_text = decoded(writer().deltas([Delta("content", "a"), Delta("reasoning", "b")], [entry]))
    assert [chunk["choices"][0]["logprobs"] for chunk in with_text] == [None, {"content": [entry]}]
    alone = decoded(writer().deltas([], [entry]))
    assert (alone[0]["choices"][0]["delta"], alone[0]["choices"][0]["logprobs"]) == ({}, {"content": [entry]})


def test_an_error_is_an_event_of_its_own() -> None:
    (event,) = decoded(error_event(Overloaded("later")))
    assert event == {"error": {"message": "later", "type": "server_error", "param": None, "code": "overloaded"}}
