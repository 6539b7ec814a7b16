"""Requests that no client would write, and some that clients do, over every dialect and the control routes.

Whatever is sent: never a 5xx, never silence, always an error in the dialect's own shape, and every answer that was
acknowledged is in the journal. A run takes seconds; by hand, `FUZZ_SECONDS=600 pytest tests/test_fuzz.py`
looks further, and at other requests each time.
"""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, currently_in_test_context, given, note, seed, settings
from hypothesis import strategies as st

from tests.fixtures.requests import CHAT, CONTROL, MESSAGES, PLACES, RESPONSES, RESTS
from tests.processes import Proxy

SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
ROUND = 20
BY_HAND = "FUZZ_SECONDS" in os.environ
MOST_TOKENS = 24
ANSWERS = 60.0  # seconds after which it is silence
ADAPTER_STARTS = 180.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS + 300)]

ODD_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "\x00",
        "\ud83d",
        "\U0001f600",
        "<tool_call>",
        "<think>",
        "</think>",
        "<|im_end|>",
        "{",
        "[" * 50,
        "a" * 3000,
    ]
)
WORDS = ODD_TEXTS | st.text(max_size=12)
NUMBERS = st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 0.5, -0.0, 1e300, 1e-300]) | st.integers(-5, 40)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def tell(text: str) -> None:
    """Show it where an example fails."""
    if currently_in_test_context():
        note(text)


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a JSON value at which something can be changed."""
    if here:
        yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from paths(inner, (*here, name))


@st.composite
def bodies(draw: st.DrawFn, examples: list[dict[str, Any]]) -> Any:
    """One of the examples with up to three changes."""
    body = copy.deepcopy(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(0, 3))):
        found = list(paths(body))
        if not found:
            break
        *way, last = draw(st.sampled_from(found))
        holder = body
        for name in way:
            holder = holder[name]
        change = draw(st.sampled_from(["put", "put", "drop", "twice", "add"]))
        if change == "drop":
            del holder[last]
        elif change == "twice" and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(holder[last]))
        elif change == "add" and isinstance(holder, dict):
            holder[draw(WORDS)] = draw(VALUES)
        else:
            holder[last] = draw(VALUES)
    return brief(body)


def brief(body: dict[str, Any]) -> dict[str, Any]:
    """The body without wishes for long answers: the policy would give them."""
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        value = body.get(name)
        if isinstance(value, int | float) and value > MOST_TOKENS:
            body[name] = MOST_TOKENS
    if "messages" in body and "max_tokens" not in body:
        body["max_tokens"] = 6
    if isinstance(body.get("n"), int) and body["n"] > 3:
        body["n"] = 3 if body["n"] <= 16 else body["n"]
    body["ignore_eos"] = False
    return body


def raw(body: Any) -> bytes:
    """JSON as loosely as clients write it: half surrogates and all."""
    return json.dumps(body).encode()


CONTENTS = st.binary(max_size=40) | st.builds(lambda data, cut: data[:cut], st.just(raw(CHAT[1])), st.integers(0, 400))
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "x-session-id", "x-turn-type", "x-session-done", "x-rl-train", "x-openclaw-session-key",
            "x-openclaw-trigger", "x-stainless-retry-count", "content-type", "accept", "x-openclaw-rl-dialect",
            "x-openclaw-rl-chat", "anthropic-beta", "traceparent",
        ]
    ),
    st.sampled_from(["side", "main", "true", "never", "fuzz", "fuzz-chat", "cron", "1", "-1", "text/plain", "x" * 300])
    | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8),
    max_size=3,
)  # fmt: skip


class Fuzzed:
    """A running service, and what it has acknowledged."""

    def __init__(self, proxy: Proxy, client: httpx.Client) -> None:
        self._proxy = proxy
        self.client = client
        self._acknowledged: list[str] = []

    def send(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> httpx.Response:
        """Send it, read the whole answer and look at it."""
        tell(f"{method} {path} {headers} {content!r}")
        response = self.client.request(method, path, content=content, headers=headers)
        tell(f"-> {response.status_code} {response.text[:2000]}")
        assert response.status_code < 500
        if response.status_code >= 400:
            self._check_error(path, response)
        elif "x-openclaw-rl-turn" in response.headers and ended(path, response) and kept(headers):
            turns = response.headers.get("x-openclaw-rl-turns") or response.headers["x-openclaw-rl-turn"]
            self._acknowledged += turns.split(",")
            self._check_journal(turns.split(","))
        return response

    def _check_error(self, path: str, response: httpx.Response) -> None:
        body = response.json()
        assert isinstance(body["error"]["message"], str) and body["error"]["message"]
        assert isinstance(body["error"]["type"], str)
        assert (body.get("type") == "error") is path.startswith("/v1/messages")

    def _check_journal(self, turn_ids: list[str]) -> None:
        for turn_id in turn_ids:
            turn = self._proxy.journal().turn(turn_id)
            assert turn is not None, f"{turn_id} was acknowledged and is lost"
            assert turn.status == "complete"
            assert len(turn.response_ids) == len(turn.logprobs)

    def check_all(self) -> int:
        """Look for everything once more; how many there are."""
        self._check_journal(self._acknowledged)
        return len(self._acknowledged)


def kept(headers: dict[str, str]) -> bool:
    """Return whether the client lets its turn be kept."""
    return headers.get("x-rl-train", "").lower() not in ("never", "no", "off", "false", "0")


def ended(path: str, response: httpx.Response) -> bool:
    """Return whether an answer came with its end; one that is streamed ends well, or with an error that says why."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        return True
    last = response.text.rstrip().rpartition("\n\n")[2]
    data = last.rpartition("data: ")[2]
    if data != "[DONE]" and "error" in json.loads(data) and json.loads(data)["error"]:
        return False
    end = {"/v1/chat/completions": "[DONE]", "/v1/responses": '"response.', "/v1/messages": "message_stop"}[path]
    assert end in last, "the stream has no end"
    return True


