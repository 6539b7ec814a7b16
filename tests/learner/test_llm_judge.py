"""The judge that asks a model, against a scripted OpenAI-compatible server over real HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from learner.judge.base import create
from learner.judge.llm import ModelJudge, longest_hint, majority, read_vote
from learner.judge.rules import RuleJudge
from shared.errors import ConfigError, JudgeError
from shared.records import NextState, Vote
from shared.settings import Settings

from .things import turn


class ScriptedModel:
    """An HTTP server that answers chat completions from a script; `None` is a 500, a number waits so many seconds."""

    def __init__(self) -> None:
        self.script: list[str | float | None] = []
        self.requests: list[dict[str, Any]] = []
        self.together = self.most_together = 0
        self._lock = threading.Lock()
        self.released = threading.Event()
        self.released.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    outer.requests.append(body)
                    said = outer.script.pop(0) if outer.script else r"\boxed{0}"
                    outer.together += 1
                    outer.most_together = max(outer.most_together, outer.together)
                outer.released.wait(10.0)
                with outer._lock:
                    outer.together -= 1
                message = {"role": "assistant", "content": said}
                answer = {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "scripted",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }
                payload = json.dumps(answer if said is not None else {"error": {"message": "overloaded"}}).encode()
                try:
                    self.send_response(200 if said is not None else 500)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(payload)))
                    self.end_headers()
                    self.wfile.write(payload)
                except OSError:
                    return  # the client gave up

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    server = ScriptedModel()
    yield server
    server.close()


@pytest.fixture
def judge(model: ScriptedModel) -> Callable[..., ModelJudge]:
    def build(**changes: Any) -> ModelJudge:
        fields = {"judge": "openai/scripted", "judge_api_base": model.url, "judge_api_key": "key", "judge_retries": 0}
        made = create(Settings(**(fields | changes)))
        assert isinstance(made, ModelJudge)
        return made

    return build


ASKED = turn(1, question="Tell me about tides.", answer="**Tides** rise and fall.")
COMPLAINT = NextState(turn_id=ASKED.turn_id, role="user", text="No bold, please.")

Judges = Callable[..., ModelJudge]


async def test_the_scripted_model_sees_request_answer_and_reaction_with_its_role(
    model: ScriptedModel, judge: Judges
) -> None:
    model.script = ["The user objects.\n\\boxed{-1}\n[HINT]Write without bold.[/HINT]"]
    judgement = await judge(judge_temperature=0.3).judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint) == (-1.0, "Write without bold.")
    assert (judgement.judge, judgement.prompt_version, judgement.selection) == (
        "openai/scripted",
        "judge-v1",
        "longest",
    )
    assert judgement.votes[0].text.startswith("The user objects.")
    (request,) = model.requests
    asked = request["messages"][0]["content"]
    for part in ("Tell me about tides.", "**Tides** rise and fall.", "No bold, please.", "role: user"):
        assert part in asked
    assert request["temperature"] == 0.3


async def test_more_than_half_of_the_scripted_votes_decide(model: ScriptedModel, judge: Judges) -> None:
    model.script = [r"\boxed{-1}", r"\boxed{1}", r"\boxed{-1}"]
    assert (await judge(votes=3).judge(ASKED, COMPLAINT)).score == -1.0
    model.script = [r"\boxed{-1}", r"\boxed{1}"]
    assert (await judge(votes=2).judge(ASKED, COMPLAINT)).score == 0.0
    model.script = [r"\boxed{-1}", r"\boxed{1}", r"\boxed{-1}"]
    assert (await judge(votes=3, judge_threshold=0.7).judge(ASKED, COMPLAINT)).score == 0.0


async def test_scripted_votes_that_fail_are_failures_and_not_neutral(model: ScriptedModel, judge: Judges) -> None:
    model.script = [r"\boxed{1}", None, "I cannot say."]
    judgement = await judge(votes=3).judge(ASKED, COMPLAINT)
    assert judgement.score == 1.0
    assert sorted(bool(vote.failure) for vote in judgement.votes) == [False, True, True]
    assert "2 of 3 votes failed" in judgement.reason

    model.script = [None, None]
    judgement = await judge(votes=2).judge(ASKED, COMPLAINT)
    assert judgement.score is None and judgement.hint is None


async def test_a_scripted_failure_is_tried_again(model: ScriptedModel, judge: Judges) -> None:
    model.script = [None, r"\boxed{1}"]
    assert (await judge(judge_retries=1).judge(ASKED, COMPLAINT)).score == 1.0
    assert len(model.requests) == 2


async def test_a_scripted_model_that_hangs_costs_no_more_than_the_time_out(model: ScriptedModel, judge: Judges) -> None:
    asking = judge(judge_timeout=0.3)
    await asking._litellm()  # importing it is no part of the vote
    model.released.clear()
    async with asyncio.timeout(5):
        judgement = await asking.judge(ASKED, COMPLAINT)
    assert judgement.score is None and "0.3 s" in judgement.votes[0].failure


async def test_no_more_votes_at_a_time_than_allowed_reach_the_scripted_model(
    model: ScriptedModel, judge: Judges
) -> None:
    asking = judge(votes=4, judge_concurrency=2)
    judgements = await asyncio.gather(*(asking.judge(ASKED, COMPLAINT) for _ in range(3)))
    assert [judgement.score for judgement in judgements] == [0.0] * 3
    assert len(model.requests) == 12 and model.most_together <= 2


async def test_a_tool_result_gives_no_hint_whatever_the_scripted_model_says(
    model: ScriptedModel, judge: Judges
) -> None:
    model.script = ["\\boxed{-1}\n[HINT]Check the path first.[/HINT]"]
    result = NextState(turn_id=ASKED.turn_id, role="tool", text="Error: no such file")
    judgement = await judge().judge(ASKED, result)
    assert (judgement.score, judgement.hint) == (-1.0, None)


def test_reading_a_vote() -> None:
    assert read_vote(r"First \boxed{1}, no: \boxed{ -1 }").score == -1.0
    assert read_vote("\\boxed{+1}\n[HINT]x[/HINT]").hint is None  # praise wishes nothing
    assert read_vote("\\boxed{-1} [HINT] a [/HINT] [HINT] b [/HINT]").hint == "b"
    for text in ("", "1", r"\boxed{2}", r"\boxed{good}"):
        with pytest.raises(JudgeError):
            read_vote(text)


def test_counting_votes() -> None:
    def vote(score: float | None, hint: str | None = None) -> Vote:
        return Vote(score=score, hint=hint, failure="" if score is not None else "x")

    assert majority([vote(None), vote(None)], 0.5) is None
    assert majority([vote(-1), vote(None)], 0.5) == -1
    assert majority([vote(-1), vote(1)], 0.5) == 0
    assert longest_hint([vote(-1, "ab"), vote(-1, "abc"), vote(-1)], 0.5) == "abc"
    assert longest_hint([vote(-1, "ab"), vote(-1), vote(-1)], 0.5) is None
    assert longest_hint([vote(None)], 0.5) is None


def test_very_long_parts_are_cut(judge: Judges) -> None:
    long = turn(1, question="q" * 100_000 + " end of the request", answer="a" * 100_000)
    prompt = judge().prompt(long, NextState(turn_id=long.turn_id, role="tool", text="t" * 100_000 + "{answer}"))
    assert len(prompt) < 40_000
    assert "end of the request" in prompt and "characters left out" in prompt


def test_a_setting_becomes_a_judge() -> None:
    assert isinstance(create(Settings()), RuleJudge)
    assert isinstance(create(Settings(judge="ollama/llama3:8b")), ModelJudge)
    assert type(create(Settings(judge="tests.learner.test_judge_loop:Failing"))).__name__ == "Failing"
    with pytest.raises(ConfigError, match="no method"):
        create(Settings(judge="tests.learner.test_llm_judge:NoJudge"))
    with pytest.raises(ConfigError):
        create(Settings(judge="no_such_module:Judge"))


class NoJudge:
    """Not a judge."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
