"""`openclaw-rl diff A B`: two versions of the policy answer the same prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service
from openclaw_rl.cli.tables import console, table, visible
from openclaw_rl.cli.trajectories.trajectory import answer_text, wire_message
from openclaw_rl.learner.guard.degeneration import loops
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.messages.normalize import normalize_messages, text_of
from openclaw_rl.shared.records import Message

SECONDS = 600.0
UNRECORDED = {"X-RL-Train": "never", "X-Turn-Type": "side"}


class AskedPrompt(msgspec.Struct, frozen=True):
    """A prompt; `answer` is the one that was recorded, and `score` what became known of it."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    turn_id: str = ""
    answer: str = ""
    score: float | None = None


class VersionAnswer(msgspec.Struct, frozen=True):
    """A version's answer. `score` is that of the same answer to the same prompt, `None` where no one has given one;
    `flaw` is a sign of a broken policy, or "".
    """

    text: str
    tokens: int
    score: float | None = None
    flaw: str = ""

    @classmethod
    def to(cls, prompt: AskedPrompt, text: str, tokens: int) -> VersionAnswer:
        """An answer to a prompt."""
        known = prompt.score if prompt.turn_id and text.strip() == prompt.answer.strip() else None
        words = [hash(word) for word in text.split()]
        return cls(text, tokens, known, "empty" if not words else "repetition" if loops(words) else "")


def diff(
    first: Annotated[int, typer.Argument(metavar="A", min=0, help="Version")],
    second: Annotated[int, typer.Argument(metavar="B", min=0, help="Version to compare it with")],
    prompt: Annotated[list[str] | None, typer.Option("--prompt", help="A prompt; may be repeated")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Prompts, one a line: a text, or JSON with messages and tools")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of recent main turns, if none is given")] = 8,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Maximum tokens of an answer")] = 256,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Ask both versions, one prompt after another, and show both answers. Raises `ConfigError`, `ServiceError`."""
    asked = service(data, url, key)
    prompts = [AskedPrompt([{"role": "user", "content": text}]) for text in prompt or ()]
    prompts += _read(file) if file is not None else []
    prompts = prompts or list(islice(recent(asked), limit))
    if not prompts:
        raise ConfigError("no main turn is recorded whose prompt could be asked; give one with --prompt")
    numbers, own = (first, second), asked.policy()
    models = [f"{own}@{number}" for number in numbers]
    rows = []
    for one in prompts:
        answers = [_ask(asked, model, one, max_tokens) for model in models]
        rows.append({"turn_id": one.turn_id, "prompt": _last_words(one), "answers": msgspec.to_builtins(answers)})
        if not as_json:
            _show(models, one, answers)
    result = {"versions": numbers, **summary([row["answers"] for row in rows]), "prompts": rows}
    if as_json:
        print_json(result)
        return
    shown = table("", *(f"#version {number}" for number in numbers))
    for name in ("tokens", "score", "scored", "flawed"):
        shown.add_row(name, *("–" if value is None else f"{value:g}" for value in result[name]))
    console().print(shown)
    typer.echo(f"{result['same']} of {len(rows)} answers are the same")


def summary(pairs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Mean tokens, mean known score, and counts, a value for each version; and how many answers are the same."""
    columns = list(zip(*pairs, strict=True))
    scores = [[one["score"] for one in column if one["score"] is not None] for column in columns]
    return {
        "same": sum(a["text"].strip() == b["text"].strip() for a, b in pairs),
        "tokens": [round(sum(one["tokens"] for one in column) / len(column), 1) for column in columns],
        "score": [round(sum(found) / len(found), 3) if found else None for found in scores],
        "scored": list(map(len, scores)),
        "flawed": [sum(bool(one["flaw"]) for one in column) for column in columns],
    }


def recent(asked: Service) -> Iterator[AskedPrompt]:
    """The prompts of recorded main turns, the sessions last seen first, in each the last turn first."""
    for session in asked.get("/rl/sessions", limit=50)["items"]:
        row = asked.get(f"/rl/sessions/{quote(session['session_id'], safe='')}")
        for turn in reversed(row["turns"]):
            if turn["kind"] == "main" and turn["status"] == "complete":
                yield of_turn(asked.get(f"/rl/turns/{turn['turn_id']}"))


def of_turn(explained: Mapping[str, Any]) -> AskedPrompt:
    """The prompt of a turn, with the score of its latest judgement."""
    turn, judgements = explained["turn"], explained["judgements"]
    score = judgements[-1]["score"] if judgements else None
    messages = list(map(wire_message, turn["messages"]))
    return AskedPrompt(messages, turn["tools"], turn["turn_id"], _text(turn["answer"]), score)


def _read(file: Path) -> list[AskedPrompt]:
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("{"):
            found.append(AskedPrompt([{"role": "user", "content": line}]))
            continue
        try:
            body = json.loads(line)
            found.append(AskedPrompt(body["messages"], body.get("tools", ())))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file}, line {number}: no JSON object with messages ({error})") from error
    return found


def _ask(asked: Service, model: str, prompt: AskedPrompt, max_tokens: int) -> VersionAnswer:
    """The answer of a version, which is not recorded. Raises `ServiceError`."""
    body: dict[str, Any] = {"model": model, "messages": prompt.messages, "temperature": 0, "max_tokens": max_tokens}
    if prompt.tools:
        body["tools"] = prompt.tools
    answer = asked.post("/v1/chat/completions", body, headers=UNRECORDED, seconds=SECONDS)
    (given,) = normalize_messages([answer["choices"][0]["message"]])
    return VersionAnswer.to(prompt, _text(given), int(answer["usage"]["completion_tokens"]))


def _show(models: Sequence[str], prompt: AskedPrompt, answers: Sequence[VersionAnswer]) -> None:
    typer.echo(visible(f"› {_last_words(prompt)}"))
    for model, one in zip(models, answers, strict=True):
        notes = [f"{one.tokens} tokens", *([f"score {one.score:g}"] if one.score is not None else [])]
        notes += [one.flaw.upper()] if one.flaw else []
        typer.echo(visible(f"{model} ({', '.join(notes)}): {one.text}"))
    typer.echo("")


def _last_words(prompt: AskedPrompt) -> str:
    return text_of(dict(prompt.messages[-1])) if prompt.messages else ""


def _text(answer: Message) -> str:
    """The text of a canonical answer and its calls of tools, without its reasoning."""
    return answer_text({**answer, "reasoning": ""})
