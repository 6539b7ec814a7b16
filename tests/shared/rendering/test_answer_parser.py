from __future__ import annotations

import json
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.messages.equality import message_key
from openclaw_rl.shared.messages.normalize import normalize_messages
from openclaw_rl.shared.rendering.answer_parser import AnswerParser
from openclaw_rl.shared.rendering.prompt import Prompt
from openclaw_rl.shared.rendering.prompter import Prompter
from tests.shared.tiny_model import tiny_model

NO_PROMPT = Prompt(None, [])


@cache
def prompter() -> Prompter:
    return Prompter(tiny_model())


def encode(text: str) -> list[int]:
    """Ids of an answer; control tokens are written as they are spelled."""
    return prompter().tokenizer.encode(text)


def byte_by_byte(text: str) -> list[int]:
    """The same answer as a policy could sample it in the smallest pieces."""
    vocab = prompter().vocab
    single = {vocab.bytes_of[token]: token for token in range(vocab.size) if len(vocab.bytes_of[token]) == 1}
    ids: list[int] = []
    for token in encode(text):
        if token in vocab.added.values():
            ids.append(token)
        else:
            ids += [single[bytes([byte])] for byte in vocab.bytes_of[token]]
    return ids


def parse(ids: list[int], reason: str = "stop", **options: object) -> tuple[list[Delta], Answer]:
    parser = AnswerParser(prompter().vocab, **options)  # type: ignore[arg-type]
    deltas = parser.feed_many(ids)
    last, answer = parser.finish(reason)
    return deltas + last, answer


def read(text: str, reason: str = "stop", **options: object) -> Answer:
    deltas, answer = parse(encode(text), reason, **options)
    assert_streamed(deltas, answer)
    return answer


def assert_streamed(deltas: list[Delta], answer: Answer) -> None:
    """Assert that a streaming client puts together the answer that a waiting client gets."""
    assert "".join(delta.text for delta in deltas if delta.kind == "content") == answer.content
    assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == answer.reasoning
    assert all(delta.text for delta in deltas if delta.kind != "call_start")
    starts = [delta for delta in deltas if delta.kind == "call_start"]
    assert [(delta.index, delta.call_id, delta.name) for delta in starts] == [
        (index, call.id, call.name) for index, call in enumerate(answer.tool_calls)
    ]
    for index, call in enumerate(answer.tool_calls):
        fragments = [delta.text for delta in deltas if delta.kind == "call_arguments" and delta.index == index]
        assert "".join(fragments) == call.arguments
    order = [delta.index for delta in deltas if delta.index >= 0]
    assert order == sorted(order)


def calls(answer: Answer) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in answer.tool_calls]


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_plain_text_loses_only_the_white_space_around_it() -> None:
    answer = read("\n\n Two pears,\n\n  and a fig. \n<|im_end|>")
    assert answer == Answer(content="Two pears,\n\n  and a fig.")


@pytest.mark.parametrize("text", ["", "<|im_end|>", " \n<|im_end|>", "<think>\n\n</think>\n\n<|im_end|>"])
def test_an_answer_may_be_empty(text: str) -> None:
    assert read(text) == Answer()
    assert read(text).message() == {"role": "assistant", "content": ""}


def test_a_character_split_over_tokens_comes_out_whole() -> None:
    deltas, answer = parse(byte_by_byte("naïve 你好 🙂!"))
    assert answer.content == "naïve 你好 🙂!"
    assert "�" not in "".join(delta.text for delta in deltas)


def test_a_character_cut_by_the_token_limit_becomes_one_replacement_character() -> None:
    ids = byte_by_byte("fine 🙂")[:-1]
    deltas, answer = parse(ids, "length")
    assert answer.content == "fine �" == prompter().decode(ids)
    assert_streamed(deltas, answer)


def test_a_character_that_a_marker_cuts_in_two_stays_broken() -> None:
    vocab = prompter().vocab
    smile = byte_by_byte("🙂")
    ids = [vocab.added["<think>"], *smile[:2], vocab.added["</think>"], *smile[2:], *encode(" ok")]
    _, answer = parse(ids)
    assert (answer.reasoning, answer.content) == ("�", "�� ok")


