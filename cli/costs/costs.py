"""The tokens that chat and learning cost at a provider, estimated from the settings; nothing is sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from openclaw_rl.cli.costs.workload import Workload
from openclaw_rl.learner.audit import FIRST_TURNS
from openclaw_rl.learner.guard.guard import MOST_ACCEPTED, NEW_PROMPTS, PROMPT_TOKENS
from openclaw_rl.learner.judge.create import hint_writer
from openclaw_rl.learner.judge.selection import MOST_CANDIDATES
from openclaw_rl.learner.methods import Method, method
from openclaw_rl.shared.objective.terms import terms_of
from openclaw_rl.shared.records import Sample, TeacherScores
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.budget.ledger import Kind
from openclaw_rl.trainer_cloud.training.targets import TokenPlan

Amounts = Mapping[Kind, float]

HINT_TOKENS = 40
DRILL_TOKENS = 60
"""Of an anchor's prompt with what the template writes around it."""
JUDGE_TOKENS = 500
"""Of a judge's instructions and the next state."""
JUDGE_PROMPT_TOKENS = 3000
"""Of the request that a judge is shown at most (12,000 characters)."""
JUDGE_ANSWER_TOKENS = 2000


class CostItem(msgspec.Struct, frozen=True):
    """A use of tokens, and its amount of each kind; `step` counts optimizer steps."""

    name: str
    amounts: dict[Kind, float]


def total(parts: Iterable[Amounts]) -> dict[Kind, float]:
    """The amounts of all parts together."""
    found: dict[Kind, float] = {}
    for part in parts:
        for kind, number in part.items():
            found[kind] = found.get(kind, 0.0) + number
    return found


def times(amounts: Amounts, factor: float) -> dict[Kind, float]:
    """The amounts, multiplied by `factor`."""
    return {kind: number * factor for kind, number in amounts.items()}


