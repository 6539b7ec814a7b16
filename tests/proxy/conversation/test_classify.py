from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.classify import (
    RULES,
    Evidence,
    TurnClass,
    _is_subagent,
    _plays_component,
    classify,
    describe,
)
from openclaw_rl.shared.messages.normalize import normalize_chat
from tests.fixtures.clients import CALLS, Call
from tests.fixtures.openclaw import CASES, TOOLS, Case, agent_run, floating, user


def taken(body: dict[str, Any], headers: dict[str, str] | None = None) -> TurnClass:
    """Classify a request body."""
    chat = normalize_chat(body)
    chain = Chain(chat.messages)
    tools, most = bool(body.get("tools")), body.get("max_tokens")
    evidence = Evidence(
        headers or {}, chat.messages, tools, chain.speeches, max_tokens=most, feedback=chain.answers_feedback
    )
    return classify(evidence)


def plain(*texts: str, system: str = "", tools: bool = False) -> dict[str, Any]:
    """A body of another client: user and assistant in turns."""
    messages = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return {"messages": messages, "tools": TOOLS if tools else None}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_openclaw_request_is_recognised_by_its_body_alone(case: Case) -> None:
    assert taken(case.body) == TurnClass(case.kind, case.rule)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_headers_say_the_same_as_the_body(case: Case) -> None:
    assert taken(case.body, case.headers).kind == case.kind


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_requests_of_other_clients_are_recognised_by_named_rules(call: Call) -> None:
    assert taken(call.body, call.headers) == TurnClass(call.kind, call.reason)


@pytest.mark.parametrize("call", [call for call in CALLS if call.headers], ids=lambda call: call.name)
def test_other_clients_need_no_headers_either(call: Call) -> None:
    headers = {name: value for name, value in call.headers.items() if name == "x-claude-code-agent-id"}
    assert taken(call.body, headers).kind == call.kind


def test_headers_outrank_the_body() -> None:
    title = next(case for case in CASES if case.name == "title")
    assert taken(title.body, {"x-turn-type": "main"}) == TurnClass("main", "header-main")
    first = next(case for case in CASES if case.name == "first turn")
    assert taken(first.body, {"x-turn-type": "SIDE"}) == TurnClass("side", "header-side")
    assert taken(first.body, {"x-openclaw-trigger": "heartbeat"}) == TurnClass("side", "trigger")
    assert taken(first.body, {"x-openclaw-session-key": "agent:main:cron:9"}) == TurnClass("side", "key-cron")


def test_an_answer_to_feedback_alone_is_side_whatever_a_client_calls_it() -> None:
    thumb = plain("hi", "hello", "/good short")
    assert taken(thumb) == taken(thumb, {"x-turn-type": "main"}) == TurnClass("side", "feedback-command")
    assert taken(plain("hi", "hello", "/model")).kind == taken(plain("hi", "hello", "/goodness")).kind == "main"


def test_an_unknown_header_value_decides_nothing() -> None:
    assert taken(plain("hello"), {"x-turn-type": "sideways"}) == TurnClass("main", "chat")


