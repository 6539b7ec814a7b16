"""Rollouts next to a batch: rehearsals and demonstrations on earlier prompts, anchors on drill prompts; and hinted
prompts.

A rehearsal is a fresh answer of the live policy, without a hint, to an earlier prompt of the user; the hinted teacher
corrects it as if the user had complained again. A demonstration is the hinted teacher's own answer to such a prompt. An
anchor is an answer of the base to a prompt without complaints; it keeps the policy close to the base.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from array import array
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.rollouts.hooks import GENERATE, HookFailed, called, checked_answer, load, whole_answer
from openclaw_rl.learner.rollouts.relevance import relevant
from openclaw_rl.shared.engine.protocol import Engine, Tokens
from openclaw_rl.shared.errors import BadRequest, ConfigError, ContextLengthExceeded, EngineError
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.journal.encoding import common_prefix
from openclaw_rl.shared.messages.images import holds_placeholder, images_of, misplaced, shown_again
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import PromptImage, Sample, Sampling, Turn, new_id
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings

log = logging.getLogger(__name__)

ANCHORS = "anchors"
DEMONSTRATIONS = "demonstrations"
EARLIER_PROMPTS = 128
_AT_ONCE = 32
_FOLDER = Path(__file__).parent / "anchors"


def anchor_prompts(settings: Settings) -> list[str]:
    """The drill prompts: of the user's file, else those for the shipped policy or for any other model. One per line;
    `#` begins a comment.
    """
    if settings.learning.anchor_prompts:
        path = Path(settings.learning.anchor_prompts)
    else:
        shipped = Path(settings.engine.model).resolve() == EMBEDDED_POLICY.resolve()
        path = _FOLDER / ("embedded.txt" if shipped else "generic.txt")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"anchor_prompts = {str(path)!r} cannot be read: {error}") from error
    prompts = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not prompts:
        raise ConfigError(f"anchor_prompts = {str(path)!r} holds no prompt")
    return prompts


def chat_of(turn: Turn) -> ChatInput:
    """The request of a recorded turn."""
    return ChatInput(messages=list(turn.messages), tools=[dict(tool) for tool in turn.tools])


def hinted_prompt(prompter: Prompter, turn: Turn, hint: str) -> array[int]:
    """The teacher's prompt for a turn: `hint` after the user's last message, all other tokens as recorded.

    The recorded prompt holds earlier answers with their sampled tokens, and rendering may tokenize those differently.
    So only the part that the hint changes comes from the rendering, where the two can be aligned. Raises `BadRequest`,
    also if the turn's images take another number of tokens now.
    """
    if fault := misplaced(turn):
        raise BadRequest(fault)
    found = _hinted_prompt(prompter, turn, hint)
    try:
        shown_again(images_of(turn), turn.prompt_ids, found)
    except ValueError as error:
        raise BadRequest(f"{error}: the model's image processor is not the one that it was recorded with") from error
    return found


def _hinted_prompt(prompter: Prompter, turn: Turn, hint: str) -> array[int]:
    chat = chat_of(turn)
    plain = array("I", prompter.render(chat).ids())
    hinted = array("I", prompter.render(chat, hint=hint).ids())
    recorded = array("I", turn.prompt_ids)
    if recorded[: len(plain)] == plain:
        return hinted + recorded[len(plain) :]
    common = common_prefix(plain, hinted)
    tail = plain[common:]
    if tail and recorded[-len(tail) :] == tail:
        return recorded[: -len(tail)] + hinted[common:]
    return hinted


def hinted_prompts(prompter: Prompter, turn: Turn, hints: Sequence[str]) -> list[array[int]]:
    """One hinted prompt per hint; none if the turn cannot be rendered."""
    try:
        return [hinted_prompt(prompter, turn, hint) for hint in hints]
    except BadRequest as error:
        log.warning("turn %s cannot be rendered with a hint and is not distilled: %s", turn.turn_id, error)
        return []


class PromptBudget:
    """Tokens that prompts may cost together; the part that a prompt shares with an earlier one costs nothing."""

    def __init__(self, tokens: int) -> None:
        self._left = tokens
        self._earlier: list[array[int]] = []

    def afford(self, prompt: Sequence[int]) -> bool:
        """Spend the tokens of a prompt, if there are enough left."""
        ids = array("I", prompt)
        cost = len(ids) - max((common_prefix(ids, other) for other in self._earlier), default=0)
        if cost > self._left:
            return False
        self._left -= cost
        self._earlier.append(ids)
        return True


def choose(turns: Sequence[Turn], count: int, budget: int, random: Random) -> list[Turn]:
    """`count` turns to rehearse, in random order, each as often as the others; their prompts cost at most `budget`
    tokens (see `PromptBudget`).
    """
    chosen: list[Turn] = []
    left = PromptBudget(budget)
    while len(chosen) < count:
        before = len(chosen)
        order = list(turns)
        random.shuffle(order)
        for turn in order:
            if len(chosen) < count and left.afford(turn.prompt_ids):
                chosen.append(turn)
        if len(chosen) == before:
            break
    return chosen


def _images_under(turn: Turn, prompt: Sequence[int]) -> Sequence[PromptImage]:
    """The images of a turn at their places in another prompt that shows them."""
    images = images_of(turn)
    return shown_again(images, turn.prompt_ids, prompt) if images else ()


def answer_seed(*parts: object) -> int:
    """The seed of one answer: the same for the same parts, so that a step that is made again samples the same."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4]) >> 1


