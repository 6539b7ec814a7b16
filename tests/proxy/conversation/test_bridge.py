"""Sampled tokens stand again in later prompts, and no prompt says anything else than its template does."""

from __future__ import annotations

import json
import re
from array import array
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from openclaw_rl.proxy.conversation.bridge import (
    FORGOTTEN,
    HISTORY,
    NOT_SAMPLED,
    SPELLING,
    Answered,
    Bridge,
    Written,
)
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.rendering.families import FAMILIES, TEMPLATE
from openclaw_rl.shared.rendering.prompt import Prompt
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.shared.call_forms import CALL_FORMS, form_prompter
from tests.shared.speech import CONTEXT, READ, assistant, calling, chat, system, tool, user
from tests.shared.tiny_tokenizers import CHATML, byte_level, family_folder, write_folder

SYSTEM = system("You keep an orchard's books. " * 5)
SHIPPED = "shipped"


@cache
def prompter(name: str) -> Prompter:
    if name == SHIPPED:
        return Prompter(EMBEDDED_POLICY)
    if name in CALL_FORMS:
        return form_prompter(name)
    if name == TEMPLATE:
        tokenizer = byte_level(["<|im_start|>", "<|im_end|>"])
        folder, config = Path(mkdtemp(prefix="tiny-template-")), {"model_type": "other"}
        write_folder(folder, tokenizer, config=config, template=CHATML, eos="<|im_end|>")
        return Prompter(folder, family=TEMPLATE)
    return Prompter(family_folder(name))


def oddly(one: Prompter, text: str, cuts: tuple[int, ...] = (1, 2)) -> array[int]:
    """Tokens that spell `text`, as no tokenizer would cut it; control tokens are written as they are spelled."""
    ids: list[int] = []
    for part in re.split("(" + "|".join(map(re.escape, one.vocab.added)) + ")", text):
        if part in one.vocab.added:
            ids.append(one.vocab.added[part])
            continue
        place, number = 0, 0
        while place < len(part):
            size = max(1, cuts[number % len(cuts)])
            ids += one.tokenizer.encode(one.tokenizer.protect(part[place : place + size]))
            place, number = place + size, number + 1
    return array("I", ids)


