"""The common beginning of prompts is rendered once; the prompt does not show it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.rendering.writers import LibraryWriter
from tests.shared.speech import (
    CONVERSATIONS,
    READ,
    WRITE,
    assistant,
    calling,
    chat,
    prompter,
    system,
    text_of,
    tool,
    user,
)
from tests.shared.tiny_model import tiny_model


def test_turns_of_a_session_share_their_head() -> None:
    first = prompter().render(chat(system("shared head"), user(), tools=[READ]))
    second = prompter().render(chat(system("shared head"), user(), assistant(), user(), tools=[READ]))
    assert first.head is not None
    assert first.head is second.head
    assert second.ids()[: len(first.head.ids)] == first.head.ids.tolist()


def test_one_byte_of_the_system_prompt_or_another_order_of_tools_is_another_head() -> None:
    variants = [
        chat(system("head a"), user(), tools=[READ, WRITE]),
        chat(system("head b"), user(), tools=[READ, WRITE]),
        chat(system("head a"), user(), tools=[WRITE, READ]),
        chat(system("head a"), user(), tools=[READ]),
        chat(system("head a"), user()),
    ]
    heads = [prompter().render(variant).head for variant in variants]
    assert len({head.digest for head in heads if head}) == len(variants)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=12).map(user),
            st.text(max_size=12).map(assistant),
            st.text(max_size=12).map(lambda text: assistant("ok", reasoning_content=text)),
            st.text(max_size=8).map(lambda text: calling(json.dumps({"q": text}))),
            st.text(max_size=12).map(tool),
            st.just(user("<tool_response>odd</tool_response>")),
            st.just(system("late")),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_prompts_from_a_cached_head_are_those_of_a_fresh_renderer(
    messages: list[dict[str, Any]], thinking: bool
) -> None:
    asked = chat(system("always the same"), *messages, tools=[READ])
    assert text_of(asked, thinking=thinking) == text_of_fresh(asked, thinking=thinking)


def text_of_fresh(asked: ChatInput, *, thinking: bool) -> str:
    from renderers import Qwen3RendererConfig, create_renderer

    writer = prompter()._writer
    assert isinstance(writer, LibraryWriter)
    messages = [writer._protected(message) for message in asked.messages]
    renderer = create_renderer(prompter().tokenizer, Qwen3RendererConfig(enable_thinking=thinking))
    return prompter().decode(renderer.render_ids(messages, tools=asked.tools, add_generation_prompt=True))


def test_threads_that_meet_on_a_cold_head_get_the_same_prompt() -> None:
    fresh = Prompter(tiny_model())
    asked = chat(system("cold " * 3000), user(), tools=[READ])
    start = threading.Barrier(4)
    prompts: list[list[int]] = []

    def work() -> None:
        start.wait()
        prompts.append(fresh.render(asked).ids())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert prompts == [prompts[0]] * 4


async def test_a_cold_prompt_is_rendered_off_the_event_loop() -> None:
    fresh = Prompter(tiny_model())
    asked = chat(system("cold " * 3000), user("long " * 3000), tools=[READ])
    assert fresh.is_cold(asked)
    rendering = asyncio.ensure_future(fresh.render_async(asked))
    await asyncio.sleep(0)
    assert not rendering.done()
    prompt = await rendering
    assert not fresh.is_cold(asked)
    assert (await fresh.render_async(asked)).ids() == prompt.ids()


def test_a_long_tool_answer_is_cold_once() -> None:
    fresh = Prompter(tiny_model())
    asked = chat(user(), calling("{}"), tool("rows " * 3000))
    assert fresh.is_cold(asked)
    fresh.render(asked)
    assert not fresh.is_cold(asked)


def test_more_sessions_than_heads_are_kept_continue_rendering() -> None:
    first = chat(system("session 0"), user())
    expected = prompter().render(first).ids()
    for number in range(300):
        prompter().render(chat(system(f"session {number}"), user()))
    assert prompter().render(first).ids() == expected


def test_a_small_cache_gives_the_same_prompts() -> None:
    small = Prompter(tiny_model(), cache_bytes=2000)
    for messages in CONVERSATIONS * 2:
        asked = chat(*messages, tools=[READ])
        assert small.render(asked).ids() == prompter().render(asked).ids()


def test_a_system_prompt_that_differs_in_some_lines_is_not_cold() -> None:
    fresh = Prompter(tiny_model())
    lines = [f"- Rule {number}: keep row {number} of the orchard in order." for number in range(400)]
    fresh.render(chat(system("\n".join(lines)), user(), tools=[READ, WRITE]))
    lines[17] = "- Another rule altogether."
    asked = chat(system("\n".join(lines)), user(), tools=[READ, WRITE])
    assert not fresh.is_cold(asked)
    assert fresh.render(asked).ids() == Prompter(tiny_model()).render(asked).ids()


def test_many_short_texts_are_cold_together() -> None:
    fresh = Prompter(tiny_model())
    asked = chat(*(user(f"{number} " * 100) for number in range(60)))
    assert fresh.is_cold(asked)
    fresh.render(asked)
    assert not fresh.is_cold(asked)
