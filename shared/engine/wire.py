"""The bodies of our own engines' HTTP: the part of SGLang's native wire that we speak, field by field, our extensions
to it, and the news of a request that an engine hands to `shared.engine.server`.

Ours: `weight_version` in a request asks for a version; `score_temperature` is the temperature of the logprobs of input
tokens; `live` in a weight update says whether new requests use it (default true).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from openclaw_rl.shared.records import PromptImage

SECRET = "OPENCLAWRL_ENGINE_SECRET"
"""Variable with the secret of the engine of a service, which only its own processes know. It is no setting."""


class Refused(Exception):
    """A request that is answered with an error; `status` is its HTTP status."""

    def __init__(self, message: str, status: int = 400, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code

    def body(self) -> dict[str, Any]:
        """`{"error": {"message", "code", …}}`, as SGLang's error events have it, with our word for the kind of
        error."""
        return {"error": {"message": self.message, "code": self.status, "type": self.code or "BadRequest"}}


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SGLang's `sampling_params` as far as we honour them; a field that we do not know is refused, not ignored."""

    max_new_tokens: Annotated[int, Meta(ge=0)] = 128
    min_new_tokens: Annotated[int, Meta(ge=0)] = 0
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = -1
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=2)] = 1.0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    sampling_seed: int | None = None
    seed: int | None = None
    n: int = 1
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False

    def __post_init__(self) -> None:
        if self.top_k == 0:
            raise ValueError("top_k must be -1 (off) or at least 1")
        if self.n != 1:
            raise ValueError("n must be 1: send n requests")

    @property
    def stops(self) -> list[str]:
        """Stop strings, empty ones left out."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in given if text]


class GenerateRequest(msgspec.Struct, frozen=True):
    """`POST /generate`. With an `extra_key` nothing that is kept of other prompts is used, nor anything kept of this
    one. `image_data` are images by their places in `input_ids` (`url`, `start`, `end`), where the engine sees; other
    media are there to be refused.
    """

    input_ids: list[int]
    rid: str | None = None
    sampling_params: SamplingParams = SamplingParams()
    stream: bool = False
    return_logprob: bool = False
    logprob_start_len: int | None = -1
    top_logprobs_num: int = 0
    priority: int = 0
    weight_version: str | int | None = None
    score_temperature: float = 1.0
    extra_key: str | None = None
    image_data: Any = None
    video_data: Any = None
    audio_data: Any = None

    def version(self) -> int | None:
        """The version asked for; `None` is the live one. Raises `Refused`."""
        if self.weight_version is None:
            return None
        try:
            return int(self.weight_version)
        except ValueError:
            raise Refused(f"weight_version must be a number, not {self.weight_version!r}", 404) from None

    def images(self) -> list[PromptImage]:
        """The images of the prompt. Raises `Refused`."""
        try:
            found = msgspec.convert(self.image_data or [], list[PromptImage])
        except msgspec.ValidationError as error:
            raise Refused(f"image_data: {error}; an image has a url, and the start and end of its tokens") from error
        places = [place for image in found for place in (image.start, image.end)]
        if sorted(set(places)) != places or any(not 0 <= place <= len(self.input_ids) for place in places):
            raise Refused("image_data: images stand in input_ids one after the other")
        return found

    def check(self, engine: str, *, vocabulary: int, context: int, sees: bool = False) -> None:
        """Raise `Refused` for what `engine` cannot be asked. `vocabulary` and `context` in tokens; a context of 0 is
        not known. `sees`: it takes images.
        """
        ids, params = self.input_ids, self.sampling_params
        if (self.image_data and not sees) or self.video_data or self.audio_data:
            taken = "text and images" if sees else "text"
            raise Refused(f"{engine} takes {taken} only: leave image_data, video_data and audio_data out")
        if not ids:
            raise Refused("input_ids is empty: a prompt has at least one token")
        if min(ids) < 0 or max(ids) >= vocabulary:
            raise Refused(f"input_ids has a token outside the vocabulary (0 to {vocabulary - 1})")
        if any(not 0 <= token < vocabulary for token in params.stop_token_ids or ()):
            raise Refused("sampling_params: stop_token_ids has a token outside the vocabulary")
        if self.logprob_start_len is not None and self.logprob_start_len > len(ids):
            raise Refused("logprob_start_len is beyond the prompt")
        total = len(ids) + params.max_new_tokens
        if context and total > context:
            raise Refused(
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
                f"a total of {total} tokens: {len(ids)} tokens from the input messages and {params.max_new_tokens} "
                "tokens for the completion.",
                code="context_length_exceeded",
            )


class AbortRequest(msgspec.Struct, frozen=True):
    """`POST /abort_request`."""

    rid: str = ""
    abort_all: bool = False


class UpdateWeights(msgspec.Struct, frozen=True):
    """`POST /update_weights_from_disk`. `load_format`, `flush_cache` and the like mean nothing here and are
    accepted."""

    model_path: str
    weight_version: str | int | None = None
    live: bool = True

    def number(self, known: Iterable[int]) -> int:
        """The version's number, by default the one after those that are `known`. Raises `Refused`."""
        try:
            number = max(known) + 1 if self.weight_version is None else int(self.weight_version)
        except ValueError:
            raise Refused(f"weight_version must be a number, not {self.weight_version!r}") from None
        if number < 0:
            raise Refused("weight_version must not be negative")
        return number


class Choice(msgspec.Struct, frozen=True):
    """A sampled token, its logprob, and the likeliest tokens as `(logprob, id)`, best first."""

    id: int
    logprob: float
    top: list[tuple[float, int]]


@dataclass(frozen=True)
class Event:
    """News of a request: newly sampled tokens and, in its last event, why it ended (SGLang's `finish_reason`) or what
    went wrong.
    """

    choices: Sequence[Choice] = ()
    finish: dict[str, Any] | None = None
    error: Refused | None = None

    @property
    def last(self) -> bool:
        """True if nothing comes after it."""
        return self.finish is not None or self.error is not None


@dataclass(eq=False)
class EngineJob:
    """A request in progress in an engine. `receive` gets its events; `version` is what it is sampled from."""

    request: GenerateRequest
    version: Any
    receive: Callable[[Event], None]
    arrived: float = field(default_factory=time.monotonic)
    cached: int = 0
    output: list[int] = field(default_factory=list)
    input_logprobs: list[tuple[float | None, int]] = field(default_factory=list)
    input_top_logprobs: list[list[tuple[float, int]] | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rid = self.request.rid or uuid.uuid4().hex
        start = self.request.logprob_start_len
        self.score_from = start if self.request.return_logprob and start is not None and start >= 0 else None
        """The first position whose logprob is asked for, which is never there itself."""
        if self.score_from is not None and self.score_from < len(self.request.input_ids):
            self.input_logprobs.append((None, int(self.request.input_ids[self.score_from])))
            self.input_top_logprobs.append(None)

    @property
    def top_logprobs(self) -> int:
        """Number of alternatives that a sampled token reports."""
        return self.request.top_logprobs_num if self.request.return_logprob else 0


def decode(body: bytes, kind: type[Any]) -> Any:
    """A request body as `kind`; raises `Refused` with the place of the mistake."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(f"the body is not what this route takes: {error}") from error


def jsonable(pairs: Sequence[tuple[float, int]]) -> list[list[Any]]:
    """`(logprob, id)` pairs as SGLang writes them: `[logprob, id, text]` with no text."""
    return [[logprob, token, None] for logprob, token in pairs]
