"""Sample a version's answers to probe prompts, and score answers under a version, at the engine's lowest priority."""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.learner.rollouts.rehearsal import PromptBudget, chat_of
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import BadRequest, ContextLengthExceeded
from openclaw_rl.shared.messages.answer import Answer
from openclaw_rl.shared.messages.images import holds_placeholder, images_of
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Message, PromptImage, Sample, Sampling, Turn
from openclaw_rl.shared.rendering.prompter import Prompter

_AT_ONCE = 32


class GuardQuestion(msgspec.Struct, frozen=True):
    """A prompt for a version: its ids, the request it comes from, and a unique `key`."""

    key: str
    prompt_ids: Sequence[int]
    chat: ChatInput
    images: Sequence[PromptImage] = ()

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools that may be called."""
        functions = (tool.get("function") or tool for tool in self.chat.tools)
        return frozenset(str(function.get("name")) for function in functions)


_Prompted = TypeVar("_Prompted", GuardQuestion, Sample, Turn)


class Text(msgspec.Struct, frozen=True):
    """An answer to be scored after its prompt, in token ids."""

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    images: Sequence[PromptImage] = ()


class SampledAnswer(msgspec.Struct, frozen=True):
    """An answer to a question: token ids, their logprobs at temperature 1, and the answer as it reads."""

    question: GuardQuestion
    ids: Sequence[int]
    logprobs: Sequence[float]
    answer: Answer


def question_from_messages(prompter: Prompter, messages: Sequence[Message]) -> GuardQuestion:
    """These messages as a question, without tools. Raises `BadRequest` if they cannot be rendered."""
    chat = ChatInput(messages=list(messages))
    prompt = prompter.render(chat)
    return GuardQuestion(msgspec.json.encode(messages).decode(), prompt.ids(), chat, prompt.placed_images())


def question_from_turn(turn: Turn) -> GuardQuestion:
    """The question of a recorded turn, with the same tokens."""
    return GuardQuestion(turn.turn_id, turn.prompt_ids, chat_of(turn), images_of(turn))


def affordable(prompted: Sequence[_Prompted], budget: int) -> list[_Prompted]:
    """The answers, in order, whose prompts fit into `budget` tokens together (see `PromptBudget`)."""
    left = PromptBudget(budget)
    return [one for one in prompted if left.afford(one.prompt_ids)]


class Answers:
    """Asks the engine."""

    def __init__(self, engine: Engine, prompter: Prompter) -> None:
        self._engine = engine
        self._prompter = prompter
        self.temperature = prompter.temperature or 1.0
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def sample(
        self, questions: Sequence[GuardQuestion], version: int, *, max_tokens: int, greedy: bool = False
    ) -> list[SampledAnswer]:
        """One answer of `version` to each question, greedy or sampled with a seed derived from the question.
        Left out are questions without room for an answer, and answers that cannot be scored (they hold the placeholder
        of an image).
        """
        answers = await asyncio.gather(
            *(
                self._answer(one, version, max_tokens, None if greedy else zlib.crc32(one.key.encode()))
                for one in questions
            )
        )
        return [one for one in answers if one is not None]

    async def logprobs(self, texts: Sequence[Text], version: int) -> list[tuple[float, int]]:
        """For each answer the sum of its logprobs under `version` at temperature 1, and its length in tokens."""
        return await asyncio.gather(*(self._score(text, version) for text in texts))

    async def _answer(
        self, question: GuardQuestion, version: int, max_tokens: int, seed: int | None
    ) -> SampledAnswer | None:
        sampling = Sampling(
            temperature=0.0 if seed is None else self.temperature,
            seed=seed,
            max_tokens=max_tokens,
            stop=self._prompter.text_stops,
            stop_ids=self._prompter.own_stop_ids,
        )
        try:
            async with self._slots:
                tokens = await whole_answer(
                    self._engine,
                    question.prompt_ids,
                    sampling,
                    version=version,
                    priority=Priority.AUDIT,
                    images=question.images,
                )
        except ContextLengthExceeded:
            return None
        if question.images and holds_placeholder(tokens.ids, question.prompt_ids, question.images):
            return None
        answer = self._read(question, tokens.ids, tokens.finish_reason or "stop")
        logprobs = tokens.logprobs
        if sampling.temperature not in (0.0, 1.0) and tokens.ids:  # greedy answers come with logprobs at 1
            logprobs = await self._scored(Text(question.prompt_ids, tokens.ids, question.images), version)
        return SampledAnswer(question, tokens.ids, logprobs, answer)

    def _read(self, question: GuardQuestion, ids: Sequence[int], finish: str) -> Answer:
        """The answer as a client would get it; only its text if the question can no longer be rendered."""
        try:
            prompt = self._prompter.render(question.chat)
        except BadRequest:
            return Answer(content=self._prompter.decode(ids, skip_special_tokens=True), finish_reason=finish)
        parser = self._prompter.parser(prompt, question.chat)
        parser.feed_many(ids)
        return parser.finish(finish)[1]

    async def _score(self, text: Text, version: int) -> tuple[float, int]:
        return math.fsum(await self._scored(text, version)), len(text.response_ids)

    async def _scored(self, text: Text, version: int) -> Sequence[float]:
        """The logprobs of an answer's tokens under `version`, at temperature 1."""
        async with self._slots:
            scores = await self._engine.score(
                list(text.prompt_ids),
                list(text.response_ids),
                version=version,
                priority=Priority.AUDIT,
                images=text.images,
            )
        return scores.logprobs