def sample_of(
    tokens: Tokens, prompt_ids: Sequence[int], *, origin: Literal["rehearsal", "anchor", "demonstration"], **fields: Any
) -> Sample:
    """An answer to a prompt as a rollout sample, with further `fields`."""
    return Sample(
        sample_id=new_id(origin),
        turn_id=None,
        origin=origin,
        prompt_ids=prompt_ids,
        response_ids=tokens.ids,
        logprobs=tokens.logprobs,
        versions=tokens.versions,
        **fields,
    )


class Rollouts:
    """Makes rehearsals and anchors with the engine, at a lower priority than chat and judge, or with
    `custom_generate`, whose failures are noted in `progress`. Raises `ConfigError`.
    """

    def __init__(
        self, engine: Engine, prompter: Prompter, settings: Settings, progress: Progress | None = None
    ) -> None:
        self.engine = engine
        self.prompter = prompter
        self.sampling = Sampling(
            temperature=prompter.temperature or 1.0,  # the best token each time would always give the same answer
            max_tokens=settings.learning.rehearsal_max_tokens,
            stop=prompter.text_stops,
            stop_ids=prompter.own_stop_ids,
        )
        self.settings = settings
        self.progress = progress or Progress()
        self._hook = load(settings, GENERATE)
        self._anchors = anchor_prompts(settings) if settings.learning.anchors else []
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def sees(self) -> bool:
        """True if prompts with images can be rehearsed: the engine takes images, and there is no `custom_generate`,
        which gets ids only.
        """
        return self._hook is None and (await self.engine.info()).sees

    async def rehearse(self, turns: Sequence[Turn], hints: Sequence[str], seed: str, batch: str = "") -> list[Sample]:
        """Fresh answers of the live policy to earlier prompts, with the hinted prompts of their teacher. `seed` chooses
        the prompts; answers are sampled by it and `batch`.
        """
        settings = self.settings
        random = Random(f"rehearsals {seed}")
        chosen = await asyncio.to_thread(
            choose, turns, settings.learning.rehearsals, settings.learning.max_sample_tokens, random
        )
        prompts = {
            turn.turn_id: await asyncio.to_thread(hinted_prompts, self.prompter, turn, hints)
            for turn in {turn.turn_id: turn for turn in chosen}.values()
        }
        wanted = [turn for turn in chosen if prompts[turn.turn_id]]
        samples = await asyncio.gather(
            *(
                self._answer(
                    turn.prompt_ids,
                    turn.policy,
                    version=None,
                    origin="rehearsal",
                    images=images_of(turn),
                    seed=answer_seed("rehearsal", seed, batch, place),
                )
                for place, turn in enumerate(wanted)
            )
        )
        return [
            msgspec.structs.replace(sample, hinted_prompts=prompts[turn.turn_id])
            for turn, sample in zip(wanted, samples, strict=True)
            if sample is not None
        ]

    async def demonstrate(
        self, turns: Sequence[Turn], hints: Sequence[str], seed: str, batch: str = ""
    ) -> list[Sample]:
        """The base's answers to earlier prompts, each with one of the hints in its prompt, as answers to the prompt
        without the hint. Left out are those that were cut (a small model's long answers often turn into loops), and
        those that do not belong to their prompt. None, with a note, if the engine holds only the live version.

        Source: context distillation (Askell et al., arXiv 2112.00861; Snell et al., arXiv 2209.15189).
        """
        settings = self.settings
        random = Random(f"demonstrations {seed}")
        chosen = await asyncio.to_thread(
            choose, turns, settings.learning.demonstrations, settings.learning.max_sample_tokens, random
        )
        prompts = [
            await asyncio.to_thread(hinted_prompts, self.prompter, turn, [random.choice(hints)]) for turn in chosen
        ]

        async def ask(place: int, turn: Turn, hinted: Sequence[int]) -> Sample | None:
            how = msgspec.structs.replace(self.sampling, seed=answer_seed("demonstration", seed, batch, place))
            tokens = await self.generate(hinted, how, version=0, images=_images_under(turn, hinted))
            if tokens is None or tokens.finish_reason != "stop":
                return None
            return sample_of(
                tokens,
                turn.prompt_ids,
                origin="demonstration",
                policy=turn.policy,
                images=images_of(turn),
                hinted_prompts=[hinted],
                no_ratio="it was sampled after another prompt",
            )

        try:
            pairs = enumerate(zip(chosen, prompts, strict=True))
            made = await gather(*(ask(place, turn, hinted[0]) for place, (turn, hinted) in pairs if hinted))
            found = await relevant(self.engine, self.prompter, [one for one in made if one is not None])
        except EngineError as error:
            if error.status != 404:
                raise
            self.progress.note(DEMONSTRATIONS, f"left out, the engine no longer has the base: {error}")
            return []
        self.progress.note(DEMONSTRATIONS, "")
        return found

    async def anchor(self, seed: str, batch: str = "") -> list[Sample]:
        """Answers of the base to drill prompts; none, with a note, if the engine holds only the live version."""
        if not self._anchors:
            return []
        random = Random(f"anchors {seed}")
        count = self.settings.learning.anchors
        texts = [
            text
            for _ in range(count // len(self._anchors) + 1)
            for text in random.sample(self._anchors, len(self._anchors))
        ]
        prompts = [
            self.prompter.render(ChatInput(messages=[{"role": "user", "content": text}])).ids()
            for text in texts[:count]
        ]
        policy = self.settings.serve.model_name
        try:
            samples = await asyncio.gather(
                *(
                    self._answer(
                        ids, policy, version=0, origin="anchor", seed=answer_seed("anchor", seed, batch, place)
                    )
                    for place, ids in enumerate(prompts)
                )
            )
        except EngineError as error:
            if error.status != 404:
                raise
            log.warning("the step continues without anchors: %s", error)
            self.progress.note(ANCHORS, f"left out, the engine no longer has the base: {error}")
            return []
        self.progress.note(ANCHORS, "")
        return [sample for sample in samples if sample is not None]

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        version: int | None = None,
        images: Sequence[PromptImage] = (),
    ) -> Tokens | None:
        """One answer of the live version, or of another (0: the base). `None` if the prompt leaves no room, the answer
        is empty or holds the placeholder of an image (nothing can be computed on it), or `custom_generate` failed.
        Raises `EngineError`.
        """
        try:
            async with self._slots:
                tokens = await self._sampled(prompt_ids, sampling, version, images)
        except ContextLengthExceeded:
            return None
        except HookFailed as error:
            log.warning("a rollout is left out: %s", error)
            self.progress.note(GENERATE, f"{error} (the rollout is left out)")
            return None
        if tokens is None or not tokens.ids or tokens.finish_reason == "abort":
            return None
        return None if images and holds_placeholder(tokens.ids, prompt_ids, images) else tokens

    async def _sampled(
        self, prompt_ids: Sequence[int], sampling: Sampling, version: int | None, images: Sequence[PromptImage]
    ) -> Tokens | None:
        if self._hook is None:
            return await whole_answer(self.engine, prompt_ids, sampling, version=version, images=images)
        call = self._hook(list(prompt_ids), sampling, engine=self.engine, version=version)
        given = await called(GENERATE, call, self.engine, self.settings)
        info = await self.engine.info()
        try:
            return checked_answer(given, info.vocab_size, info.live if version is None else version)
        except HookFailed as error:
            raise HookFailed(f"{GENERATE} {self.settings.learning.custom_generate}: {error}") from error

    async def _answer(
        self,
        prompt_ids: Sequence[int],
        policy: str,
        *,
        version: int | None,
        origin: Literal["rehearsal", "anchor"],
        images: Sequence[PromptImage] = (),
        seed: int,
    ) -> Sample | None:
        """One answer as a sample, or `None`."""
        how = msgspec.structs.replace(self.sampling, seed=seed)
        tokens = await self.generate(prompt_ids, how, version=version, images=images)
        if tokens is None:
            return None
        fields: dict[str, Any] = {"policy": policy, "images": images, "temperature": self.sampling.temperature}
        return sample_of(tokens, prompt_ids, origin=origin, **fields)
