"""The answers of the journal that are not records: references, summaries, counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.owners import SERVICE
from openclaw_rl.shared.records import Kind, TurnStatus


class TurnRef(msgspec.Struct, frozen=True):
    """A turn without its content. `settled`: it has a next state that stays. `arrived` in Unix seconds. `attempt`: an
    environment began its episode.
    """

    turn_id: str
    session_id: str
    episode: int
    kind: Kind
    status: TurnStatus
    answer_key: bytes
    request_key: bytes
    arrived: float
    settled: bool
    owner: str = SERVICE
    attempt: bool = False


class Frame(msgspec.Struct, frozen=True):
    """Digests of a request's first system message (empty without one) and of the tools that it offers."""

    system: bytes
    tools: bytes


class EpisodeRow(msgspec.Struct, frozen=True):
    """One episode of a session; `ended` is `None` while it is open, `reason` says why it ended. Unix seconds.
    `environment`: it is an attempt, with what was said of it at its beginning.
    """

    episode: int
    started: float
    ended: float | None
    reason: str
    environment: bool = False
    task: str = ""
    group: str = ""
    attempts: int = 0
    train: bool = True


class OpenAttempt(msgspec.Struct, frozen=True):
    """An attempt that is under way: an episode that an environment began. Without `train` nothing of it is kept. Times
    in Unix seconds; `started` tells it from an attempt of the same number after its session was forgotten.
    """

    session_id: str
    episode: int
    started: float
    train: bool
    last_seen: float


class Attempted(msgspec.Struct, frozen=True):
    """A turn's place in an attempt of an environment. `group` as it is stored, unique among all owners, "" for an
    attempt alone; `attempts` is the wanted number of its members, 0 if that is unknown. `step_index` counts the
    steps (`attempts.is_step`) of the episode that arrived before.
    """

    session_id: str
    episode: int
    task: str
    group: str
    attempts: int
    step_index: int


class GroupStep(msgspec.Struct, frozen=True):
    """A step of an attempt and its reward: the outcome with the votes of its judge; `None` without a verdict, and where
    a person's feedback stands in its place.
    """

    turn_id: str
    reward: float | None


class GroupAttempt(msgspec.Struct, frozen=True):
    """An attempt of a group: its outcome (`None`: no verdict, or none yet) and its steps, by arrival."""

    session_id: str
    episode: int
    outcome: float | None
    steps: Sequence[GroupStep]


class WaitingGroup(msgspec.Struct, frozen=True):
    """A group with samples that wait for a step (`ready`). `attempts` is the wanted number of its members (0: unknown),
    `outcomes` the number of those with an outcome, `open` of those that have neither ended nor an outcome, `unjudged`
    of those with turns that wait for a judge; `last_ended` is in Unix seconds.
    """

    name: str
    ready: int
    attempts: int
    outcomes: int
    open: int
    unjudged: int
    last_ended: float


class TurnSummary(msgspec.Struct, frozen=True):
    """One line about a turn. `state`: `""`, `unjudged`, `judged`, `ready`, `known`, `trained` or `quarantined`; lengths
    in tokens.
    """

    turn_id: str
    episode: int
    parent_turn_id: str | None
    parent_reason: str
    kind: Kind
    kind_reason: str
    status: TurnStatus
    finish_reason: str
    prompt_tokens: int
    response_tokens: int
    arrived: float
    settled: bool
    score: float | None
    state: str


class TurnReaction(msgspec.Struct, frozen=True):
    """A person's reaction to a turn, by its latest judgement. `reasoned`: the complaint said what is wanted.
    `held_back`: the turn is kept for the guard; `set_aside`: it is quarantined, for whatever reason.
    """

    turn_id: str
    score: float
    reasoned: bool
    held_back: bool
    set_aside: bool


class OldEpisode(msgspec.Struct, frozen=True):
    """An episode (`None`: a session that has no turns) with the number of its turns and the time of the last one."""

    session_id: str
    episode: int | None
    turns: int
    last: float


