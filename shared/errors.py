"""The errors a person can meet, as one tree.

    OpenClawRLError
    ├── ConfigError            a setting, or two that do not go together
    ├── RequestError           something wrong with one HTTP request; carries the status and OpenAI's error fields
    │   ├── BadRequest         400: the body cannot be honoured
    │   ├── Unauthorized       401
    │   ├── NotFound           404: no such turn, session, version or model
    │   ├── Conflict           409
    │   ├── TooLarge           413
    │   ├── Overloaded         429 or 503, with Retry-After
    │   └── StorageFull        507: the journal cannot be written
    ├── EngineError            the engine failed or cannot be reached
    │   └── ContextLengthExceeded
    ├── JournalError           the journal cannot be read or written
    │   └── DamagedRecord      one stored record is not what was written; the others can be read
    ├── TrainerError           a step, a checkpoint or a publish failed
    │   ├── TrainerAway        what trains cannot be had now: the batch waits
    │   └── TrainerOutOfMemory a step does not fit in the device's memory: answers are cut, turns named
    ├── JudgeError             one vote failed
    └── JudgeAway              no judge can be asked now: the turn waits

Add a class here only when code has to tell it apart by type; otherwise a message is enough. Every message says what
happened, to which object, and what the reader can do.
"""

from __future__ import annotations

from typing import Any


class OpenClawRLError(Exception):
    """Root of every error this project raises on purpose."""


class ConfigError(OpenClawRLError):
    """A setting is missing, malformed or contradicts another; the message names it and its source."""


class RequestError(OpenClawRLError):
    """An HTTP request that cannot be served; rendered as OpenAI's `{"error": {...}}` body (platform.openai.com, error
    codes).

    `status` is the HTTP status, `code` OpenAI's machine-readable word, `param` the offending field as a path,
    `retry_after` seconds.
    """

    status = 400
    type = "invalid_request_error"
    code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status
            if status >= 500 and self.type == RequestError.type:
                self.type = "server_error"

    def body(self) -> dict[str, Any]:
        """The JSON body of the answer."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class BadRequest(RequestError):
    """400: the body is not what the route takes."""


class Unauthorized(RequestError):
    """401: no key, or a wrong one."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(RequestError):
    """403: the key is known, and may not do this."""

    status = 403
    type = "permission_error"
    code = "insufficient_scope"


class NotFound(RequestError):
    """404: the named object does not exist."""

    status = 404
    code = "not_found"


class Conflict(RequestError):
    """409: the object is not in a state that allows this."""

    status = 409
    code = "conflict"


class UploadTooSlow(RequestError):
    """408: the client did not get done with sending its request."""

    status = 408
    code = "request_timeout"


class TooLarge(RequestError):
    """413: the body is larger than the limit."""

    status = 413
    code = "request_too_large"


class Overloaded(RequestError):
    """429 or 503: come back later; `retry_after` says when."""

    status = 503
    type = "server_error"
    code = "overloaded"


class StorageFull(RequestError):
    """507: the answer cannot be acknowledged because the journal cannot be written."""

    status = 507
    type = "server_error"
    code = "insufficient_storage"


class EngineError(OpenClawRLError):
    """The engine failed, refused or cannot be reached; `status` is its HTTP status if it answered."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ContextLengthExceeded(EngineError):
    """Prompt plus requested answer do not fit; lengths in tokens."""

    def __init__(self, *, prompt_tokens: int, requested_tokens: int, context_length: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.requested_tokens = requested_tokens
        self.context_length = context_length
        super().__init__(
            f"This model's maximum context length is {context_length} tokens. However, you requested "
            f"{prompt_tokens + requested_tokens} tokens ({prompt_tokens} in the messages, {requested_tokens} in the "
            "completion). Please reduce the length of the messages or completion.",
            status=400,
        )


class JournalError(OpenClawRLError):
    """The journal cannot be opened, read or written; the message names the file or URL."""


class MissingRecord(JournalError):
    """The journal has no such turn, session or episode: it was never recorded, or was forgotten meanwhile."""


class DamagedRecord(JournalError):
    """A stored record is not what was written. `row` is the row of its turn, where one is known."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class TrainerError(OpenClawRLError):
    """A training step, checkpoint, restore or publish failed; nothing of it was committed."""


class TrainerAway(TrainerError):
    """The trainer cannot be had now (a provider that is away, a budget that is spent): nothing was changed, and the
    batch waits instead of being given up.
    """


class TrainerOutOfMemory(TrainerError):
    """A step does not fit in the memory of its device, and was undone.

    `sample_id` names a sample whose answer does not fit even alone. Without it, smaller passes may fit if `tokens`, the
    size of the pass that did not, is given; else no sample is to blame.
    """

    def __init__(self, message: str, *, sample_id: str = "", tokens: int = 0) -> None:
        super().__init__(message)
        self.sample_id = sample_id
        self.tokens = tokens


class JudgeError(OpenClawRLError):
    """One vote of a judge failed; it counts as a failure, never as a neutral score."""


class JudgeAway(OpenClawRLError):
    """The judge's provider, engine or model cannot be had now: no vote was cast, and the turn keeps waiting."""
