"""Tool calls reach a client only if it offered the tool; an invented call is passed on as text and recorded so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.proxy.chat.offered_tools import OfferedCalls
from openclaw_rl.proxy.chat.tool_choice import draw
from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.rendering.prompter import Prompter
from tests.fixtures.openclaw import TOOLS, tool
from tests.processes import Proxy
from tests.proxy.scripted_engine import scripted_service
from tests.shared.call_forms import CALL_FORMS, form_folder
from tests.shared.tiny_tokenizers import family_folder

HELLO = [{"role": "user", "content": "Look into notes.txt"}]
INVENTED = '<tool_call>\n{"name": "cat_file", "arguments": {"path": "notes.txt"}}\n</tool_call>'
OFFERED = '<tool_call>\n{"name": "read", "arguments": {"path": "notes.txt"}}\n</tool_call>'
MANY = [tool(name, "value") for name in ("zebra_count", "q7_lookup", "read", "read_all", "Möbel-suche", "x" * 64)]


async def ask(says: str, policy: Path, data: Path, *, cut: bool = False, **body: Any) -> list[dict[str, Any]]:
    """The message and finish reason that a client gets, streamed and plain, with the recorded turn."""
    replies = []
    async with scripted_service(policy, data, says) as (client, service, engine):
        engine.cut = cut
        for stream in (False, True):
            sent = {"model": "policy", "messages": HELLO, "tools": TOOLS, "stream": stream, **body}
            response = await client.post("/v1/chat/completions", json=sent)
            assert response.status_code == 200, response.text
            heard = assembled(response.text) if stream else plain(response.json())
            turn = await service.journal.turn(response.headers["x-openclaw-rl-turn"])
            assert turn is not None
            replies.append({**heard, "turn": turn})
    return replies


def plain(body: dict[str, Any]) -> dict[str, Any]:
    choice = body["choices"][0]
    calls = [call["function"] for call in choice["message"].get("tool_calls", ())]
    return {
        "content": choice["message"]["content"] or "",
        "calls": [(call["name"], call["arguments"]) for call in calls],
        "finish": choice["finish_reason"],
    }


def assembled(text: str) -> dict[str, Any]:
    content, names, arguments, finish = "", {}, {}, None
    for line in text.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", ()):
                names.setdefault(call["index"], call["function"].get("name"))
                arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    assert list(names) == list(range(len(names)))
    return {"content": content, "calls": [(names[i], arguments[i]) for i in names], "finish": finish}


async def test_an_invented_tool_is_passed_on_as_text_by_a_scripted_engine(policy_folder: Path, tmp_path: Path) -> None:
    for reply in await ask(f"Let me see.\n{INVENTED}", policy_folder, tmp_path):
        assert reply["calls"] == [] and reply["finish"] == "stop"
        assert reply["content"] == f"Let me see.\n{INVENTED}"
        turn = reply["turn"]
        assert turn.answer == {"role": "assistant", "content": f"Let me see.\n{INVENTED}"}
        assert "'cat_file'" in turn.error and "not among the tools" in turn.error
        assert (turn.status, turn.finish_reason, turn.untrainable) == ("complete", "stop", "")


async def test_offered_calls_next_to_an_invented_one_stay_calls_by_a_scripted_engine(
    policy_folder: Path, tmp_path: Path
) -> None:
    read = ("read", '{"path": "notes.txt"}')
    for says, content in (
        (f"{OFFERED}\n{INVENTED}\n{OFFERED}", INVENTED),
        (f"{INVENTED}\n{OFFERED}\n{OFFERED}", INVENTED),
        (
            f"Now:\n{INVENTED}\n{INVENTED}\n{OFFERED}\n{OFFERED}\n{INVENTED}",
            f"Now:\n{INVENTED}\n{INVENTED}\n{INVENTED}",
        ),
    ):
        for reply in await ask(says, policy_folder, tmp_path):
            assert reply["calls"] == [read, read] and reply["finish"] == "tool_calls"
            assert reply["content"] == content
            assert [call["name"] for call in reply["turn"].answer["tool_calls"]] == ["read", "read"]


@pytest.mark.parametrize("name", sorted(CALL_FORMS))
async def test_calls_of_every_form_reach_the_client_and_invented_ones_are_text_by_a_scripted_engine(
    name: str, tmp_path: Path
) -> None:
    says = CALL_FORMS[name].call
    for reply in await ask(says(("read", "notes.txt")), form_folder(name), tmp_path):
        assert reply["calls"] == [("read", '{"path": "notes.txt"}')]
        assert (reply["content"], reply["finish"], reply["turn"].untrainable) == ("", "tool_calls", "")
    for reply in await ask(says(("cat_file", "notes.txt")), form_folder(name), tmp_path / "invented"):
        assert (reply["calls"], reply["finish"]) == ([], "stop")
        assert '{"name": "cat_file", "arguments": {"path": "notes.txt"}}' in reply["content"]
        assert "'cat_file', not among the tools" in reply["turn"].error


async def test_an_invented_call_that_is_cut_off_stays_cut_off_by_a_scripted_engine(
    policy_folder: Path, tmp_path: Path
) -> None:
    half = INVENTED.partition("notes")[0]
    for reply in await ask(half, policy_folder, tmp_path, cut=True):
        assert (reply["calls"], reply["finish"], reply["content"]) == ([], "length", half)


XML = """<tool_call>
<function=cat_file>
<parameter=path>
notes.txt
</parameter>
<parameter=lines>
2
</parameter>
</function>
</tool_call>"""
XML_OFFERED = "<tool_call>\n<function=read>\n<parameter=path>\nnotes.txt\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize("says", [XML, f"{XML}\n{XML_OFFERED}", f"Now:\n{XML_OFFERED}\n{XML}"])
def test_a_family_that_writes_calls_in_xml_gets_its_inventions_back_in_xml(says: str) -> None:
    for size in (1, 7, 400):
        text, answer = heard(says, size)
        assert text == answer.content == says.replace(XML_OFFERED, "").strip().replace("\n\n", "\n")
        assert [call.name for call in answer.tool_calls] == ["read"] * says.count("=read>")


def test_an_xml_call_that_is_cut_off_keeps_its_whole_parameters() -> None:
    text, answer = heard(XML.partition("2\n")[0], 5, cut=True)
    assert text == answer.content == XML.partition("<parameter=lines")[0]
    assert answer.finish_reason == "length"


def heard(says: str, size: int, *, cut: bool = False) -> tuple[str, Answer]:
    """The text that a client of Qwen3.5 gets of an answer in pieces, and the answer as it is recorded."""
    prompter = Prompter(family_folder("qwen3.5"))
    chat = ChatInput(messages=HELLO, tools=TOOLS)
    parser = prompter.parser(prompter.render(chat), chat)
    offered = OfferedCalls(["read"], prompter.family.grammar)
    ids = prompter.tokenizer.encode(says)
    deltas: list[Delta] = []
    for start in range(0, len(ids), size):
        deltas += offered.deltas(parser.feed_many(ids[start : start + size]))
    last, answer = parser.finish("length" if cut else "stop")
    last, answer = offered.finish(last, answer)
    return "".join(delta.text for delta in [*deltas, *last] if delta.kind == "content"), answer


async def test_an_answer_without_inventions_has_no_error_by_a_scripted_engine(
    policy_folder: Path, tmp_path: Path
) -> None:
    for reply in await ask(OFFERED, policy_folder, tmp_path):
        assert reply["finish"] == "tool_calls" and reply["turn"].error == ""


async def test_the_conversation_continues_after_an_invented_call_by_a_scripted_engine(
    policy_folder: Path, tmp_path: Path
) -> None:
    async with scripted_service(policy_folder, tmp_path, INVENTED) as (client, service, _):
        sent = {"model": "policy", "messages": HELLO, "tools": TOOLS}
        first = await client.post("/v1/chat/completions", json=sent)
        answer = first.json()["choices"][0]["message"]
        sent["messages"] = [*HELLO, answer, {"role": "user", "content": "There is no such tool."}]
        second = await client.post("/v1/chat/completions", json=sent)
        turn = await service.journal.turn(second.headers["x-openclaw-rl-turn"])
        assert turn is not None and turn.parent_turn_id == first.headers["x-openclaw-rl-turn"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_required_call_names_a_tool_that_was_offered(service: Proxy, stream: bool) -> None:
    for seed in range(4):
        body = {"tools": MANY, "tool_choice": "required", "stream": stream, "seed": seed, "max_tokens": 30}
        response = service.chat(HELLO, **body)
        assert response.status_code == 200, response.text
        heard = assembled(response.text) if stream else plain(response.json())
        assert heard["calls"] and heard["calls"][0][0] in [tool["function"]["name"] for tool in MANY]
        turn = service.journal().turn(response.headers["x-openclaw-rl-turn"])
        assert turn is not None
        assert turn.untrainable == "tool_choice forced the beginning of the answer"
        assert repr(heard["calls"][0][0]) in turn.error and "written for it" in turn.error


def test_at_temperature_zero_the_same_tool_is_chosen_again(service: Proxy) -> None:
    body = {"tools": MANY, "tool_choice": "required", "temperature": 0, "max_tokens": 30}
    names = {plain(service.chat(HELLO, **body).json())["calls"][0][0] for _ in range(2)}
    assert len(names) == 1


async def test_a_required_call_that_the_policy_names_needs_no_scores_by_a_scripted_engine(
    policy_folder: Path, tmp_path: Path
) -> None:
    body = {"model": "policy", "messages": HELLO, "tools": MANY, "tool_choice": "required"}
    for number, (says, scored) in enumerate((('read_all", "arguments": {}', 0), ('cat", "arguments": {}', len(MANY)))):
        async with scripted_service(policy_folder, tmp_path / str(number), says) as (client, service, engine):
            response = await client.post("/v1/chat/completions", json=body)
            turn = await service.journal.turn(response.headers["x-openclaw-rl-turn"])
        assert turn is not None and engine.scored == scored
        assert ("it began to name 'cat'" if scored else "named 'read_all', which was written for it") in turn.error


def test_a_draw_follows_probabilities_temperature_and_seed() -> None:
    scores = [-1.0, -3.0, -math.inf]
    assert draw(scores, 0.0, None) == (0, 1.0)
    assert {draw(scores, 1.0, seed)[0] for seed in range(200)} == {0, 1}
    assert draw(scores, 1.0, 3) == draw(scores, 1.0, 3)
    assert draw(scores, 1.0, 3)[1] == pytest.approx(1 / (1 + math.exp(-2))) or draw(scores, 1.0, 3)[0] == 1
    assert draw([-math.inf, -math.inf], 1.0, 0)[1] == 0.5