@pytest.mark.parametrize(
    "body",
    [
        plain("Write 3-5 words as a title for this conversation.\n\nUser: my bike squeaks"),
        plain(
            "### Task:\nGenerate a concise, 3-5 word title with an emoji for the chat history below.\n<chat_history>hm"
        ),
        plain("my bike squeaks", system="You are a title generator. Answer with nothing else."),
        plain(
            "<session>\nmy bike squeaks\n</session>",
            system="You are naming a repair session for a list of sessions.\nThe title is a phrase of a few words.",
        ),
        plain("my bike squeaks", system="Generate a short title for the user's message, at most 50 characters."),
        plain("my bike squeaks", "Oil the chain.", "Give this conversation a short title, five words or fewer."),
        plain("my bike", system="Analyze if this message indicates a new conversation topic and answer in JSON."),
        plain("Please respond with a title of the chat, 2 to 5 words, no punctuation.\n\nOil the chain."),
        plain("### Task:\nGenerate 1-3 broad tags for the themes of the chat below."),
        plain("I am Ann.", "Hello.", "Generate a four to five word title that sums up our conversation."),
        plain("Write a title in less than 6 words for the following message (language: en):\n\nmy bike squeaks"),
        plain("Write a chat title, at most 4 words. First message: my bike squeaks"),
        plain("User: my bike squeaks", system="Write short titles for conversations."),
        plain("### Task:\nSuggest 3 follow-up questions that the user may ask next in this conversation."),
        plain("User: hi\nAssistant: hello", system="You are a helper tasked with summarizing conversations."),
        plain("Summarize the following conversation.\n<conversation>\nUser: hi\n</conversation>"),
        plain("I am Ann.", "Hello.", "Create a summary of the conversation above: "),
        plain("I am Ann.", "Hello.", "Distil the above messages into a single summary message, with all details."),
        plain("I am Ann.", "Hello.", "Summarize the chat in 200 words or less, to use as a prompt for future context."),
    ],
)
def test_utility_prompts_of_other_clients_are_side(body: dict[str, Any]) -> None:
    assert taken(body).kind == "side"


@pytest.mark.parametrize(
    "order",
    [
        "Generate a short title for this conversation.",
        "Generate a concise, 3-5 word title for this conversation. Reply with the title only.",
        "Create a brief title for the conversation so far. No quotes, no punctuation.",
        "Please provide a short name for this chat session, at most 40 characters. Plain text, nothing else.",
        "Based on the messages above, write a title of no more than six words for this thread. Output only the title.",
        'Title this conversation in 5 words or fewer. Return JSON: {"title": "..."}',
        "Write a short title that captures the user's request in this conversation. Do not use tools.",
        "### Task:\nGenerate 1-3 broad tags for the themes of this conversation.\n### Output:\nJSON only.",
        "Create a summary of the conversation above: ",
    ],
)
def test_an_order_about_the_conversation_is_side_with_tools_too(order: str) -> None:
    assert taken(plain("my bike squeaks", "Oil the chain.", order, tools=True)).kind == "side"
    assert (
        taken(plain("my bike squeaks", "Oil the chain.", order, system="You are a coding agent.", tools=True)).kind
        == "side"
    )


@pytest.mark.parametrize(
    "order",
    [
        "Generate a short title for this conversation\n\nmy bike squeaks",
        "Write 3-5 words as a title for this conversation.\n\nUser: my bike squeaks",
        "Write a chat title, at most 4 words. First message: my bike squeaks",
        "Summarize the following conversation.\n<conversation>\nUser: hi\nAssistant: hello\n</conversation>",
        "### Task:\nSuggest 3 follow-up questions that the user may ask next in this conversation.\n<chat_history>\nhm",
    ],
)
def test_an_order_that_quotes_its_conversation_is_side_with_tools_too(order: str) -> None:
    assert taken(plain(order, tools=True)).kind == "side"
    assert taken(plain(order, system="You are a coding agent.", tools=True)).kind == "side"


@pytest.mark.parametrize(
    "words",
    [
        "Give this conversation a short title, please.",
        "What would be a good, short title for our chat?",
        "Write a short title for our conversation and put it into notes.md.",
        "Generate a short title for our chat, I want to save it.",
        "Generate a short title for this page.",
        "Suggest three short names for this chat app.",
        "Summarize our conversation so far, please.",
        "Summarise the conversation in three bullet points.",
        "Tag this message as important.",
        "Can you name this chat something short?",
    ],
)
def test_a_person_may_ask_for_that_in_a_chat_with_tools(words: str) -> None:
    assert taken(plain("my bike squeaks", "Oil the chain.", words, tools=True)).kind == "main"


