"""The smallest paid check of a provider: what its service really does with the requests that chat and learning send.

Every question is a row of its own, and an error is the answer of its row. The text is made up, so nothing private is
sent. What is saved is written down before it is asked for (`artifacts.cleanup`) and removed at the end.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.trainer_cloud.artifacts.cleanup import ArtifactCleanup
from openclaw_rl.trainer_cloud.budget.ledger import Kind
from openclaw_rl.trainer_cloud.provider import (
    Adam,
    CloudError,
    Datum,
    Offer,
    Pass,
    Provider,
    Sampler,
    ScoreRequest,
    Training,
    Updated,
)

PROMPT, ANSWER = 8000, 64
"""Tokens of the long text that is scored: a prompt as agents send them, and an answer."""
PASS_TOKENS = 512
"""Tokens of the text that is trained on, which ends with a sampled answer."""
WIDTHS = (20, 10, 5)
"""Numbers of likeliest tokens at each place, until one is taken."""
DISTINCT = (1, 20, 200)
"""Numbers of distinct ids that are chosen in the places of an answer."""
CLOSE = 0.1
"""Nats between logprobs that pass for the same, as in the learner's audit."""
_HOPELESS = ("key", "billing", "model", "away")
_CHOSEN_AT_ONCE = 20
_ADAM = Adam(learning_rate=1e-4, beta1=0.9, beta2=0.95, epsilon=1e-12, weight_decay=0.0, clip_grad=1.0)
_PRIVATE = re.compile(r"[a-z]+://[^\s'\"]+|accounts/[^\s'\"]+|\b[\w-]*(?:[0-9a-f]{4}-){2}[\w-]*|\b[0-9a-f]{8,}\b", re.I)


class Finding(msgspec.Struct, frozen=True):
    """A row: the question, the answer or the error (with `trouble`, its kind), what was sent for it, and what it means
    here.
    """

    asked: str
    answered: str
    seconds: float
    sent: Mapping[Kind, int] = {}
    consequence: str = ""
    trouble: str = ""


class TrialAnswer(msgspec.Struct, frozen=True):
    """The answer to a question, its meaning, and the tokens that were sent for it."""

    text: str
    sent: Mapping[Kind, int] = {}
    consequence: str = ""