@pytest.fixture(scope="module")
def fuzzed(service: Proxy) -> Iterator[Fuzzed]:
    headers = {"authorization": f"Bearer {service.key}"}
    limits = httpx.Limits(max_keepalive_connections=0)  # what a server closes by itself is then never taken for a crash
    with httpx.Client(base_url=service.url, headers=headers, timeout=ANSWERS, limits=limits) as client:
        found = Fuzzed(service, client)
        logged = len(service.log.read_bytes())
        yield found
        assert service.process.poll() is None
        found.check_all()
        assert b"Traceback" not in service.log.read_bytes()[logged:], "something unforeseen is in the log"


def fuzz(given_test: Callable[[Callable[..., None]], Callable[..., None]], test: Callable[..., None]) -> None:
    """Run a test on examples until the time is up, the same ones in every run unless it is done by hand."""
    end = time.monotonic() + SECONDS
    rounds = 0
    begin = random.randrange(2**32) if BY_HAND else 0
    while rounds == 0 or time.monotonic() < end:

        def one(**drawn: Any) -> None:
            test(**drawn)

        wrapped = settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))(
            given_test(one)
        )
        seed(begin + rounds)(wrapped)()
        rounds += 1


def test_chat(fuzzed: Fuzzed) -> None:
    def send(content: bytes, headers: dict[str, str]) -> None:
        fuzzed.send("POST", "/v1/chat/completions", content, headers)

    fuzz(given(content=bodies(CHAT).map(raw) | CONTENTS, headers=HEADERS), send)


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_dialects(fuzzed: Fuzzed, dialect: str) -> None:
    examples = RESPONSES if dialect == "responses" else MESSAGES
    fuzzed.client.timeout = httpx.Timeout(ADAPTER_STARTS)
    fuzzed.send("POST", f"/v1/{dialect}", raw(brief(copy.deepcopy(examples[0]))), {})
    fuzzed.client.timeout = httpx.Timeout(ANSWERS)
    counting = "/input_tokens" if dialect == "responses" else "/count_tokens"

    def send(content: bytes, headers: dict[str, str], path: str) -> None:
        fuzzed.send("POST", f"/v1/{dialect}{path}", content, headers)

    paths = st.sampled_from(["", "", "", counting])
    fuzz(given(content=bodies(examples).map(raw) | CONTENTS, headers=HEADERS, path=paths), send)


@st.composite
def control_requests(draw: st.DrawFn) -> tuple[str, str, bytes | None]:
    """Method, path and body of a request to anything but the dialects."""
    if draw(st.booleans()):
        method, path, body = draw(st.sampled_from(CONTROL))
        return method, path, raw(draw(bodies([body]))) if draw(st.booleans()) else draw(CONTENTS)
    method = draw(st.sampled_from(["GET", "GET", "POST", "DELETE", "PUT", "HEAD"]))
    return method, draw(st.sampled_from(PLACES)) + draw(st.sampled_from(RESTS)), None


def test_control(fuzzed: Fuzzed) -> None:
    def send(request: tuple[str, str, bytes | None], headers: dict[str, str]) -> None:
        method, path, content = request
        response = fuzzed.client.request(method, path, content=content, headers=headers)
        assert response.status_code < 500 or (path, response.status_code) == ("/readyz", 503), response.text
        if response.status_code >= 400 and method != "HEAD":
            assert isinstance(response.json()["error"]["message"], str)

    fuzz(given(request=control_requests(), headers=HEADERS), send)