@pytest.mark.parametrize(
    "words",
    [
        "In our app, generate a concise title for the conversation from the first message, and store it.",
        "Generate a short title for the conversation in the feature that lists all chats.",
        "Write a function that generates a brief title for the user's message, without quotes.",
    ],
)
def test_a_person_has_programs_written_that_ask_for_it(words: str) -> None:
    assert taken(plain(words, tools=True)).kind == "main"
    assert taken(plain("my bike squeaks", "Oil the chain.", words, tools=True)).kind == "main"


@pytest.mark.parametrize(
    "body",
    [
        plain("hello"),
        plain("Write a short title for my poem about the sea."),
        plain("Suggest a headline for a brief article on bees."),
        plain("Suggest a short title for my thread on gardening."),
        plain("Reply with a title for my talk on chat bots, at most 5 words."),
        plain("Give me five catchy titles, at most 6 words each, for a blog post about chat bots."),
        plain("Create a short title for a session on safety at our conference."),
        plain("I sell soap.", "Nice.", "Suggest a brief name, a title and three tags for my new discussion board."),
        plain("Generate 5 search queries that find threads about old bikes."),
        plain("Generate a filename slug for my article on bees."),
        plain("Web page content: what does that mean?"),
        plain("What did we say about the title of my book?", "Nothing yet.", "Then summarize our conversation please."),
        plain("Please summarize this text: the sea is wide.", system="You are a helpful assistant."),
        plain("Tag the photo with the dog as favourite.", tools=True),
        plain("make a session for the yoga class", "Done.", "great, now a concise message to the group"),
        plain("I keep a heartbeat monitor; what does 60 mean?"),
        plain("/etc/hosts is empty, why?"),
        plain("Fix the bug", "Done.", "Give me a summary of the conversation so far.", tools=True),
        plain("I am Ann.", "Hello.", "Write a summary of the conversation above"),
        plain("I am Ann.", "Hello.", "Please write a short summary of the conversation above, in three bullet points."),
        plain("I am Ann.", "Hello.", "give me a summary of our chat above. Note: no names!"),
        plain("I am Ann.", "Hello.", "Summarize the conversation in 50 words or less."),
        plain("I am Ann.", "Hello.", "Condense the above conversation, it is too long to read."),
        plain("test"),
        plain("How do I write git commit messages for big changes?"),
        plain("How does a web page describe its content?"),
        plain("Fix the bug", "Done.", "Hand off the work: who could take it?", tools=True),
        plain("hello", system="You are naming a product with its inventor, in a chat. Find no title for it yet."),
        plain("hello", system="You are a friend.\nYou are good at summarizing. Talk as in a chat."),
    ],
)
def test_a_question_of_a_person_is_main(body: dict[str, Any]) -> None:
    assert taken(body).kind == "main"


def test_agents_of_other_makers_are_main_with_a_reason() -> None:
    assert taken(plain("Fix the bug", system="You are an agent.", tools=True)) == TurnClass("main", "tools")


def test_floating_context_is_not_the_last_word() -> None:
    heartbeat = {"role": "user", "content": "Follow the heartbeat monitor scratch."}
    assert taken(agent_run(user("hi", "s-1"), heartbeat, context=floating("a", "b"))).kind == "side"


def test_a_run_of_the_main_line_after_a_heartbeat_is_main_again() -> None:
    heartbeat = {"role": "user", "content": "Follow the heartbeat monitor scratch."}
    quiet = {"role": "assistant", "content": "NO_REPLY"}
    assert taken(agent_run(user("hi", "s-1"), heartbeat, quiet, user("still there?"))).kind == "main"


def test_every_rule_has_a_name_of_its_own_and_a_description() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(describe(name) for name in names)
    assert describe("no such rule") == ""


def test_a_long_system_text_is_read_once_for_whose_it_is() -> None:
    text = "You are a helpful assistant of the user.\n" * 200
    before = [reader.cache_info().misses for reader in (_is_subagent, _plays_component)]
    for end in ("It is 10:00.", "It is 10:05."):
        assert taken(plain("hi", system=text + end, tools=True)).reason == "tools"
    assert [reader.cache_info().misses for reader in (_is_subagent, _plays_component)] == [one + 1 for one in before]
