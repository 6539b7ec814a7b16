"""The HTTP bodies: the part of SGLang's native wire that we speak, field by field, and our extensions to it.

Ours: `weight_version` in a request asks for a version; `score_temperature` is the temperature of the logprobs of input
tokens; `live` in a weight update says whether new requests use it (default true).
"""

from __future__ import annotations

from typing import Any

import msgspec

from trainer_local.embedded.sampling import SamplingParams


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


class GenerateRequest(msgspec.Struct, frozen=True):
    """`POST /generate`. With an `extra_key` nothing that is kept of other prompts is used, nor anything kept of this
    one. Media are there to be refused."""

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


def decode(body: bytes, kind: type[Any]) -> Any:
    """A request body as `kind`; raises `Refused` with the place of the mistake."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(f"the body is not what this route takes: {error}") from error
