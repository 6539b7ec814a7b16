"""Evaluate one target in every suite, with every persona and seed; means with intervals over seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from openclaw_rl.evaluation import suites
from openclaw_rl.evaluation.arm import settled
from openclaw_rl.evaluation.conversation import sessions_needed, until_satisfied
from openclaw_rl.evaluation.personas import Persona, create, take
from openclaw_rl.evaluation.probe import probe
from openclaw_rl.evaluation.problems import Problem
from openclaw_rl.evaluation.statistics import spread
from openclaw_rl.evaluation.suites import SuiteTask
from openclaw_rl.evaluation.targets import Target
from openclaw_rl.evaluation.user import ModelUser, User
from openclaw_rl.shared.chat_client import ChatClient, ChatError
from openclaw_rl.shared.errors import ConfigError

CONVERSATION = "conversation"
SUITES = (CONVERSATION, "coding", "tool-use")
PATIENCE = 90.0


@dataclass(frozen=True)
class Work:
    """The work of an evaluation. `problems`: first replies per persona and seed. `sessions`: maximum sessions of the
    second metric, which the service may learn from; 0 omits it. `suites`: tasks by suite. `user`: LiteLLM model that
    plays the personas, empty for the built-in ones. `comment_words`: words of a detailed comment.
    """

    seeds: Sequence[int] = (1, 2, 3)
    personas: Sequence[str] = ()
    problems: int = 36
    sessions: int = 0
    suites: Mapping[str, Sequence[SuiteTask]] = field(default_factory=dict)
    dataset: Sequence[Problem] = ()
    user: str = ""
    user_api_base: str = ""
    user_api_key: str = ""
    comment_words: int = 0
    max_tokens: int = 512

    def person(self, name: str, seed: int) -> Persona:
        """A persona with its arguments in this work."""
        return create(name, seed, **self.habits(name))

    def habits(self, name: str) -> dict[str, Any]:
        """The arguments of a persona besides the seed. Raises `ConfigError` for a data set without a student."""
        if self.dataset and name != "student":
            raise ConfigError(
                f"a data set has problems to solve and none to grade: --dataset goes with student, not {name}"
            )
        if name == "student":
            return {"own_problems": self.dataset}
        return {"enough_words": self.comment_words} if name == "ta" and self.comment_words else {}

    def reader(self, name: str) -> User | None:
        """The model that plays a persona, if one does."""
        if not self.user:
            return None
        return ModelUser(self.user, name, api_base=self.user_api_base, api_key=self.user_api_key)


async def evaluate(target: Target, work: Work, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The result of a target as JSON: `conversation` by persona, then the other suites; `score` and `accuracy` are
    [mean, half-width of the 95 % interval or null].

    Raises `ChatError` and `UserError`.
    """
    result: dict[str, Any] = {"name": target.name, "model": target.model}
    async with ChatClient(target.url, target.key, model=target.model) as client:
        for name in work.personas:
            runs = [await _persona(client, work, name, seed, target, say) for seed in work.seeds]
            result.setdefault(CONVERSATION, {})[name] = _persona_summary(runs, work)
        for suite, tasks in work.suites.items():
            runs = [await _suite(client, suite, tasks, seed, target, say) for seed in work.seeds]
            result[suite] = {"score": spread([run["score"] for run in runs]), "tasks": len(tasks), "seeds": runs}
    return result


async def _persona(
    client: ChatClient, work: Work, name: str, seed: int, target: Target, say: Callable[[str], None]
) -> dict[str, Any]:
    persona = work.person(name, seed)
    user = work.reader(name)
    tasks = take(persona, "held-out", seed, work.problems)
    found = await probe(client, tasks, persona=persona, user=user, seed=seed, max_tokens=work.max_tokens)
    run: dict[str, Any] = {
        "seed": seed,
        "score": round(found.style, 4),
        "accuracy": round(found.accuracy, 4),
        "escape": round(found.escape, 4),
        "forms": found.forms,
        "unscored": found.unscored,
    }
    line = f"{target.name}, {name}, seed {seed}: score {found.style:.2f}, accuracy {found.accuracy:.2f}"
    if work.sessions:
        limits = {"limit": work.sessions, "max_tokens": work.max_tokens}
        learner = persona.tasks("train", seed)
        scores = await until_satisfied(client, persona, learner, user=user, after=lambda: _quiet(client), **limits)
        needed = sessions_needed(scores)
        run |= {"sessions": needed, "session_scores": scores}
        line += f", satisfied after {needed or f'more than {work.sessions}'} sessions"
    say(line)
    return run | {"tasks": msgspec.to_builtins(found.replies)}


def _persona_summary(runs: Sequence[dict[str, Any]], work: Work) -> dict[str, Any]:
    summary: dict[str, Any] = {
        name: spread([run[name] for run in runs]) for name in ("score", "accuracy", "escape")
    } | {"unscored": sum(run["unscored"] for run in runs), "problems": work.problems}
    if work.sessions:
        reached = [run["sessions"] for run in runs if run["sessions"] is not None]
        summary["sessions"] = spread(reached) if len(reached) == len(runs) else None
        summary["sessions_limit"] = work.sessions
    return summary | {"seeds": list(runs)}


async def _suite(
    client: ChatClient, suite: str, tasks: Sequence[SuiteTask], seed: int, target: Target, say: Callable[[str], None]
) -> dict[str, Any]:
    scores = await suites.run(client, tasks, seed=seed)
    mean = sum(score.score for score in scores) / len(scores)
    say(f"{target.name}, {suite}, seed {seed}: score {mean:.2f}")
    return {"seed": seed, "score": round(mean, 4), "tasks": msgspec.to_builtins(scores)}


async def _quiet(client: ChatClient) -> None:
    """Wait (bounded) until a service with a learner has learned from its feedback."""
    with contextlib.suppress(ChatError):
        status = await client.get("/rl/status")
        if status.get("processes", {}).get("learner", {}).get("alive"):
            await settled(client, batch=0, patience=PATIENCE)
