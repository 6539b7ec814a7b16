"""Write the measured part of docs/reliability.md from bench/results: `python -m bench.reliability_page`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench.pages import Section, met, result, table


class Promise(NamedTuple):
    """One row: `tried` and `seen` are filled in from the result of that name, and `kept` judges it. `needs`, a key of
    the result, is false or missing if this run did not try it.
    """

    result: str
    promise: str
    tried: str
    seen: str
    kept: Callable[[Mapping[str, Any]], bool]
    needs: str

    def row(self, found: Mapping[str, Any] | None) -> list[str]:
        """The cells of the table."""
        if not found or not found.get(self.needs):
            return [self.promise, f"`bench.{self.result}`", "", met(None)]
        return [self.promise, self.tried.format(**found), self.seen.format(**found), met(self.kept(found))]


def _none(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    """All these counts are 0."""
    return lambda found: not any(found[name] for name in names)


FLAT_KB = 100.0
"""Memory that grows by less per 1,000 turns counts as flat: 100 MB in a million turns."""

PROMISES = (
    Promise(
        "chaos",
        "An acknowledged turn, next state or word of feedback survives `kill -9` at any moment",
        "{kills} kills of random processes under live traffic, {turns} turns acknowledged",
        "{lost_acknowledged} lost",
        _none("lost_acknowledged"),
        "kills",
    ),
    Promise(
        "chaos",
        "No sample counts twice, and each version names its parent and its samples",
        "the same run, read by a checker of its own",
        "{consumed_twice} twice, {lost_samples} samples in no account, {lineage_mismatch} versions that do not fit",
        _none("consumed_twice", "lost_samples", "lineage_mismatch"),
        "kills",
    ),
    Promise(
        "chaos",
        "A backlog is learned from: at most 5 % of it is dropped",
        "the same run",
        "{dropped_share:.1%} dropped, journal {journal}",
        lambda found: found["dropped_share"] <= 0.05 and found["journal"] == "ok",
        "kills",
    ),
    Promise(
        "faults",
        "A fault at any point of a turn and of a step loses nothing, counts nothing twice and blocks nothing",
        "{points} points, {cases} cases: every point × every kind of fault",
        "{lost} lost, {twice} twice, {stuck} stuck",
        _none("lost", "twice", "stuck"),
        "cases",
    ),
    Promise(
        "faults",
        "Damaged data is harmless or named, never served",
        "{flips} bytes of a data folder flipped, one at a time",
        "{served_damaged} served, {flips_unnoticed} unnoticed",
        _none("served_damaged", "flips_unnoticed"),
        "flips",
    ),
    Promise(
        "simulate",
        "No order of events and faults breaks an invariant, and work continues once the faults stop",
        "{seeds} seeds, {events} events in virtual time",
        "{violations} violations, {no_progress} without progress",
        _none("violations", "no_progress"),
        "seeds",
    ),
    Promise(
        "resume",
        "Resuming is exact: a run that is killed at every step ends with the weights of one that is not",
        "{steps} steps of the tiny policy, the learner killed once in each ({kills} kills)",
        "{different} of {compared} parts of the checkpoints differ, optimizer included",
        lambda found: bool(found["identical"]),
        "kills",
    ),
    Promise(
        "serve_while_training",
        "No request is refused or cut because of training, and no answer mixes two versions",
        "{publishes} publishes under {requests} streamed answers",
        "{refused} refused, {cut} cut, {mixed_version} mixed",
        _none("refused", "cut", "mixed_version"),
        "publishes",
    ),
    Promise(
        "soak",
        "Memory does not grow with the turns, and the journal grows linearly",
        "{turns} turns",
        "proxy {proxy_slope_kb_per_1000:.0f}, learner {learner_slope_kb_per_1000:.0f} kB per 1000 turns, journal "
        "{journal_bytes_per_turn:.0f} bytes a turn, p99 at the end {p99_ratio:.2f} × that at the start",
        lambda found: (
            found["p99_ratio"] <= 1.2
            and max(found["proxy_slope_kb_per_1000"], found["learner_slope_kb_per_1000"]) <= FLAT_KB
        ),
        "turns",
    ),
)
"""In the order of the table."""

COLUMNS = ("promised", "tried", "seen", "")


def measured() -> str:
    """The table, and the runs that it comes from."""
    found = {name: result(f"{name}.json") for name in dict.fromkeys(promise.result for promise in PROMISES)}
    rows = [promise.row(found[promise.result]) for promise in PROMISES]
    chaos = found["chaos"] or {}
    rows += [[trial["promise"], trial["tried"], trial["seen"], met(trial["kept"])] for trial in chaos.get("trials", ())]
    runs = [f"- `{one['command']}`, {one['date']}" for one in found.values() if one]
    return "\n".join(["\n" + table(COLUMNS, rows), *runs]) + "\n"


SECTION = Section("reliability.md", "reliability", measured)

if __name__ == "__main__":
    SECTION.write()
