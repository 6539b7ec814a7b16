"""A language model as the judge: m votes through LiteLLM, each a score in \\boxed{} and perhaps a hint between
markers.

The score that more than `judge_threshold` of the valid votes share wins, else 0. There is a hint when more than that
share of the valid votes proposed one; the longest is taken. A vote that fails stays in the judgement with its reason
and counts neither way.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from shared.errors import ConfigError, JudgeError
from shared.images import images_in
from shared.normalize import text_of
from shared.records import Judgement, Message, NextState, Turn, Vote
from shared.settings import Settings

log = logging.getLogger(__name__)

PROMPT_VERSION = "judge-v1"
_PROMPT = Path(__file__).parent / "prompts" / f"{PROMPT_VERSION}.md"
_SCORE = re.compile(r"\\boxed\{\s*([+-]?\s*[01])\s*\}")
_HINT = re.compile(r"\[HINT\](.*?)\[/HINT\]", re.DOTALL)
_REQUEST_CHARACTERS = 12_000
_PART_CHARACTERS = 8_000
_FIRST_PAUSE = 0.5


class ModelJudge:
    """See `learner.judge.base.Judge`. Raises `ConfigError` when LiteLLM is not installed."""

    def __init__(self, settings: Settings) -> None:
        self.name = settings.judge
        self._settings = settings
        self._template = _PROMPT.read_text(encoding="utf-8")
        self._slots = asyncio.Semaphore(settings.judge_concurrency)
        self._library: Any = None
        self._loading = asyncio.Lock()

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        """m votes at the same time, at most `judge_concurrency` over all turns."""
        prompt = self.prompt(turn, next_state)
        votes = await asyncio.gather(*(self._vote(prompt) for _ in range(self._settings.votes)))
        if next_state.role != "user":
            votes = [Vote(text=vote.text, score=vote.score, failure=vote.failure) for vote in votes]
        score = majority(votes, self._settings.judge_threshold)
        hint = longest_hint(votes, self._settings.judge_threshold)
        failures = [vote.failure for vote in votes if vote.failure]
        return Judgement(
            turn_id=turn.turn_id,
            score=score,
            hint=hint,
            votes=votes,
            judge=self.name,
            prompt_version=PROMPT_VERSION,
            selection="longest" if hint else "",
            reason=f"{len(failures)} of {len(votes)} votes failed: {failures[0]}" if failures else "",
        )

    def prompt(self, turn: Turn, next_state: NextState) -> str:
        """What the model is asked: the request, the answer and the next state with its role, each cut to a bounded
        length.
        """
        parts = {
            "request": _cut(_transcript(turn.messages), _REQUEST_CHARACTERS, keep_end=True),
            "answer": _cut(_spoken(turn.answer), _PART_CHARACTERS),
            "role": next_state.role,
            "next_state": _cut(next_state.text, _PART_CHARACTERS),
        }
        return re.sub(r"\{(request|answer|role|next_state)\}", lambda match: parts[match.group(1)], self._template)

    async def _vote(self, prompt: str) -> Vote:
        failure, text = "", ""
        for attempt in range(self._settings.judge_retries + 1):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
            try:
                async with self._slots:
                    text = await self._ask(prompt)
                return read_vote(text)
            except JudgeError as error:
                failure = str(error)
                log.warning("a vote of %s failed (try %d): %s", self.name, attempt + 1, failure)
        return Vote(text=text, failure=failure)

    async def _ask(self, prompt: str) -> str:
        library = await self._litellm()
        settings = self._settings
        try:
            async with asyncio.timeout(settings.judge_timeout):
                response = await library.acompletion(
                    model=settings.judge,
                    messages=[{"role": "user", "content": prompt}],
                    temperature=settings.judge_temperature,
                    timeout=settings.judge_timeout,
                    num_retries=0,
                    api_base=settings.judge_api_base or None,
                    api_key=settings.judge_api_key or None,
                )
            text = response.choices[0].message.content
        except TimeoutError as error:
            raise JudgeError(f"no answer within {settings.judge_timeout:g} s") from error
        except Exception as error:  # LiteLLM passes on whatever its providers raise; one vote must not end the loop
            raise JudgeError(f"{type(error).__name__}: {str(error)[:500]}") from error
        if not text:
            raise JudgeError("the answer was empty")
        return str(text)

    async def _litellm(self) -> Any:
        async with self._loading:
            if self._library is None:
                os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
                try:
                    self._library = await asyncio.to_thread(importlib.import_module, "litellm")
                except ModuleNotFoundError as error:
                    raise ConfigError(
                        f"judge = {self.name!r} needs LiteLLM: pip install 'openclaw-rl[judge]', or use judge = rules"
                    ) from error
        return self._library


def read_vote(text: str) -> Vote:
    """A vote from a model's text; the last score counts. Raises `JudgeError` if there is none."""
    scores = _SCORE.findall(text)
    if not scores:
        raise JudgeError(f"no \\boxed{{}} score in the answer: {text[-200:]!r}")
    score = float(scores[-1].replace(" ", ""))
    hints = [hint.strip() for hint in _HINT.findall(text)]
    return Vote(text=text, score=score, hint=hints[-1] if hints and hints[-1] and score <= 0 else None)


def majority(votes: list[Vote], threshold: float) -> float | None:
    """The score that more than `threshold` of the valid votes share, 0 if none does, `None` without a valid vote."""
    scores = Counter(vote.score for vote in votes if vote.score is not None)
    if not scores:
        return None
    score, count = scores.most_common(1)[0]
    return score if count > threshold * scores.total() else 0.0


def longest_hint(votes: list[Vote], threshold: float) -> str | None:
    """The longest hint, if more than `threshold` of the valid votes have one."""
    valid = [vote for vote in votes if vote.score is not None]
    hints = [vote.hint for vote in valid if vote.hint]
    return max(hints, key=len) if hints and len(hints) > threshold * len(valid) else None


def _transcript(messages: Any) -> str:
    return "\n\n".join(f"[{message['role']}]\n{_spoken(message)}" for message in messages)


def _spoken(message: Message) -> str:
    calls = [f"(calls {call['name']} with {call['arguments']})" for call in message.get("tool_calls") or ()]
    images = ["(an image)"] * len(images_in([message]))
    return "\n".join(part for part in (*images, text_of(message), *calls) if part)


def _cut(text: str, limit: int, *, keep_end: bool = False) -> str:
    if len(text) <= limit:
        return text
    head = limit // 4 if keep_end else limit * 3 // 4
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[len(text) - (limit - head) :]}"
