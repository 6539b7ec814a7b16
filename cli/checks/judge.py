"""The judge, the hint model and the teacher, as `doctor` checks them: nothing is asked and nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from openclaw_rl.cli.checks.check import Check
from openclaw_rl.cli.checks.data_flows import TITLES
from openclaw_rl.cli.model_files import is_hub_name
from openclaw_rl.learner.judge import custom
from openclaw_rl.learner.judge.prompt import JudgePrompt
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.litellm.library import litellm
from openclaw_rl.shared.settings.judge_spec import SMALLEST_JUDGE, JudgeModels, size_text
from openclaw_rl.shared.settings.model_reference import ModelReference, is_classifier
from openclaw_rl.shared.settings.named_models import find_named
from openclaw_rl.shared.settings.presets import count_parameters
from openclaw_rl.shared.settings.settings import Settings


def judge_check(settings: Settings) -> Check:
    """The models, or the reason why one of them is none."""
    try:
        models = JudgeModels.from_settings(settings)
        if models.judge.kind == "hook":
            custom.create(settings, models.judge)
        elif models.judge.kind in ("policy", "engine", "litellm"):
            JudgePrompt.from_settings(settings)
        for model in models.asked:
            _require_provider(model)
            if model.kind == "reward-model" and is_classifier(model.name) is False:
                hint = f"engine:{model.name} asks a chat model"
                raise ConfigError(f"{model.setting} = {model.title} holds no sequence classifier; {hint}")
    except ConfigError as error:
        return Check("judge", False, str(error))
    others = [f"{TITLES[model.setting]} {model.title}" for model in models.asked[1:]]
    titles = ", ".join([f"{TITLES[models.judge.setting]} {models.judge_title}", *others])
    if settings.engine.is_cloud and any(model.kind == "policy" for model in models.asked):
        titles += f"; {settings.engine.backend} charges for its votes (openclaw-rl estimate)"
    remarks = [line for model in models.asked for line in _remarks(model, settings)]
    return Check("judge", None if remarks else True, "; ".join([titles, *remarks]))


def is_local(model: ModelReference) -> bool:
    """True if this machine loads the model."""
    return model.kind in ("engine", "reward-model") and not model.url


def _require_provider(model: ModelReference) -> None:
    """Raises `ConfigError` for a LiteLLM model of a provider that LiteLLM does not know."""
    if model.kind != "litellm" or find_spec("litellm") is None:  # a missing LiteLLM is reported with the packages
        return
    try:
        litellm().get_llm_provider(model.name, api_base=model.url or None)
    except Exception as error:
        written = f"{model.setting} = {model.name}"
        ways = [f"{model.setting} = openai/{model.name}@{model.url or 'http://HOST:PORT/v1'} names a server of yours"]
        if is_hub_name(model.name) and "/" in model.name and not model.url:
            ways.insert(0, f"{model.setting} = engine:{model.name} serves a model of the Hugging Face hub here")
        raise ConfigError(f"{written}: LiteLLM knows no provider of this name; {', and '.join(ways)}") from error


def _remarks(model: ModelReference, settings: Settings) -> Iterator[str]:
    """Lines worth knowing about a model."""
    if is_local(model) and not find_named(model.name) and not Path(model.name).expanduser().is_dir():
        yield f"{model.name} is taken as a Hugging Face hub name"
    judging = {"policy": settings.engine.model, "engine": model.name}.get(model.kind, "")
    count = count_parameters(judging) if model.setting != "teacher" and judging else 0
    if 0 < count < SMALLEST_JUDGE:
        least = f"{SMALLEST_JUDGE / 1e9:g} billion"
        yield f"it has {size_text(judging)}, and models below {least} are not known to judge (docs/judging.md)"
    if model.kind == "litellm" and find_spec("litellm") is not None:
        yield from _missing_key(model, settings)


def _missing_key(model: ModelReference, settings: Settings) -> Iterator[str]:
    role = model.setting.removesuffix("_model")
    if settings.cloud.key_of(role):
        return
    lacking = litellm().validate_environment(model.name)["missing_keys"]
    keys = [name for name in lacking if name.endswith("_API_KEY")]
    if keys:
        names = " or ".join(keys)
        yield f"{names} is not set here: turns wait for this model until it is (or model_keys = {role}=KEY)"
