"""A custom loss: its arguments, and how a hook by import path or file becomes one (docs/extending.md).

    loss(tokens: LossTokens) -> Tensor                                     one value per response token, `[N]`
    compute_loss(policy_logits, reference_logits, rewards, advantages, config) -> Tensor       a scalar, or `[N]`

The second contract is OpenClaw-RL's. Both are called once per micro batch and must let the gradient through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.trainer import Recipe

if TYPE_CHECKING:
    from torch import Tensor


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

    An attribute called `compute_loss`, or a file that has no `loss` but that, follows OpenClaw-RL's contract; a scalar
    of its stands for each of the tokens. Raises `ConfigError` when there is no such hook; the loss raises
    `TrainerError` naming it when the hook fails or gives something else.
    """
    hook, foreign = _find(path)
    if not callable(hook):
        raise ConfigError(f"{path} is a {type(hook).__name__}; a loss is a function (docs/extending.md)")

    def checked(tokens: LossTokens) -> Tensor:
        try:
            # Log-probabilities are logits of the same distribution.
            given = (tokens.logits, tokens.base_log_probs, tokens.rewards, tokens.advantages, tokens.recipe)
            values: Any = hook(*given) if foreign else hook(tokens)
        except TrainerError:
            raise
        except (Exception, SystemExit) as error:
            raise TrainerError(f"custom_loss {path} raised {type(error).__name__}: {error}") from error
        return _check(path, values, tokens, scalar=foreign)

    return checked


def _find(path: str) -> tuple[Callable[..., Any], bool]:
    attribute = path.partition(":")[2]
    if attribute:
        return resolve(path), attribute == "compute_loss"
    try:
        return resolve(path, default="loss"), False
    except ConfigError as missing:
        try:
            return resolve(path, default="compute_loss"), True
        except ConfigError:
            raise missing from None


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
