"""The token ids of an answer that no engine sampled: as the policy's own rendering writes it behind its prompt.

An imported answer is text and calls. To be trained on it needs the very tokens that the policy would have sampled to
say this, its end token included. They are taken from the rendering of the history with the answer in it, and read
again by the parser that reads sampled answers; where the two do not agree, nothing is guessed.
"""

from __future__ import annotations

from array import array

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.equality import message_key
from openclaw_rl.shared.messages.normalize import ChatInput, text_of
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.rendering.prompt import Prompt
from openclaw_rl.shared.rendering.prompter import Prompter


def spell(prompter: Prompter, chat: ChatInput, prompt: Prompt, answer: Message) -> tuple[array[int], str]:
    """The ids of `answer` (canonical) behind `prompt`, which `chat` was rendered to; and why they cannot be trusted, in
    words that follow "its answer", or "".
    """
    if not text_of(answer).strip() and not answer.get("tool_calls"):
        return array("I"), "is empty"
    if answer.get("tool_calls") and not chat.tools:
        return array("I"), "calls tools, and its prompt offers none"
    before = prompt.packed()
    try:
        whole = prompter.write([*chat.messages, answer], chat.tools, prompter.thinking, generate=False)
    except BadRequest as error:
        return array("I"), f"cannot be written by this policy's template: {error.message}"
    if whole[: len(before)] != before:
        if answer.get("reasoning") and not prompter.thinking:
            return array("I"), "holds reasoning, and this policy is served without (setting thinking)"
        return array("I"), "is not written where this policy's answers begin"
    ids = whole[len(before) :]
    end = next((place for place, number in enumerate(ids) if number in prompter.stop_ids), None)
    if end is not None:
        ids = ids[: end + 1]
    elif prompter.stop_ids:
        ids.append(prompter.stop_ids[0])
    return ids, "" if _reads_as(prompter, chat, prompt, ids, answer) else "is read as something else once it is written"


def _reads_as(prompter: Prompter, chat: ChatInput, prompt: Prompt, ids: array[int], answer: Message) -> bool:
    parser = prompter.parser(prompt, chat)
    parser.feed_many(ids)
    message = parser.finish("stop")[1].message()
    reasoning = [str(one.get("reasoning", "")).strip() for one in (message, answer)]
    return message_key(message) == message_key(answer) and reasoning[0] == reasoning[1]
