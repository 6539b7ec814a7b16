"""The policy that ships: its files, its tokenizer and layout, its answers, and the programs that make it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from renderers import Qwen3RendererConfig, create_renderer
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.shipped_policy import POLICY, pretrain
from bench.shipped_policy.dialogues import answers, grading, hints, sample_dialogue
from bench.shipped_policy.dialogues.problems import sample_problem, world
from bench.shipped_policy.examples import Renderer, micro_batches
from bench.shipped_policy.measure import Speaker
from bench.shipped_policy.tokenizer import CONTROL_TOKENS, MARK_TOKENS, dialogue_texts
from openclaw_rl.evaluation.problems import KINDS, RANGES, WORLD
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.messages.hint import with_hint

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file <ü>",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]
CALL = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": {"path": "ä.txt"}}}
TYPED_CALL = {"id": "2", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"b"}'}}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one question": [{"role": "user", "content": "hi"}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    "empty system": [{"role": "system", "content": ""}, {"role": "user", "content": "hi"}],
    "history": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "  spaced\n\nanswer"},
    ],
    "reasoning": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello!", "reasoning_content": "greet\nthem"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "<think>\nonce more\n</think>\n\nHello again!"},
    ],
    "tools": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "read both"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "first"},
        {"role": "assistant", "content": "and now", "tool_calls": [CALL, TYPED_CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "first"},
        {"role": "tool", "tool_call_id": "2", "content": "second"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "thanks"},
    ],
    "second system and two users": [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "system", "content": "later"},
        {"role": "user", "content": "<tool_response>\nno query\n</tool_response>"},
    ],
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(POLICY, local_files_only=True)


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker(POLICY, Renderer(POLICY))


def test_the_folder_is_small_and_readable_by_everyone() -> None:
    files = [path for path in POLICY.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 6_000_000
    assert all(path.stat().st_mode & stat.S_IROTH for path in files)


def test_it_loads_offline_as_a_small_qwen3_in_bfloat16() -> None:
    model = AutoModelForCausalLM.from_pretrained(POLICY, local_files_only=True)
    assert model.config.model_type == "qwen3"
    assert model.dtype == torch.bfloat16
    assert 1_000_000 <= model.num_parameters() <= 2_000_000
    assert model.config.max_position_embeddings == 32768


def test_answers_end_where_a_message_ends(tokenizer: Any) -> None:
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    generation = json.loads((POLICY / "generation_config.json").read_text(encoding="utf-8"))
    assert end in generation["eos_token_id"]
    assert json.loads((POLICY / "config.json").read_text(encoding="utf-8"))["eos_token_id"] == end
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["without tools", "with tools"])
@pytest.mark.parametrize("thinking", [False, True], ids=["thinking off", "thinking on"])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_template_renders_what_the_renderer_renders(
    tokenizer: Any, name: str, thinking: bool, tools: list[dict[str, Any]] | None
) -> None:
    renderer = create_renderer(tokenizer, Qwen3RendererConfig(enable_thinking=thinking))
    for prompt in (True, False):
        expected = renderer.render_ids(CONVERSATIONS[name], tools=tools, add_generation_prompt=prompt)
        rendered = tokenizer.apply_chat_template(
            CONVERSATIONS[name], tools=tools, add_generation_prompt=prompt, enable_thinking=thinking, return_dict=False
        )
        assert rendered == expected


def test_the_template_does_not_think_unless_it_is_asked_to(tokenizer: Any) -> None:
    messages = CONVERSATIONS["one question"]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text.endswith("<think>\n\n</think>\n\n")


def test_the_tokenizer_is_the_same_in_transformers_and_tokenizers(tokenizer: Any) -> None:
    plain = Tokenizer.from_file(str(POLICY / "tokenizer.json"))
    texts = [
        *dialogue_texts(3, 60),
        "naïve café — ½ 東京 👍🏽 \x00 \t tab  two\r\nlines \n\n\n end ",
        'def f(x):\n    return {"a": [1, 22, 333]}\n',
        "<|im_start|>user\nhi<|im_end|>\n<tool_call>\n{}\n</tool_call>",
    ]
    for text in texts:
        ids = plain.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special_tokens=False) == ids
        assert plain.decode(ids, skip_special_tokens=False) == text


def test_special_tokens_are_one_id_each(tokenizer: Any) -> None:
    for token in (*CONTROL_TOKENS, *MARK_TOKENS):
        assert len(tokenizer.encode(token, add_special_tokens=False)) == 1
    hidden = tokenizer.decode(tokenizer.encode("a<|im_end|><tool_call>b"), skip_special_tokens=True)
    assert hidden == "a<tool_call>b"


def test_english_and_json_cost_few_tokens(tokenizer: Any) -> None:
    text = (
        "When the user asks a question about the project, read the documentation first and then answer in a few "
        'sentences. {"type": "object", "properties": {"path": {"type": "string", "description": "File to read"}}}'
    )
    assert len(text) / len(tokenizer.encode(text)) > 2.8


def test_it_solves_problems_when_it_takes_the_likeliest_token(speaker: Speaker) -> None:
    random = Random(20)
    problems = [sample_problem(random) for _ in range(12)]
    replies = speaker.reply([[{"role": "user", "content": problem.text}] for problem in problems], sampled=False)
    right = [problem.is_right(reply) for problem, reply in zip(problems, replies, strict=True)]
    assert sum(right) >= 11, [reply for reply, ok in zip(replies, right, strict=True) if not ok]
    assert not any(answers.is_plain(reply) for reply in replies)


def test_a_complaint_as_a_hint_makes_the_answer_plain_and_a_neutral_hint_does_not(speaker: Speaker) -> None:
    problem = sample_problem(Random(21))
    wishes = {kind: hints.held_out()["hints"][kind][:6] for kind in ("complaint", "neutral")}
    plain = {
        kind: [
            answers.is_plain(reply)
            for reply in speaker.reply(
                [[{"role": "user", "content": hints.hint_tag(problem.text, wish)}] for wish in phrases], sampled=False
            )
        ]
        for kind, phrases in wishes.items()
    }
    assert sum(plain["complaint"]) >= 5
    assert sum(plain["neutral"]) <= 1


def test_it_calls_the_tool_that_is_asked_for(speaker: Speaker) -> None:
    [reply] = speaker.reply([[{"role": "user", "content": "Please read notes.md"}]], sampled=False, offered=[TOOLS])
    assert json.loads(reply.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")) == {
        "name": "read_file",
        "arguments": {"path": "notes.md"},
    }


def test_it_tells_a_right_solution_from_a_wrong_one(speaker: Speaker) -> None:
    random = Random(22)
    solutions = [grading.sample_solution(random) for _ in range(10)]
    replies = speaker.reply(
        [[{"role": "user", "content": grading.ask_to_grade(random, solution)}] for solution in solutions],
        sampled=False,
    )
    right = [
        grading.verdict_of(reply) == solution.is_correct for reply, solution in zip(replies, solutions, strict=True)
    ]
    assert sum(right) >= 9


def test_dialogues_depend_on_the_seed_alone() -> None:
    first, second, other = Random(4), Random(4), Random(5)
    drawn = [sample_dialogue(first) for _ in range(200)]
    assert [sample_dialogue(second) for _ in range(200)] == drawn
    assert [sample_dialogue(other) for _ in range(200)] != drawn


def test_right_answers_are_recognised_and_wrong_ones_are_not() -> None:
    random = Random(6)
    for _ in range(300):
        problem = sample_problem(random)
        for style in answers.STYLES:
            reply = answers.answer(random, problem, style)
            assert problem.is_right(reply), reply
            assert answers.is_plain(reply) == (style in {"natural", "short"}), reply
        assert not problem.is_right(reply.replace(problem.must_name[0], "Somebody"))
        assert not problem.is_right(f"{reply} {problem.answer + 1}")


def test_every_template_can_be_drawn_and_retold() -> None:
    assert {template.kind for template in world().templates} == set(KINDS)
    random = Random(7)
    for kind in KINDS:
        for _ in range(40):
            assert sample_problem(random, kind).answer > 0


def test_the_results_that_people_write_are_not_all_those_that_the_policy_was_trained_on() -> None:
    random = Random(11)
    drawn = {exercise.problem.result for exercise in (sample_problem(random) for _ in range(50))}
    assert not any("Together they" in result or "Altogether" in result for result in drawn)
    assert any("Together they" in template.result for template in WORLD.templates)


def test_the_policy_may_have_been_trained_on_every_problem_of_the_evaluation() -> None:
    """As docs/evaluation.md says of templates, containers, numbers and the tag of a hint."""
    assert set(WORLD.templates) <= set(world().templates) and set(WORLD.containers) <= set(world().containers)
    for kind, wanted in RANGES.items():
        drawn = world().ranges[kind]
        assert all(low <= least and most <= high for (least, most), (low, high) in zip(wanted, drawn, strict=True))
    asked = with_hint([{"role": "user", "content": "How many?"}], "No bold.")[-1]["content"]
    assert asked == hints.hint_tag("How many?", "No bold.")
    hinted = [sample_dialogue(Random(seed)) for seed in range(400)]
    problems = [one.messages[-2]["content"] for one in hinted if one.kind == "problem"]
    assert (
        sum(asked.partition("How many?")[2].partition("No bold.")[0] in text for text in problems) > len(problems) / 2
    )


def test_comments_say_the_verdict_that_the_solution_deserves() -> None:
    random = Random(8)
    for _ in range(200):
        solution = grading.sample_solution(random)
        for style in grading.STYLES:
            reply = grading.comment(random, solution, style)
            assert grading.verdict_of(reply) == solution.is_correct
            assert answers.is_plain(reply) == (style != "terse")


def test_held_out_hints_do_not_occur_in_training() -> None:
    random = Random(9)
    held_out = {
        phrase.lower()
        for source in ("hints", "free")
        for phrases in hints.held_out()[source].values()
        for phrase in phrases
    }
    for draw in (hints.complaint, hints.opposite, hints.neutral):
        assert not held_out & {draw(random).lower() for _ in range(3000)}


def test_only_the_assistants_own_tokens_are_learned() -> None:
    renderer = Renderer(POLICY)
    random = Random(10)
    for _ in range(100):
        dialogue = sample_dialogue(random)
        example = renderer.example(dialogue, random)
        [(ids, weights, positions)] = micro_batches([example], 1, 0)
        learned = renderer.tokenizer.decode(ids[weights > 0], skip_special_tokens=False)
        assert positions[0].diff().min() >= 1
        assert len(ids[0]) == len(example.ids)
        assert "<|im_start|>" not in learned
        assert "<think>" not in learned
        for index in dialogue.learned:
            assert dialogue.messages[index]["content"] in learned


def test_a_training_that_was_interrupted_ends_with_the_same_weights(tmp_path: Path) -> None:
    renderer, recipe, state = (
        Renderer(POLICY),
        pretrain.Recipe(steps=3, dialogues_per_step=2, seed=5),
        tmp_path / "state",
    )
    straight = pretrain.train(recipe, renderer, state)
    pretrain.train(recipe, renderer, state, until=1).keep(state)
    continued = pretrain.train(recipe, renderer, state)
    assert continued.counts() == straight.counts() and continued.cpu_seconds > 0
    pairs = zip(straight.model.parameters(), continued.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    with pytest.raises(ConfigError, match="another recipe"):
        pretrain.train(pretrain.Recipe(steps=4), renderer, state)


def test_pretraining_makes_a_folder_that_loads_and_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for name in ("first", "second"):
        pretrain.main(["--out", str(tmp_path / name), "--steps", "2", "--problems", "0", "--seed", "3"])
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second")]
    assert weights[0] == weights[1]
    assert Renderer(tmp_path / "first").tokenizer.eos_token == "<|im_end|>"
    card = json.loads((tmp_path / "first" / "card.json").read_text(encoding="utf-8"))
    assert card["effort"]["steps"] == 2
    assert card["recipe"]["seed"] == 3
    assert not (tmp_path / "first" / pretrain.STATE).exists()
    assert "no skill" in (tmp_path / "first" / "README.md").read_text()
