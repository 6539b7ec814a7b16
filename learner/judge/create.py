"""Make the judge that the settings name."""

from __future__ import annotations

import asyncio

from openclaw_rl.learner.judge import custom
from openclaw_rl.learner.judge.askers.engine import EngineAsker, LazyPrompter
from openclaw_rl.learner.judge.askers.litellm import asker_of
from openclaw_rl.learner.judge.llm import ModelJudge, WithHints
from openclaw_rl.learner.judge.prompt import JudgePrompt
from openclaw_rl.learner.judge.protocol import Asker, Judge
from openclaw_rl.learner.judge.reward_model import RewardModelJudge
from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.learner.judge.selection import Selector
from openclaw_rl.learner.judge.votes import Voting
from openclaw_rl.learner.methods import method
from openclaw_rl.learner.teacher import teacher_engine
from openclaw_rl.shared.backends import create_engine, create_reward_model, own_engine
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import inherited_placement
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.model_reference import ModelReference
from openclaw_rl.shared.settings.settings import Settings


def create(settings: Settings, engine: Engine | None = None, prompter: Prompter | None = None) -> Judge:
    """The judge that `judge`, `hint_model` and `custom_reward` name (docs/judging.md). `engine` serves the policy;
    without a `prompter` the policy's is made when it is needed. Raises `ConfigError`.
    """
    models = JudgeModels.from_settings(settings)
    model = models.judge
    policy = LazyPrompter(lambda: asyncio.to_thread(lambda: prompter or Prompter.from_settings(settings)))
    compares = settings.learning.hint_selection == "overlap-sequence"
    teacher = None if models.teacher is None or not compares else teacher_engine(settings, models.teacher)
    selector = Selector(settings, engine, policy, teacher)
    slots = asyncio.Semaphore(settings.judge.concurrency)

    def voting(asked: ModelReference) -> Voting:
        return Voting(_asker(asked, settings, engine, policy), settings, slots)

    writer = hint_writer(settings, models)
    hints = None if writer is None or writer is model else voting(writer)
    judge: Judge
    if model.kind == "rules":
        judge = RuleJudge()
    elif model.kind == "hook":
        judge = custom.create(settings, model)
    elif model.kind == "reward-model":
        judge = RewardModelJudge(create_reward_model(settings, model.name), model.name, settings)
    else:
        votes, prompt = voting(model), JudgePrompt.from_settings(settings)
        judge = ModelJudge(votes, prompt, selector, settings, hints=models.hint is None and prompt.asks_for_hint)
        if writer is model:
            hints = votes
    return judge if hints is None else WithHints(judge, hints, selector, settings)


def hint_writer(settings: Settings, models: JudgeModels) -> ModelReference | None:
    """The model that is asked for hints apart from scores; `None` if the judge's own answers hold them, or no model is
    asked. Raises `ConfigError` for an unreadable `judge_prompt`.
    """
    if models.hint is not None or models.judge.kind not in ("policy", "engine", "litellm"):
        return models.hint
    if JudgePrompt.from_settings(settings).asks_for_hint or method(settings.learning.method, settings).hints in (
        "none",
        "follow-up",
    ):
        return None
    return models.judge


def _asker(model: ModelReference, settings: Settings, engine: Engine | None, policy: LazyPrompter) -> Asker:
    if model.kind == "litellm":
        return asker_of(model, settings)
    if model.kind == "policy":
        if engine is None:
            raise ConfigError(f"{model.setting} = policy needs the policy's engine, and there is none here")
        return EngineAsker(model.title, engine, policy, settings, version=0, own=False)
    if not model.url:
        raise ConfigError(
            f"{model.setting} = {model.title!r} has no engine yet: `openclaw-rl serve` starts it; one that runs is "
            f"{model.setting} = {model.title}@URL"
        )
    placement = inherited_placement()
    on_gpus = placement is not None and any(server.model == model.name for server in placement.judges)
    own = create_engine(own_engine(settings, model.name, url=model.url, on_gpus=on_gpus))
    prompter, outgoing = LazyPrompter.folder(model.name, own), Outgoing.to_model(settings, "", model.url)
    return EngineAsker(model.title, own, prompter, settings, version=None, own=True, outgoing=outgoing)