class Trial:
    """The questions to one provider. `text` are token ids, of which the last `ANSWER` are taken for an answer."""

    def __init__(
        self, provider: Provider, cleanup: ArtifactCleanup, text: Sequence[int], *, rank: int, loss: str, name: str
    ) -> None:
        """`name` is that of what is saved there; `loss` one of the provider's over sampled tokens."""
        self._provider = provider
        self._cleanup = cleanup
        self._text = list(text)
        self._rank, self._loss, self._name = rank, loss, name
        self._base: Sampler | None = None
        self._training: Training | None = None
        self._answer: list[int] = []
        self._sampled = np.zeros(0, dtype=np.float32)
        self._state = self._weights = ""
        self._trained = np.zeros(0, dtype=np.float32)

    @property
    def length(self) -> int:
        """Tokens of the long text."""
        return len(self._text)

    @property
    def plan(self) -> dict[Kind, int]:
        """The tokens that are sent at most."""
        long, short = len(self._text), self._short
        scores = 3 + len(DISTINCT)
        forward = 5 * (short - 1)
        return {
            "prefill": (short - ANSWER) + scores * long + forward + 2 * short,
            "sample": ANSWER + scores + 1 + ANSWER,
            "train": 2 * (short - 1),
            "step": 2,
        }

    async def run(self) -> AsyncIterator[Finding]:
        """Ask, one after the other. Ends after the first question where the provider cannot be used at all."""
        try:
            found = await self._ask("its models, the key, the account", self._offer)
            yield found
            if found.trouble in _HOPELESS:
                return
            yield await self._ask(f"an answer of up to {ANSWER} tokens", self._sample)
            yield await self._ask(f"the scores of {ANSWER} tokens after {len(self._text) - ANSWER}", self._score)
            yield await self._ask("the same scores again", self._score)
            for width in WIDTHS:
                found = await self._ask(f"the {width} likeliest tokens in their places", self._likeliest, width)
                yield found
                if not found.trouble:
                    break
            for count in DISTINCT:
                yield await self._ask(f"the scores of {count} distinct chosen ids", self._chosen, count)
            yield await self._ask(f"a LoRA of rank {self._rank}", self._start)
            yield await self._ask(f"a forward pass over {self._short - 1} places", self._forward, 0)
            yield await self._ask(f"the same with {WIDTHS[0]} more ids in each place", self._forward, WIDTHS[0])
            yield await self._ask("a step on distributions, and a forward pass after it", self._step_on_distributions)
            yield await self._ask("a step on sampled tokens, and a forward pass after it", self._step_on_tokens)
            yield await self._ask("state and weights to be kept", self._save)
            yield await self._ask("a LoRA that continues from them", self._resume)
            yield await self._ask("an answer of the trained weights", self._sample_trained)
            yield await self._ask("both to be removed", self._remove)
        finally:
            await self._close()

    async def _ask(self, asked: str, work: Callable[..., Awaitable[TrialAnswer]], *given: Any) -> Finding:
        started = time.perf_counter()
        try:
            answer = await work(*given)
        except CloudError as error:
            return Finding(asked, str(error), time.perf_counter() - started, trouble=error.trouble)
        except Exception as error:  # a library that raises all kinds of things is an answer too
            what = f"{type(error).__name__}: {error}"
            return Finding(asked, what, time.perf_counter() - started, trouble="error")
        return Finding(asked, answer.text, time.perf_counter() - started, answer.sent, answer.consequence)

    @property
    def _short(self) -> int:
        """Tokens of the text that is trained on."""
        return min(PASS_TOKENS, len(self._text))

    @property
    def _prompt(self) -> list[int]:
        """The prompt of the sampled answer."""
        return self._text[: self._short - ANSWER]

    @property
    def _learned(self) -> list[int]:
        """The text that is trained on: a prompt and its sampled answer, or made-up ends where none was sampled."""
        return [*self._prompt, *(self._answer or self._text[-ANSWER:])]

    async def _offer(self) -> TrialAnswer:
        offer: Offer = await self._provider.offer()
        context = f", a context of {offer.context_length:,} tokens" if offer.context_length else ""
        return TrialAnswer(f"{len(offer.models)} models{context}")

    async def _sampler(self) -> Sampler:
        if self._base is None:
            self._base = await self._provider.sampler("")
        return self._base

    async def _sample(self) -> TrialAnswer:
        sampler, started = await self._sampler(), time.perf_counter()
        found = await sampler.sample(self._prompt, SamplingParams(max_new_tokens=ANSWER, temperature=1.0))
        seconds = time.perf_counter() - started
        self._answer, self._sampled = list(found.ids), np.asarray(found.logprobs, dtype=np.float32)
        pace = seconds / max(1, len(found.ids))
        return TrialAnswer(
            f"{len(found.ids)} tokens with logprobs, {pace:.3f} s a token",
            _sent(prefill=len(self._prompt), cached=found.cached, sample=len(found.ids)),
            f"an answer of 1,000 tokens shows after some {1000 * pace:.0f} s, in one piece",
        )

    async def _score(self) -> TrialAnswer:
        found = await (await self._sampler()).score(ScoreRequest(self._text, self._start_of_answer))
        cached = found.cached / len(self._text)
        return TrialAnswer(
            f"{len(found.logprobs)} scores, {cached:.0%} of the text from the cache",
            self._scored(found.cached),
            "texts that begin alike cost the price of cached tokens"
            if cached > 0.5
            else "nothing of it was in the cache yet, or scores are not served from it",
        )

    @property
    def _start_of_answer(self) -> int:
        return len(self._text) - ANSWER

    def _scored(self, cached: int) -> dict[Kind, int]:
        return _sent(prefill=len(self._text), cached=cached, sample=1)

    async def _likeliest(self, width: int) -> TrialAnswer:
        found = await (await self._sampler()).score(ScoreRequest(self._text, self._start_of_answer, top_logprobs=width))
        reported = min((len(row) for row in found.top_logprobs), default=0)
        methods = "rehearse, topk and topk-select compare that many" if reported else "take binary, opd or combined"
        return TrialAnswer(f"{reported} in each place", self._scored(found.cached), methods)

    async def _chosen(self, count: int) -> TrialAnswer:
        ids = np.array(sorted(set(self._text))[:count], dtype=np.int64)
        width = min(_CHOSEN_AT_ONCE, len(ids))
        chosen = np.resize(ids, (ANSWER, width))
        found = await (await self._sampler()).score(ScoreRequest(self._text, self._start_of_answer, chosen=chosen))
        assert found.chosen is not None, "it was asked"
        return TrialAnswer(
            f"{found.chosen.size:,} scores of {len(np.unique(chosen))} ids",
            self._scored(found.cached),
            "not needed: a step scores chosen tokens in forward passes",
        )

    async def _start(self) -> TrialAnswer:
        await self._ready()
        return TrialAnswer("made")

    async def _ready(self) -> Training:
        if self._training is None:
            if self._state:
                self._training = await self._provider.resume(self._state, rank=self._rank)
            else:
                self._training = await self._provider.train(rank=self._rank, seed=0)
        return self._training

    def _datum(self, more: int) -> Datum:
        """The text that is trained on with `more` further ids in each place of the answer."""
        text = self._learned
        targets, lead = np.asarray(text[1:], dtype=np.int64), len(self._prompt) - 1
        if more:
            others = np.resize(np.array(sorted(set(self._text))[:more], dtype=np.int64), (len(targets), more))
            targets = np.concatenate([targets[:, None], others], axis=1)
            targets[:lead] = 0
        return Datum(text[:-1], targets, lead=lead)

    async def _forward(self, more: int) -> TrialAnswer:
        datum = self._datum(more)
        (found,) = await (await self._ready()).forward([datum])
        values = found[datum.lead :]
        own = values[:, 0] if more else values
        sent = _sent(prefill=len(datum.ids))
        if more:
            again = _most(own, self._trained)
            return TrialAnswer(
                f"{values.size:,} logprobs, those of the answer off by {again:.2g} at most",
                sent,
                "chosen tokens are scored at any length: rehearse, topk and topk-select train",
            )
        self._trained = own
        if not len(self._sampled):
            return TrialAnswer(f"{len(own)} logprobs", sent, "no answer was sampled to compare them with")
        distance = _rms(own - self._sampled)
        return TrialAnswer(
            f"{len(own)} logprobs, RMS {distance:.3g} nats from those of the sampling",
            sent,
            "sampler and trainer agree"
            if distance < CLOSE
            else "sampler and trainer disagree: few turns pass the audit",
        )

    async def _step_on_distributions(self) -> TrialAnswer:
        datum = self._datum(WIDTHS[0])
        weights = np.full((len(datum.ids) - datum.lead, datum.targets.shape[1]), 1e-3)
        updated = await self._update(Pass("cross_entropy", [_with(datum, weights=weights)]))
        return self._stepped(updated, "rehearse, topk and topk-select train")

    async def _step_on_tokens(self) -> TrialAnswer:
        datum = self._datum(0)
        known = self._sampled if len(self._sampled) else self._trained
        praised = _with(datum, logprobs=known, advantages=np.ones(len(datum.ids) - datum.lead))
        updated = await self._update(Pass(self._loss, [praised], _config(self._loss)))
        before = updated.before[0][0][datum.lead :] if updated.before else known
        right = float(self._trained.sum()) > float(before.sum())
        return self._stepped(updated, "praise made the answer likelier" if right else "praise made it less likely")

    async def _update(self, part: Pass) -> Updated:
        """One optimizer step, after which the answer's logprobs are known again. Raises `CloudError`."""
        plain = self._datum(0)
        try:
            updated = await (await self._ready()).update([part], _ADAM, after=[plain])
        except CloudError:
            await self._close()  # its state is not known
            raise
        self._trained = updated.after[0][plain.lead :]
        return updated

    def _stepped(self, updated: Updated, consequence: str) -> TrialAnswer:
        places = self._short - 1
        norm = updated.metrics.get("gradient/norm")
        reported = ["no gradient norm" if norm is None else f"gradient norm {norm:.3g}"]
        reported.append(f"the pass reports {'' if updated.before else 'no '}logprobs")
        return TrialAnswer(", ".join(reported), _sent(prefill=places, train=places, step=1), consequence)

    async def _save(self) -> TrialAnswer:
        training = await self._ready()
        self._state, self._weights = await self._cleanup.save(training, self._name, weights=True, folder=None)
        return TrialAnswer("both are kept")

    async def _resume(self) -> TrialAnswer:
        if not self._state:
            return TrialAnswer("nothing was kept")
        await self._close()
        datum = self._datum(0)
        (found,) = await (await self._ready()).forward([datum])
        off = _most(found[datum.lead :], self._trained)
        return TrialAnswer(
            f"its logprobs are off by {off:.2g} at most",
            _sent(prefill=len(datum.ids)),
            "it continues where it was" if off < CLOSE else "it is another one",
        )

    async def _sample_trained(self) -> TrialAnswer:
        if not self._weights:
            return TrialAnswer("nothing was kept")
        sampler = await self._provider.sampler(self._weights)
        drawn = await sampler.sample(self._prompt, SamplingParams(max_new_tokens=ANSWER, temperature=1.0))
        scored = await sampler.score(ScoreRequest(self._learned, len(self._prompt)))
        off = _rms(np.asarray(scored.logprobs, dtype=np.float32) - self._trained)
        sent = Counter(_sent(prefill=len(self._prompt), cached=drawn.cached, sample=len(drawn.ids)))
        sent.update(_sent(prefill=len(self._learned), cached=scored.cached, sample=1))
        return TrialAnswer(
            f"{len(drawn.ids)} tokens; the first answer's scores are RMS {off:.3g} nats from the trainer's",
            dict(sent),
            "what is published is what was trained" if off < CLOSE else "what is served is not what was trained",
        )

    async def _remove(self) -> TrialAnswer:
        if not self._state:
            return TrialAnswer("nothing was kept")
        await self._cleanup.discard(self._state, self._weights)
        return TrialAnswer("nothing is kept, or the provider removes it itself")

    async def _close(self) -> None:
        training, self._training = self._training, None
        if training is not None:
            await training.close()


