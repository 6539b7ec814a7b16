"""Make the judge that the settings name."""

from __future__ import annotations

import asyncio

from openclaw_rl.learner.judge import custom
from openclaw_rl.learner.judge.askers.engine import EngineAsker, LazyPrompter
from openclaw_rl.learner.judge.askers.litellm import asker_of
from openclaw_rl.learner.judge.llm import ModelJudge, WithHintModel
from openclaw_rl.learner.judge.prompt import JudgePrompt
from openclaw_rl.learner.judge.protocol import Asker, Judge
from openclaw_rl.learner.judge.reward_model import RewardModelJudge
from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.learner.judge.selection import Selector
from openclaw_rl.learner.judge.votes import Voting
from openclaw_rl.shared.backends import create_engine, create_reward_model, own_engine
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import inherited_placement
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings import judge_spec as names
from openclaw_rl.shared.settings.judge_spec import Spelling
from openclaw_rl.shared.settings.settings import Settings


def create(settings: Settings, engine: Engine | None = None, prompter: Prompter | None = None) -> Judge:
    """The judge that `judge`, `hint_model` and `custom_reward` name (docs/judging.md). `engine` serves the policy;
    without a `prompter` the policy's is made when it is needed. Raises `ConfigError`.
    """
    hinter = names.hinter(settings)
    spelling = None if settings.custom_reward else names.scorer(settings)
    policy = LazyPrompter.ready(prompter) if prompter else LazyPrompter.policy(settings)
    selector = Selector(settings, engine, policy)
    slots = asyncio.Semaphore(settings.judge_concurrency)

    def voting(found: Spelling, setting: str) -> Voting:
        return Voting(_asker(found, setting, settings, engine, policy), settings, slots)

    judge: Judge
    if spelling is None:
        judge = custom.create_reward(settings)
    elif spelling.kind == "rules":
        judge = RuleJudge()
    elif spelling.kind == "hook":
        judge = custom.create(settings)
    elif spelling.kind == "reward-model":
        judge = RewardModelJudge(create_reward_model(settings, spelling.target), spelling.target, settings)
    else:
        prompt = JudgePrompt.from_settings(settings)
        judge = ModelJudge(voting(spelling, "judge"), prompt, selector, settings, hints=hinter is None)
    return judge if hinter is None else WithHintModel(judge, voting(hinter, "hint_model"), selector, settings)


def _asker(spelling: Spelling, setting: str, settings: Settings, engine: Engine | None, policy: LazyPrompter) -> Asker:
    """The asker for `setting`."""
    name = str(settings.value(setting))
    if spelling.kind == "litellm":
        return asker_of(name, settings)
    if spelling.kind == "policy":
        if engine is None:
            raise ConfigError(f"{setting} = policy needs the policy's engine, and there is none here")
        return EngineAsker(name, engine, policy, settings, version=0, own=False)
    url = spelling.url or names.engine_url(settings, setting)
    if not url:
        raise ConfigError(
            f"{setting} = {name!r} has no engine yet: `openclaw-rl serve` starts it, or say where one runs with "
            f"{names.ENGINE_URLS[setting]}"
        )
    folder = "" if spelling.url else spelling.target
    placement = inherited_placement()
    on_gpus = placement is not None and any(server.model == folder for server in placement.judges)
    own = create_engine(own_engine(settings, folder, url=url, on_gpus=on_gpus))
    prompter, outgoing = LazyPrompter.folder(folder, own), Outgoing.to_model(settings, "", url)
    return EngineAsker(name, own, prompter, settings, version=None, own=True, outgoing=outgoing)
