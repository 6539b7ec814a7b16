"""The records of the journal, which flow between the loops.

All are frozen msgspec structs: they are written once and never changed; what happens later to a turn is another record
that names it. Token ids are int sequences (`array('I')` or tuple), logprobs float32 natural logarithms under the
distribution that was really sampled (temperature, top-p and penalties applied), times Unix seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Role = Literal["user", "tool", "environment"]
Kind = Literal["main", "side"]
TurnStatus = Literal["complete", "aborted", "error"]
VersionState = Literal["candidate", "live", "retired", "rejected"]
AuditVerdict = Literal["aligned", "misaligned", "incomparable", "gone", "unavailable"]

Message = dict[str, Any]
"""A canonical message as `shared.messages.normalize` makes it: role, content, and where present reasoning, tool_calls,
tool_call_id, name.
"""


def new_id(prefix: str) -> str:
    """A fresh identifier: `prefix_` and 32 hexadecimal digits."""
    return f"{prefix}_{os.urandom(16).hex()}"


def now() -> float:
    """Unix time in seconds."""
    return time.time()


class VersionSpan(msgspec.Struct, frozen=True):
    """Tokens `start` (inclusive) to `end` (exclusive) of an answer were sampled by policy version `version`."""

    version: int
    start: int
    end: int


class ImageSpan(msgspec.Struct, frozen=True):
    """Tokens `start` (inclusive) to `end` (exclusive) of a prompt are the placeholders of one image."""

    start: int
    end: int


class PromptImage(msgspec.Struct, frozen=True):
    """An image of a prompt: a data URL, and the place (`start` inclusive, `end` exclusive) of its tokens in the
    `prompt_ids`, where a placeholder stands once for every token that the model computes for it.
    """

    url: str
    start: int
    end: int


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sampling of an answer. `max_tokens` in tokens; `stop` strings end the answer and are not part of its text;
    `stop_ids` end it like the model's own end tokens. `json_schema` (JSON) is what it is held to, "" for nothing.
    `imported`: it came from a file, its sampling is unknown; its logprobs are those of the version that scored it, at
    temperature 1. `unscaled`: its logprobs are those at temperature 1, though it was sampled at another.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None
    ignore_eos: bool = False
    json_schema: str = ""
    imported: bool = False
    unscaled: bool = False


class Timings(msgspec.Struct, frozen=True):
    """Unix seconds: request arrived, first token seen, answer finished."""

    arrived: float
    first_token: float | None
    finished: float


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One model call: a request and the answer sampled for it.

    `messages` are the canonical messages of the request, `answer` the canonical assistant message. `logprobs` is as
    long as `response_ids`. `parent_turn_id` is the turn whose answer this request continues, `None` at a root;
    `parent_reason` says why there is none, or how it was found if not by the whole history. `request_key` and
    `answer_key` are chain digests (see `proxy.conversation.chain`) of the history before and after the answer,
    `exchange_key` of the last exchange alone.
    """

    turn_id: str
    session_id: str
    episode: int
    parent_turn_id: str | None
    parent_reason: str = ""
    kind: Kind
    kind_reason: str
    dialect: str = "chat"
    policy: str = "policy"
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    answer: Message
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    logprobs: Sequence[float]
    sampling: Sampling
    versions: Sequence[VersionSpan]
    finish_reason: str
    status: TurnStatus
    error: str = ""
    timings: Timings
    request_key: bytes = b""
    answer_key: bytes = b""
    exchange_key: bytes = b""
    untrainable: str = ""
    """The reason why this turn must never be trained on ("" when it may be): forced answer, mismatch between ids and
    text, fallback model…
    """
    image_spans: Sequence[ImageSpan] = ()
    """The places of the messages' images in `prompt_ids`, in their order."""


AGENT = "agent"
"""The source of a next state that another agent said."""


class ToolResult(msgspec.Struct, frozen=True, array_like=True):
    """One tool's result within the text of a next state: where it begins, the call that it answers, and whether the
    client says that it `failed` (`None`: it does not say).
    """

    start: int
    call_id: str = ""
    failed: bool | None = None


class NextState(msgspec.Struct, frozen=True, kw_only=True):
    """The next state of a turn. `source` is `turn` (the next request), `agent` (the same, where another agent speaks in
    it), `feedback` or `outcome`. Parallel tool results are one next state, with the place of each in `results`.

    `weak`: it came from a request with another system text and other tools than the turn's, so a next state from the
    turn's own conversation replaces it; that one names the request it came `instead_of`.
    """

    turn_id: str
    role: Role
    text: str
    source: str = "turn"
    next_turn_id: str | None = None
    results: tuple[ToolResult, ...] = ()
    weak: bool = False
    instead_of: str | None = None
    time: float = msgspec.field(default_factory=now)


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """Explicit feedback on a turn: score −1, 0 or +1 (or anything between), or `None` for a comment alone. The latest
    word counts.
    """

    feedback_id: str = msgspec.field(default_factory=lambda: new_id("fb"))
    turn_id: str
    session_id: str
    score: float | None
    text: str = ""
    source: str = "api"
    time: float = msgspec.field(default_factory=now)


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """One vote of a judge: its raw text and either a score in [−1, +1] or the reason it failed. `hint` as the judge
    proposed it. A vote of a hint model (`about` is `hint`) has no score, and may propose none without having failed.
    """

    text: str = ""
    score: float | None = None
    hint: str | None = None
    failure: str = ""
    about: Literal["score", "hint"] = "score"


