"""Measure the guard: it must reject poisoned batches and accept all ordinary versions.

    python -m bench.guard [--seeds 5] [--versions 20] [--problems 60] [--json] [--save FILE]

Each seed and method has a separate service. The simulated student talks until `--versions` versions exist; none may be
rejected. Then one batch gets inverted feedback (👎 for answers that satisfy the student, 👍 for the others). After more
ordinary conversations, a batch of answers sampled at the highest temperature gets 👍. Both batches must be rejected.
Held-out problems are asked before and after each, and `versions` and `why` must explain the rejection.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from bench.program import log, parser, report, run
from openclaw_rl.evaluation.conversation import converse
from openclaw_rl.evaluation.personas import create, take
from openclaw_rl.evaluation.probe import Probe, probe
from openclaw_rl.evaluation.service import own_service
from openclaw_rl.proxy.routes.story import story
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.gather import gather

BATCH = 8
PATIENCE = 120.0
HOT = 2.0
MAX_TOKENS = 128
POISONS = ("inverted", "gibberish")
METHODS: dict[str, dict[str, Any]] = {
    "rehearse": {},
    # The published rates do not move the shipped policy within so few versions; this one does (docs/guard.md).
    "binary": {"method": "binary", "learning_rate": 1e-3, "epochs": 4},
}


@dataclass
class Story:
    """The result of one seed and method. `probes`: held-out style and accuracy, by time."""

    seed: int
    method: str
    made: int = 0
    false: list[str] = field(default_factory=list)
    probes: dict[str, Probe] = field(default_factory=dict)
    poisons: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)

    def note(self, version: dict[str, Any]) -> None:
        """Count a version made from ordinary conversations."""
        guard = version["guard"]
        self.made += 1
        if version["state"] == "rejected":
            self.false.append(f"seed {self.seed}, version {version['number']}: {guard.get('reason', '')}")
            return
        self.seconds.append(guard.get("seconds", 0.0) + guard.get("rewards", {}).get("seconds", 0.0))
        self.step_seconds.append(version["metrics"].get("seconds", 0.0))
        answers, rewards = guard.get("answers", {}), guard.get("rewards", {})
        figures = {
            "kl_parent": guard.get("kl_parent"),
            "kl_base": guard.get("kl_base"),
            "accepted_drop": guard.get("accepted", {}).get("drop"),
            "flawed": answers["candidate"]["flawed"] if answers else None,
            "flawed_parent": answers["parent"]["flawed"] if answers else None,
            "against_less_agreed": rewards["against"] - rewards["agreed"] if rewards else None,
        }
        self.figures.append({name: value for name, value in figures.items() if value is not None})

    def line(self) -> str:
        """One line of progress."""
        fates = ", ".join(
            f"{kind} {'rejected' if poison['rejected'] else 'NOT REJECTED'} ({poison['reason']})"
            for kind, poison in self.poisons.items()
        )
        return f"seed {self.seed}, {self.method}: {self.made} versions, {len(self.false)} false rejections; {fates}"


class Talk:
    """A student who talks to a service until it makes a version of the conversations."""

    def __init__(self, client: ChatClient, seed: int) -> None:
        self._client = client
        self._persona = create("student", seed)
        self._tasks = self._persona.tasks("train", seed)

    async def versions(self) -> list[dict[str, Any]]:
        """All versions, by number."""
        return list((await self._client.get("/rl/versions"))["versions"])

    async def until_next(self) -> dict[str, Any]:
        """Hold ordinary conversations until there is a new version; returns it."""
        return await self._repeat(lambda: converse(self._client, self._persona, next(self._tasks)))

    async def poison(self, kind: str) -> tuple[dict[str, Any], list[str]]:
        """Give inverted feedback (`inverted`) or praise noise (`gibberish`) until there is a new version.

        Returns the version and the turns.
        """
        turns: list[str] = []
        options: dict[str, Any] = {"temperature": HOT} if kind == "gibberish" else {}

        async def rate_one() -> None:
            if len(turns) >= 4 * BATCH:
                return
            question = self._persona.ask(next(self._tasks))
            reply = await self._client.chat([{"role": "user", "content": question}], max_tokens=MAX_TOKENS, **options)
            content = self._persona.react(reply.text).mood == "thanks"
            thumb = "up" if kind == "gibberish" or not content else "down"
            await self._client.post("/rl/feedback", {"turn_id": reply.turn_id, "thumb": thumb})
            turns.append(reply.turn_id)

        return await self._repeat(rate_one), turns

    async def _repeat(self, talk: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        """Call `talk` while less than a batch waits, until there is a new version."""
        known = len(await self.versions())
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            backlog = (await self._client.get("/rl/status"))["backlog"]
            if backlog["ready"] + backlog["unjudged"] >= BATCH:
                await asyncio.sleep(0.2)
            else:
                await talk()
            versions = await self.versions()
            if len(versions) > known and versions[known]["state"] != "candidate":
                return versions[known]
        raise TimeoutError(f"no version after {PATIENCE:.0f} s")


async def run_seed(seed: int, method: str, *, versions: int, problems: int) -> Story:
    """Run one seed with one method, from the first conversation to the second poisoned batch."""
    settings = {"seed": seed, "batch_size": BATCH, "audit_fraction": 0, **METHODS[method]}
    story = Story(seed, method)
    async with own_service(settings) as service, ChatClient(service.url, service.key) as client:
        talk = Talk(client, seed)
        held_out = take(create("student", seed), "held-out", seed, problems)

        async def take_probe(when: str) -> None:
            story.probes[when] = await probe(client, held_out, persona=create("student", seed + 1_000_003))

        await take_probe("base")
        while story.made < versions:
            story.note(await talk.until_next())
        for kind in POISONS:
            await take_probe(f"before {kind}")
            live = (await client.get("/rl/status"))["version"]["live"]
            version, turns = await talk.poison(kind)
            await take_probe(f"after {kind}")
            story.poisons[kind] = {
                "version": version["number"],
                "rejected": version["state"] == "rejected",
                "reason": version["guard"].get("reason", ""),
                "live_stays": (await client.get("/rl/status"))["version"]["live"] == live,
                "why": await _why(client, turns, version["number"]),
            }
            story.note(await talk.until_next())
        log.print(story.line(), markup=False)
    return story


async def _why(client: ChatClient, turns: list[str], number: int) -> bool:
    """True if `why` explains the rejection of every turn of the version."""
    stories = ["\n".join(story(await client.get(f"/rl/turns/{turn}"))) for turn in turns]
    named = [text for text in stories if f"version {number}" in text]
    return bool(named) and all("was rejected" in text for text in named)


def result(stories: list[Story]) -> dict[str, Any]:
    """Summarize the figures by method."""
    summary: dict[str, Any] = {"seeds": len({one.seed for one in stories}), "methods": {}}
    for method in dict.fromkeys(one.method for one in stories):
        mine = [one for one in stories if one.method == method]
        summary["methods"][method] = {
            "settings": METHODS[method],
            "versions": sum(one.made for one in mine),
            "false_rejections": [reason for one in mine for reason in one.false],
            "poisons": {
                kind: {
                    "batches": len(mine),
                    "rejected": sum(one.poisons[kind]["rejected"] for one in mine),
                    "live_stays": all(one.poisons[kind]["live_stays"] for one in mine),
                    "why": all(one.poisons[kind]["why"] for one in mine),
                    "style": [_means(mine, f"{when} {kind}", "style") for when in ("before", "after")],
                    "accuracy": [_means(mine, f"{when} {kind}", "accuracy") for when in ("before", "after")],
                    "reasons": [one.poisons[kind]["reason"] for one in mine],
                }
                for kind in POISONS
            },
            "base": {name: _means(mine, "base", name) for name in ("style", "accuracy")},
            "guard_seconds": _spread([value for one in mine for value in one.seconds]),
            "step_seconds": _spread([value for one in mine for value in one.step_seconds]),
            "figures": _ranges([row for one in mine for row in one.figures]),
        }
    return summary


def _means(stories: list[Story], when: str, name: str) -> float:
    return round(mean(float(getattr(one.probes[when], name)) for one in stories), 4)


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": round(mean(values), 3), "max": round(max(values), 3)} if values else {}


def _ranges(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Minimum and maximum of each figure over the accepted versions."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return {name: [min(values), max(values)] for name, values in sorted(found.items())}


async def measure(options: Any) -> None:
    """Run the seeds one after another, the methods of each in parallel."""
    stories: list[Story] = []
    for seed in range(1, options.seeds + 1):
        sizes = {"versions": options.versions, "problems": options.problems}
        stories += await gather(*(run_seed(seed, method, **sizes) for method in options.methods.split(",")))
    found = result(stories)
    rows = []
    for method, figures in found["methods"].items():
        for kind, poison in figures["poisons"].items():
            row = [method, kind, f"{poison['rejected']} of {poison['batches']}"]
            row += [f"{poison[name][0]:.3f} → {poison[name][1]:.3f}" for name in ("style", "accuracy")]
            row.append(f"{len(figures['false_rejections'])} of {figures['versions']}")
            row.append(f"{figures['guard_seconds']['mean']:.2f} of {figures['step_seconds']['mean']:.2f}")
            rows.append(row)
    columns = ["method", "poison", "rejected", "style", "accuracy", "false rejections", "guard s of step s"]
    report(options, "Poisoned batches", columns, rows, found)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--versions", type=int, default=20, help="versions of the normal run")
    options.add_argument("--problems", type=int, default=60, help="held-out problems of each probe")
    options.add_argument("--methods", default=",".join(METHODS), help="comma-separated")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
