"""Messages that stand in place of a history are known by their wording, and people's messages are not."""

from __future__ import annotations

import pytest

from openclaw_rl.proxy.conversation.compacted import replaces_history
from openclaw_rl.proxy.conversation.speaker import read_user

SUMMARY = "They asked about ferns. The tall fern is dry, and the ivy is not. Next: water it. " * 40


@pytest.mark.parametrize(
    "text",
    [
        f"{SUMMARY}\n\nResume the prior task using the summary above. Continue from the last step; do not greet again.",
        f"{SUMMARY}\n\nContinue the task from the summary above.",
        f"{SUMMARY}\n\nPick up where the summary leaves off. Do not mention it.",
        f"The summary below covers the earlier part of this conversation.\n\n{SUMMARY}",
        f"The following summary replaces the conversation history up to here:\n{SUMMARY}",
        f"Earlier messages in this conversation were replaced with a summary to save context.\n{SUMMARY}",
        f"This conversation continues an earlier one that ran out of context.\n{SUMMARY}",
        f"This chat was resumed from a previous session.\n{SUMMARY}",
        f"[Summary of earlier conversation]\n{SUMMARY}",
        f"[Conversation summary - 12 messages]\n{SUMMARY}",
        f"[CONTEXT COMPACTED]\n{SUMMARY}",
        f"--- Conversation summary ---\n{SUMMARY}",
        f"<previous_conversation_summary>\n{SUMMARY}\n</previous_conversation_summary>",
        f"<session-summary>\n{SUMMARY}\n</session-summary>",
        f"You are continuing work that was started by another agent. Its notes:\n{SUMMARY}",
        f"Context from the previous conversation (automatically summarized):\n{SUMMARY}",
        f"The conversation history was compressed, in short:\nsummary\n<summary>\n{SUMMARY}\n</summary>",
    ],
)
def test_a_program_says_that_a_summary_stands_for_the_history(text: str) -> None:
    assert replaces_history(text, last=True)
    assert read_user({"role": "user", "content": text}).speaker != "person"


@pytest.mark.parametrize(
    "text",
    [
        f"Conversation summary:\n{SUMMARY}",
        f"## Conversation Summary\n\n{SUMMARY}",
        f"Summary of the conversation so far:\n{SUMMARY}",
        f"Here's what we discussed so far:\n{SUMMARY}",
        f"Previously in this conversation:\n{SUMMARY}",
    ],
)
def test_a_heading_is_enough_before_the_persons_next_message(text: str) -> None:
    assert replaces_history(text, last=False)
    assert not replaces_history(text, last=True)


@pytest.mark.parametrize(
    "text",
    [
        "Continue with the summary of the book, please.",
        "Resume the download.",
        "Please use the summary above to write the mail.",
        "Can you pick up where we left off?",
        "Continue.",
        "The summary below is for my boss, make it shorter: ferns are dry.",
        "In an earlier conversation I asked about ferns.",
        "Give me a summary of the previous chapter.",
        "You forgot what we talked about before.",
        "[Summary] is the heading that I want.",
        "Previously you were faster.",
        "Which agent started this work?",
        "Wrap the text in <summary> tags, not in headings.",
        "The chat history compacted badly, what did I ask?",
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_a_persons_message_stands_for_nothing(text: str, last: bool) -> None:
    assert not replaces_history(text, last=last)
    assert read_user({"role": "user", "content": text}).speaker == "person"
