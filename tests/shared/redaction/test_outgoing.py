"""Redaction for other providers: secrets stay here, and the same text always leaves in the same form."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytest.importorskip("datafog")
pytest.importorskip("detect_secrets")

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.messages.hint import with_hint
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.redaction.outgoing import Outgoing, describe_taken, is_here
from openclaw_rl.shared.redaction.redactor import Redactor
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings

KEY = f"ghp_{'a1B2' * 9}"
MAIL = "jane.doe@example.org"


@pytest.fixture
def outgoing() -> Outgoing:
    return Outgoing(Redactor(personal=False))


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def chat(*messages: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> ChatInput:
    return ChatInput(messages=list(messages), tools=tools or [])


def test_secrets_are_taken_out_of_whatever_anybody_wrote(outgoing: Outgoing) -> None:
    call = {"id": "call_1", "name": "write", "arguments": {"name": KEY, "lines": [f"x = {KEY}"], "mode": 7}}
    tool = {"type": "function", "function": {"name": "curl", "description": f"Use {KEY}", "parameters": {}}}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{KEY}"}}
    request = chat(
        said("system", f"The key is {KEY}."),
        said("user", [{"type": "text", "text": f"Take {KEY}"}, image]),
        said("assistant", "", reasoning=f"So {KEY}", tool_calls=[call]),
        said("tool", f"token {KEY}", tool_call_id="call_1", name="write"),
        tools=[tool],
    )
    left = outgoing.chat(request)
    assert KEY not in str(left).replace(str(image), "")
    assert left.messages[1]["content"] == [{"type": "text", "text": "Take [SECRET]"}, image]
    changed = left.messages[2]["tool_calls"][0]
    assert changed == {**call, "arguments": {"name": "[SECRET]", "lines": ["x = [SECRET]"], "mode": 7}}
    assert left.tools[0]["function"]["description"] == "Use [SECRET]" and b"[SECRET]" in left.tools_json
    assert KEY in str(request) and outgoing.taken(request) == {"SECRET": 7}
    assert describe_taken(outgoing.taken(request)).endswith(": 7 SECRET") and describe_taken({}) == ""


def test_a_request_without_a_secret_stays_the_same_object(outgoing: Outgoing) -> None:
    request = chat(said("user", f"Write to {MAIL}"), said("assistant", "Done.", tool_calls=[]))
    assert outgoing.chat(request) is request
    assert outgoing.text(MAIL) is MAIL
    assert Outgoing(Redactor()).text(f"Write to {MAIL}") == "Write to [EMAIL]"


def test_the_same_text_leaves_the_same_way_and_is_looked_through_once(
    outgoing: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = chat(said("user", f"Take {KEY}"), said("user", "and nothing else"))
    assert outgoing.fresh(request) == len(f"Take {KEY}") + len("and nothing else")
    first = outgoing.chat(request)
    assert outgoing.fresh(request) == 0
    monkeypatch.setattr(outgoing._redactor, "counted", lambda text: pytest.fail("looked through again"))
    assert outgoing.chat(request) == first


def test_the_memory_of_texts_is_bounded(outgoing: Outgoing) -> None:
    small = Outgoing(Redactor(personal=False), capacity=5000)
    for number in range(100):
        assert small.text(f"{number}: {KEY}") == f"{number}: [SECRET]"
    assert 0 < small._known.size <= 5000


def test_an_answer_of_the_policy_stays_as_it_was_sampled_and_only_there(outgoing: Outgoing) -> None:
    answer = said("assistant", f"Use {KEY}", tool_calls=[{"id": "1", "name": "run", "arguments": {"key": KEY}}])
    assert outgoing.message(answer) != answer
    outgoing.said(answer)
    assert outgoing.message(answer) is answer
    assert outgoing.message({**answer, "role": "user"})["content"] == "Use [SECRET]"
    assert outgoing.taken(chat(answer)) == {}
    other = said("assistant", f"Use {KEY} now")
    assert outgoing.message(other)["content"] == "Use [SECRET] now"


def test_only_what_leaves_is_looked_through() -> None:
    assert Outgoing.to_backend(Settings()) is None
    assert Outgoing.to_backend(Settings(backend="tinker", cloud_redact="off")) is None
    secrets = Outgoing.to_backend(Settings(backend="tinker"))
    everything = Outgoing.to_backend(Settings(backend="fireworks", cloud_redact="all"))
    assert secrets is not None and secrets.text(f"{KEY} {MAIL}") == f"[SECRET] {MAIL}"
    assert everything is not None and everything.text(f"{KEY} {MAIL}") == "[SECRET] [EMAIL]"
    assert Outgoing.to_model(Settings(), "openai/x", "http://127.0.0.1:9/v1") is None
    assert Outgoing.to_model(Settings(), "openai/x", "") is not None
    assert Outgoing.to_model(Settings(cloud_redact="off"), "openai/x", "") is None


@pytest.mark.parametrize(
    ("model", "base", "here"),
    [
        ("openai/gpt", "", False),
        ("openai/gpt", "http://localhost:8000/v1", True),
        ("openai/gpt", "http://[::1]:8000/v1", True),
        ("openai/gpt", "http://10.0.0.7:8000/v1", False),
        ("ollama/llama3", "", True),
        ("ollama/llama3", "https://models.example.org", False),
    ],
)
def test_a_model_on_this_machine_is_distinguished_from_another_providers(model: str, base: str, here: bool) -> None:
    assert is_here(model, base) is here


def test_nothing_leaves_while_the_libraries_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "detect_secrets.plugins", None)
    for make in (
        lambda: Prompter.from_settings(Settings(backend="tinker", model=str(EMBEDDED_POLICY))),
        lambda: Outgoing.to_model(Settings(), "openai/x", ""),
    ):
        with pytest.raises(ConfigError, match=r"cloud_redact = secrets.*\[redact\].*cloud_redact = off"):
            make()


def test_a_prompter_writes_what_may_leave_and_a_hint_too(outgoing: Outgoing) -> None:
    plain, careful = Prompter(EMBEDDED_POLICY), Prompter(EMBEDDED_POLICY, outgoing=outgoing)
    dirty = chat(said("system", f"Mind {KEY}"), said("user", "Hi"), said("assistant", f"So {KEY}"), said("user", "Go"))
    clean = chat(*(said(one["role"], one["content"].replace(KEY, "[SECRET]")) for one in dirty.messages))
    prompt = careful.render(dirty)
    assert prompt.ids() == plain.render(clean).ids() and prompt.taken == {"SECRET": 2}
    assert careful.render(clean).taken == {}
    hinted = careful.render(dirty, hint=f"Not {KEY}")
    assert hinted.ids() == plain.render(chat(*with_hint(clean.messages, "Not [SECRET]"))).ids()


def test_a_prompt_counts_as_cold_until_it_was_looked_through(outgoing: Outgoing) -> None:
    careful = Prompter(EMBEDDED_POLICY, outgoing=outgoing)
    long = chat(said("system", f"Mind {KEY}. " + "Count the pears again. " * 400), said("user", "Hi"))
    assert careful.is_cold(long)
    careful.render(long)
    assert not careful.is_cold(long)