class Forgotten(msgspec.Struct):
    """A number of episodes that were forgotten, or would be. `versions` learned directly from them; `pending`: their
    text is still in the journal's log, since another program reads it.
    """

    episodes: int = 0
    turns: int = 0
    first: float | None = None
    last: float | None = None
    versions: list[int] = []
    pending: bool = False

    @classmethod
    def of(cls, episodes: Iterable[OldEpisode], versions: Iterable[int]) -> Forgotten:
        """The sum of some episodes."""
        found = list(episodes)
        times = [episode.last for episode in found]
        return cls(
            episodes=len(found),
            turns=sum(episode.turns for episode in found),
            first=min(times, default=None),
            last=max(times, default=None),
            versions=sorted(versions),
        )


class SessionRow(msgspec.Struct, frozen=True):
    """A session and how many of its turns are main, side, settled (main, with a next state) and trained (in a version
    not rejected).

    `turns` is filled by `session()` alone, oldest first.
    """

    session_id: str
    policy: str
    source: str
    created: float
    last_seen: float
    episodes: Sequence[EpisodeRow]
    main: int
    side: int
    settled: int
    trained: int
    turns: Sequence[TurnSummary] = ()
    owner: str = SERVICE


class AuditFigures(msgspec.Struct, frozen=True):
    """Results of audits: `verdicts` counts all of them; `mean`, `p99` and `largest` are |recorded − found| logprob per
    token over the last `turns` turns compared, of `tokens` tokens; `time` is the last comparison's (Unix seconds).
    """

    verdicts: Mapping[str, int]
    turns: int = 0
    tokens: int = 0
    mean: float = 0.0
    p99: float = 0.0
    largest: float = 0.0
    time: float | None = None


class LearningFigures(msgspec.Struct, frozen=True):
    """The state of learning: the newest version's number and state (`None` in an empty journal) and the live one's; and
    how many judgements were ever made, those of them without a score, their votes, and votes that failed.
    """

    newest: int | None = None
    state: str = ""
    live: int | None = None
    judgements: int = 0
    without_score: int = 0
    votes: int = 0
    failed: int = 0


class Lesson(msgspec.Struct, frozen=True):
    """The way in which a version learned from one of its samples: the weight in the means of the loss, the advantage
    (`None`: no reward trained), and the terms of the loss that it took part in, with the weight of each.
    """

    sample_id: str
    weight: float
    advantage: float | None
    terms: Mapping[str, float]


class Lineage:
    """The versions by their parents, seen from the `live` one. Rejected ones have numbers too, so a difference of
    numbers is not a number of updates.
    """

    def __init__(self, live: int, parents: Mapping[int, int | None]) -> None:
        self.live = live
        self._parents = parents
        self._above: dict[int, int] = {}
        node: int | None = live
        while node is not None and node not in self._above:
            self._above[node] = len(self._above)
            node = parents.get(node)

    def updates_from(self, version: int) -> int:
        """The number of updates between a version and the live one, through the nearest version that both come from.
        For a version that the journal does not have, the difference of the numbers.
        """
        node, steps = version, 0
        while node not in self._above:
            parent = self._parents.get(node)
            if parent is None:
                return abs(self.live - version)
            node, steps = parent, steps + 1
        return self._above[node] + steps


class ProcessRow(msgspec.Struct, frozen=True):
    """The last heartbeat of a process; `time` in Unix seconds. Whether it still lives is for the reader to judge."""

    name: str
    pid: int
    time: float
    status: Mapping[str, Any]


class Lengths(msgspec.Struct, frozen=True):
    """The number of turns of a kind, and the tokens of their prompts and of their answers together."""

    turns: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0


class Recorded(msgspec.Struct, frozen=True):
    """Traffic on `days` UTC days, those without a turn not counted: turns by kind, main turns that a person
    `answered`, and of all `samples` those with a hint and those with a reward other than 0.
    """

    days: int
    main: Lengths
    side: Lengths
    answered: int
    samples: int
    hinted: int
    rewarded: int
