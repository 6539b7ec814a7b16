"""Requests for work on the conversation itself are a program's; people's requests are not."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.classify import Evidence, TurnClass, classify
from openclaw_rl.proxy.conversation.programs.purpose_headers import metadata_purposes
from openclaw_rl.proxy.conversation.speaker import read_user
from openclaw_rl.proxy.http.body import METADATA
from openclaw_rl.shared.messages.normalize import normalize_chat
from tests.fixtures.clients import TOOLS

AGENT = "You are a coding agent. You help the user with their code. Use your tools."


def taken(
    *texts: str,
    system: str = AGENT,
    tools: bool = True,
    headers: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
) -> TurnClass:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages += [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]
    chat = normalize_chat({"messages": messages, "tools": TOOLS if tools else None})
    stated = frozenset(metadata_purposes(body or {}))
    return classify(Evidence(headers or {}, chat.messages, tools, Chain(chat.messages).speeches, stated=stated))


ORDERS = [
    "Please analyze the conversation history above and generate a comprehensive project summary in markdown format.",
    "Your task is to create a detailed summary of the conversation so far, with attention to the user's requests.",
    "The current conversation is rapidly running out of context. Now, your urgent task is to create a detailed summary "
    "of the conversation so far.",
    "Provide a detailed prompt for continuing our conversation above. The new session will not have access to it.",
    "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM.",
    "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
    "Summarize the conversation history so far, paying special attention to the most recent commands.",
    "The messages above are a conversation to summarize. Create a structured context checkpoint summary that another "
    "LLM will use to continue the work.",
    "Create a comprehensive summary of our entire conversation that will serve as complete context for continuing it.",
    "Write a summary of the work in this session prior to compaction, so that nothing is lost.",
    "Condense the dialogue so far for the next agent. Keep file names and open questions.",
    "Compress the conversation above. Respond with the summary only, do not call any tools.",
    "The above is a list of messages in an agent conversation. Compact this context so that the agent can go on.",
    "Extract the relevant context from the conversation above for continuing the work in a new session.",
    "Scan the recent conversation history and save durable memories about the user to the memory directory.",
    "Summarize the takeaway from the conversation. Do not add any introductory phrases.",
    "Extract facts about the user from this conversation that are worth remembering. Return JSON only.",
    "Predict what the user might type next. Answer with the message alone.",
    "Analyze only your immediately preceding response and decide who should speak next, the user or the model.",
    "This is a side question from the user. Answer it without tools; the main agent continues afterwards.",
    "Summarize everything that has happened so far. The summary will replace the conversation history.",
    "You've reached the context limit. Create a handoff document for the next session: goals, decisions, open tasks.",
    "The messages above are going to be removed from the context. Write a note to yourself with all that you need.",
    "Update your memory file with anything worth remembering from this conversation before it is compacted.",
    "[SYSTEM NOTE: This is an automated summarization request, not from the user]\nCreate a structured summary.",
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tools", [True, False])
def test_an_order_of_a_program_is_side_and_no_reaction(order: str, tools: bool) -> None:
    assert taken("Fix the bug", "Done.", order, tools=tools).kind == "side"
    assert read_user({"role": "user", "content": order}).speaker == "notice"


@pytest.mark.parametrize(
    ("system", "tools"),
    [
        ("You are the component that summarizes a conversation when its context window is about to overflow.", True),
        ("You are a context summarization agent. You are given a conversation and condense it.", True),
        ("You are a context summarization agent. You are given a conversation and condense it.", False),
        (
            "<role>\nContext Extraction Assistant\n</role>\n\nYour sole objective is to extract from the messages.",
            False,
        ),
        ("You are a helpful AI assistant tasked with summarizing conversations.", False),
        ("You are maintaining a state summary of an agent's conversation for the next agent.", False),
        ("Your job is to summarize a history of previous messages in a conversation.", False),
        ("You are a memory manager. You extract facts and memories from a conversation.", False),
    ],
)
def test_a_system_text_gives_the_part(system: str, tools: bool) -> None:
    assert taken("User: hi\nAssistant: hello", system=system, tools=tools).kind == "side"


@pytest.mark.parametrize(
    "words",
    [
        "continue",
        "Please continue.",
        "Continue where you left off",
        "Summarize this article about the history of bees: they were first kept in Egypt. The user of a hive is a bee.",
        "Give my essay a title. It is about the next war.",
        "Summarize our conversation so far, please.",
        "Can you summarize what we discussed, in five bullet points?",
        "Write a function that summarizes the conversation when the context window is full.",
        "Add a button to the app that lets the user compress the conversation.",
        "How do I make an agent condense the chat history for another agent?",
        "Extract the dates from the following text: on the 3rd of May the user left.",
        "The compaction of the database is slow, look into the session store.",
        "Save this to memory: I like short answers.",
        "Remember that my dog is called Rex.",
        "The next step is the login page.",
        "That is wrong, count again.",
        "Compress the images in this folder, the user waits too long.",
        "Recap the meeting notes in notes.md for the team.",
        "Summarize this article: In a conversation with the press, the user of the year spoke about the agent.",
        "Summarize this meeting transcript. The user is Ann, the assistant is Bob.",
        "Summarize the conversation with my landlord below, so that the agent can read it.",
        "Please extract all names from the text. The user wrote it in a chat.",
    ],
)
def test_a_person_is_heard(words: str) -> None:
    assert taken("Fix the bug", "Done.", words).kind == "main"
    assert taken("Fix the bug", "Done.", words, tools=False, system="").kind == "main"
    assert read_user({"role": "user", "content": words}).speaker == "person"


@pytest.mark.parametrize(
    "system",
    [
        AGENT
        + "\nWhen the conversation gets long its history is summarized, so that the context window never is full.",
        "You are an orchestrator. You delegate to subagents, and the subagent reports to you.",
        "You are an agent that can spawn a subagent with the task tool.",
        "You are the main agent. Use a subagent for searches.",
        "You are a planner. A subagent will report its results to the main agent when it is done.",
        "You are a support agent. Summarize conversations with customers when they ask.",
        "You are a meeting assistant who summarizes discussions and books rooms.",
    ],
)
def test_an_agents_own_system_text_is_main(system: str) -> None:
    assert taken("hello", system=system).kind == "main"


@pytest.mark.parametrize(
    "system",
    [
        "You are now acting as the managed memory extraction subagent.",
        "You are a general-purpose subagent working for a parent agent.",
        "You are a code reviewer.\nYou were spawned by the main agent to look at one file.",
        "You are an expert searcher. Report your findings back to the parent agent.",
        "You are a sub-agent of the coding assistant.",
    ],
)
def test_a_subagents_system_text_is_side(system: str) -> None:
    assert taken("Look at a.py", system=system) == TurnClass("side", "subagent")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("x-parent-session-id", "ses_1", "header-subagent"),
        ("x-openai-subagent", "review", "header-subagent"),
        ("x-codex-turn-metadata", '{"turn_id":"a","thread_source":"subagent"}', "header-subagent"),
        ("x-codex-turn-metadata", '{"thread_source": "thread_title"}', "header-title"),
        ("x-codex-turn-metadata", '{"session_source": {"subagent": "review"}}', "header-subagent"),
        ("x-interaction-type", "conversation-subagent", "header-subagent"),
        ("x-interaction-type", "compaction", "header-compaction"),
        ("x-acme-request-kind", "auto_compact", "header-compaction"),
        ("x-request-purpose", "title_generation", "header-title"),
        ("x-acme-task-type", "memory-extraction", "header-memory"),
        ("x-acme-is-subagent", "true", "header-subagent"),
        ("x-agent-type", "sub_agent", "header-subagent"),
        ("x-parent-thread-id", "9", "header-subagent"),
        ("x-acme-context", "threadSource=subagent; depth=1", "header-subagent"),
        ("x-acme-agent", "subagent", "header-subagent"),
        ("x-caller", "sub_agent:explore", "header-subagent"),
        ("x-agent-depth", "1", "header-subagent"),
        ("x-acme-spawned-by", "agent-1", "header-subagent"),
        ("x-delegated", "true", "header-subagent"),
        ("x-parent-agent", "main", "header-subagent"),
        ("x-acme-thread-parent-id", "9", "header-subagent"),
        ("x-acme-agent", "compaction", "header-compaction"),
        ("x-acme-compaction", "true", "header-compaction"),
        ("x-is-summary", "1", "header-compaction"),
        ("x-acme-metadata", '{"isCompaction": true}', "header-compaction"),
        ("x-title-generation", "true", "header-title"),
        ("x-acme-request-tag", "title", "header-title"),
        ("x-acme-heartbeat", "1", "header-utility"),
    ],
)
def test_headers_are_read_by_one_table(name: str, value: str, reason: str) -> None:
    assert taken("hello", headers={name: value}) == TurnClass("side", reason)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-openai-subagent", "false"),
        ("x-parent-session-id", ""),
        ("x-codex-turn-metadata", '{"thread_source":"user","turn_id":"subagent-1"}'),
        ("x-interaction-type", "conversation-agent"),
        ("x-initiator", "agent"),
        ("x-title", "Summary title maker"),
        ("user-agent", "compaction-subagent/1.0"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("cookie", "kind=title"),
        ("x-agent-depth", "0"),
        ("x-acme-compaction", "false"),
        ("x-acme-compaction", "manual"),
        ("x-reasoning-summary", "true"),
        ("x-compact", "1"),
        ("x-conversation-title", "Sub agents"),
        ("x-parent-message-id", "m_1"),
        ("x-parent-agent", "none"),
        ("x-agent", "planner"),
        ("x-source", "ide-subagents-view"),
    ],
)
def test_other_headers_decide_nothing(name: str, value: str) -> None:
    assert taken("hello", headers={name: value}).kind == "main"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"purpose": "title_generation"}, "header-title"),
        ({"generation_name": "chat-title", "trace_id": "1"}, "header-title"),
        ({"agent_name": "ConversationSummarizer"}, "header-compaction"),
        ({"langgraph_node": "summarize_conversation"}, "header-compaction"),
        ({"trace_name": "context compaction"}, "header-compaction"),
        ({"tags": ["prod", "title-generation"]}, "header-title"),
        ({"tags": ["task:memory"]}, "header-memory"),
        ({"parent_session_id": "9"}, "header-subagent"),
        ({"isSubagent": True}, "header-subagent"),
        ({"type": "subagent"}, "header-subagent"),
        ({"tags": ["subagent:explore"]}, "header-subagent"),
        ({"agent": {"type": "sub_agent"}}, "header-subagent"),
        ({"task_type": "memory_extraction"}, "header-memory"),
        ({"requestKind": "follow_up_suggestions"}, "header-utility"),
        ({"user_id": '{"session_id": "1", "request_purpose": "title"}'}, "header-title"),
    ],
)
@pytest.mark.parametrize("field", METADATA)
def test_metadata_is_read_by_the_same_table(field: str, metadata: dict[str, Any], reason: str) -> None:
    assert taken("hello", body={field: metadata}) == TurnClass("side", reason)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        "title",
        {"title": "Summary of my trip"},
        {"task": "Summarize the quarterly report for the board"},
        {"source": "summary.pdf"},
        {"operation": "summarize_article"},
        {"task": "product_title"},
        {"tags": ["memory-bank-app", "title page", 7]},
        {"parent_run_id": "1", "run_id": "2", "langgraph_node": "agent", "langgraph_step": 3},
        {"isSubagent": False, "parent_session_id": None},
        {"agent_name": "main", "generation_name": "chat"},
        {"type": "summary", "agent": "memory"},
        {"summary": True, "title": True},
        {"purpose": "title " * 3000},
        {"tags": "title"},
    ],
)
def test_other_metadata_decides_nothing(metadata: Any) -> None:
    assert taken("hello", body={"metadata": metadata}).kind == "main"