class Costs:
    """The costs of `settings` under a workload."""

    def __init__(self, settings: Settings, load: Workload) -> None:
        """Raises `ConfigError` for an unknown method or judge."""
        self._settings, self._learning, self._guard = settings, settings.learning, settings.guard
        self._load = load
        self._method: Method = method(self._learning.method, settings)
        self._recipe: Recipe = self._method.recipe(self._learning)
        self._drawn = min(load.answer, self._learning.rehearsal_max_tokens)
        self._text = load.prompt + load.answer
        self._judges = JudgeModels.from_settings(settings)
        writer = hint_writer(settings, self._judges)
        asked = {"score": self._judges.judge, "hint": writer}
        self._asked = [what for what, model in asked.items() if model is not None and model.kind == "policy"]

    @property
    def assumptions(self) -> list[str]:
        """The assumptions behind the figures, as lines of text."""
        settings, load = self._settings, self._load
        lines = [
            f"lengths and turns: {load.source}",
            "every request pays for its complete prompt: a provider's prompt cache makes it cheaper",
            "a forward pass costs what a prompt costs, a training pass costs the train price for all of its tokens",
        ]
        if self._learning.epochs > 1:
            earlier = ", though a step may end earlier, once little is left to learn" if self._recipe.early_stop else ""
            lines.append(f"all {self._learning.epochs} passes of a step are made{earlier}")
        if self._method.hints != "none":
            lines.append(f"a hint has {HINT_TOKENS} tokens, and answers are scored under {self._hints} of them")
            lines.append(f"{self._hinted:.0%} of the judged turns have a hint")
        elif load.rewarded < 1:
            lines.append(f"{load.rewarded:.0%} of the judged turns have a reward other than 0")
        if self._method.rollouts:
            lines.append(f"rehearsals are answered in {self._drawn:.0f} tokens, and so are probes")
            if load.prompt > settings.learning.max_sample_tokens:
                lines.append("prompts are longer than max_sample_tokens, so nothing is rehearsed")
        if self._guard.enabled and not self._probes_candidates:
            lines.append("the guard probes no candidate: the deployment serves one version at a time")
        if self._asked:
            lines.append(f"the judge is {self._judges.judge_title}")
            lines.append("a judge's answer is as long as judge_max_tokens allows")
        lines.append("failed votes, discarded steps and retries are not counted")
        return lines

    @property
    def chat_turn(self) -> dict[Kind, float]:
        """One main turn."""
        return {"prefill": self._load.prompt, "sample": self._load.answer}

    @property
    def side_turn(self) -> dict[Kind, float]:
        """One side turn that the policy answers."""
        return {"prefill": self._load.side_prompt, "sample": self._load.side_answer}

    @property
    def chat_day(self) -> dict[Kind, float]:
        """All turns of a day."""
        side = 0.0 if self._settings.serve.side_model else self._load.side
        return total([times(self.chat_turn, self._load.main), times(self.side_turn, side)])

    @property
    def steps(self) -> float:
        """Batches per day."""
        if not self._learning.train:
            return 0.0
        return self._load.main * self._counted / self._learning.turns_a_step

    @property
    def _counted(self) -> float:
        """The share of main turns that `batch_size` counts (`learner.batch`)."""
        if self._method.rollouts:
            return self._load.answered
        if self._method.hints == "none":
            return 1.0
        return max(self._hinted, self._load.rewarded if self._recipe.rewards == "all" else 0.0)

    def step(self) -> list[CostItem]:
        """The costs of one batch, part by part."""
        return [part for part in self._step() if any(part.amounts.values())]

    def judging(self) -> list[CostItem]:
        """The questions to the policy's base about every main turn."""
        settings, load = self._settings, self._load
        question = JUDGE_TOKENS + min(load.prompt, JUDGE_PROMPT_TOKENS) + min(load.answer, JUDGE_ANSWER_TOKENS)
        vote: dict[Kind, float] = {"prefill": question, "sample": settings.judge.max_tokens}
        votes = settings.judge.votes * len(self._asked)
        audited = self._guard.audit_fraction
        parts = [
            CostItem(f"judging: {' and '.join(self._asked)}, {settings.judge.votes} votes each", times(vote, votes)),
            CostItem(f"audit of {audited:.0%}", {"prefill": audited * self._text}),
        ]
        return [part for part in parts if any(part.amounts.values())]

    def learning_day(self) -> dict[Kind, float]:
        """Everything of a day that is not chat."""
        step, judging = (total(part.amounts for part in parts) for parts in (self.step(), self.judging()))
        return total([times(step, self.steps), times(judging, self._load.main)])

    @property
    def _probes_candidates(self) -> bool:
        return not (self._settings.engine.backend == "fireworks" and self._settings.cloud.fireworks.is_dedicated)

    @property
    def _hinted(self) -> float:
        """The share of judged turns with a hint, or with what stands in its place."""
        return self._load.answered if self._method.hints == "follow-up" else self._load.hinted

    @property
    def _hints(self) -> int:
        if self._method.hints == "follow-up":
            return 1
        if self._method.hints == "own":
            return MOST_CANDIDATES if self._learning.hint_selection == "overlap-token" else 1
        return min(self._learning.max_hints, self._load.hints or self._learning.max_hints)

    @property
    def _rehearsals(self) -> int:
        affordable = self._load.prompt <= self._learning.max_sample_tokens
        return self._learning.rehearsals if self._method.rollouts and affordable else 0

    @property
    def _anchors(self) -> int:
        return self._learning.anchors if self._method.rollouts and self._recipe.w_anchor else 0

    def _step(self) -> Iterator[CostItem]:
        samples = self._samples()
        terms = [terms_of(sample, self._recipe) for sample in samples]
        taking = [index for index, found in enumerate(terms) if found]
        chosen = [samples[i] for i in taking]
        made = TokenPlan.for_step(chosen, [terms[i] for i in taking], self._recipe, self._recipe.epochs)
        yield CostItem("teacher and base score the answers", {"prefill": made.scored})
        yield CostItem("the policy's logprobs, forward", {"prefill": made.forward})
        yield CostItem("training, forward and backward", {"train": made.trained, "step": made.updates})
        drawn = self._drawn
        rehearsed: Amounts = {"prefill": self._load.prompt, "sample": drawn}
        yield CostItem(f"{self._rehearsals} rehearsals are sampled", times(rehearsed, self._rehearsals))
        anchored: Amounts = {"prefill": DRILL_TOKENS, "sample": drawn}
        yield CostItem(f"{self._anchors} anchors are sampled", times(anchored, self._anchors))
        if self._method.hints == "remembered":
            affordable = int(self._learning.max_sample_tokens / max(1.0, self._load.prompt))
            fresh = min(self._learning.turns_a_step, max(1, affordable))
            yield CostItem("hints are checked against new answers", {"prefill": fresh * (self._hints + 1) * self._text})
        if self._guard.audit_fraction:
            yield CostItem("first turns of the version are audited", {"prefill": FIRST_TURNS * self._text})
        if self._guard.enabled and self._probes_candidates:
            yield self._probes()

    def _samples(self) -> list[Sample]:
        """A batch with its rollouts, of average length."""
        size = self._learning.turns_a_step
        load = self._load
        # Turns that do not count come along and cost nothing.
        among = 1.0 if self._method.rollouts else self._counted or 1.0
        hinted = math.ceil(size * min(1.0, self._hinted / among))
        rewarded = math.ceil(size * min(1.0, load.rewarded / among))
        found = [
            self._sample("turn", number < hinted, load.prompt, load.answer, float(number < rewarded))
            for number in range(size)
        ]
        found += [self._sample("rehearsal", True, load.prompt, self._drawn) for _ in range(self._rehearsals)]
        found += [self._sample("anchor", False, DRILL_TOKENS, self._drawn) for _ in range(self._anchors)]
        return found

    def _sample(self, origin: str, hinted: bool, prompt: float, answer: float, reward: float = 0.0) -> Sample:
        length, said = max(1, round(prompt)), max(1, round(answer))
        hint = range(length + HINT_TOKENS)
        return Sample(
            sample_id="",
            turn_id=None,
            policy="",
            origin=origin,  # type: ignore[arg-type]
            prompt_ids=range(length),
            response_ids=range(said),
            logprobs=range(said),
            versions=(),
            reward=reward,
            explicit=False,
            hinted_prompts=[hint] * self._hints if hinted and self._method.hints != "none" else [],
            taught=TeacherScores(()) if self._recipe.has_other_teacher else None,
        )

    def _probes(self) -> CostItem:
        """Probes of one candidate, at most, without prompts that are too long."""
        fits = self._load.prompt <= PROMPT_TOKENS
        size = self._learning.turns_a_step
        amounts: dict[Kind, float] = {"prefill": 0.0, "sample": 0.0}
        if fits:
            rewarded = size * self._load.rewarded if self._recipe.rewards == "all" else 0
            amounts["prefill"] += 2 * rewarded * self._text
            amounts["prefill"] += (MOST_ACCEPTED + min(MOST_ACCEPTED, size)) * self._text
        count = self._guard.answers
        recent = (count + 1) // 2 if fits else 0
        asked = recent * self._load.prompt + (count - recent) * DRILL_TOKENS
        if count:
            asked += NEW_PROMPTS * self._load.prompt if fits else 0
            count += NEW_PROMPTS if fits else 0
        # The candidate answers each, its parent the new ones too, and the base scores all answers.
        amounts["prefill"] += 2 * asked + count * self._drawn
        amounts["sample"] += count * self._drawn
        return CostItem("the guard probes the version, at most", amounts)
