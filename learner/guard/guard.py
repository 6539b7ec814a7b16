"""Decide whether a candidate may serve (docs/guard.md), with the engine's lowest priority and without delaying chat.

- The batch, before the step: rewards that contradict acceptances or praise noise (`learner.guard.contradiction`).
- The step's figures: finite, and close enough to the parent.
- The candidate, loaded next to the live version: how likely it finds accepted answers (`learner.guard.held_out`), how
  far its own answers are from the base, whether they degenerate (`learner.guard.degeneration`), and the user's probes
  (`learner.guard.probes`); each compared with the parent, whose answers are kept for the next candidate.

A `TrainerError` of the step (a loss or gradient that is not finite) is a verdict too.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

import msgspec

from openclaw_rl.learner.guard.answers import (
    Answers,
    GuardQuestion,
    SampledAnswer,
    Text,
    affordable,
    question_from_messages,
    question_from_turn,
)
from openclaw_rl.learner.guard.contradiction import LEAST, Rewarded, contradicts, disagreement, praised_noise
from openclaw_rl.learner.guard.degeneration import NOISE, flaws
from openclaw_rl.learner.guard.held_out import WINDOW, standing
from openclaw_rl.learner.guard.probes import GuardProbe, read
from openclaw_rl.learner.methods import taught_reward
from openclaw_rl.learner.rollouts.rehearsal import anchor_prompts
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.images import images_of, misplaced
from openclaw_rl.shared.records import Sample, Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import StepReport

MOST_ACCEPTED = 16
"""Accepted answers that are scored for a candidate."""
LEAST_ACCEPTED = 4
"""Minimum number of accepted answers for a verdict."""
LARGEST_DROP = 5.0
"""Nats per token that one answer counts at most."""
MOST_FLAWED = 0.375
"""Share of flawed answers above which a candidate with more of them than its parent is rejected."""
PROBE_TOKENS = 1024
"""Maximum tokens of an answer to a probe of the user's that names no limit."""
NEW_PROMPTS = 2
"""Recent prompts that replace older ones for each candidate."""
PROMPT_TOKENS = 32768
"""Prompt tokens that rewarded, accepted and sampled answers may cost each; shared prefixes count once."""


class GuardVerdict(msgspec.Struct, frozen=True):
    """The guard's decision, the reason for a rejection, and the figures behind it."""

    passed: bool
    reason: str = ""
    figures: Mapping[str, Any] = {}

    def report(self) -> dict[str, Any]:
        """The entry that the journal keeps with the version."""
        return {"passed": self.passed, "reason": self.reason, **self.figures}

    def and_then(self, other: GuardVerdict) -> GuardVerdict:
        """Both together: every figure, every reason."""
        reasons = "; ".join(reason for reason in (self.reason, other.reason) if reason)
        return GuardVerdict(self.passed and other.passed, reasons, {**self.figures, **other.figures})


def examine(report: StepReport, *, max_kl: float) -> GuardVerdict:
    """Reject a step with figures that are not finite, or more than `max_kl` nats per token from its parent (on the
    batch).
    """
    divergence = report.metrics.get("kl/parent", 0.0)
    figures = {"kl_parent": divergence, "max_kl": max_kl}
    broken = sorted(name for name, value in report.metrics.items() if not math.isfinite(value))
    if broken:
        return GuardVerdict(False, f"not finite: {', '.join(broken)}")
    if divergence > max_kl:
        return GuardVerdict(
            False, f"{divergence:.3g} nats a token from its parent, more than guard_max_kl = {max_kl:g}", figures
        )
    return GuardVerdict(True, "", figures)


