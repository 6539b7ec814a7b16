"""The rollouts of a step: rehearsals and anchors, or those of the user's `custom_rollout`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from openclaw_rl.learner.rollouts.hooks import ROLLOUT, Hook, HookFailed, called, checked_samples
from openclaw_rl.learner.rollouts.rehearsal import EARLIER_PROMPTS, Rollouts, hinted_prompts, sample_of
from openclaw_rl.shared.engine.protocol import Engine, Tokens
from openclaw_rl.shared.errors import ContextLengthExceeded
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Message, PromptImage, Sample, Sampling, Turn
from openclaw_rl.shared.rendering.prompter import Prompter

log = logging.getLogger(__name__)

ANCESTORS = 16
"""Earlier turns of a conversation that are searched for a complaint."""


class RolloutContext:
    """The argument of `custom_rollout`.

    `batch` are the samples that teach in this step, `hints` the remembered hints, `live` the number of the serving
    version; it and the `turns` of the batch seed the built-in rollouts. `engine`, `prompter`, `settings` and `progress`
    are the learner's.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        rollouts: Rollouts,
        *,
        batch: Sequence[Sample],
        hints: Sequence[str],
        live: int,
        turns: Sequence[str] = (),
    ) -> None:
        self.settings = rollouts.settings
        self.engine: Engine = rollouts.engine
        self.prompter: Prompter = rollouts.prompter
        self.batch = batch
        self.hints = hints
        self.live = live
        self._journal = journal
        self._rollouts = rollouts
        self.progress = rollouts.progress
        self._seed = f"{self.settings.learning.seed} {live}"
        self._batch = " ".join(turns)

    async def rehearsals(self) -> list[Sample]:
        """The built-in rehearsals: `rehearsals` fresh answers of the policy to earlier prompts, if there is a hint."""
        count = self.settings.learning.rehearsals
        if not (self.hints and count):
            return []
        self.progress.now("rehearsing", f"{count} answers to earlier prompts")
        turns = await self.earlier_turns(images=await self._rollouts.sees())
        return await self._rollouts.rehearse(turns, self.hints, self._seed, self._batch)

    async def demonstrations(self) -> list[Sample]:
        """The built-in demonstrations: at most `demonstrations` answers of the hinted base to earlier prompts, if there
        is a hint.
        """
        count = self.settings.learning.demonstrations
        if not (self.hints and count):
            return []
        self.progress.now("demonstrating", f"{count} answers to earlier prompts")
        turns = await self.earlier_turns(images=await self._rollouts.sees())
        complained: dict[str, bool] = {}
        fresh = [turn for turn in turns if not await self._complained_before(turn.parent_turn_id, complained)]
        return await self._rollouts.demonstrate(fresh, self.hints, self._seed, self._batch)

    async def anchors(self) -> list[Sample]:
        """The built-in anchors: `anchors` answers of the base to drill prompts."""
        return await self._rollouts.anchor(self._seed, self._batch) if self.settings.learning.anchors else []

    async def earlier_turns(self, limit: int = EARLIER_PROMPTS, *, images: bool = False) -> list[Turn]:
        """The last main turns with different prompts, at most `limit`; with `images` also turns with images
        (`shared.messages.images.images_of` gives these for `generate` and `sample`).
        """
        return await self._journal.prompts_seen(limit, images=images)

    async def _complained_before(self, parent: str | None, known: dict[str, bool]) -> bool:
        """True if a prompt holds a complaint with a hint: the policy needs no other to follow it. `parent` is the turn
        before; `known` has the results for turns of the same conversations, which are looked up once.
        """
        passed: list[str] = []
        found = False
        while parent is not None and len(passed) < ANCESTORS:
            if parent in known:
                found = known[parent]
                break
            passed.append(parent)
            judged = await self._journal.judgement(parent)
            if judged is not None and judged.hint:
                found = True
                break
            before = await self._journal.turn(parent)
            parent = before.parent_turn_id if before is not None else None
        known.update(dict.fromkeys(passed, found))
        return found

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt of canonical messages, up to where the answer begins."""
        return list(self.prompter.render(ChatInput(messages=list(messages))).ids())

    def hinted(self, turn: Turn) -> list[Sequence[int]]:
        """A turn's prompt with each of the hints, for `sample`."""
        return list(hinted_prompts(self.prompter, turn, self.hints))

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling | None = None,
        *,
        version: int | None = None,
        images: Sequence[PromptImage] = (),
    ) -> Tokens | None:
        """One answer of the live version, or of another (0: the base), by `custom_generate` if that is set; or `None`.
        Raises `EngineError`.
        """
        how = sampling or self._rollouts.sampling
        return await self._rollouts.generate(prompt_ids, how, version=version, images=images)

    def sample(
        self,
        prompt_ids: Sequence[int],
        tokens: Tokens,
        *,
        anchor: bool = False,
        reward: float | None = None,
        hinted: Sequence[Sequence[int]] = (),
        temperature: float = 1.0,
        images: Sequence[PromptImage] = (),
    ) -> Sample:
        """An answer as a sample: distilled with `hinted` prompts, rewarded with a `reward` in [−1, +1], or kept close
        to the base (`anchor`, an answer of the base).
        """
        return sample_of(
            tokens,
            prompt_ids,
            policy=self.settings.serve.model_name,
            origin="anchor" if anchor else "rehearsal",
            images=images,
            temperature=temperature,
            reward=reward,
            explicit=reward is not None,
            hinted_prompts=hinted,
        )


async def make_rollouts(context: RolloutContext, hook: Hook | None) -> list[Sample]:
    """The rollouts of a step: the hook's, which may use the built-in ones, else the built-in ones. If the hook fails,
    the step goes without its rollouts, with a note. Raises `EngineError`.
    """
    if hook is None:
        made = await gather(context.rehearsals(), context.demonstrations(), context.anchors())
        return [sample for part in made for sample in part]
    settings, progress = context.settings, context.progress
    progress.now("rolling out", settings.learning.custom_rollout)
    try:
        given = await called(ROLLOUT, hook(context), context.engine, settings)
        vocab_size = (await context.engine.info()).vocab_size
        taken = [sample.sample_id for sample in context.batch]
        samples, wrong = checked_samples(given, vocab_size, settings.learning.max_sample_tokens, taken)
    except (HookFailed, ContextLengthExceeded) as error:
        samples, wrong = [], [str(error)]
    note = f"{wrong[0]} ({len(wrong)} left out; the step continues without)" if wrong else ""
    if note:
        log.warning("%s %s: %s", ROLLOUT, settings.learning.custom_rollout, note)
    progress.note(ROLLOUT, note)
    return samples