def test_reasoning_comes_before_content() -> None:
    answer = read("<think>\nshort is better\n</think>\n\nSeven.<|im_end|>")
    assert (answer.reasoning, answer.content) == ("short is better", "Seven.")
    assert answer.message() == {"role": "assistant", "content": "Seven.", "reasoning": "short is better"}


def test_unfinished_reasoning_has_no_content() -> None:
    answer = read("<think>\nlet me see", "length")
    assert answer == Answer(reasoning="let me see", finish_reason="length")


def test_a_second_think_is_ignored_inside_reasoning_and_text_after_it() -> None:
    answer = read("<think>a<think>b</think>c<think>d</think>")
    assert (answer.reasoning, answer.content) == ("ab", "c<think>d</think>")


def test_there_is_one_stretch_of_reasoning() -> None:
    answer = read("<think></think><think>more</think>")
    assert (answer.reasoning, answer.content) == ("", "<think>more</think>")


def test_markers_out_of_place_are_text() -> None:
    assert read("so </think> be it </tool_call>").content == "so </think> be it </tool_call>"
    assert read("first <think>then</think>").content == "first <think>then</think>"


def test_reasoning_opened_by_the_prompt() -> None:
    answer = read("hm</think>yes", reasoning_open=True)
    assert (answer.reasoning, answer.content) == ("hm", "yes")


def test_arguments_are_passed_on_while_they_are_written() -> None:
    ids = encode('I look.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "notes')
    parser = AnswerParser(prompter().vocab)
    deltas = parser.feed_many(ids)
    starts = [delta for delta in deltas if delta.kind == "call_start"]
    assert [delta.name for delta in starts] == ["read_file"]
    assert starts[0].call_id.startswith("call_")
    assert "".join(delta.text for delta in deltas if delta.kind == "call_arguments") == '{"path": "notes'


def test_two_calls_in_one_answer() -> None:
    answer = read("Both.\n" + call("a", '{"x": {"y": [1, {}]}}') + "\n" + call("b", "{}") + "<|im_end|>")
    assert answer.content == "Both."
    assert calls(answer) == [("a", {"x": {"y": [1, {}]}}), ("b", {})]
    assert answer.finish_reason == "tool_calls"
    assert len({one.id for one in answer.tool_calls}) == 2
    assert not answer.irregular


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "a } b { \\" ] c", "n": {"m": {"o": "}}"}}}',
        '{"text": "</think> and <tool_call> and <think>"}',
        '{"text": "back\\\\"}',
        '{\n  "text" : "🙂 \\u00e9"\n}',
    ],
)
@pytest.mark.parametrize("ids_of", [encode, byte_by_byte])
def test_braces_quotes_and_markers_inside_arguments(arguments: str, ids_of: object) -> None:
    ids = ids_of(call("note", arguments) + "<|im_end|>")  # type: ignore[operator]
    deltas, answer = parse(ids)
    assert_streamed(deltas, answer)
    assert [one.arguments for one in answer.tool_calls] == [arguments]
    assert prompter().agrees(NO_PROMPT, ids, answer)


def test_markers_spelled_out_in_letters_are_text() -> None:
    ids = byte_by_byte("x")[:0]
    for piece in ("<tool", "_call>", '{"name": "a", "arguments": {}}', "</tool", "_call>", " <th", "ink>"):
        ids += encode(piece)
    _, answer = parse(ids)
    assert answer.content == '<tool_call>{"name": "a", "arguments": {}}</tool_call> <think>'
    assert answer.tool_calls == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"arguments": {"a": 1}, "name": "late"}', ("late", {"a": 1})),
        ('{"name": "text", "arguments": "{\\"a\\": 1}"}', ("text", {"a": 1})),
        ('{"name": "none"}', ("none", {})),
        ('{"name": "null", "arguments": null}', ("null", {})),
        ('{"id": 7, "name": "extra", "arguments": {"a": [1]}}', ("extra", {"a": [1]})),
        ('{"name": "quo\\"te", "arguments": {}}', ('quo"te', {})),
    ],
)
def test_calls_written_in_an_unusual_way(body: str, expected: tuple[str, object]) -> None:
    ids = encode(f"<tool_call>{body}</tool_call><|im_end|>")
    deltas, answer = parse(ids)
    assert_streamed(deltas, answer)
    assert calls(answer) == [expected]
    assert answer.finish_reason == "tool_calls"
    assert prompter().agrees(NO_PROMPT, ids, answer)