class Guard:
    """Probes batches and candidates. `trains_reward` says whether a sample's reward may train under the method."""

    def __init__(
        self,
        journal: AsyncJournal,
        engine: Engine,
        prompter: Prompter,
        settings: Settings,
        trains_reward: Callable[[Sample], bool],
    ) -> None:
        """Read the user's probes and the anchor prompts. Raises `ConfigError`."""
        self._journal = journal
        self._engine = engine
        self._prompter = prompter
        self._settings = settings
        self._trains_reward = trains_reward
        self._answers = Answers(engine, prompter)
        self._probes = read(settings.guard.probes) if settings.guard.enabled else []
        self._anchors = self._anchor_questions() if settings.guard.enabled else []
        self._sampled: dict[tuple[int, str], tuple[SampledAnswer, float]] = {}
        self._accepted: dict[tuple[int, str], float] = {}
        self._recent: list[GuardQuestion] = []

    async def rewards(self, samples: Sequence[Sample], batch: Sequence[str], live: int) -> GuardVerdict:
        """The verdict on the rewards of samples, before version `live` learns from them. `batch` names all turns of
        the batch. The newest are scored first, as far as the token budget goes, and people's before environments':
        whether people change their minds is a question about the former alone.
        """
        if not self._settings.guard.enabled or not (await self._engine.info()).several_versions:
            return GuardVerdict(True)
        started = time.monotonic()
        fits = await self._fitting()
        newest = [
            one
            for one in reversed(samples)
            if one.turn_id and taught_reward(one) and not one.hint and self._trains_reward(one) and fits(one)
        ]
        newest.sort(key=lambda one: one.step_index is not None)
        wanted = affordable(newest, PROMPT_TOKENS)[::-1]
        unscored = len(newest) - len(wanted)
        if not wanted:
            return GuardVerdict(True, "", {"rewards": {"unscored": unscored}} if unscored else {})
        of_batch, before = await self._journal.reactions(batch, WINDOW)
        people = {one.turn_id for one in of_batch}
        texts = [Text(one.prompt_ids, one.response_ids, one.images) for one in wanted]
        base = await self._answers.logprobs(texts, 0)
        now = base if live == 0 else await self._answers.logprobs(texts, live)
        rewarded = [
            Rewarded(one.turn_id or "", taught_reward(one), mine[0], its[0], its[1], one.turn_id in people)
            for one, mine, its in zip(wanted, now, base, strict=True)
        ]
        # What the live version answered as a candidate; after a restart it is asked.
        asked = [found for (version, _), found in self._sampled.items() if version == live]
        asked = asked or await self._asked(live, await self._questions())
        noise = praised_noise(rewarded, _under_base(asked), NOISE) if asked else []
        against, agreed = disagreement(rewarded)
        stand = len(standing(before, of_batch))
        figures = {
            "rewards": {
                "without_reason": len(rewarded),
                "unscored": unscored,
                "against": against,
                "agreed": agreed,
                "noise": len(noise),
                "accepted_before": stand,
                "seconds": round(time.monotonic() - started, 3),
            }
        }
        reasons = []
        if contradicts(rewarded) and stand >= LEAST:
            reasons.append(
                f"{against} of {len(rewarded)} rewards contradict what people accepted before ({stand} such answers "
                "stand); if they have changed their mind, they will say so again"
            )
        if len(noise) > self._settings.guard.max_degenerate * len(rewarded):
            reasons.append(f"{len(noise)} of {len(rewarded)} rewards praise answers that are noise to the base")
        return GuardVerdict(not reasons, "; ".join(reasons), figures)

    async def probe(self, candidate: int, parent: int, batch: Sequence[str]) -> GuardVerdict:
        """The verdict on version `candidate`, made with the turns of `batch` and loaded next to `parent`. Raises
        `EngineError`.
        """
        if not self._settings.guard.enabled:
            return GuardVerdict(True)
        if not (await self._engine.info()).several_versions:
            return GuardVerdict(True, "", {"not_probed": "the engine holds one version at a time"})
        started = time.monotonic()
        verdict = await self._likelihood(candidate, parent, batch)
        verdict = verdict.and_then(await self._degeneration(candidate, parent))
        verdict = verdict.and_then(await self._own_probes(candidate, parent))
        kept = (candidate, parent)
        self._sampled = {key: value for key, value in self._sampled.items() if key[0] in kept}
        self._accepted = {key: value for key, value in self._accepted.items() if key[0] in kept}
        return verdict.and_then(GuardVerdict(True, "", {"seconds": round(time.monotonic() - started, 3)}))

    def forget(self, number: int) -> None:
        """Drop the answers of this version: its number now names other weights, since a step was undone."""
        self._sampled = {key: value for key, value in self._sampled.items() if key[0] != number}
        self._accepted = {key: value for key, value in self._accepted.items() if key[0] != number}

    async def _fitting(self) -> Callable[[Turn | Sample], bool]:
        """A predicate: the engine can score this answer. Older ones may be too long if `context_length` was lowered,
        and not every engine takes prompts with images.
        """
        info = await self._engine.info()

        def fits(one: Turn | Sample) -> bool:
            if isinstance(one, Turn) and misplaced(one):
                return False
            seen = one.image_spans if isinstance(one, Turn) else one.images
            length = len(one.prompt_ids) + len(one.response_ids)
            return (info.sees or not seen) and (not info.context_length or length <= info.context_length)

        return fits

    async def _likelihood(self, candidate: int, parent: int, batch: Sequence[str]) -> GuardVerdict:
        """Compare how likely accepted answers are under both, in nats per token; each answer has the same weight."""
        of_batch, before = await self._journal.reactions(batch, WINDOW)
        turns = await self._turns(standing(before, of_batch))
        if len(turns) < LEAST_ACCEPTED:
            return GuardVerdict(True, "", {"accepted": {"answers": len(turns)}})
        now = await self._likely(candidate, turns)
        then = await self._likely(parent, turns)
        drops = [max(-LARGEST_DROP, min(LARGEST_DROP, before - after)) for before, after in zip(then, now, strict=True)]
        drop, limit = fmean(drops), self._settings.guard.max_drop
        held_out = {one.turn_id for one in before if one.held_back}
        figures = {
            "accepted": {
                "answers": len(turns),
                "held_back": sum(turn.turn_id in held_out for turn in turns),
                "candidate": round(fmean(now), 5),
                "parent": round(fmean(then), 5),
                "drop": round(drop, 5),
                "limit": limit,
            }
        }
        if drop <= limit:
            return GuardVerdict(True, "", figures)
        return GuardVerdict(
            False,
            f"{len(turns)} answers that people accepted are less likely than under its parent by {drop:.3g} nats a "
            f"token, more than guard_max_drop = {limit:g}",
            figures,
        )

    async def _likely(self, version: int, turns: Sequence[Turn]) -> list[float]:
        """Mean logprob per token of each turn's answer under a version."""
        missing = [turn for turn in turns if (version, turn.turn_id) not in self._accepted]
        texts = [Text(turn.prompt_ids, turn.response_ids, images_of(turn)) for turn in missing]
        found = await self._answers.logprobs(texts, version)
        for turn, (total, tokens) in zip(missing, found, strict=True):
            self._accepted[version, turn.turn_id] = total / max(tokens, 1)
        return [self._accepted[version, turn.turn_id] for turn in turns]

    async def _degeneration(self, candidate: int, parent: int) -> GuardVerdict:
        """Compare the flaws of sampled answers of both, and the candidate's distance from the base."""
        questions = await self._questions()
        if not questions:
            return GuardVerdict(True)
        then = await self._asked(parent, questions)
        now = await self._asked(candidate, questions)
        usual = _under_base(then)
        counted = {who: _flawed(answers, usual) for who, answers in (("candidate", now), ("parent", then))}
        share = {who: count["flawed"] / len(questions) for who, count in counted.items()}
        tokens = sum(len(one.ids) for one, _ in now)
        divergence = sum(math.fsum(one.logprobs) - base for one, base in now) / max(tokens, 1)
        settings = self._settings
        figures = {
            "answers": {
                "asked": len(questions),
                **counted,
                "limit": settings.guard.max_degenerate,
                "most": MOST_FLAWED,
            },
            "kl_base": round(divergence, 5),
            "max_kl_base": settings.guard.max_kl_base,
        }
        reasons = []
        more = share["candidate"] - share["parent"]
        if more > settings.guard.max_degenerate or (more > 0 and share["candidate"] > MOST_FLAWED):
            kinds = ", ".join(f"{name} {count}" for name, count in counted["candidate"].items() if name != "flawed")
            reasons.append(
                f"{counted['candidate']['flawed']} of {len(questions)} sampled answers degenerate ({kinds}), of its "
                f"parent's {counted['parent']['flawed']}; the limit is {settings.guard.max_degenerate:g} more, and "
                f"{MOST_FLAWED:g} together"
            )
        if divergence > settings.guard.max_kl_base:
            reasons.append(
                f"its answers are {divergence:.3g} nats a token from the base, more than guard_max_kl_base = "
                f"{settings.guard.max_kl_base:g}"
            )
        return GuardVerdict(not reasons, "; ".join(reasons), figures)

    async def _asked(self, version: int, questions: Sequence[GuardQuestion]) -> list[tuple[SampledAnswer, float]]:
        """The version's answers with their summed logprobs under the base; earlier ones are kept."""
        missing = [one for one in questions if (version, one.key) not in self._sampled]
        if missing:
            given = await self._answers.sample(
                missing, version, max_tokens=self._settings.learning.rehearsal_max_tokens
            )
            texts = [Text(one.question.prompt_ids, one.ids, one.question.images) for one in given if one.ids]
            scored = iter(await self._answers.logprobs(texts, 0))
            for one in given:
                self._sampled[version, one.question.key] = (one, next(scored)[0] if one.ids else 0.0)
        return [self._sampled[version, one.key] for one in questions if (version, one.key) in self._sampled]

    async def _own_probes(self, candidate: int, parent: int) -> GuardVerdict:
        """Ask the user's probes, greedily. One that the parent fails too is reported but does not reject."""
        if not self._probes:
            return GuardVerdict(True)
        failed = await self._failures(candidate, self._probes)
        again = [probe for probe in self._probes if probe.name in failed]
        before = await self._failures(parent, again) if again else {}
        new = [reason for name, reason in failed.items() if name not in before]
        figures = {"probes": {"asked": len(self._probes), "failed": new, "failed_before": list(before.values())}}
        if not new:
            return GuardVerdict(True, "", figures)
        return GuardVerdict(
            False, f"it fails {len(new)} of {len(self._probes)} guard_probes ({'; '.join(new)})", figures
        )

    async def _failures(self, version: int, probes: Sequence[GuardProbe]) -> dict[str, str]:
        failed = {}
        for probe in probes:
            question = question_from_messages(self._prompter, probe.messages)
            most = probe.max_tokens or min(PROBE_TOKENS, self._settings.serve.max_output_tokens)
            given = await self._answers.sample([question], version, max_tokens=most, greedy=True)
            failure = probe.failure(given[0].answer.content) if given else f"{probe.name}: no room for an answer"
            if failure:
                failed[probe.name] = failure
        return failed

    async def _questions(self) -> list[GuardQuestion]:
        """Recent prompts of people and anchor prompts, half of each if there are enough.

        Only the newest few are new each time: the parent has answered the others when it was a candidate.
        """
        count = self._settings.guard.answers
        if not count:
            return []
        sees = (await self._engine.info()).sees
        seen = await self._journal.prompts_seen(count, images=sees)
        kept = [one for one in self._recent if await self._journal.turn(one.key) is not None]  # else forgotten
        wanted = count - min(len(self._anchors), count // 2)
        known = {one.key for one in kept}
        fresh = [question_from_turn(turn) for turn in seen if turn.turn_id not in known and not misplaced(turn)]
        recent = [*fresh[: max(NEW_PROMPTS, wanted - len(kept))], *kept]
        self._recent = affordable(recent, PROMPT_TOKENS)[:wanted]
        return [*self._recent, *self._anchors[: count - len(self._recent)]]

    def _anchor_questions(self) -> list[GuardQuestion]:
        if not self._settings.guard.answers:
            return []
        texts = list(dict.fromkeys(anchor_prompts(self._settings)))
        Random(f"guard {self._settings.learning.seed}").shuffle(texts)
        return [
            question_from_messages(self._prompter, [{"role": "user", "content": text}])
            for text in texts[: self._settings.guard.answers]
        ]

    async def _turns(self, turn_ids: Sequence[str]) -> list[Turn]:
        """The turns that the engine can score, as far as the token budget goes."""
        fits = await self._fitting()
        found = [await self._journal.turn(turn_id) for turn_id in turn_ids]
        turns = [turn for turn in found if turn is not None and turn.response_ids and fits(turn)]
        return affordable(turns[:MOST_ACCEPTED], PROMPT_TOKENS)


def _flawed(answers: Sequence[tuple[SampledAnswer, float]], usual: float) -> dict[str, int]:
    """The number of answers with a flaw (`flawed`), and with each kind of flaw."""
    kinds: Counter[str] = Counter()
    flawed = 0
    for one, base in answers:
        found = flaws(
            one.answer, one.ids, tools=one.question.tools, under_base=base / max(len(one.ids), 1), usual=usual
        )
        flawed += bool(found)
        kinds.update(found)
    return {"flawed": flawed, **dict(sorted(kinds.items()))}


def _under_base(answers: Sequence[tuple[SampledAnswer, float]]) -> float:
    """Mean logprob per token under the base, over all answers."""
    return sum(base for _, base in answers) / max(sum(len(one.ids) for one, _ in answers), 1)
