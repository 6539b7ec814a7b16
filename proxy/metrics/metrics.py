"""The proxy's metrics for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from openclaw_rl.proxy.metrics.learning import StepMetrics
from openclaw_rl.shared.journal import AuditFigures
from openclaw_rl.shared.records import AuditVerdict

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_AUDITS = "Turns that an audit looked at, by verdict (only aligned and misaligned ones were compared)"
_DIFFERENCE = "|recorded - found| logprob per token over the last turns compared: mean, p99, max"


class Histogram(Collector):
    """Counts values by upper bound (inclusive, ascending; larger ones in +Inf). Only the event loop may observe.

    It is cheap enough for every token: the library's takes several locks, which cost several times the rest of a token.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float], *, registry: CollectorRegistry) -> None:
        self._name = name
        self._text = text
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The counts as Prometheus expects them: cumulative."""
        names = [*map(repr, map(float, self._bounds)), "+Inf"]
        family = HistogramMetricFamily(self._name, self._text)
        family.add_metric([], list(zip(names, accumulate(self._counts), strict=True)), self._sum)
        yield family


class Metrics:
    """One registry per application, so that two in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"openclaw_rl_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"openclaw_rl_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"openclaw_rl_{name}_seconds", text, _SECONDS, registry=self.registry)

        self.other_models = counter("other_models", "Requests to side_model and fallback_model", "role", "outcome")
        self.requests = counter("requests", "Chat requests answered, by HTTP status", "status")
        self.dialect_requests = counter("dialect_requests", "Requests in other dialects than chat", "dialect", "status")
        self.turns = counter("turns", "Chat turns, by class and by how they ended", "kind", "reason", "status")
        self.prompts = counter("prompts", "Prompts of recorded turns: do they extend the parent's tokens", "how", "why")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens of answered requests")
        self.cached_tokens = counter("cached_tokens", "Prompt tokens whose KV the engine had kept")
        self.answer_tokens = counter("answer_tokens", "Sampled tokens")
        self.mismatches = counter("parser_mismatches", "Answers that two parsers read differently (not trained on)")
        self.untrainable = counter("untrainable_turns", "Turns recorded as not trainable")
        self.unrecorded = counter("unrecorded", "Answers that the journal could not take (serve_without_journal)")
        self.aborted = counter("aborted", "Answers that the client did not wait for")
        self.settled = counter("settled", "Turns that got a next state that stays", "role")
        self.feedback = counter("feedback", "Explicit feedback", "source")
        self.journal_failures = counter("journal_failures", "Writes to the journal that failed")
        self.first_token = histogram("first_token", "Request to first token")
        self.gap = histogram("token_gap", "Between two events of one stream")
        self.commit = histogram("journal_commit", "Committing a turn to the journal")
        self.loop_lag = histogram("loop_lag", "Lateness of the event loop, every quarter of a second")
        self.learner_lag = gauge("learner_loop_lag_seconds", "Largest lateness of the learner's event loop in a minute")
        self.active = gauge("active_answers", "Answers being generated")
        self.waiting = gauge("waiting_requests", "Requests that wait for a place")
        self.audits = gauge("audited_turns", _AUDITS, "verdict")
        self.audit_difference = gauge("audit_logprob_difference", _DIFFERENCE, "statistic")
        self.steps = StepMetrics(self.registry)

    def show_audits(self, figures: AuditFigures) -> None:
        """Set the gauges of audits."""
        for verdict in get_args(AuditVerdict):
            self.audits.labels(verdict).set(figures.verdicts.get(verdict, 0))
        if figures.turns:
            for name, value in (("mean", figures.mean), ("p99", figures.p99), ("max", figures.largest)):
                self.audit_difference.labels(name).set(value)

    def render(self) -> bytes:
        """The exposition text (prometheus.io, text format 0.0.4)."""
        return generate_latest(self.registry)
