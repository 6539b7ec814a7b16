"""A custom loss: its arguments, and how a hook by import path or file becomes one (docs/extending.md).

    loss(tokens: LossTokens) -> Tensor                                     one value per response token, `[N]`
    compute_loss(policy_logits, reference_logits, rewards, advantages, config) -> Tensor       a scalar, or `[N]`
    compute_opd_loss(student_logprobs, teacher_logprobs, advantage_mask, clip_ratio)           the same
    compute_hybrid_loss(student_logprobs, teacher_logprobs, scalar_rewards, opd_weight, binary_weight, clip_ratio)
                                                                           the same, or a pair with its metrics

The contracts after the first are those of OpenClaw-RL's guides. All are called once per micro batch and must let the
gradient through.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.settings.hook_config import HookConfig
from openclaw_rl.shared.trainer import Recipe

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

BY_NAME = ("compute_opd_loss", "compute_hybrid_loss")
"""Functions whose arguments go by their names."""
FOREIGN = ("compute_loss", *BY_NAME)


@dataclass(frozen=True)
class LossTokens:
    """A micro batch of N response tokens over a vocabulary of V, the answers of its samples one after the other.

    `logits` `[N, V]` are the policy's, as the model gave them, and carry the gradient; all else is constant. Row t is
    what token t was drawn from. `token_ids` `[N]` were sampled at `temperatures` `[N]` (1 where the best token was
    taken) with `behavior_logprobs` `[N]` (of no use where `has_ratio` `[N]` is false). `base_log_probs` `[N, V]` are
    the frozen base's on the plain prompt; `teacher_log_probs` `[N, V]` the teacher's under the hints, `None` when no
    sample has one; where `has_hint` `[N]` is false they are the base's. `rewards` and `advantages` `[N]` are those of
    the token's sample (0 where there is none; the advantage is the reward unless a method made another), `weights`
    `[N]` its weight in the mean, `sample_index` `[N]` its number in the micro batch.
    """

    logits: Tensor
    token_ids: Tensor
    temperatures: Tensor
    behavior_logprobs: Tensor
    has_ratio: Tensor
    base_log_probs: Tensor
    teacher_log_probs: Tensor | None
    has_hint: Tensor
    rewards: Tensor
    advantages: Tensor
    weights: Tensor
    sample_index: Tensor
    recipe: Recipe


Loss = Callable[[LossTokens], "Tensor"]


def load_loss(path: str) -> Loss:
    """The loss that `module:attribute`, `./file.py` or `./file.py:attribute` names: values `[N]`, checked.

    An attribute with a name of `FOREIGN`, or a file that has no `loss` but one of those, follows that contract; its
    scalar stands for each of the tokens. Raises `ConfigError` when there is no such hook; the loss raises
    `TrainerError` naming it when the hook fails or gives something else.
    """
    hook, name = _find(path)
    if not callable(hook):
        raise ConfigError(f"{path} is a {type(hook).__name__}; a loss is a function (docs/extending.md)")
    call = _adapted(path, hook, name) if name in FOREIGN else hook

    def checked(tokens: LossTokens) -> Tensor:
        try:
            values: Any = call(tokens)
        except TrainerError:
            raise
        except (Exception, SystemExit) as error:
            raise TrainerError(f"custom_loss {path} raised {type(error).__name__}: {error}") from error
        return _check(path, values, tokens, scalar=name in FOREIGN)

    return checked


def _find(path: str) -> tuple[Callable[..., Any], str]:
    attribute = path.partition(":")[2]
    if attribute:
        return resolve(path), attribute
    try:
        return resolve(path, default="loss"), "loss"
    except ConfigError as missing:
        for name in FOREIGN:
            try:
                return resolve(path, default=name), name
            except ConfigError:
                continue
        raise missing


def _adapted(path: str, hook: Callable[..., Any], name: str) -> Callable[[LossTokens], Any]:
    """The hook of a foreign contract as a function of the tokens."""
    if name in BY_NAME:
        _require_known(path, hook)
        return lambda tokens: _called_by_name(hook, tokens)
    per_token: list[bool] = []

    def compute_loss(tokens: LossTokens) -> Any:
        config = HookConfig(dict(tokens.recipe))
        if not per_token:
            per_token.append(_takes_logprobs(hook, tokens.logits, config))
            if per_token[0]:
                log.info("custom_loss %s gets logprobs of the sampled tokens: it cannot take logits [N, V]", path)
        policy, reference = tokens.logits, tokens.base_log_probs  # log-probabilities are logits, too
        if per_token[0]:
            policy, reference = _sampled(tokens.logits, tokens), _sampled(tokens.base_log_probs, tokens)
        return hook(policy, reference, tokens.rewards, tokens.advantages, config)

    return compute_loss


def _takes_logprobs(hook: Callable[..., Any], logits: Tensor, config: HookConfig) -> bool:
    """True if a `compute_loss` works on one number per token only: it multiplies its first arguments by advantages
    `[N]`, which logits `[N, V]` do not allow. Tried on 3 tokens over 5, since a real batch may have N = V.
    """
    import torch

    def works(*shape: int) -> bool:
        policy, reference = (torch.full(shape, value, device=logits.device) for value in (-1.0, -1.5))
        ones = torch.ones(3, device=logits.device)
        hook(policy.requires_grad_(), reference, ones, ones.clone(), config)
        return True

    with torch.random.fork_rng(devices=[logits.device] if logits.is_cuda else []), torch.enable_grad():
        try:
            return not works(3, 5)
        except RuntimeError:  # shapes that do not fit
            pass
        except Exception:  # no matter of shapes: the real call reports it
            return False
        try:
            return works(3)
        except Exception:
            return False


def _sampled(logits: Tensor, tokens: LossTokens) -> Tensor:
    """Logprobs `[N]` of the sampled tokens at temperature 1."""
    from openclaw_rl.shared.objective import losses

    return losses.sampled_logprobs(losses.log_softmax(logits), tokens.token_ids)


_ARGUMENTS: Mapping[str, Callable[[LossTokens, Tensor], Any]] = {
    "student_logprobs": lambda tokens, student: student,
    # Without a hint the teacher equals the student, so that such a token adds neither loss nor gradient.
    "teacher_logprobs": lambda tokens, student: (
        student
        if tokens.teacher_log_probs is None
        else _sampled(tokens.teacher_log_probs, tokens).where(tokens.has_hint, student)
    ),
    "advantage_mask": lambda tokens, student: tokens.has_hint.to(student.dtype),
    "scalar_rewards": lambda tokens, student: tokens.rewards,
    "rewards": lambda tokens, student: tokens.rewards,
    "advantages": lambda tokens, student: tokens.advantages,
    "opd_weight": lambda tokens, student: tokens.recipe.w_opd,
    "binary_weight": lambda tokens, student: tokens.recipe.w_rl,
    "clip_ratio": lambda tokens, student: tokens.recipe.clip_low,
    "config": lambda tokens, student: HookConfig(dict(tokens.recipe)),
}
"""The arguments of a hook that takes them by name, from the tokens and the policy's logprobs `[N]`."""


