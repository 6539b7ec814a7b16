"""Errors of Fireworks' libraries become messages with a remedy; only requests certainly not taken are sent again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import fireworks
import httpx
import pytest
from fireworks.training import sdk
from fireworks.training.sdk import types
from fireworks.training.sdk._core._client import AsyncTrainingHTTPClient
from fireworks.training.sdk.errors import format_sdk_error

from openclaw_rl.trainer_cloud.fireworks.sdk import Leash, to_cloud_error
from tests.trainer_cloud.front import Answer, Front, run_front

MODEL = "accounts/fireworks/models/qwen3-8b"
SUSPENDED = "Account acme is suspended, possibly due to reaching the monthly spending limit"


@pytest.fixture
def front() -> Iterator[Front]:
    with run_front() as running:
        yield running


async def submitted(url: str) -> Any:
    """Send an optimizer step through the SDK's HTTP client."""
    client = AsyncTrainingHTTPClient(
        api_key="fw_secret1",
        base_url=url,
        max_retries=0,
        _client_config=types.ClientConfigResponse(use_pyqwest_transport=False),
    )
    try:
        request = types.OptimStepRequest(adam_params=types.AdamParams(), model_id="m")
        return await client.training.optim_step(request=request)
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("answer", "trouble", "undone", "words"),
    [
        (Answer({"error": {"message": "bad key fw_secret1"}}, 401), "key", True, "FIREWORKS_API_KEY"),
        (Answer({"error": "no access"}, 403), "key", True, "contact-training"),
        (Answer({"error": "pay first"}, 402), "billing", True, "cannot pay: pay first"),
        (Answer({"message": SUSPENDED}, 412), "billing", True, "spending limit"),
        (Answer({"message": "slow down"}, 429, {"retry-after": "7"}), "limit", True, "asked too often"),
        (Answer({"detail": "pool is at capacity"}, 409), "limit", True, "at capacity"),
        (Answer({"detail": f"base_model {MODEL} is not enabled"}, 400), "model", True, f"model = {MODEL}"),
        (
            Answer({"detail": [{"loc": ["body"], "msg": "weights is missing"}]}, 422),
            "refused",
            True,
            "weights is missing",
        ),
        (Answer({"detail": "run is closing"}, 409), "away", False, "status 409"),
        (Answer({"detail": "loading weights"}, 425), "away", False, "status 425"),
        (Answer({"message": "oh"}, 503, {"retry-after": "3"}), "away", False, "status 503"),
    ],
)
async def test_a_status_becomes_a_message(front: Front, answer: Answer, trouble: str, undone: bool, words: str) -> None:
    front.answer = lambda _: answer
    with pytest.raises(sdk.APIStatusError) as caught:
        await submitted(front.url)
    known = to_cloud_error(caught.value, model=MODEL, doing="a step")
    assert (known.trouble, known.undone) == (trouble, undone)
    assert words in str(known)
    assert "fw_secret1" not in str(known)
    wanted = answer.headers.get("retry-after")
    assert known.retry_after == (None if wanted is None else float(wanted))


async def test_a_status_of_the_rest_api_becomes_a_message(front: Front) -> None:
    front.answer = lambda _: Answer({"message": "credit depleted"}, 412)
    async with fireworks.AsyncFireworks(api_key="fw_x", base_url=front.url, max_retries=0) as client:
        with pytest.raises(fireworks.APIStatusError) as caught:
            await client.deployments.delete("d", account_id="a")
    assert to_cloud_error(caught.value).trouble == "billing"


async def test_a_status_of_the_sampler_becomes_a_message(front: Front) -> None:
    front.answer = lambda _: Answer({"error": {"message": "overloaded"}}, 429, {"retry-after": "2"})
    sampler = sdk.DeploymentSampler(inference_url=front.url, model="m", api_key="fw_x")
    sampler._RETRY_MAX_ATTEMPTS = 1
    with pytest.raises(sdk.SamplingRequestError) as caught:
        await sampler.sample_with_prompt_tokens_result([1], max_tokens=1)
    known = to_cloud_error(caught.value)
    assert (known.trouble, known.retry_after) == ("limit", 2.0)
    await sampler._get_async_client().aclose()
    sampler.close()


def test_the_cause_of_an_error_of_several_lines_is_named() -> None:
    error = RuntimeError(format_sdk_error("Hotload failed for 'x'", "the snapshot is not there", "look again"))
    assert str(to_cloud_error(error, doing="loading x")).endswith("the snapshot is not there")


def test_a_result_that_failed_is_known_to_have_been_taken() -> None:
    error = sdk.RequestFailedError("loss is unknown", request_id="1", category=types.RequestErrorCategory.User)
    assert (to_cloud_error(error).trouble, to_cloud_error(error).undone) == ("refused", False)
    error = sdk.RequestFailedError("out of memory", request_id="1", category=types.RequestErrorCategory.Server)
    assert (to_cloud_error(error).trouble, to_cloud_error(error).undone) == ("away", False)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def test_without_a_connection_nothing_was_taken() -> None:
    with pytest.raises(sdk.APIConnectionError) as caught:
        await submitted(f"http://127.0.0.1:{free_port()}")
    known = to_cloud_error(caught.value)
    assert (known.trouble, known.undone) == ("away", True)


class Holder:
    """The object that a leash is tied to."""


@pytest.mark.parametrize("first", ["refused connection", "429"])
async def test_a_request_that_was_certainly_not_taken_is_sent_again(front: Front, first: str) -> None:
    nowhere, tries = f"http://127.0.0.1:{free_port()}", []
    front.answer = lambda _: (
        Answer({"message": "later"}, 429) if first == "429" and len(tries) == 1 else Answer({"request_id": "1"})
    )

    async def send() -> Any:
        tries.append(1)
        return await submitted(nowhere if first != "429" and len(tries) == 1 else front.url)

    assert (await Leash(Holder(), 30.0).execute_with_retries(send)).request_id == "1"
    assert len(tries) == 2


@pytest.mark.parametrize("status", [408, 409, 500, 502, 504])
async def test_a_request_that_may_have_been_taken_is_not_sent_again(front: Front, status: int) -> None:
    front.answer = lambda _: Answer({"message": "who knows"}, status)
    with pytest.raises(sdk.APIStatusError):
        await Leash(Holder(), 30.0).execute_with_retries(submitted, front.url)
    assert len(front.sent) == 1


async def test_a_request_that_broke_off_is_not_sent_again(front: Front) -> None:
    async def send() -> None:
        tries.append(1)
        raise sdk.APIConnectionError(request=httpx.Request("POST", front.url)) from httpx.ReadError("reset")

    tries: list[int] = []
    with pytest.raises(sdk.APIConnectionError):
        await asyncio.wait_for(Leash(Holder(), 30.0).execute_with_retries(send), 5)
    assert tries == [1]
