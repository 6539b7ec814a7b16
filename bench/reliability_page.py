"""Write the measured part of docs/reliability.md from bench/results: `python -m bench.reliability_page`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.pages import Section, met, result, table
from openclaw_rl.shared.journal.accounting import STALE


class Promise(NamedTuple):
    """One row: `tried` and `seen` are filled in from the result of that name and `_words` of it, and `kept` judges it,
    `None` if it cannot. `needs`, a key of the result, is false or missing if this run did not try it.
    """

    result: str
    promise: str
    tried: str
    seen: str
    kept: Callable[[Mapping[str, Any]], bool | None]
    needs: str

    def row(self, found: Mapping[str, Any] | None) -> list[str]:
        """The cells of the table."""
        if not found or not found.get(self.needs):
            return [self.promise, f"`bench.{self.result}`", "", met(None)]
        values = {**found, **_words(found)}
        return [self.promise, self.tried.format(**values), self.seen.format(**values), met(self.kept(found))]


def _gap_ratio(found: Mapping[str, Any]) -> float:
    """The 99th percentile of the gaps between tokens while it trains, relative to that without training; 0 unknown."""
    gaps = found.get("gap_p99_ms") or {}
    return float(gaps["training"] / gaps["idle"]) if gaps else 0.0


def _words(found: Mapping[str, Any]) -> dict[str, Any]:
    """Say how far a run went, by its result; results from before `most` was recorded leave it open."""
    most, mutants = found.get("most"), found.get("mutants") or {}
    caught = sum(bool(how) for how in mutants.values())
    return {
        "calls": {None: "some of its calls", 0: "each of its calls"}.get(most, f"at most {most} of its calls"),
        "mutated": f"; {caught} of {len(mutants)} errors put in on purpose were found" if mutants else "",
        "trials_too": ", and the other faults of `bench.chaos` below" if found.get("trials") else "",
        "gap_ratio": _gap_ratio(found),
        "unlearned": "" if found.get("all_learned") else ", but the run ended before all was learned",
    }


def _none(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    """All these counts are 0."""
    return lambda found: not any(found[name] for name in names)


FLAT_KB = 100.0
"""Memory that grows by less per 1,000 turns counts as flat: 100 MB in a million turns."""

SLOWER = 1.2
"""The 99th percentile of a request's time at the end of a soak may be so many times that at its start."""
MOST_GAP = 2.0
"""The 99th percentile of the gaps between tokens may be so many times that without training."""
MOST_DROPPED = 0.05
"""Share of a backlog that may be dropped as too old."""
BACKLOG = f"A backlog is learned from: at most {MOST_DROPPED:.0%} of it is dropped"

PROMISES = (
    Promise(
        "chaos",
        "An acknowledged turn, next state or word of feedback survives `kill -9` at any moment",
        "{kills} kills of random processes under live traffic{trials_too}, {turns} turns acknowledged",
        "{lost_acknowledged} lost",
        _none("lost_acknowledged"),
        "kills",
    ),
    Promise(
        "chaos",
        "No sample counts twice, and each version names its parent and its samples",
        "the same run, read by a checker of its own",
        "{consumed_twice} findings of samples that count twice, {lost_samples} of samples in no account, "
        "{lineage_mismatch} of versions that do not fit; journal {journal}",
        lambda found: _none("consumed_twice", "lost_samples", "lineage_mismatch")(found) and found["journal"] == "ok",
        "kills",
    ),
    Promise(
        "chaos",
        BACKLOG,
        "the same run, {settled} turns that something came after",
        "{dropped_share:.1%} dropped{unlearned}",
        lambda found: False if found["dropped_share"] > MOST_DROPPED else found["all_learned"] or None,
        "kills",
    ),
    Promise(
        "faults",
        "A fault at any point of a turn and of a step loses nothing, counts nothing twice and blocks nothing",
        "{cases} cases at {points} points: each kind of fault of a point, at {calls}",
        "{lost} lost, {twice} twice, {stuck} stuck{mutated}",
        _none("lost", "twice", "stuck"),
        "cases",
    ),
    Promise(
        "faults",
        "Damaged data is harmless or named, never served",
        "{flips} bytes of a data folder flipped, one at a time: all of small files, some of large ones",
        "{served_damaged} served, {flips_unnoticed} unnoticed",
        _none("served_damaged", "flips_unnoticed"),
        "flips",
    ),
    Promise(
        "simulate",
        "No order of events and faults breaks an invariant, and work continues once the faults stop",
        "{seeds} seeds, {events} events in virtual time",
        "{violations} violations, {no_progress} without progress{mutated}",
        _none("violations", "no_progress"),
        "seeds",
    ),
    Promise(
        "resume",
        "Resuming is exact: a run that is killed at every step ends with the weights of one that is not",
        "{steps} steps of the tiny policy, one request at a time without a prompt cache, the learner killed once in "
        "each ({kills} kills)",
        "{different} of {compared} parts of the checkpoints differ, optimizer included",
        lambda found: bool(found["identical"]),
        "kills",
    ),
    Promise(
        "serve_while_training",
        "No request is refused or cut because of training, and no answer mixes two versions",
        "{publishes} publishes under {requests} streamed answers of {clients} clients",
        "{refused} refused, {cut} cut, {mixed_version} mixed; {rescored[answers]} scored again by another program, "
        "{rescored[off]} off, {rescored[distinguishable]} of which would be off under the version before; p99 gap "
        "between tokens {gap_ratio:.2f} × that without training",
        lambda found: (
            _none("refused", "cut", "mixed_version")(found)
            and not found["rescored"]["off"]
            and _gap_ratio(found) <= MOST_GAP
        ),
        "rescored",
    ),
    Promise(
        "soak",
        f"Memory and latency do not grow with the turns: at most {FLAT_KB:.0f} kB per 1000 turns, {SLOWER} × the p99",
        "{turns} turns",
        "proxy {proxy_slope_kb_per_1000:.0f}, learner {learner_slope_kb_per_1000:.0f} kB per 1000 turns, journal "
        "{journal_bytes_per_turn:.0f} bytes a turn, p99 at the end {p99_ratio:.2f} × that at the start, {lost} lost",
        lambda found: (
            not found["lost"]
            and found["p99_ratio"] <= SLOWER
            and max(found["proxy_slope_kb_per_1000"], found["learner_slope_kb_per_1000"]) <= FLAT_KB
        ),
        "turns",
    ),
)
"""In the order of the table."""