@pytest.mark.parametrize("body", ["no json", '{"nme": "a"}', '{"name": "a", "arguments": ', '{"name": 3}', "[]", ""])
def test_a_malformed_call_is_given_back_as_text(body: str) -> None:
    answer = read(f"Hm.\n<tool_call>{body}</tool_call> done<|im_end|>")
    assert answer.content == f"Hm.\n<tool_call>{body}</tool_call> done"
    assert answer.tool_calls == ()
    assert answer.finish_reason == "stop"
    assert answer.irregular


def test_broken_arguments_of_a_recognised_call_are_passed_on_as_they_are() -> None:
    answer = read(call("a", '{"x": [1, }') + "<|im_end|>")
    assert [(one.name, one.arguments) for one in answer.tool_calls] == [("a", '{"x": [1, }}')]
    assert answer.irregular
    assert answer.message()["tool_calls"][0]["arguments"] == '{"x": [1, }}'


@pytest.mark.parametrize(
    "cut", ["<tool_call>", '<tool_call>\n{"name": "b', '<tool_call>\n{"name": "b", "arguments": {"x"']
)
@pytest.mark.parametrize("before", ["", "ok\n", call("a", "{}") + "\n"])
def test_a_call_cut_by_the_token_limit_never_ends_as_a_call(before: str, cut: str) -> None:
    answer = read(before + cut, "length")
    assert answer.finish_reason == "length"
    assert answer.irregular


def test_a_call_that_is_complete_but_not_closed_is_a_call() -> None:
    answer = read('<tool_call>\n{"name": "a", "arguments": {"x": 1}}<|im_end|>')
    assert calls(answer) == [("a", {"x": 1})]
    assert answer.finish_reason == "tool_calls"


def test_a_call_inside_reasoning_is_reasoning_once_that_is_closed() -> None:
    inside = call("a", "{}")
    answer = read(f"<think>maybe {inside} or not</think>No.<|im_end|>")
    assert (answer.reasoning, answer.content, answer.tool_calls) == (f"maybe {inside} or not", "No.", ())


@pytest.mark.parametrize("end", ["<|im_end|>", ""])
def test_a_call_inside_reasoning_that_is_never_closed_is_a_call(end: str) -> None:
    answer = read("<think>surely " + call("a", '{"x": 1}') + end)
    assert (answer.reasoning, answer.content, calls(answer)) == ("surely", "", [("a", {"x": 1})])
    assert answer.finish_reason == "tool_calls"


def test_text_after_a_call_is_kept_on_a_line_of_its_own() -> None:
    answer = read("First.\n" + call("a", "{}") + "\nThen.<|im_end|>")
    assert answer.content == "First.\nThen."
    assert answer.irregular


def test_call_markup_is_text_where_no_tools_were_offered() -> None:
    text = call("a", "{}")
    answer = read(text, calls=False)
    assert (answer.content, answer.tool_calls, answer.finish_reason) == (text, (), "stop")
    assert prompter().agrees(NO_PROMPT, encode(text), answer)


def test_only_one_call_where_parallel_calls_are_not_wanted() -> None:
    parser = AnswerParser(prompter().vocab, parallel_calls=False)
    parser.feed_many(encode(call("a", "{}")))
    assert parser.done
    assert parser.feed_many(encode(call("b", "{}"))) == []
    _, answer = parser.finish("abort")
    assert (calls(answer), answer.finish_reason) == ([("a", {})], "tool_calls")


def test_an_answer_that_begins_inside_a_forced_call() -> None:
    deltas, answer = parse(encode(' {"x": 1}}\n</tool_call>'), forced_text='\n{"name": "a", "arguments":')
    assert_streamed(deltas, answer)
    assert calls(answer) == [("a", {"x": 1})]


def test_white_space_before_text_is_no_stop_but_begins_one_after_a_call() -> None:
    called = call("a", "{}")
    answer = read(f"\n{called}\n{called}\n\nUser: And", stop=["\n", "\nUser:"])
    assert (len(answer.tool_calls), answer.content) == (2, "")
    answer = read(f"{called}\nOne.\nTwo.", stop=["\n"])
    assert (len(answer.tool_calls), answer.content) == (1, "One.")


