"""Measure the rules on requests, user messages and tool results of programs that they were not written for.

    python -m bench.strangers [--folder FOLDER] [--json] [--save FILE]

The cases (`tests/fixtures/strangers`, in a checkout of the project) were collected without sight of the rules, and no
rule may be written with sight of them: only totals are reported. Requests are main or side. A user message is right if
exactly the words that a person typed are kept as theirs. A tool result is right if the rules' score says that the call
failed or worked; where a result does not tell, any score is wrong.

Each request is classified by itself, each message and result read by itself. A service also knows the conversation that
they belong to. `--save` keeps the
figures of other versions of the rules that FILE has, under `earlier`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.program import parser, report, run
from openclaw_rl.evaluation.reactions import LabelledReaction
from openclaw_rl.learner.judge.rules.rules import VERSION, RuleJudge
from openclaw_rl.proxy.conversation.chain import BETWEEN, Chain
from openclaw_rl.proxy.conversation.classify import Evidence, classify
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.messages.normalize import ChatInput, normalize_chat
from openclaw_rl.shared.records import NextState, ToolResult

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "strangers"
Case = Mapping[str, Any]
KINDS = ("requests", "speech", "tool_results")
CALL = "call_1"
VERDICTS = {-1.0: "failed", 1.0: "ok"}
RESULT_CLASSES = ("failed", "ok", "unknown")


def measure(options: argparse.Namespace) -> None:
    """Read every case. Raises `ConfigError` where there are none."""
    result = asyncio.run(_measure(options.folder))
    result["earlier"] = earlier(options.save, result["rules"])
    report(options, "Programs that the rules were not written for", columns(result), rows(result), result)


async def _measure(folder: Path) -> dict[str, Any]:
    requests = tables("main", "side", "sub-agent")
    for case in cases(folder / "utility.jsonl"):
        truth = "sub-agent" if case["kind"] == "subagent" else case["truth"]
        count(requests, truth, read_request(case["request"]))
    speech = tables("a person's words alone", "a person's words and a program's", "a program's words alone")
    for case in cases(folder / "speech.jsonl"):
        count(speech, speech_class(case), compare_words(case["person"], read_words(case["text"])))
    results = tables(*RESULT_CLASSES)
    for case in cases(folder / "tool_results.jsonl"):
        count(results, case["truth"], await read_result(case))
    return {"rules": VERSION, "requests": requests, "speech": speech, "tool_results": results}


def earlier(saved: Path | None, rules: str) -> dict[str, Any]:
    """The figures of other rules than these that a saved result has, by their version."""
    if saved is None or not saved.is_file():
        return {}
    found = json.loads(saved.read_text("utf-8"))
    every = {**found.get("earlier", {}), found["rules"]: {kind: found[kind] for kind in KINDS}}
    return {version: figures for version, figures in every.items() if version != rules}


def cases(path: Path) -> Iterator[Case]:
    """The lines of a file."""
    if not path.is_file():
        raise ConfigError(
            f"{path} is not there: it is part of a checkout of the project; --folder names another folder"
        )
    for line in path.read_text("utf-8").splitlines():
        yield json.loads(line)


def tables(*classes: str) -> dict[str, dict[str, int]]:
    """For each class, how often it was read as what."""
    return {name: {} for name in classes}


def count(counted: dict[str, dict[str, int]], truth: str, read: str) -> None:
    """Count a case of the class `truth`."""
    counted[truth][read] = counted[truth].get(read, 0) + 1


def read_request(request: Mapping[str, Any]) -> str:
    """The class that the proxy gives a request: main or side."""
    system = request["system"]
    messages = [*([{"role": "system", "content": system}] if system else []), *request["messages"]]
    chat = normalize_chat({"messages": messages})
    chain = Chain(chat.messages)
    evidence = Evidence(
        request["headers"], chat.messages, bool(request["tools"]), chain.speeches, feedback=chain.answers_feedback
    )
    return classify(evidence).kind


def read_words(text: str) -> str:
    """The words of a person that the journal would keep of a user message. The answer before it tells nothing of it."""
    said = ("user", "Hello."), ("assistant", "Hello"), ("user", text)
    chat: ChatInput = normalize_chat({"messages": [{"role": role, "content": words} for role, words in said]})
    return BETWEEN.join(Chain(chat.messages).after(1).persons)


def speech_class(case: Case) -> str:
    """The class of a user message."""
    if not case["person"]:
        return "a program's words alone"
    whole = squeeze(case["person"]) == squeeze(case["text"])
    return "a person's words alone" if whole else "a person's words and a program's"


def compare_words(typed: str, read: str) -> str:
    """Compare what a person typed with what was read as theirs, whatever white space is in it."""
    typed, read = squeeze(typed), squeeze(read)
    if typed == read:
        return "right"
    if typed and not read:
        return "a program's"
    return "more than was typed" if typed in read else "other than was typed"


def squeeze(text: str) -> str:
    """The text with single blanks."""
    return " ".join(text.split())


async def read_result(case: Case) -> str:
    """The verdict of the rules on a tool result."""
    call = {"id": CALL, "name": case["tool"], "arguments": case["arguments"]}
    turn = LabelledReaction(answer="", text="", score=0).turn()
    turn.answer["tool_calls"] = [call]
    state = NextState(
        turn_id=turn.turn_id,
        role="tool",
        text=case["content"],
        results=(ToolResult(0, CALL, case["is_error"]),),
    )
    judged = await RuleJudge().judge(turn, state)
    return VERDICTS.get(judged.score, "unknown") if judged.score is not None else "unknown"


def is_right(truth: str, read: str) -> bool:
    """True if a case of this class was read rightly."""
    return read == "right" or read == truth or (truth == "sub-agent" and read == "side")


def share(read_as: Mapping[str, int], truth: str) -> str:
    """The cases of a class that were read rightly, of all."""
    right, number = sum(times for read, times in read_as.items() if is_right(truth, read)), sum(read_as.values())
    return f"{right}/{number}" + (f" ({100 * right / number:.0f} %)" if number else "")


def columns(result: Mapping[str, Any]) -> list[str]:
    """The columns of the table of a result."""
    return ["cases", "class", *(f"right, {rules}" for rules in (*result["earlier"], result["rules"])), "wrong: read as"]


def rows(result: Mapping[str, Any]) -> list[list[str]]:
    """The rows of the table of a result, under `columns`."""
    found = []
    for kind in KINDS:
        for truth, read_as in result[kind].items():
            shares = [share(figures[kind][truth], truth) for figures in (*result["earlier"].values(), result)]
            wrong = [f"{read} {times}" for read, times in sorted(read_as.items()) if not is_right(truth, read)]
            found.append([kind.replace("_", " "), truth, *shares, ", ".join(wrong) or "–"])
    return found


def main() -> int:
    """Run the program; returns the exit code."""
    options = parser(__doc__)
    options.add_argument("--folder", type=Path, default=FOLDER, help="the cases (default: those of the checkout)")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
