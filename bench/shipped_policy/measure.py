"""Measures a policy folder: right answers, styles with and without hints, verdicts, tool calls.

    python -m bench.shipped_policy.measure [--policy DIR] [--problems 400] [--seed 0] [--write]

Problems are fresh (a seed that training never uses); hints are the phrases of `held_out.json`, which training never
sees. A reply is right when its last number is the answer and it names the people and the object. Intervals are 95 %
(Wilson). Sampled means temperature 1 with nothing cut off, as the service samples.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.shipped_policy import POLICY
from bench.shipped_policy.dialogues import answers, grading, hints, talk, tools
from bench.shipped_policy.dialogues.problems import Exercise, ask, sample_problem
from bench.shipped_policy.examples import Renderer

FRESH = 7_000_000
"""Added to the seed, so that measured problems are not those that training began with."""

Messages = list[dict[str, Any]]


class Speaker:
    """Batched answers of a policy folder, in float32 on one thread."""

    def __init__(self, folder: Path, renderer: Renderer) -> None:
        torch.set_num_threads(1)
        self._renderer = renderer
        self._tokenizer = renderer.tokenizer
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def reply(
        self,
        conversations: Sequence[Messages],
        *,
        sampled: bool = True,
        offered: Sequence[list[dict[str, Any]]] | None = None,
        batch: int = 50,
    ) -> list[str]:
        """One reply for each conversation, marks such as `<tool_call>` kept, at most 200 tokens."""
        replies: list[str] = []
        for start in range(0, len(conversations), batch):
            end = start + batch
            toolsets = offered[start:end] if offered else [None] * len(conversations[start:end])
            prompts = [
                self._renderer.prompt(messages, toolset)
                for messages, toolset in zip(conversations[start:end], toolsets, strict=True)
            ]
            replies += self._batch(prompts, sampled)
        return replies

    def _batch(self, prompts: list[list[int]], sampled: bool) -> list[str]:
        width = max(len(prompt) for prompt in prompts)
        padding = self._tokenizer.pad_token_id
        ids = torch.tensor([[padding] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        choice: dict[str, Any] = (
            {"do_sample": True, "temperature": 1.0, "top_k": 0}
            if sampled
            else {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
        )
        with torch.inference_mode():
            out = self._model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=200, **choice)
        return [self._tokenizer.decode(row[width:], skip_special_tokens=True) for row in out]


def share(hits: Sequence[bool]) -> dict[str, float]:
    """A share with its 95 % Wilson interval and the number behind it."""
    count, z = len(hits), 1.96
    rate = sum(hits) / count
    middle = (rate + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return {"share": round(rate, 3), "low": round(middle - half, 3), "high": round(middle + half, 3), "of": count}


def measure(folder: Path, renderer: Renderer, count: int, seed: int) -> dict[str, Any]:
    """All figures of a policy folder; `count` problems for each."""
    torch.manual_seed(seed + FRESH)
    random = Random(seed + FRESH)
    speaker = Speaker(folder, renderer)
    problems = [sample_problem(random) for _ in range(count)]
    plain = [[_user(ask(random, problem))] for problem in problems]
    figures: dict[str, Any] = {
        "unhinted": _answers(problems, speaker.reply(plain)),
        "unhinted_greedy": _answers(problems, speaker.reply(plain, sampled=False)),
    }
    for source, suffix in (("hints", "hint"), ("free", "free_hint")):
        for kind, phrases in hints.held_out()[source].items():
            hinted = [
                [_user(hints.hint_tag(messages[0]["content"], phrases[index % len(phrases)]))]
                for index, messages in enumerate(plain)
            ]
            figures[f"{kind}_{suffix}"] = _answers(problems, speaker.reply(hinted))
    figures["complaint_as_next_turn"] = _answers(problems, speaker.reply(_complained(random, problems, plain)))
    figures["long_system_prompt"] = _long_system(random, speaker, max(1, count // 4))
    figures["equations"] = _equations(random, speaker, count)
    figures["grading"] = _grading(random, speaker, count)
    figures["tools"] = _tools(random, speaker, max(1, count // 2))
    return figures


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _last_number(text: str) -> list[str]:
    return re.findall(r"\d+", text)[-1:]


def _answers(problems: Sequence[Exercise], replies: Sequence[str]) -> dict[str, Any]:
    right = [problem.is_right(reply) for problem, reply in zip(problems, replies, strict=True)]
    number = [_last_number(reply) == [str(problem.answer)] for problem, reply in zip(problems, replies, strict=True)]
    return {
        "right": share(right),
        "number_right": share(number),
        "plain_style": share([answers.is_plain(reply) for reply in replies]),
    }


def _complained(random: Random, problems: Sequence[Exercise], plain: Sequence[Messages]) -> list[Messages]:
    phrases = hints.held_out()["hints"]["complaint"]
    return [
        [
            *messages,
            {"role": "assistant", "content": answers.answer(random, problem, "ai")},
            _user(phrases[index % len(phrases)]),
        ]
        for index, (problem, messages) in enumerate(zip(problems, plain, strict=True))
    ]


def _long_system(random: Random, speaker: Speaker, count: int) -> dict[str, Any]:
    problems = [sample_problem(random) for _ in range(count)]
    conversations = [
        [{"role": "system", "content": talk.long_system_prompt(random, 60)}, _user(ask(random, problem))]
        for problem in problems
    ]
    return _answers(problems, speaker.reply(conversations, batch=10))


def _equations(random: Random, speaker: Speaker, count: int) -> dict[str, Any]:
    drills = [talk.equation_drill(random) for _ in range(count)]
    replies = speaker.reply([[_user(question)] for question, *_ in drills])
    return {
        "right": share(
            [
                _last_number(reply) == _last_number(wanted)
                for reply, (_, wanted, _equation) in zip(replies, drills, strict=True)
            ]
        )
    }


def _grading(random: Random, speaker: Speaker, count: int) -> dict[str, Any]:
    solutions = [grading.sample_solution(random) for _ in range(count)]
    asked = [grading.ask_to_grade(random, solution) for solution in solutions]
    figures: dict[str, Any] = {}
    for kind in ("unhinted", "friendly", "detailed"):
        messages = (
            asked if kind == "unhinted" else [hints.hint_tag(text, grading.style_wish(random, kind)) for text in asked]
        )
        replies = speaker.reply([[_user(text)] for text in messages])
        figures[kind] = {
            "verdict_right": share(
                [
                    grading.verdict_of(reply) == solution.is_correct
                    for reply, solution in zip(replies, solutions, strict=True)
                ]
            ),
            "plain_style": share([answers.is_plain(reply) for reply in replies]),
        }
    return figures


def _tools(random: Random, speaker: Speaker, count: int) -> dict[str, Any]:
    wanted, conversations, offered = [], [], []
    for _ in range(count):
        toolset = tools.sample_tools(random)
        request, call, *_rest = tools.sample_exchange(random, toolset)
        wanted.append(call["tool_calls"][0]["function"])
        conversations.append([request])
        offered.append([tool.definition for tool in toolset])
    calls = [_call_in(reply) for reply in speaker.reply(conversations, offered=offered)]
    problems = [sample_problem(random) for _ in range(count)]
    asked = [[_user(problem.text)] for problem in problems]
    return {
        "valid_call": share([call is not None for call in calls]),
        "right_call": share([call == function for call, function in zip(calls, wanted, strict=True)]),
        "unknown_tool": _unknown_tools(speaker, count),
        "problem_with_tools_offered": _answers(problems, speaker.reply(asked, offered=offered)),
    }


def _unknown_tools(speaker: Speaker, count: int) -> dict[str, Any]:
    """Tools that somebody made up, one offered at a time: whether it is called, and with the right value."""
    known = hints.held_out()["tools"]
    asked = [known[index % len(known)] for index in range(count)]
    offered = [
        [tools.definition(tool["name"], tool["description"], {tool["parameter"]: {"type": "string"}})] for tool in asked
    ]
    replies = speaker.reply([[_user(tool["request"])] for tool in asked], offered=offered)
    calls = [_call_in(reply) for reply in replies]
    return {
        "called": share(
            [call is not None and call["name"] == tool["name"] for call, tool in zip(calls, asked, strict=True)]
        ),
        "right_call": share(
            [
                call == {"name": tool["name"], "arguments": {tool["parameter"]: tool["value"]}}
                for call, tool in zip(calls, asked, strict=True)
            ]
        ),
    }


def _call_in(reply: str) -> dict[str, Any] | None:
    found = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", reply.strip(), re.DOTALL)
    if found is None:
        return None
    try:
        call = json.loads(found.group(1))
    except json.JSONDecodeError:
        return None
    return call if isinstance(call, dict) and set(call) == {"name", "arguments"} else None


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a policy folder.")
    parser.add_argument("--policy", type=Path, default=POLICY)
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the figures into the folder's card.json")
    chosen = parser.parse_args()
    figures = measure(chosen.policy, Renderer(chosen.policy), chosen.problems, chosen.seed)
    if chosen.write:
        path = chosen.policy / "card.json"
        card = json.loads(path.read_text(encoding="utf-8"))
        card["figures"] = figures
        path.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