@pytest.mark.parametrize("ids_of", [encode, byte_by_byte])
def test_a_stop_string_over_several_tokens_ends_the_answer(ids_of: object) -> None:
    ids = ids_of("One STO, two STOP three")  # type: ignore[operator]
    parser = AnswerParser(prompter().vocab, stop=["###", "STOP"])
    deltas = []
    for fed, token in enumerate(ids, start=1):  # noqa: B007
        deltas += parser.feed(token)
        if parser.done:
            break
    assert fed < len(ids)
    assert parser.stop_matched == "STOP"
    last, answer = parser.finish("abort")
    assert_streamed(deltas + last, answer)
    assert (answer.content, answer.finish_reason) == ("One STO, two", "stop")


def test_text_held_back_for_a_stop_string_comes_out_at_the_end() -> None:
    assert read("almost ST", stop=["STOP"]).content == "almost ST"
    assert read("almost ST" + call("a", "{}"), stop=["STOP"]).content == "almost ST"


def test_the_earliest_of_several_stop_strings_counts() -> None:
    assert read("a b c d", stop=["d", "c", "b c"]).content == "a"


def test_stop_strings_do_not_look_into_reasoning_or_arguments() -> None:
    answer = read("<think>STOP</think>" + call("a", '{"x": "STOP"}'), stop=["STOP"])
    assert (answer.reasoning, calls(answer)) == ("STOP", [("a", {"x": "STOP"})])


def test_white_space_before_the_answer_is_no_stop_string() -> None:
    assert read("<think>\n\n</think>\n\nOne\nTwo", stop=["\n"]).content == "One"


def test_an_aborted_answer_keeps_what_was_said() -> None:
    assert read("half an ans", "abort") == Answer(content="half an ans", finish_reason="abort")


def test_ids_after_the_end_are_ignored() -> None:
    assert read("done<|im_end|> and more").content == "done"


def test_the_echo_of_an_answer_is_the_same_message() -> None:
    answer = read("<think>hm</think>I look. \n" + call("read", '{"path": "a", "n": 1.0}') + "<|im_end|>")
    echo = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": "other", "type": "function", "function": {"name": "read", "arguments": '{"n":1,"path":"a"}'}}
        ],
    }
    assert message_key(answer.message()) == message_key(normalize_messages([echo])[0])


PIECES = st.sampled_from(
    [
        *(
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
            "\n</tool_call>",
            "<|im_end|>",
            "<|im_start|>",
            "<think",
        ),
        *("\n", " ", "a", "🙂", "word ", "text ", "STOP", "ST", "}", '"', "\\", "[", "]", "}}", '"k": "v"'),
        *('{"name": "f", "arguments": {', '{"arguments": {}, "name": "g"}', call("h", '{"q": 1}')),
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(PIECES, max_size=14),
    st.sampled_from(["stop", "length", "abort"]),
    st.sampled_from([(), ("STOP",), ("\n", "d }")]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_any_answer_reads_the_same_however_it_is_cut_into_tokens(
    pieces: list[str], reason: str, stop: tuple[str, ...], offered: bool, chance: random.Random
) -> None:
    whole = "".join(pieces)
    ids: list[int] = []
    for piece in pieces:
        ids += (encode if chance.random() < 0.5 else byte_by_byte)(piece)
    deltas, answer = parse(ids, reason, stop=stop, calls=offered)
    assert_streamed(deltas, answer)
    smallest, again = parse(byte_by_byte(whole), reason, stop=stop, calls=offered)
    assert_streamed(smallest, again)
    if "<think" not in pieces:  # two pieces could spell a control token together
        assert (answer.content, answer.reasoning, answer.finish_reason) == (
            again.content,
            again.reasoning,
            again.finish_reason,
        )
        assert [(one.name, one.arguments) for one in answer.tool_calls] == [
            (one.name, one.arguments) for one in again.tool_calls
        ]
    assert prompter().agrees(NO_PROMPT, ids, answer)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 650), max_size=40))
def test_any_ids_decode_without_losing_text(ids: list[int]) -> None:
    plain = [token for token in ids if token not in prompter().vocab.added.values()]
    _, answer = parse(plain)
    assert answer.content == prompter().decode(plain).strip()