def scrubbed(text: str, *secrets: str) -> str:
    """An answer or error without keys, addresses, paths and ids."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "(hidden)")
    return _PRIVATE.sub("(hidden)", text)


def _sent(*, prefill: int = 0, cached: int = 0, sample: int = 0, train: int = 0, step: int = 0) -> dict[Kind, int]:
    """Amounts by kind; `cached` of the `prefill` tokens are counted apart."""
    found: dict[Kind, int] = {"prefill": prefill - cached, "cached": cached, "sample": sample}
    found |= {"train": train, "step": step}
    return {kind: amount for kind, amount in found.items() if amount}


def _with(datum: Datum, **values: NDArray[Any]) -> Datum:
    """The datum with values at the places of the answer, and 0 before."""
    padded = {}
    for name, value in values.items():
        padded[name] = np.zeros((len(datum.ids), *value.shape[1:]), dtype=np.float32)
        padded[name][datum.lead :] = value
    changed: Datum = msgspec.structs.replace(datum, **padded)
    return changed


def _config(loss: str) -> dict[str, float]:
    return {} if loss == "importance_sampling" else {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}


def _rms(values: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0


def _most(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The largest difference; not a number where an earlier question had no answer."""
    return float(np.abs(found - wanted).max()) if found.shape == wanted.shape else float("nan")
