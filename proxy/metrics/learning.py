"""Metrics of learning for Prometheus: the last step's figures and the judge's counts, from the journal."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

from openclaw_rl.shared.journal import AsyncJournal, LearningFigures
from openclaw_rl.shared.records import PolicyVersion

FAMILIES: Mapping[str, tuple[str, str]] = {
    "loss": ("term", "Loss of the last step: the total and each term, as weighed in it"),
    "reward": ("statistic", "Rewards of the last step"),
    "advantage": ("statistic", "Advantages per token of the last step"),
    "ratio": ("statistic", "Importance ratios of the last step: mean and the share outside the clip range (clipped)"),
    "kl": ("reference", "KL per token of the new policy from the one before (parent) and from the base"),
    "entropy": ("statistic", "Entropy per token of the policy after the last step"),
    "gradient": ("statistic", "Gradient norm of the last step, before it was clipped"),
    "lag": ("statistic", "ServedVersions between the answers of the last step and the policy that learned from them"),
    "mix": ("kind", "Turns and rollouts of the last step, by what they were"),
    "samples": ("term", "Samples of the last step that took part in a term"),
    "weights": ("statistic", "How far the last step moved the weights (Euclidean)"),
}
"""Figures named `family/label`; those of other families are in `openclaw_rl_step_figure`."""


class StepMetrics:
    """Gauges of a registry. A rejected step is a step too; only its own figures are shown."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"openclaw_rl_{name}", text, labels, registry=registry)

        self._families = {name: gauge(f"step_{name}", text, label) for name, (label, text) in FAMILIES.items()}
        self._others = gauge("step_figure", "Further figures of the last step, by name", "name")
        self._version = gauge("step_version", "Number of the version that the last step made")
        self._rejected = gauge("step_rejected", "1 if the last step was rejected")
        self._time = gauge("step_time_seconds", "When the last step ended (Unix seconds)")
        self._live = gauge("live_version", "Number of the version that serves")
        self._judgements = gauge("judgements", "Judgements ever made, with a score and without one", "score")
        self._votes = gauge("judge_votes", "Votes of the judge ever asked for, by how they ended", "outcome")
        self._shown: tuple[int | None, str] = (None, "")

    async def follow(self, journal: AsyncJournal) -> LearningFigures:
        """Set the gauges from the journal; a version is read once in each of its states. Raises `JournalError`."""
        figures = await journal.learning_figures()
        self._live.set(figures.live or 0)
        self._judgements.labels("given").set(figures.judgements - figures.without_score)
        self._judgements.labels("none").set(figures.without_score)
        self._votes.labels("valid").set(figures.votes - figures.failed)
        self._votes.labels("failed").set(figures.failed)
        if figures.newest is not None and (figures.newest, figures.state) != self._shown:
            version = await journal.version(figures.newest)
            if version is not None and version.method not in ("", "resumed"):
                self.show(version)
            self._shown = figures.newest, figures.state
        return figures

    def show(self, version: PolicyVersion) -> None:
        """The figures of a step, in place of those of the one before."""
        for gauge in (*self._families.values(), self._others):
            gauge.clear()
        for name, value in version.metrics.items():
            family, _, label = name.partition("/")
            if label and family in self._families:
                self._families[family].labels(label).set(value)
            elif family != "judge":
                self._others.labels(name).set(value)
        self._version.set(version.number)
        self._rejected.set(version.state == "rejected")
        self._time.set(version.time)
