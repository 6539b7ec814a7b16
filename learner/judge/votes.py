"""Votes: ask the same question m times, read the answers, and decide.

A failed vote is tried again; in the end it stays in the judgement with its reason and counts neither way. If every vote
failed because the model could not be asked, there is no judgement: the turn waits.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import stamina

from openclaw_rl.learner.judge.protocol import Asker, Said
from openclaw_rl.shared.errors import JudgeAway, JudgeError
from openclaw_rl.shared.records import NOT_UNDERSTOOD, Vote
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.text_reading import reads_text

log = logging.getLogger(__name__)

_SCORE = re.compile(r"\\boxed\{\s*([+-]?\s*[01]|\?)\s*\}")
_HINT = re.compile(r"\[HINT\](.*?)\[/HINT\]", re.DOTALL)
_NO_HINT = re.compile(r"\[NO[ _-]?HINT\]", re.IGNORECASE)
_FIRST_PAUSE = 0.5
TRIES = 3
NOT_READ = f"{NOT_UNDERSTOOD}: the judge cannot read the language of the message"

Reader = Callable[[str], Vote]


class Voting:
    """Asks one `Asker`. All that share `slots` have at most `judge_concurrency` open questions together."""

    def __init__(self, asker: Asker, settings: Settings, slots: asyncio.Semaphore) -> None:
        self.asker = asker
        self._settings = settings
        self._slots = slots

    async def cast(self, question: str, read: Reader) -> list[Vote]:
        """m votes at the same time. Raises `JudgeAway` if none of them could be asked for."""
        wanted = [self._one(question, read) for _ in range(self._settings.judge.votes)]
        votes: list[Vote] = []
        away: list[JudgeAway] = []
        for result in await asyncio.gather(*wanted, return_exceptions=True):
            if isinstance(result, JudgeAway):
                away.append(result)
                votes.append(Vote(failure=str(result)))
            elif isinstance(result, BaseException):
                raise result
            else:
                votes.append(result)
        if away and len(away) == len(votes):
            raise away[0]
        return votes

    async def _one(self, question: str, read: Reader) -> Vote:
        """One vote. Raises `JudgeAway` if the last try was not answered."""
        vote, said = Vote(), Said("")
        try:
            async for attempt in stamina.retry_context(
                self._passing, TRIES, timeout=None, wait_initial=_FIRST_PAUSE, wait_jitter=0
            ):
                with attempt:
                    async with self._slots:
                        said = await self.asker.ask(question)
                    if not said.text.strip():
                        raise JudgeError("the answer was empty")
                    vote = msgspec.structs.replace(read(said.text), text=said.kept)
        except JudgeError as error:
            vote = Vote(text=said.kept, failure=f"{error} ({said.cut})" if said.cut else str(error))
        return vote

    def _passing(self, error: Exception) -> bool:
        if not isinstance(error, JudgeError | JudgeAway):
            return False
        log.warning("a vote of %s failed: %s", self.asker.name, error)
        return True


@reads_text()
def read_score(text: str) -> Vote:
    """A vote from a model's text: its last score, and its last hint. A vote that does not understand the message has
    failed. Raises `JudgeError` without a score.
    """
    scores = _SCORE.findall(text)
    if not scores:
        raise JudgeError("the answer holds no \\boxed{} score")
    if scores[-1] == "?":
        return Vote(text=text, failure=NOT_READ)
    return Vote(text=text, score=float(scores[-1].replace(" ", "")), hint=_last_hint(text))


@reads_text()
def read_hint(text: str) -> Vote:
    """A hint model's vote: its last hint, or none if it says so or leaves it empty. Raises `JudgeError` otherwise."""
    hint = _last_hint(text)
    if not (_HINT.search(text) or _NO_HINT.search(text)):
        raise JudgeError("the answer holds neither a hint nor [NO HINT]")
    return Vote(text=text, hint=hint, about="hint")


def plurality(votes: Sequence[Vote], threshold: float) -> float | None:
    """The most frequent score of the valid votes; 0 after a tie for the first place, or if less than the share
    `threshold` of them has it; `None` without a valid vote.

    Source: the published vote of OpenClaw-RL (arXiv 2603.10165), which has no threshold.
    """
    counts = Counter(vote.score for vote in votes if vote.score is not None)
    return None if not counts else 0.0 if _undecided(counts, threshold) else counts.most_common(1)[0][0]


def _undecided(counts: Counter[float], threshold: float) -> str:
    """The reason why no score wins; "" if one does."""
    ranked = [count for _, count in counts.most_common()]
    if ranked[1:] and ranked[0] == ranked[1]:
        return "a tie, which scores 0"
    if ranked[0] < threshold * counts.total() - 1e-9:
        return f"no score has the share {threshold:g} of them"
    return ""


def describe(votes: Sequence[Vote], threshold: float) -> str:
    """The scoring votes as a sentence; if none is valid and one did not understand the message, that comes first."""
    if votes and all(vote.score is None for vote in votes) and any(vote.failure == NOT_READ for vote in votes):
        return NOT_READ
    scores = Counter(vote.score for vote in votes if vote.score is not None)
    parts = []
    if scores:
        counts = ", ".join(f"{count} for {score:+g}" for score, count in sorted(scores.items(), reverse=True))
        parts.append(f"{scores.total()} of {len(votes)} votes valid: {counts}")
        parts.append(_undecided(scores, threshold))
    return "; ".join(filter(None, [*parts, *failures(votes)]))


def failures(votes: Sequence[Vote], what: str = "votes") -> list[str]:
    """One sentence about failed votes, if any."""
    failed = [vote.failure for vote in votes if vote.failure]
    return [f"{len(failed)} of {len(votes)} {what} failed: {failed[0]}"] if failed else []


def _last_hint(text: str) -> str | None:
    hints = [hint.strip() for hint in _HINT.findall(text)]
    return hints[-1] or None if hints else None