def outage_rows(situations: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each method and verdict on situations of `bench.outages`."""
    groups: dict[tuple[str, bool | None], list[Mapping[str, Any]]] = {}
    for one in situations:
        groups.setdefault((one["method"], _survived(one)), []).append(one)
    return [_outage_row(method, kept, several) for (method, kept), several in groups.items()]


def _outage_row(method: str, kept: bool | None, several: Sequence[Mapping[str, Any]]) -> list[str]:
    seconds = [one["seconds"] for one in several]
    settled = "not all settled" if None in seconds else f"settled after at most {max(seconds) / 60:.0f} minutes"
    reasons = sum(map(_other_reasons, several), Counter[str]())
    return [
        BACKLOG,
        f"{', '.join(one['situation'] for one in several)}; {_sum(several, 'turns')} turns in all, method {method}",
        f"at most {max(one['dropped_share'] for one in several):.1%} dropped, {_sum(several, 'lost')} lost, {settled}"
        + "".join(f"; {count} set aside otherwise: {name}" for name, count in reasons.most_common()),
        met(kept),
    ]


def _survived(found: Mapping[str, Any]) -> bool | None:
    """The verdict on a situation; `None` where a method cannot use most of the turns, which proves nothing."""
    good = found["seconds"] is not None and not found["faults"] and not found["refused"]
    kept = good and found["dropped_share"] <= MOST_DROPPED
    return None if kept and 2 * _other_reasons(found).total() > found["settled"] else kept


def _other_reasons(found: Mapping[str, Any]) -> Counter[str]:
    """The turns that were set aside, but not as too old, by reason."""
    aside = found["set_aside"].items()
    return Counter({name.partition(":")[0]: count for name, count in aside if not name.startswith(STALE)})


def _sum(several: Iterable[Mapping[str, Any]], name: str) -> int:
    return sum(one[name] for one in several)


COLUMNS = ("promised", "tried", "seen", "")


def measured() -> str:
    """The table, and the runs that it comes from."""
    found = {name: result(f"{name}.json") for name in dict.fromkeys(promise.result for promise in PROMISES)}
    rows = [promise.row(found[promise.result]) for promise in PROMISES]
    outages = found["outages"] = result("outages.json")
    untried = [[BACKLOG, "`bench.outages`", "", met(None)]]
    rows += outage_rows(outages["situations"]) if outages else untried
    chaos = found["chaos"] or {}
    rows += [[trial["promise"], trial["tried"], trial["seen"], met(trial["kept"])] for trial in chaos.get("trials", ())]
    runs = [f"- `{one['command']}`, {one['date']}" for one in found.values() if one]
    return "\n".join(["\n" + table(COLUMNS, rows), *runs]) + "\n"


SECTION = Section("reliability.md", "reliability", measured)

if __name__ == "__main__":
    SECTION.write()