class Talk:
    """A conversation with a model whose every answer is written for it, token by token."""

    def __init__(self, name: str = SHIPPED, *, thinking: bool = False, tools: bool = False) -> None:
        self.one = prompter(name)
        self.bridge = Bridge(self.one.vocab)
        self.thinking = thinking
        self.tools = [READ] if tools else []
        self.stop = self.one.decode(self.one.stop_ids[:1])
        self.parent: Answered | None = None
        self.prompt: Prompt | None = None
        self.answer: Message = {}

    def ask(self, *messages: dict[str, Any], **fields: Any) -> Written:
        """Ask for an answer; whatever was bridged, the text is the template's."""
        asked = chat(*messages, **({"tools": self.tools} if self.tools else {}), **fields)
        rendered = self.one.render(asked, thinking=self.thinking)
        before = self.prompt.ids() if self.prompt is not None else []
        self.prompt, written = self.bridge.extend(rendered, self.parent, FORGOTTEN)
        ids = self.prompt.ids()
        controls = set(self.one.vocab.added.values())
        assert self.one.decode(ids) == self.one.decode(rendered.ids())
        assert [one for one in ids if one in controls] == [one for one in rendered.ids() if one in controls]
        assert json.loads(self.prompt.json()) == ids
        assert (self.prompt.forced, self.prompt.reasoning_open) == (rendered.forced, rendered.reasoning_open)
        if self.parent is not None and self.parent.response:
            extended = ids[: len(before) + len(self.parent.response)] == before + self.parent.response.tolist()
            # A rendered prompt may have the sampled tokens by chance.
            assert extended or written.how != "extended"
        self._asked, self._written = asked, written
        return written

    def says(self, text: str, *cuts: int, ended: bool = True) -> dict[str, Any]:
        """Answer, and how a client echoes that."""
        assert self.prompt is not None
        sampled = oddly(self.one, text + self.stop * ended, cuts or (1, 2))
        parser = self.one.parser(self.prompt, self._asked)
        parser.feed_many(sampled)
        _, answer = parser.finish("stop" if ended else "length")
        self.parent = Answered(self._written, sampled)
        self.answer = answer.message()
        echo: dict[str, Any] = {"role": "assistant", "content": self.answer["content"]}
        if answer.reasoning:
            echo["reasoning_content"] = answer.reasoning
        if answer.tool_calls:
            functions = [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
            echo["tool_calls"] = [
                {"id": f"c{place}", "type": "function", "function": function}
                for place, function in enumerate(functions)
            ]
        return echo


def call_text(one: Prompter, path: str) -> str:
    """A call of `read`, as the template writes it again."""
    if one.family.grammar.calls == "xml":
        return f"<tool_call>\n<function=read>\n<parameter=path>\n{path}\n</parameter>\n</function>\n</tool_call>"
    arguments = json.dumps({"path": path}, ensure_ascii=False)
    if one.family.grammar.calls == "bare":
        return f'{{"name": "read", "parameters": {arguments}}}'
    return f'<tool_call>\n{{"name": "read", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize("name", [SHIPPED, TEMPLATE, *sorted(FAMILIES)])
def test_a_prompt_continues_from_the_tokens_that_were_sampled(name: str) -> None:
    talk = Talk(name)
    first = [SYSTEM, user()]
    assert talk.ask(*first).how == "rendered"
    second = [*first, talk.says("Nïnety 🙂 baskets."), user("And next year?")]
    written = talk.ask(*second)
    assert (written.how, len(written.kept)) == ("extended", 1)
    third = [*second, talk.says("The orchard holds twelve rows.", 1), user("Why?")]
    written = talk.ask(*third)
    assert (written.how, len(written.kept)) == ("extended", 2)


@pytest.mark.parametrize("name", [SHIPPED, TEMPLATE, "qwen3", "qwen3.5", "qwen3-vl", "llama-3"])
def test_a_tool_call_keeps_its_tokens(name: str) -> None:
    talk = Talk(name, tools=True)
    first = [SYSTEM, user("Read it.")]
    talk.ask(*first)
    second = [*first, talk.says(call_text(talk.one, "notes/né.md")), tool("12 rows")]
    assert talk.ask(*second).how == "extended"
    assert talk.ask(*second, talk.says("Twelve."), user("Thanks.")).how == "extended"


@pytest.mark.parametrize("name", sorted(CALL_FORMS))
def test_calls_that_are_read_when_they_end_keep_their_tokens(name: str) -> None:
    form = CALL_FORMS[name]
    talk = Talk(name, tools=True)
    history = [SYSTEM, user("Read it.")]
    talk.ask(*history)
    for number, result in enumerate(("12 rows", "no such file")):
        text = form.call(("read", f"notes/né-{number}.md"))
        if name == "kimi":  # whose calls are counted over the conversation
            text = text.replace("functions.read:0", f"functions.read:{number}")
        echo = talk.says(text + form.ends[0], ended=False)
        assert [call["function"]["name"] for call in echo["tool_calls"]] == ["read"]
        echo["tool_calls"][0]["id"] = f"later{number}"
        history += [echo, {**tool(result), "tool_call_id": f"later{number}"}]
        assert talk.ask(*history).how == "extended"


@pytest.mark.parametrize("name", [SHIPPED, TEMPLATE])
def test_parallel_calls_keep_their_tokens(name: str) -> None:
    talk = Talk(name, tools=True)
    first = [SYSTEM, user("Read both.")]
    talk.ask(*first)
    both = call_text(talk.one, "a.md") + "\n" + call_text(talk.one, "b.md")
    assert talk.ask(*first, talk.says("Both:\n" + both), tool("12"), tool("7")).how == "extended"


def test_reasoning_is_kept_where_client_and_template_keep_it() -> None:
    talk = Talk(thinking=True, tools=True)
    first = [SYSTEM, user("Read it.")]
    talk.ask(*first)
    echo = talk.says("<think>\nIt is a file.\n</think>\n\n" + call_text(talk.one, "a.md"))
    assert talk.ask(*first, echo, tool("12 rows")).how == "extended"


def test_reasoning_that_the_client_drops_is_not_brought_back() -> None:
    talk = Talk(thinking=True, tools=True)
    first = [SYSTEM, user("Read it.")]
    talk.ask(*first)
    echo = talk.says("<think>\nIt is a file.\n</think>\n\n" + call_text(talk.one, "a.md"))
    del echo["reasoning_content"]
    written = talk.ask(*first, echo, tool("12 rows"))
    assert (written.how, written.why) == ("rendered", SPELLING)


def test_reasoning_that_the_template_drops_is_not_brought_back() -> None:
    talk = Talk(thinking=True)
    first = [SYSTEM, user()]
    talk.ask(*first)
    written = talk.ask(*first, talk.says("<think>\nNine tens.\n</think>\n\nNinety."), user("And next year?"))
    assert (written.how, written.why) == ("rendered", SPELLING)


def test_an_answer_without_reasoning_is_continued_with_thinking_on() -> None:
    talk = Talk(thinking=True)
    first = [SYSTEM, user()]
    talk.ask(*first)
    assert talk.ask(*first, talk.says("Ninety."), user("And next year?")).how == "extended"


def test_an_answer_keeps_its_tokens_where_a_floating_message_before_it_is_gone() -> None:
    talk = Talk(tools=True)
    history = [SYSTEM, user("Read it.")]
    talk.ask(*history, user(CONTEXT))
    history += [talk.says(call_text(talk.one, "a.md")), tool("12 rows")]
    written = talk.ask(*history, user(CONTEXT))
    assert (written.how, written.why, len(written.kept)) == ("kept", "", 1)
    history += [talk.says("Twelve rows."), user("And pears?")]
    written = talk.ask(*history, user(CONTEXT.replace("noon", "one")))
    assert (written.how, written.why, len(written.kept)) == ("kept", "", 2)


@pytest.mark.parametrize(
    "text", ["Ninety. ", "\nNinety.", '<tool_call>\n{"name":"read", "arguments": {"path": "a"}}\n</tool_call>']
)
def test_text_that_the_template_writes_otherwise_is_rendered(text: str) -> None:
    talk = Talk(tools=True)
    first = [SYSTEM, user()]
    talk.ask(*first)
    written = talk.ask(*first, talk.says(text), tool("12 rows"))
    assert (written.how, written.why) == ("rendered", SPELLING)


def test_arguments_that_a_client_reorders_are_rendered() -> None:
    talk = Talk(tools=True)
    first = [SYSTEM, user("Read it.")]
    talk.ask(*first)
    talk.says('<tool_call>\n{"name": "read", "arguments": {"path": "a.md", "from": 1}}\n</tool_call>')
    written = talk.ask(*first, calling('{"from": 1, "path": "a.md"}'), tool("12 rows"))
    assert (written.how, written.why) == ("rendered", SPELLING)


def test_an_answer_that_was_cut_off_is_closed_and_continued() -> None:
    talk = Talk()
    first = [SYSTEM, user()]
    talk.ask(*first)
    assert talk.ask(*first, talk.says("Ninety bas", ended=False), user("Go on.")).how == "extended"


def test_an_edited_history_keeps_the_answers_before_the_edit() -> None:
    talk = Talk()
    history = [SYSTEM, user()]
    talk.ask(*history)
    history += [talk.says("Ninety."), user("And next year?")]
    talk.ask(*history)
    history += [talk.says("A hundred."), user("Why?")]
    history[3] = user("And in ten years?")
    written = talk.ask(*history)
    assert (written.how, written.why, len(written.kept)) == ("rendered", HISTORY, 1)


def test_an_answer_of_another_model_is_rendered_and_the_sampled_tokens_before_it_are_kept() -> None:
    talk = Talk()
    history = [SYSTEM, user()]
    written = talk.ask(*history)
    assert (written.how, written.why) == ("rendered", FORGOTTEN)
    history += [talk.says("Ninety."), user("And next year?")]
    talk.parent = Answered(talk.ask(*history), array("I"))
    history += [assistant("A hundred."), user("Why?")]
    written = talk.ask(*history)
    assert (written.how, written.why, len(written.kept)) == ("rendered", NOT_SAMPLED, 1)


def test_another_system_prompt_keeps_the_answer_but_continues_nothing() -> None:
    talk = Talk()
    talk.ask(SYSTEM, user())
    answer = talk.says("Ninety.")
    written = talk.ask(system("You are a poet. " * 8), user(), answer, user("Why?"))
    assert (written.how, written.why) == ("kept", "")


def test_a_control_token_that_was_only_spelled_is_none() -> None:
    talk = Talk()
    first = [SYSTEM, user()]
    talk.ask(*first)
    echo = talk.says("A <tool_call> is a tag.")  # sampled as the control token, and text without tools
    assert echo["content"] == "A <tool_call> is a tag."
    assert talk.ask(*first, echo, user("Why?")).how == "rendered"


_WORDS = st.sampled_from(
    ["Ninety.", "né 🙂", "  two\n\nlines ", "", "a</think>b", "x<|im_end|>", CONTEXT, "é\u0301", "{"]
)
_ANSWER = st.tuples(
    st.sampled_from(["", "<think>\nhm\n</think>\n\n", "<think>\n\n</think>\n\n", "<think>", "hm</think>"]),
    _WORDS,
    st.sampled_from(
        ["", "", "call", "two calls", '<tool_call>{"name":"read"}</tool_call>', "<tool_call>", "<|endoftext|>"]
    ),
    st.tuples(st.integers(1, 3), st.integers(1, 9)),
    st.booleans(),
)
_ROUND = st.tuples(
    _ANSWER,
    st.sampled_from(["user", "tool", "two tools", "float", "system"]),
    _WORDS,
    st.sampled_from(["", "", "", "drop reasoning", "rewrite", "edit", "drop answer"]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([SHIPPED, TEMPLATE, *sorted(FAMILIES)]), st.booleans(), st.booleans(), st.lists(_ROUND, max_size=4)
)
@example(SHIPPED, False, True, [(("", "Ninety.", "call", (1, 2), True), "two tools", "12", "")] * 3)
@example(SHIPPED, True, True, [(("<think>\nhm\n</think>\n\n", "a", "call", (1, 2), True), "float", "12", "")] * 3)
def test_a_bridged_prompt_says_what_the_template_says(
    name: str, thinking: bool, tools: bool, rounds: list[tuple[Any, str, str, str]]
) -> None:
    talk = Talk(name, thinking=thinking, tools=tools)
    history: list[dict[str, Any]] = [SYSTEM, user("How many?")]
    floating: list[dict[str, Any]] = []
    for (opening, text, ending, cuts, ended), next_one, words, change in rounds:
        talk.ask(*history, *floating)  # which compares the texts
        calls = {"call": 1, "two calls": 2}.get(ending, 0) if talk.tools else 0
        called = "\n".join([call_text(talk.one, words)] * calls)
        echo = talk.says(opening + text + (called or ending), *cuts, ended=ended)
        if change == "drop reasoning":
            echo.pop("reasoning_content", None)
        if change == "rewrite":
            echo["content"] = words
        if change == "edit":
            history[-1] = user(words)
        history += [] if change == "drop answer" else [echo]
        history += {
            "user": [user(words)],
            "tool": [tool(words)],
            "two tools": [tool(words), tool("7")],
            "system": [system(words), user("Well?")],
            "float": [user(words)],
        }[next_one]
        floating = [user(CONTEXT)] if next_one == "float" else []
    talk.ask(*history, *floating)
