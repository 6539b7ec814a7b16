"""The traffic of a day: as the journal has recorded it, or as given on the command line."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.settings.settings import Settings

RECENT_DAYS = 30
_MISSING = (
    "unknown {missing}: no recorded traffic in {days} days (journal {journal}); pass --prompt-tokens (an OpenClaw "
    "prompt has about 17000), --answer-tokens and --turns-per-day"
)


class Workload(msgspec.Struct, frozen=True):
    """Mean lengths in tokens and turns a day: main turns, which may train, and side turns, which do not.

    `answered` is the share of main turns that a person answers; `hinted` and `rewarded` are the shares of samples with
    a hint and with a reward, 1 if unknown. `hints` are remembered; `source` describes the origin of the numbers.
    """

    prompt: float
    answer: float
    main: float
    side_prompt: float = 0.0
    side_answer: float = 0.0
    side: float = 0.0
    answered: float = 1.0
    hinted: float = 1.0
    rewarded: float = 1.0
    hints: int | None = None
    source: str = ""

    @classmethod
    def from_settings(
        cls, settings: Settings, *, prompt: int | None = None, answer: int | None = None, turns: float | None = None
    ) -> Workload:
        """The journal's workload, with the given numbers in place of its own. Raises `ConfigError` if both lack one."""
        found = _recorded(settings)
        given = {"prompt": prompt, "answer": answer, "main": turns}
        known = {name: float(value) for name, value in given.items() if value is not None}
        if found is None and len(known) < len(given):
            names = {"prompt": "prompt tokens", "answer": "answer tokens", "main": "turns a day"}
            missing = ", ".join(words for name, words in names.items() if name not in known)
            raise ConfigError(_MISSING.format(missing=missing, days=RECENT_DAYS, journal=settings.serve.journal_path))
        if found is None:
            source = "as given; every turn is taken to be answered by a person"
            return cls(known["prompt"], known["answer"], known["main"], source=source)
        if not known:
            return found
        source = f"{found.source}; {', '.join(sorted(known))} as given"
        changed: Workload = msgspec.structs.replace(found, **known, source=source)
        return changed


def _recorded(settings: Settings) -> Workload | None:
    if not Path(settings.serve.journal_path).is_file():
        return None
    with contextlib.closing(Journal(settings.serve.journal_path)) as journal:
        found = journal.recorded(time.time() - RECENT_DAYS * 86400)
        hints = len(journal.recent_hints(settings.learning.max_hints))
    if not found.main.turns:
        return None
    main, side = found.main, found.side
    return Workload(
        prompt=main.prompt_tokens / main.turns,
        answer=main.answer_tokens / main.turns,
        main=main.turns / found.days,
        side_prompt=side.prompt_tokens / side.turns if side.turns else 0.0,
        side_answer=side.answer_tokens / side.turns if side.turns else 0.0,
        side=side.turns / found.days,
        answered=min(found.answered / main.turns, 1.0),
        hinted=found.hinted / found.samples if found.samples else 1.0,
        rewarded=found.rewarded / found.samples if found.samples else 1.0,
        hints=hints,
        source=f"means of {main.turns} main and {side.turns} side turns on {found.days} of the last {RECENT_DAYS} days",
    )
