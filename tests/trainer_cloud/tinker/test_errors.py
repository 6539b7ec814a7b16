"""Errors of the Tinker library in our words: its own classes, with answers like those of the service."""

from __future__ import annotations

import httpx
import pytest
import tinker

from openclaw_rl.trainer_cloud.provider import CloudError
from openclaw_rl.trainer_cloud.tinker.client import to_cloud_error

REQUEST = httpx.Request("POST", "https://tinker.example/api/v1/forward_backward")


def answered(status: int, message: str = "", **headers: str) -> tinker.APIStatusError:
    """The exception that the library raises for an answer."""
    named = {
        400: tinker.BadRequestError,
        401: tinker.AuthenticationError,
        403: tinker.PermissionDeniedError,
        404: tinker.NotFoundError,
        409: tinker.ConflictError,
        422: tinker.UnprocessableEntityError,
        429: tinker.RateLimitError,
    }
    kind = named.get(status, tinker.InternalServerError if status >= 500 else tinker.APIStatusError)
    response = httpx.Response(status, headers=headers, request=REQUEST)
    return kind(message or f"Error code: {status}", response=response, body=None)


@pytest.mark.parametrize(
    ("error", "trouble", "undone", "words"),
    [
        (answered(401, "invalid key"), "key", True, "TINKER_API_KEY"),
        (answered(403, "not yours"), "key", True, "TINKER_API_KEY"),
        (answered(402, "payment required"), "billing", True, "cannot pay"),
        (answered(429), "limit", True, "asked too often"),
        (answered(404, "not found"), "model", True, "Qwen/Qwen3-8B"),
        (answered(404, "Session not found"), "away", True, "ended the session"),
        (answered(400, "bad datum"), "refused", True, "bad datum"),
        (answered(422, "bad field"), "refused", True, "bad field"),
        (answered(500), "away", False, "status 500"),
        (answered(503), "away", False, "status 503"),
        (answered(409), "away", False, "status 409"),
        (tinker.APIConnectionError(request=REQUEST), "away", False, "cannot be reached"),
        (tinker.APITimeoutError(request=REQUEST), "away", False, "cannot be reached"),
        (
            ValueError("Error retrieving result: Error code: 401 with status 401 for self.request_id='3'"),
            "key",
            True,
            "TINKER_API_KEY",
        ),
        (ValueError("Error retrieving result: x with status 500 for y"), "away", False, "status 500"),
        (RuntimeError("this TrainingClient is poisoned and cannot accept"), "away", False, "earlier request failed"),
        (tinker.TinkerError("The api_key client option must be set"), "key", True, "TINKER_API_KEY"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors_say_what_happened_and_what_to_do(error: Exception, trouble: str, undone: bool, words: str) -> None:
    found = to_cloud_error(error, model="Qwen/Qwen3-8B", doing="a training step")
    assert (found.trouble, found.undone) == (trouble, undone)
    assert words in str(found)


PATH = "tinker://model/sampler_weights/7"


@pytest.mark.parametrize("error", [answered(404, "no model"), answered(410), answered(400, "Checkpoint not found")])
def test_a_state_that_is_not_at_its_path_is_gone(error: Exception) -> None:
    found = to_cloud_error(error, path=PATH, doing="sampling")
    assert (found.trouble, found.undone, found.passes) == ("gone", True, False)
    assert PATH in str(found)


def test_a_path_that_is_asked_for_in_a_wrong_way_is_not_gone() -> None:
    from tinker.types import RequestErrorCategory

    assert to_cloud_error(answered(400, "too long"), path=PATH).trouble == "refused"
    lost = tinker.RequestFailedError("run/7 is gone", request_id="1", category=RequestErrorCategory.User)
    assert (to_cloud_error(lost, path=PATH).trouble, to_cloud_error(lost).trouble) == ("gone", "refused")


def test_a_model_in_training_that_is_lost_is_no_model_that_is_not_offered() -> None:
    assert to_cloud_error(answered(404, "Model not found"), training=True).trouble == "away"


def test_the_time_to_wait_is_kept() -> None:
    assert to_cloud_error(answered(429, **{"retry-after": "17"})).retry_after == 17.0
    assert to_cloud_error(answered(429)).retry_after is None
    assert to_cloud_error(answered(429, **{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"})).retry_after is None


def test_a_request_that_failed_at_the_service_is_refused_or_lost_by_its_category() -> None:
    from tinker.types import RequestErrorCategory

    mine = tinker.RequestFailedError("too long", request_id="1", category=RequestErrorCategory.User)
    its = tinker.RequestFailedError("out of memory", request_id="1", category=RequestErrorCategory.Server)
    assert (to_cloud_error(mine).trouble, to_cloud_error(its).trouble) == ("refused", "away")
    assert not to_cloud_error(mine).undone  # part of what was sent with it may have happened


def test_our_own_errors_stay_as_they_are() -> None:
    mine = CloudError("words", "limit")
    assert to_cloud_error(mine) is mine


def test_only_the_first_line_is_reported() -> None:
    assert "second" not in str(to_cloud_error(answered(500, "first\nsecond " + "x" * 1000)))
