"""A teacher that is another, larger model: its engine scores the answers of a batch under their hinted prompts."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence
from pathlib import Path

import msgspec

from openclaw_rl.learner.methods import Method
from openclaw_rl.shared.backends import create_engine, own_engine
from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import ConfigError, EngineError
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.images import shown_again
from openclaw_rl.shared.objective.teacher import needed_tokens, teacher_refusal
from openclaw_rl.shared.objective.terms import hinted_prompts
from openclaw_rl.shared.placement import inherited_placement
from openclaw_rl.shared.records import Sample, TeacherScores
from openclaw_rl.shared.rendering.vocabulary import load_tokenizer
from openclaw_rl.shared.settings.model_reference import ModelReference, read_model
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Answers that the teacher scores at the same time."""


class OtherTeacher:
    """Another model as the teacher. It reads the policy's token ids, so it must have the policy's vocabulary."""

    def __init__(self, model: ModelReference, engine: Engine, settings: Settings, recipe: Recipe) -> None:
        """`recipe` is that of the method."""
        self._model = model
        self._engine = engine
        self._settings = settings
        self._recipe = recipe
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._checked = False

    @property
    def title(self) -> str:
        """The teacher's name for people."""
        return self._model.title

    async def check(self) -> None:
        """Raise `ConfigError` if the teacher's vocabulary is not the policy's, or no folder here has it. A folder in
        the setting is read without the engine.
        """
        if self._checked:
            return
        folder = self._model.name or (await self._engine.info()).model_path
        if not Path(folder).is_dir():
            raise ConfigError(
                f"the model {folder!r} of the teacher's engine is no folder here, and its vocabulary is compared with "
                f"the policy's: set teacher = engine:FOLDER@{without_secret(self._model.url)}"
            )
        await asyncio.to_thread(check_vocabulary, self._settings.engine.model_folder, folder)
        self._checked = True

    async def teach(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples; those with a hinted prompt get the teacher's scores. One that the teacher refuses, such as a
        text that is too long for it, is left without, and learns from its reward alone.

        Raises `EngineError` while the engine cannot be asked, `ConfigError` for another vocabulary.
        """
        await self.check()
        return await gather(*(self._taught(sample) for sample in samples))

    async def close(self) -> None:
        """Release connections."""
        await self._engine.close()

    async def _taught(self, sample: Sample) -> Sample:
        prompts = hinted_prompts(sample)
        if not prompts or sample.origin == "anchor":
            return sample
        by_token = self._recipe.distillation == "token"
        if by_token and sample.no_ratio:
            return sample
        try:
            async with self._gate:
                found = await self._engine.score(
                    array("I", prompts[0]).tolist(),
                    array("I", sample.response_ids).tolist(),
                    top_k=needed_tokens(self._recipe),
                    priority=Priority.REHEARSAL,
                    temperature=self._recipe.teacher_temperature * sample.temperature if by_token else 1.0,
                    images=shown_again(sample.images, sample.prompt_ids, prompts[0]),
                )
        except EngineError as error:
            if error.status != 400:
                raise
            log.warning("the teacher %s does not score %s: %s", self.title, sample.sample_id, error)
            return sample
        count = len(sample.response_ids)
        top = [list(line) for line in found.top]
        if len(found.logprobs) != count or (needed_tokens(self._recipe) and (len(top) != count or not all(top))):
            raise EngineError(f"the teacher {self.title} scored only a part of an answer of {count} tokens")
        scores = TeacherScores([float(value) for value in found.logprobs], top)
        return msgspec.structs.replace(sample, taught=scores)


async def create_teacher(settings: Settings, method: Method) -> OtherTeacher | None:
    """The teacher that `teacher` names, `None` where that is the policy. Raises `ConfigError`, also for another
    vocabulary where the setting names a folder.
    """
    check_teacher(settings, method)
    recipe = method.recipe(settings.learning)
    if not recipe.has_other_teacher:
        return None
    model = read_model(recipe.teacher, "teacher")
    teacher = OtherTeacher(model, teacher_engine(settings, model), settings, recipe)
    if model.name:
        await teacher.check()
    return teacher


def check_teacher(settings: Settings, method: Method) -> None:
    """Raise `ConfigError` if this method cannot have the teacher that the settings name."""
    recipe = method.recipe(settings.learning)
    if refusal := teacher_refusal(recipe):
        raise ConfigError(refusal)
    if recipe.has_other_teacher and method.hints == "remembered":
        raise ConfigError(
            f"teacher = {recipe.teacher} cannot be used: method {method.name} averages the teacher over several hints, "
            "and an engine reports its likeliest tokens only; take a method with a turn's own hint, or teacher = base"
        )


def teacher_engine(settings: Settings, model: ModelReference) -> Engine:
    """The client of the teacher's engine. Raises `ConfigError` if none was started."""
    if not model.url:
        raise ConfigError(
            f"teacher = {model.title!r} has no engine yet: `openclaw-rl serve` starts it; one that runs is "
            f"teacher = {model.title}@URL"
        )
    placement = inherited_placement()
    on_gpus = placement is not None and any(server.model == model.name for server in placement.judges)
    return create_engine(own_engine(settings, model.name, url=model.url, on_gpus=on_gpus))


def check_vocabulary(policy: str, teacher: str) -> None:
    """Raise `ConfigError` unless each token of the policy's tokenizer has the same id in the teacher's."""
    mine, theirs = (load_tokenizer(Path(folder)).get_vocab(with_added_tokens=True) for folder in (policy, teacher))
    other = [token for token, number in mine.items() if theirs.get(token) != number]
    if other:
        raise ConfigError(
            f"the teacher {teacher} has another vocabulary than the policy {policy}: {len(other)} of {len(mine)} "
            f"tokens have another id there, or none ({other[0]!r}); take a teacher with the policy's tokenizer"
        )