def _require_known(path: str, hook: Callable[..., Any]) -> None:
    parameters = inspect.signature(hook).parameters.values()
    unknown = [one.name for one in parameters if one.default is one.empty and one.name not in _ARGUMENTS]
    if unknown:
        raise ConfigError(
            f"{path} asks for {', '.join(unknown)}; a loss of this name may ask for {', '.join(_ARGUMENTS)} "
            "(docs/extending.md)"
        )


def _called_by_name(hook: Callable[..., Any], tokens: LossTokens) -> Any:
    student = _sampled(tokens.logits, tokens)
    names = inspect.signature(hook).parameters.keys() & _ARGUMENTS.keys()
    if "advantage_mask" in names and not bool(tokens.has_hint.any()):
        return student * 0.0  # the mean over no token is none
    values = hook(**{name: _ARGUMENTS[name](tokens, student) for name in names})
    return values[0] if isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], Mapping) else values


def _check(path: str, values: Any, tokens: LossTokens, *, scalar: bool) -> Tensor:
    count = tokens.token_ids.shape[0]
    shape = tuple(getattr(values, "shape", ()))
    if not hasattr(values, "requires_grad") or not (shape == (count,) or (scalar and shape in ((), (1,)))):
        found = f"a tensor of shape {list(shape)}" if hasattr(values, "requires_grad") else type(values).__name__
        wanted = f"a scalar or [{count}]" if scalar else f"one value per response token, [{count}]"
        raise TrainerError(f"custom_loss {path} gave {found}; it must give {wanted}")
    if not bool(values.isfinite().all()):
        raise TrainerError(f"custom_loss {path} gave a value that is not finite; nothing was changed")
    if not values.requires_grad:
        raise TrainerError(f"custom_loss {path} gave values without a gradient: make them from the policy's logits")
    checked: Tensor = values.float().reshape(-1).expand(count)
    return checked