NOT_UNDERSTOOD = "not understood"
"""The beginning of the reason of a judgement without a score whose judge did not understand the message."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The worth of a turn. `score` in [−1, +1], `None` when no vote succeeded. `hint` is the selected one, `signal`
    what it rests on; `prompt_version` names the prompt files or rules, `selection` how the hint was taken (`none`
    without one), `reason` describes the rest. `next_turn_id` and `instead_of` are those of the next state that was
    read. A hint from a person (`hint_role`) is remembered for later turns; one from a tool or an environment teaches
    this turn alone.
    """

    turn_id: str
    score: float | None
    hint: str | None = None
    hint_role: Literal["user", "tool", "environment"] = "user"
    votes: Sequence[Vote] = ()
    judge: str = ""
    prompt_version: str = ""
    signal: Literal["judge", "feedback", "outcome"] = "judge"
    selection: str = ""
    reason: str = ""
    feedback_id: str | None = None
    next_turn_id: str | None = None
    instead_of: str | None = None
    time: float = msgspec.field(default_factory=now)


class TeacherScores(msgspec.Struct, frozen=True):
    """The scores of an answer by a teacher behind an engine, under the hinted prompt: the logprobs of its tokens at the
    temperature of the distillation, and per position the teacher's likeliest tokens, `(logprob, id)` at temperature 1,
    best first.
    """

    logprobs: Sequence[float]
    top: Sequence[Sequence[tuple[float, int]]] = ()


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A turn made trainable, or a rollout trained with the turns.

    `origin`: `turn` (a person's or an environment's), `rehearsal` (fresh rollout on an earlier prompt), `anchor` (base
    rollout on a drill prompt), `revision` (an accepted second try as the answer to the first prompt) or `demonstration`
    (the hinted teacher's own answer to an earlier prompt); the `logprobs` of the last two say nothing. `hinted_prompts`
    holds the teacher's prompts, such as one per remembered hint; the teacher's target is the normalised geometric mean
    over them. `images` stand in `prompt_ids` in this order; a hinted prompt shows the same
    ones, at places of its own (`shared.messages.images.shown_again`). The journal keeps their files with the turn and
    nowhere else. `reward` in [−1, +1] or `None`; `advantage` stands in its place in the loss where a method took a
    baseline off it, `weight` is its weight in the means, `taught` holds the scores of a teacher that is another model
    (the journal keeps none of the three); `explicit` says that it may train through the binary term under every method.
    `group` names the attempts at one task that it is compared with ("" outside of groups), `step_index` is its place
    among the main turns of its attempt (`None` outside of attempts).
    `no_ratio` says why it has no importance ratio ("" where it has one,
    see `shared.objective.importance_ratio`): no term with a ratio takes it then.
    """

    sample_id: str
    turn_id: str | None
    policy: str
    origin: Literal["turn", "rehearsal", "anchor", "revision", "demonstration"]
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    logprobs: Sequence[float]
    versions: Sequence[VersionSpan]
    images: Sequence[PromptImage] = ()
    temperature: float = 1.0
    no_ratio: str = ""
    reward: float | None = None
    advantage: float | None = None
    explicit: bool = False
    hint: str | None = None
    hinted_prompts: Sequence[Sequence[int]] = ()
    taught: TeacherScores | None = None
    weight: float = 1.0
    group: str = ""
    step_index: int | None = None
    time: float = msgspec.field(default_factory=now)


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is not trained on, and why, as people read it."""

    turn_id: str
    reason: str
    time: float = msgspec.field(default_factory=now)


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """A turn scored again by the version that sampled it.

    `differences` holds per token |recorded − found| logprob, empty unless the verdict is `aligned` or `misaligned`. The
    other verdicts say that nothing was compared: `incomparable` (no engine scores under the way it was sampled), `gone`
    (the engine has that version no more), `unavailable` (the engine failed). `reason` is for people.
    """

    turn_id: str
    version: int
    verdict: AuditVerdict
    reason: str = ""
    differences: Sequence[float] = ()
    time: float = msgspec.field(default_factory=now)


class PolicyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the weights. Version 0 is the base model as found. `checkpoint` is a folder (or a provider's
    URI).
    """

    number: int
    parent: int | None
    state: VersionState
    checkpoint: str
    sample_ids: Sequence[str] = ()
    method: str = ""
    metrics: Mapping[str, float] = {}
    guard: Mapping[str, Any] = {}
    time: float = msgspec.field(default_factory=now)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The final reward of an episode from an environment; `None` means no verdict and drops the episode (never 0).

    `episode` is `None` in what older versions wrote: it is that of the session's turns before it. `next_state` is what
    came after the last main turn, such as the verdict's text; `done`: the episode ended with it.
    """

    session_id: str
    reward: float | None
    detail: str = ""
    episode: int | None = None
    next_state: str | None = None
    done: bool = False
    time: float = msgspec.field(default_factory=now)
