"""An answer that another model may give instead of the policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec

from openclaw_rl.proxy.chat.fallback_models import (
    OtherModel,
    OtherModelFailed,
    OtherModels,
    cannot_constrain,
    is_away,
    is_too_long,
)
from openclaw_rl.proxy.chat.turn import Batch, ChatTurn
from openclaw_rl.proxy.engine.watch import EngineWatch
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.messages.answer import Answer, Call, Delta
from openclaw_rl.shared.records import new_id, now

_LOOK_SECONDS = 1.0
"""How often a turn that waits for its first token looks whether the engine is still there."""


class RoutedTurn(ChatTurn):
    """A turn that is asked for in `order` (`None` is the policy) until somebody answers. Once an answer has begun
    nobody else is asked.

    `answered_by` is the other model that answered; `None` while, or if, the policy does.
    """

    def __init__(
        self, *args: Any, order: Sequence[OtherModel | None], others: OtherModels, watch: EngineWatch, **parts: Any
    ) -> None:
        super().__init__(*args, **parts)
        self.answered_by: OtherModel | None = None
        self._order = order
        self._others = others
        self._watch = watch
        self._heard = _Heard()
        self._why: list[str] = []

    @property
    def credit(self) -> str:
        """Who answered instead of the policy, and why, in words; "" if it was the policy."""
        if self.answered_by is None:
            return ""
        return "; ".join([f"answered by {self.answered_by}", *self._why])

    async def batches(self) -> AsyncIterator[Batch]:
        """See `ChatTurn.batches`. Raises the policy's `EngineError` where nobody answered, or `OtherModelFailed`."""
        failures: list[EngineError | OtherModelFailed] = []
        unable = self.incoming.unable
        if unable is not None and is_too_long(unable):
            self._why.append("the prompt is too long for the policy")
        elif unable is not None and cannot_constrain(unable):
            self._why.append("the policy cannot be held to the schema that is asked for")
        elif self._order[0] is not None and not self._watch.ready:
            self._why.append(f"the engine is away: {self._watch.error}")
        for place, model in enumerate(self._order):
            others_left = place + 1 < len(self._order)
            source = self._sampled(others_left) if model is None else self._said_by(model)
            try:
                async with aclosing(cast("AsyncGenerator[Batch, None]", source)) as batches:
                    async for batch in batches:
                        yield batch
                return
            except EngineError as error:
                if self.ids or not is_away(error):
                    raise
                failures.append(error)
                self._why.append(f"the engine is away: {error}")
            except OtherModelFailed as error:
                if self._heard.anything:
                    raise
                failures.append(error)
                self.answered_by = None
                self._why.append(f"{model} failed: {error.reason}")
        raise unable or next((error for error in failures if isinstance(error, EngineError)), failures[-1])

    async def complete(self) -> tuple[Sequence[Delta], Answer]:
        """See `ChatTurn.complete`."""
        note = self.credit if self.answered_by is not None else "; ".join([*self._why, self.incoming.note])
        self.incoming = msgspec.structs.replace(self.incoming, note=note.removesuffix("; "))
        return await super().complete()

    def usage(self) -> dict[str, Any]:
        """See `ChatTurn.usage`; another model counts its own tokens."""
        return self._heard.usage() if self.answered_by is not None else super().usage()

    async def _sampled(self, others_left: bool) -> AsyncIterator[Batch]:
        """The policy's batches. Raises `EngineError` too where the engine vanishes before the first of them, and others
        are left to ask.
        """
        async with aclosing(cast("AsyncGenerator[Batch, None]", super().batches())) as batches:
            first = asyncio.ensure_future(anext(batches))
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
            async for batch in batches:
                yield batch

    async def _said_by(self, model: OtherModel) -> AsyncIterator[Batch]:
        """Another model's answer, as it comes."""
        try:
            async with aclosing(cast("AsyncGenerator[dict[str, Any], None]", model.ask(self.incoming))) as events:
                async for event in events:
                    self.answered_by = model
                    if self._first_token is None:
                        self._first_token = now()
                        self._metrics.first_token.observe(self._first_token - self.incoming.arrived)
                    yield Batch(self._heard.take(event), 0, 0)
        except OtherModelFailed:
            self._others.count(model, "failed")
            raise
        self._others.count(model, "answered")

    def _finish(self, reason: str) -> tuple[Sequence[Delta], Answer]:
        if self.answered_by is None:
            return super()._finish(reason)
        self._answer = self._heard.answer("abort" if reason == "abort" else "")
        return (), self._answer

    def _untrainable(self) -> str:
        if self.answered_by is None:
            return super()._untrainable()
        return f"answered by {self.answered_by}, not by the policy"


class _Heard:
    """What another model said."""

    def __init__(self) -> None:
        self.anything = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[Any, list[str]] = {}  # id, name, arguments by the number that the model gave the call
        self._finish = "stop"
        self._usage: dict[str, Any] = {}

    def take(self, event: dict[str, Any]) -> list[Delta]:
        """The deltas of a piece."""
        self.anything = True
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

    def answer(self, reason: str) -> Answer:
        """The whole answer; `reason` "" is the model's own."""
        calls = tuple(Call(*parts) for parts in self._calls.values())
        own = "tool_calls" if calls and self._finish == "stop" else self._finish
        return Answer(
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            tool_calls=calls,
            finish_reason=reason or own,
        )

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object, of what the model told."""
        prompt, answer = (int(self._usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
