"""Answers that a client changed, moved or cut are found again by a proof, and never by a guess."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.proxy.conversation import changed_answers, parents
from openclaw_rl.proxy.conversation.placement import TurnPlacement
from openclaw_rl.shared.journal import AsyncJournal
from tests.fixtures.openclaw import call
from tests.proxy.talk import Sent, Talk, parent, said, says

ID, OTHER_ID = "call_0123456789abcdef01234567", "call_89abcdef0123456789abcdef"
NAMED = {"x-session-id": "named"}
CODE = "Thought: I count the files of this folder.\n<code>\nprint(len(files))\n"
LONG = "The tall fern stands in the driest corner and wants water every second day, the ivy only on Sundays. " * 3
RULES = (
    "\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery block must use this format: " + "the file path alone on a line. " * 9
)
FILES = [says("I have *added these files to the chat* so you can go ahead and edit them.\n\na.py\n```\nx = 1\n```")]
OK = said("Ok, any changes I propose will be to those files.")


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    journal = AsyncJournal(tmp_path / "journal.db", linger=0)
    yield Talk(journal)
    await journal.close()


def calls(identity: str = ID) -> list[dict[str, Any]]:
    return [{"id": identity, "name": "read", "arguments": {"path": "a", "n": 1.0}}]


def result(text: str, identity: str = ID) -> Sent:
    return {"role": "tool", "content": text, "tool_call_id": identity}


def called(identity: str, arguments: str = '{"path": "a", "n": 1.0}', text: str | None = None) -> Sent:
    return {"role": "assistant", "content": text, "tool_calls": [call("read", arguments, identity)]}


@pytest.mark.parametrize(
    "echo",
    [
        pytest.param(called(ID), id="the text beside the call is dropped"),
        pytest.param(called(ID, '{"path": "/work/a"}', "I read it."), id="arguments are rewritten"),
        pytest.param(called(ID.replace("_", "").upper(), '{"file": "a"}'), id="the id is written differently"),
    ],
)
async def test_a_call_of_ours_is_known_by_its_id(talk: Talk, echo: Sent) -> None:
    first = await talk.ask(says("hi"), answer="I read it.", calls=calls())
    after = await talk.ask(says("hi"), echo, result("dry"), answer="It is dry.")
    assert (parent(after), after.session_id) == (first.turn_id, first.session_id)
    assert after.parent_reason == changed_answers.BY_CALL
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("tool", "dry")
    last = await talk.ask(says("hi"), echo, result("dry"), said("It is dry."), says("thanks"))
    assert (parent(last), last.parent_reason) == (after.turn_id, "")


async def test_a_result_alone_names_its_call(talk: Talk) -> None:
    both = [*calls(), {"id": OTHER_ID, "name": "read", "arguments": {"path": "b"}}]
    first = await talk.ask(says("hi"), answer="", calls=both)
    after = await talk.ask(says("hi"), result("dry"), result("wet", OTHER_ID))
    assert (parent(after), after.parent_reason) == (first.turn_id, changed_answers.BY_CALL)
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("tool", "dry\n\nwet")


async def test_calls_that_a_client_shows_one_by_one_have_one_next_state(talk: Talk) -> None:
    both = [*calls(), {"id": OTHER_ID, "name": "read", "arguments": {"path": "b"}}]
    first = await talk.ask(says("hi"), answer="I read both.", calls=both)
    shown = [called(ID, text="I read both."), result("dry"), called(OTHER_ID), result("wet", OTHER_ID)]
    after = await talk.ask(says("hi"), *shown, answer="Both are read.")
    assert (parent(after), after.parent_reason) == (first.turn_id, changed_answers.BY_CALL)
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("tool", "dry\n\nwet")
    last = await talk.ask(says("hi"), *shown, said("Both are read."), says("thanks"))
    assert (parent(last), last.parent_reason) == (after.turn_id, "")


async def test_the_id_of_a_call_is_no_proof_under_the_name_of_another_session(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="", calls=calls(), headers=NAMED)
    other = await talk.ask(says("hi"), called(ID), result("dry"), headers={"x-session-id": "other"})
    assert (parent(other), other.session_id) == (None, "other")
    assert await talk.next_state(first) is None


@pytest.mark.parametrize("speaker", [says, said])
async def test_an_id_in_quoted_text_is_no_call(talk: Talk, speaker: Any) -> None:
    await talk.ask(says("read the first file, please"), answer="", calls=calls())
    quoted = f"The log says: Calling tools: id {ID}, read a. What is that, and where does it come from, at all?"
    after = await talk.ask(says("look at this log"), speaker(quoted), says("well?"))
    assert parent(after) is None


async def test_ids_that_are_short_prove_nothing(talk: Talk) -> None:
    await talk.ask(says("hi"), answer="", calls=calls("call_1_0"))
    after = await talk.ask(says("hello"), called("call_1_0"), result("dry", "call_1_0"))
    assert parent(after) is None


@pytest.mark.parametrize("headers", [{}, NAMED])
async def test_an_answer_that_the_client_appended_to_is_found_step_by_step(talk: Talk, headers: dict[str, str]) -> None:
    history = [says("How many files are there?")]
    first = await talk.ask(*history, answer=CODE, headers=headers)
    history += [said(CODE + "</code>\nCalling tools:\n[python]"), says("Observation: 3")]
    second = await talk.ask(*history, answer=CODE.replace("count", "check"), headers=headers)
    assert (parent(second), second.parent_reason) == (first.turn_id, changed_answers.BY_REQUEST)
    history += [said(CODE.replace("count", "check") + "</code>"), says("Observation: still 3")]
    third = await talk.ask(*history, headers=headers)
    assert (parent(third), third.session_id) == (second.turn_id, first.session_id)


async def test_calls_that_come_back_as_text_are_found_by_their_id(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="", calls=calls())
    text = f"Calling tools:\n[{{'id': '{ID}', 'type': 'function', 'function': {{'name': 'read'}}}}]"
    after = await talk.ask(says("hi"), said(text), says(f"Call id: {ID}\nObservation:\ndry"))
    assert (parent(after), after.parent_reason) == (first.turn_id, changed_answers.BY_REQUEST)


async def test_most_of_an_answer_is_enough_after_its_request(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer=LONG)
    after = await talk.ask(says("hi"), said(LONG[:180]), says("more"))
    assert parent(after) == first.turn_id
    little = await talk.ask(says("hi"), said(LONG[:60]), says("more"))
    assert parent(little) is None


REMARK = 'Here it is, as you asked:\n* the fern wants \u2014 "water"\n* a < b && it\'s größer than the tall ivy'


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(f"[gardener]: {REMARK}", id="a name before it"),
        pytest.param(f"```\n{REMARK}\n```\n\n-- sent by a bot", id="within something else"),
        pytest.param(REMARK.partition("\n")[2], id="without its first line"),
        pytest.param(REMARK.replace("* ", "- ").replace('"', "\u201c").replace("'", "\u2019"), id="other marks"),
        pytest.param(REMARK.replace("&", "&amp;").replace("<", "&lt;"), id="escaped"),
        pytest.param(unicodedata.normalize("NFD", REMARK).replace(" ", "\u00a0"), id="other characters"),
    ],
)
async def test_an_answer_is_found_by_its_letters_after_its_request(talk: Talk, shown: str) -> None:
    first = await talk.ask(says("hi"), answer=REMARK)
    after = await talk.ask(says("hi"), said(shown), says("more"))
    assert (parent(after), after.parent_reason) == (first.turn_id, changed_answers.BY_REQUEST)
    elsewhere = await talk.ask(says("hello"), said(shown), says("more"))
    assert parent(elsewhere) is None


async def test_a_short_beginning_proves_nothing(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="Yes.")
    after = await talk.ask(says("hi"), said("Yes. But I would not do it, since it may break everything."), says("why?"))
    assert parent(after) is None
    assert await talk.next_state(first) is None


async def test_the_same_beginning_in_two_sessions_is_not_taken_for_either(talk: Talk) -> None:
    tries = [await talk.ask(says("hi"), answer=CODE) for _ in range(2)]
    assert len({one.session_id for one in tries}) == 2
    after = await talk.ask(says("hi"), said(CODE + "</code>"), says("Observation: 3"))
    assert parent(after) is None


async def test_a_long_answer_of_one_session_is_known_wherever_it_stands(talk: Talk) -> None:
    first = await talk.ask(says("tell me about plants"), answer=LONG)
    after = await talk.ask(says("[older messages were removed]"), said(LONG), says("thanks"))
    assert (parent(after), after.parent_reason) == (first.turn_id, changed_answers.BY_WORDS)
    state = await talk.next_state(first)
    assert state is not None and state.text == "thanks"


async def test_a_long_answer_of_two_sessions_is_not(talk: Talk) -> None:
    for opening in ("tell me about plants", "and my plants?"):
        await talk.ask(says(opening), answer=LONG)
    after = await talk.ask(says("[older messages were removed]"), said(LONG), says("thanks"))
    assert parent(after) is None


async def test_a_long_answer_that_a_side_turn_gave_too_is_not(talk: Talk) -> None:
    first = await talk.ask(says("tell me about plants"), answer=LONG, headers=NAMED)
    await talk.ask(says("[cron:1 water] Time to water."), answer=LONG, kind="side")
    after = await talk.ask(says("[older messages were removed]"), said(LONG), says("thanks"))
    assert parent(after) is None
    assert await talk.next_state(first) is None


async def test_a_long_answer_in_place_of_another_is_not(talk: Talk) -> None:
    await talk.ask(says("hi"), answer="hello", headers=NAMED)
    elsewhere = await talk.ask(says("x"), said("y"), says("plants?"), answer=LONG, headers=NAMED)
    edited = await talk.ask(says("hi"), said(LONG), says("thanks"), headers=NAMED)
    assert (parent(edited), edited.parent_reason) == (None, parents.CHANGED)
    assert await talk.next_state(elsewhere) is None


async def test_short_answers_alike_in_two_sessions_are_never_joined(talk: Talk) -> None:
    firsts = [await talk.ask(says(f"task {number}"), answer="Done.") for number in range(2)]
    after = await talk.ask(says("[older messages were removed]"), said("Done."), says("No, wrong!"))
    assert (parent(after), after.session_id in {one.session_id for one in firsts}) == (None, False)
    for one in firsts:
        assert await talk.next_state(one) is None


async def test_a_short_answer_alone_proves_nothing_even_in_one_session(talk: Talk) -> None:
    first = await talk.ask(says("task"), answer="Done.")
    after = await talk.ask(says("another task"), said("Done."), says("No, wrong!"))
    assert parent(after) is None
    assert await talk.next_state(first) is None


@pytest.mark.parametrize(
    "answer", [LONG, "Here is the change, with every line of it:\na.py\n<<<<<<< SEARCH\nx = 1\n======="]
)
async def test_reminders_and_files_that_a_client_moves_do_not_hide_the_exchange(talk: Talk, answer: str) -> None:
    question = "Set x to two in that file, and keep everything else there as it is; then say in one line what you did, "
    question += "and which of the tests that you know of have to be run again after this, or why none of them has to."
    first = await talk.ask(*FILES, OK, says(question + RULES), answer=answer)
    moved = [says(question), said(answer), *FILES, OK, says("No, that is wrong." + RULES)]
    second = await talk.ask(*moved, answer=answer.replace("line", "row").replace("fern", "bush"))
    assert (parent(second), second.session_id) == (first.turn_id, first.session_id)
    assert second.parent_reason == parents.FOUND_BY_EXCHANGE, "the rules are no part of the words"
    state = await talk.next_state(first)
    assert state is not None and state.text == "No, that is wrong."


async def test_once_the_session_is_known_a_short_exchange_is_found_in_it(talk: Talk) -> None:
    question, change = "Set x to two in that file, please.", "No, three, please."
    first = await talk.ask(*FILES, OK, says(question + RULES), answer=LONG)
    moved = [says(question), said(LONG), *FILES, OK, says(change + RULES)]
    second = await talk.ask(*moved, answer="It is three.")
    assert parent(second) == first.turn_id
    moved = [says(question), said(LONG), says(change), said("It is three."), *FILES, OK, says("Perfect." + RULES)]
    third = await talk.ask(*moved, answer="Good.")
    assert parent(third) == second.turn_id
    state = await talk.next_state(second)
    assert state is not None and state.text.startswith("Perfect.")


async def test_a_turn_before_an_exchange_that_fits_several_is_not_the_parent(talk: Talk) -> None:
    question, again = "Set x to two in that file, please.", "It failed, again."
    history = [says(question), said(LONG)]
    await talk.ask(*FILES, OK, says(question + RULES), answer=LONG)
    for _ in range(2):
        await talk.ask(*history, *FILES, OK, says(again + RULES), answer="Now it is two.")
        history += [says(again), said("Now it is two.")]
    after = await talk.ask(*history, *FILES, OK, says("Perfect." + RULES))
    assert parent(after) is None


async def test_of_a_tool_loop_the_last_step_may_be_left(talk: Talk) -> None:
    question = says("Which plants are dry?")
    await talk.ask(question, answer="", calls=calls())
    step = await talk.ask(question, called(ID), result("all"), answer="All of them.")
    after = await talk.ask(question, said("All of them."), says("thanks"))
    assert (parent(after), after.session_id) == (step.turn_id, step.session_id)
    state = await talk.next_state(step)
    assert state is not None and (state.role, state.text) == ("user", "thanks")


async def test_of_two_such_loops_neither_is_guessed(talk: Talk) -> None:
    for identity in (ID, OTHER_ID):
        question = says("Which plants are dry?")
        await talk.ask(question, answer="", calls=calls(identity))
        await talk.ask(question, called(identity), result("all", identity), answer="All of them.")
    assert parent(await talk.ask(question, said("All of them."), says("thanks"))) is None


CODEX = (
    "Another language model started to solve this problem and produced a summary of its thinking process. Use this to "
    "build on the work that has already been done. Here is the summary:\n"
)
SUMMARY = "They asked about ferns. The tall fern is dry, and the ivy is not. Next: water."


@pytest.mark.parametrize("headers", [{}, NAMED])
@pytest.mark.parametrize(
    ("made", "shown"),
    [
        pytest.param(SUMMARY, [says(CODEX + SUMMARY)], id="in the user's role"),
        pytest.param(SUMMARY, [says("What did we do so far?"), said(SUMMARY)], id="as an answer"),
        pytest.param(
            f"<analysis>\nhm\n</analysis>\n\n<summary>\n{SUMMARY}\n</summary>",
            [says(f"The conversation history has been summarized:\n\n{SUMMARY}")],
            id="without the markup",
        ),
        pytest.param(
            SUMMARY, [says(f"Here is a summary of the conversation to date:\n\n{SUMMARY}")], id="after a heading"
        ),
        pytest.param(
            f"<analysis>\nhm\n</analysis>\n\n{SUMMARY}",
            [says(f"{SUMMARY}\n\nResume the prior task using the summary above. Do not greet the user again."), OK],
            id="with an order below it, and a made answer",
        ),
        pytest.param(
            f"<handoff_snapshot>\n{SUMMARY}\n</handoff_snapshot>\nAsk me for more.",
            [says(f"Earlier messages were replaced with a summary:\n{SUMMARY}")],
            id="of another tag",
        ),
        pytest.param(SUMMARY, [{"role": "system", "content": f"Summary of the conversation: {SUMMARY}"}], id="system"),
        pytest.param(
            SUMMARY,
            [{"role": "system", "content": f"You help with plants. Be brief.\n\n## Conversation summary\n{SUMMARY}"}],
            id="a section of the system text",
        ),
        pytest.param(
            SUMMARY,
            [said(SUMMARY), {"role": "system", "content": "Chat history compacted successfully."}],
            id="as our answer, before a note",
        ),
        pytest.param(
            SUMMARY,
            [
                says(
                    "Some of the history of this chat was left out.\nThe conversation history has been summarized.\n"
                    f"<user_message>\nWhich plants are dry?\n</user_message>\n<summary>\n{SUMMARY}\n</summary>"
                )
            ],
            id="next to what a person said",
        ),
    ],
)
async def test_a_conversation_continues_after_its_compaction(
    talk: Talk, headers: dict[str, str], made: str, shown: list[Sent]
) -> None:
    history = [says("Which plants are dry?"), said("The tall fern.")]
    first = await talk.ask(history[0], answer="The tall fern.", headers=headers)
    await talk.ask(*history, says("Summarise."), answer=made, kind="side", headers=headers)
    after = await talk.ask(*shown, says("No, the ivy is."), answer="I see.", headers=headers)
    assert (parent(after), after.session_id) == (first.turn_id, first.session_id)
    assert after.parent_reason == changed_answers.BY_SUMMARY
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("user", "No, the ivy is.")
    last = await talk.ask(*shown, says("No, the ivy is."), said("I see."), says("Good."), headers=headers)
    assert (parent(last), last.parent_reason) == (after.turn_id, "")


async def test_the_same_summary_of_two_sessions_continues_neither(talk: Talk) -> None:
    for opening in ("Which plants are dry?", "And which ones are dry?"):
        await talk.ask(says(opening), answer="The tall fern.")
        await talk.ask(says(opening), said("The tall fern."), says("Summarise."), answer=SUMMARY, kind="side")
    after = await talk.ask(says(CODEX + SUMMARY), says("No, the ivy is."))
    assert (parent(after), after.parent_reason) == (None, parents.COMPACTED)


async def test_a_summary_that_was_not_made_here_says_so(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    after = await talk.ask(says(CODEX + SUMMARY), says("go on"), headers=NAMED)
    assert (parent(after), after.parent_reason) == (None, parents.COMPACTED)
    assert await talk.next_state(first) is None


async def test_a_system_text_may_speak_of_summaries(talk: Talk) -> None:
    await talk.ask(says("hi"), answer="hello")
    rules = {"role": "system", "content": "You write minutes.\n\nSummary: three lines at the end of every answer."}
    asked = await talk.ask(rules, says("hi"))
    assert asked.parent_reason == parents.BEGINS


async def test_a_person_may_open_with_a_summary(talk: Talk) -> None:
    asked = await talk.ask(says("Here is a summary of our discussion: ferns are dry. Make a poem of it."))
    assert asked.parent_reason == parents.BEGINS


PROMPT = "<role>\nContext Extraction Assistant\n</role>\n\nExtract the most relevant context from the conversation.\n\n"
TALK = [("What do pears go well with?", "With cheese."), ("That is wrong, try again.", "With ham, then.")]
FORMS: dict[str, Callable[[str, str], str]] = {
    "tags": lambda speaker, text: f'<message type="{ {"user": "human", "assistant": "ai"}[speaker] }">{text}</message>',
    "labels": lambda speaker, text: f"{ {'user': 'Human', 'assistant': 'AI'}[speaker] }: {text}",
    "headings": lambda speaker, text: f"## {speaker.title()}\n\n{text}\n",
    "bold labels": lambda speaker, text: f"**{speaker.title()}:** {text}",
    "brackets": lambda speaker, text: f"[{speaker}]: {text}",
    "JSON": lambda speaker, text: json.dumps({"role": speaker, "content": text}),
}
HEADING = "Here is a summary of the conversation to date:\n\n"


def transcript(form: str, talk: list[tuple[str, str]]) -> str:
    lines = [
        FORMS[form](speaker, text) for pair in talk for speaker, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return "\n".join(lines)


async def answered(talk: Talk, pairs: list[tuple[str, str]], head: str = "") -> list[TurnPlacement]:
    history: list[Sent] = [{"role": "system", "content": head}] if head else []
    turns = []
    for question, answer in pairs:
        history.append(says(question))
        turns.append(await talk.ask(*history, answer=answer))
        history.append(said(answer))
    return turns


@pytest.mark.parametrize("form", FORMS)
async def test_the_words_that_a_client_keeps_next_to_its_summary_are_found_in_the_summarised_session(
    talk: Talk, form: str
) -> None:
    turns = await answered(talk, [*TALK, ("And plums?", "With cream.")])
    await answered(talk, [("Plums or pears?", "Pears."), ("And plums?", "With cream.")])
    await talk.ask(says(PROMPT + transcript(form, TALK)), answer=SUMMARY, kind="side")
    shown = [says(HEADING + SUMMARY), says("And plums?"), said("With cream."), says("Perfect, thank you!")]
    after = await talk.ask(*shown, answer="Any time.")
    assert (parent(after), after.session_id) == (turns[-1].turn_id, turns[-1].session_id)
    state = await talk.next_state(turns[-1])
    assert state is not None and (state.role, state.text) == ("user", "Perfect, thank you!")
    last = await talk.ask(*shown, said("Any time."), says("Bye."))
    assert parent(last) == after.turn_id


async def test_a_summary_of_a_quoted_conversation_continues_it_where_nothing_else_is_kept(talk: Talk) -> None:
    turns = await answered(talk, TALK)
    await talk.ask(says(PROMPT + transcript("labels", TALK)), answer=SUMMARY, kind="side")
    after = await talk.ask(says(HEADING + SUMMARY), says("No, with nuts."))
    assert (parent(after), after.session_id) == (turns[-1].turn_id, turns[-1].session_id)
    assert after.parent_reason == changed_answers.BY_SUMMARY


@pytest.mark.parametrize("copies", [1, 2])
async def test_a_quotation_that_fits_two_sessions_continues_neither(talk: Talk, copies: int) -> None:
    for _ in range(copies):
        await answered(talk, TALK)
    await answered(talk, [*TALK, ("And figs?", "No.")] if copies == 1 else TALK)
    await talk.ask(says(PROMPT + transcript("labels", TALK)), answer=SUMMARY, kind="side")
    after = await talk.ask(says(HEADING + SUMMARY), says("No, with nuts."))
    assert (parent(after), after.parent_reason) == (None, parents.COMPACTED)


@pytest.mark.parametrize(
    "quoted",
    [
        pytest.param([("Is it so?", "Yes.")], id="too little"),
        pytest.param([("Another question of someone else?", "With cheese.")], id="to another question"),
        pytest.param([], id="nothing"),
    ],
)
async def test_a_summary_that_quotes_no_session_names_none(talk: Talk, quoted: list[tuple[str, str]]) -> None:
    turns = await answered(talk, [("Is it so?", "Yes."), *TALK, ("And plums?", "With cream.")])
    await talk.ask(says(PROMPT + transcript("labels", quoted)), answer=SUMMARY, kind="side")
    after = await talk.ask(says(HEADING + SUMMARY), says("And plums?"), said("With cream."), says("Perfect."))
    assert parent(after) is None
    assert await talk.next_state(turns[-1]) is None


CUT = says("[older messages were removed]")
SHORT = [
    ("Which plants are dry?", "The tall fern in the corner."),
    ("And the ivy?", "It has water for two more days."),
    ("Which one comes first?", "The fern, as it is the driest."),
]


def shown_of(pairs: list[tuple[str, str]]) -> list[Sent]:
    return [message for question, answer in pairs for message in (says(question), said(answer))]


@pytest.mark.parametrize("head", ["", "You look after plants."])
async def test_several_short_answers_of_one_session_in_the_same_order_are_enough(talk: Talk, head: str) -> None:
    turns = await answered(talk, [("hi", "hello"), *SHORT], head)
    system: list[Sent] = [{"role": "system", "content": head}] if head else []
    after = await talk.ask(*system, CUT, *shown_of(SHORT[1:]), says("Thanks."))
    assert (parent(after), after.session_id) == (turns[-1].turn_id, turns[-1].session_id)
    state = await talk.next_state(turns[-1])
    assert state is not None and state.text == "Thanks."


@pytest.mark.parametrize(
    ("shown", "head"),
    [
        pytest.param(shown_of(SHORT[2:]), "", id="one alone"),
        pytest.param(shown_of([SHORT[2], SHORT[1]]), "", id="in another order"),
        pytest.param(shown_of(SHORT[1:]), "You sell plants.", id="under another system text"),
        pytest.param(shown_of([("hi", "hello"), ("thanks", "welcome")]), "", id="two that say nothing"),
    ],
)
async def test_less_than_that_is_not(talk: Talk, shown: list[Sent], head: str) -> None:
    turns = await answered(talk, [("hi", "hello"), ("thanks", "welcome"), *SHORT])
    system: list[Sent] = [{"role": "system", "content": head}] if head else []
    after = await talk.ask(*system, CUT, *shown, says("No, wrong."))
    assert (parent(after), after.parent_reason) == (None, parents.AMBIGUOUS)
    assert await talk.next_state(turns[-1]) is None


async def test_several_short_answers_of_two_sessions_are_not(talk: Talk) -> None:
    for opening in ("hi", "good morning"):
        await answered(talk, [(opening, "hello"), *SHORT])
    after = await talk.ask(CUT, *shown_of(SHORT[1:]), says("Thanks."))
    assert (parent(after), after.parent_reason) == (None, parents.AMBIGUOUS)


async def test_a_short_answer_next_to_what_its_request_showed_is_enough(talk: Talk) -> None:
    files = says("I have *added these files to the chat*.\n\na.py\n```\n" + "x = 1\n" * 60 + "```")
    first = await talk.ask(files, OK, says("Set x to two." + RULES), answer="Done.")
    after = await talk.ask(says("Set x to two."), said("Done."), files, OK, says("No, three." + RULES))
    assert (parent(after), after.session_id) == (first.turn_id, first.session_id)
    other = await talk.ask(says("Set x to two."), said("Done."), says("No, three."))
    assert parent(other) is None, "of that nothing is left"
