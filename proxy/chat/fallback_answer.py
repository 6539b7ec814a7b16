"""An answer that another model may give in place of the policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

from openclaw_rl.proxy.chat.fallback_models import AnswerPlan, OtherModel, OtherModelFailed, is_away
from openclaw_rl.proxy.chat.policy_answer import AnswerPart, PolicyAnswer
from openclaw_rl.proxy.chat.request import RenderedRequest
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.messages.answer import Answer, Call, Delta
from openclaw_rl.shared.records import new_id, now

_LOOK_SECONDS = 1.0
"""Seconds between two checks, by an answer that waits for its first token, that the engine is still there."""


class FallbackAnswer:
    """Asks the models of `plan` until one answers, as a `PolicyAnswer` does of the policy alone. Once an answer has
    begun no other model is asked. `answered_by` is another model that answered, `None` for the policy.
    """

    def __init__(
        self, request: RenderedRequest, policy: PolicyAnswer, plan: AnswerPlan, watch: EngineWatch, metrics: Metrics
    ) -> None:
        self.answered_by: OtherModel | None = None
        self._request = request
        self._policy = policy
        self._plan = plan
        self._watch = watch
        self._metrics = metrics
        self._reply = _OtherReply()
        self._first_token: float | None = None
        self._reasons = [plan.reason] if plan.reason else []

    @property
    def first_token(self) -> float | None:
        return self._policy.first_token if self.answered_by is None else self._first_token

    @property
    def credit(self) -> str:
        """The other model that answered, and why; "" for the policy."""
        return "" if self.answered_by is None else "; ".join([f"answered by {self.answered_by}", *self._reasons])

    async def parts(self) -> AsyncIterator[AnswerPart]:
        """Raises the policy's `EngineError` where no model answered, or `OtherModelFailed`."""
        policy_error = self._plan.error
        last_error: EngineError | OtherModelFailed | None = None
        for place, model in enumerate(self._plan.order):
            others_left = place + 1 < len(self._plan.order)
            source = self._from_policy(others_left) if model is None else self._from_model(model)
            try:
                async with aclosing(cast("AsyncGenerator[AnswerPart, None]", source)) as parts:
                    async for part in parts:
                        yield part
                return
            except EngineError as error:
                if self._policy.ids or not is_away(error):
                    raise
                policy_error = policy_error or error
                self._reasons.append(f"the engine is away: {error}")
            except OtherModelFailed as error:
                if self._reply.begun:
                    raise
                self.answered_by = None
                last_error = error
                self._reasons.append(f"{model} failed: {error.reason}")
        failure = policy_error or last_error
        assert failure is not None
        raise failure

    def finish(self, *, aborted: bool = False) -> tuple[Sequence[Delta], Answer]:
        if self.answered_by is None:
            return self._policy.finish(aborted=aborted)
        return (), self._reply.answer(aborted=aborted)

    def notes(self) -> list[str]:
        return [*self._reasons, *self._policy.notes()] if self.answered_by is None else [self.credit]

    def usage(self) -> dict[str, Any]:
        """Another model counts its own tokens."""
        return self._policy.usage() if self.answered_by is None else self._reply.usage()

    def why_untrainable(self) -> str:
        if self.answered_by is None:
            return self._policy.why_untrainable()
        return f"answered by {self.answered_by}, not by the policy"

    async def _from_policy(self, others_left: bool) -> AsyncIterator[AnswerPart]:
        """Raises `EngineError` also where the engine vanishes before the first part, and other models are left."""
        async with aclosing(cast("AsyncGenerator[AnswerPart, None]", self._policy.parts())) as parts:
            first = asyncio.ensure_future(anext(parts))
            try:
                while not (await asyncio.wait((first,), timeout=_LOOK_SECONDS))[0]:
                    if others_left and not self._watch.ready:
                        raise EngineError(self._watch.error)
            finally:
                first.cancel()
                await asyncio.wait((first,))
                _ = first.cancelled() or first.exception()
            try:
                yield first.result()
            except StopAsyncIteration:
                return
            async for part in parts:
                yield part

    async def _from_model(self, model: OtherModel) -> AsyncIterator[AnswerPart]:
        try:
            async with aclosing(cast("AsyncGenerator[dict[str, Any], None]", model.ask(self._request))) as events:
                async for event in events:
                    self.answered_by = model
                    if self._first_token is None:
                        self._first_token = now()
                        self._metrics.first_token.observe(self._first_token - self._request.arrived)
                    yield AnswerPart(self._reply.take(event))
        except OtherModelFailed:
            self._metrics.other_models.labels(model.role, "failed").inc()
            raise
        self._metrics.other_models.labels(model.role, "answered").inc()


class _OtherReply:
    """Puts the events of another model together."""

    def __init__(self) -> None:
        self.begun = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[Any, list[str]] = {}  # id, name, arguments by the number that the model gave the call
        self._finish = "stop"
        self._usage: dict[str, Any] = {}

    def take(self, event: dict[str, Any]) -> list[Delta]:
        """The deltas of an event."""
        self.begun = True
        if "content" in event:
            self._content.append(event["content"])
            return [Delta("content", event["content"])]
        if "reasoning" in event:
            self._reasoning.append(event["reasoning"])
            return [Delta("reasoning", event["reasoning"])]
        if "call" in event:
            return self._call(event)
        self._finish = event["finish"]
        self._usage = event.get("usage") or {}
        return []

    def _call(self, event: dict[str, Any]) -> list[Delta]:
        deltas: list[Delta] = []
        number = event["call"]
        if number not in self._calls:
            self._calls[number] = [event["id"] or new_id("call"), event["name"], ""]
            index = len(self._calls) - 1
            deltas.append(Delta("call_start", index=index, call_id=self._calls[number][0], name=event["name"]))
        if event["arguments"]:
            self._calls[number][2] += event["arguments"]
            deltas.append(Delta("call_arguments", event["arguments"], list(self._calls).index(number)))
        return deltas

    def answer(self, *, aborted: bool) -> Answer:
        """The whole answer."""
        calls = tuple(Call(*parts) for parts in self._calls.values())
        reason = "tool_calls" if calls and self._finish == "stop" else self._finish
        return Answer(
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            tool_calls=calls,
            finish_reason="abort" if aborted else reason,
        )

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object, of the model's own figures."""
        prompt, answer = (int(self._usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
