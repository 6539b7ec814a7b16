"""Training through Tinker's client, or through Fireworks' SDK, which is a fork of it: the same calls and types."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openclaw_rl.trainer_cloud.futures import submitted
from openclaw_rl.trainer_cloud.model_input import model_input
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass, Updated

_NORMS = ("grad_norm", "gradient_norm", "global_grad_norm")


class ClientTraining:
    """The common part of both providers' `Training`: `client` is the library's, `types` its module of types. Subclasses
    say how its futures are awaited. `is_sparse`: several targets in each place are sent without the places that do not
    count.
    """

    def __init__(self, client: Any, types: Any, *, who: str, is_sparse: bool = False) -> None:
        self.client = client
        self._types = types
        self._who = who
        self._is_sparse = is_sparse

    async def finish(self, given: Any, doing: str) -> Any:
        """The result of a future of the library. Raises `CloudError`."""
        raise NotImplementedError

    async def forward(self, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        if not data:
            return []
        return self._all_logprobs(await self.finish(self._forward(data), "a forward pass"), data)

    async def update(self, passes: Sequence[Pass], adam: Adam, *, after: Sequence[Datum] = ()) -> Updated:
        given = [
            submitted(
                self.client.forward_backward,
                [self._datum(one, part.loss) for one in part.data],
                part.loss,
                dict(part.config) or None,
            )
            for part in passes
        ]
        given.append(submitted(self.client.optim_step, self._adam(adam)))
        given += [self._forward(after)] if after else []
        # All of them are awaited, whichever fails: an error that is not awaited is lost. The first has the reason.
        answers: list[Any] = await asyncio.gather(
            *(self.finish(one, "a training step") for one in given), return_exceptions=True
        )
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors:
            if isinstance(errors[0], CloudError):
                none_taken = len(errors) == len(answers) and all(getattr(one, "undone", False) for one in errors)
                errors[0].undone = none_taken
            raise errors[0]
        gradients, (step, *scored) = answers[: len(passes)], answers[len(passes) :]
        metrics: Mapping[str, Any] = getattr(step, "metrics", None) or {}
        reported = all("logprobs" in out for answer in gradients for out in answer.loss_fn_outputs)
        return Updated(
            {_metric(name): float(value) for name, value in metrics.items() if isinstance(value, int | float)},
            before=[self._all_logprobs(answer, part.data) for answer, part in zip(gradients, passes, strict=True)]
            if reported
            else (),
            after=[logprobs for answer in scored for logprobs in self._all_logprobs(answer, after)],
        )

    def _forward(self, data: Sequence[Datum]) -> Any:
        """The library's future of a forward pass."""
        return submitted(self.client.forward, [self._datum(one, "cross_entropy") for one in data], "cross_entropy")

    def _all_logprobs(self, answer: Any, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        return [self._logprobs(out, one) for out, one in zip(answer.loss_fn_outputs, data, strict=True)]

    def _datum(self, datum: Datum, loss: str) -> Any:
        parts: dict[str, Any] = {"target_tokens": np.asarray(datum.targets, dtype=np.int64)}
        if loss == "cross_entropy":
            weights = np.zeros(datum.targets.shape) if datum.weights is None else datum.weights
            parts["weights"] = np.asarray(weights, dtype=np.float32)
        else:
            parts["logprobs"] = np.asarray(datum.logprobs, dtype=np.float32)
            parts["advantages"] = np.asarray(datum.advantages, dtype=np.float32)
        tensors = {
            name: sparse(self._types, part, datum.lead)
            if self._is_sparse and part.ndim == 2
            else self._types.TensorData.from_numpy(np.ascontiguousarray(part))
            for name, part in parts.items()
        }
        text = model_input(self._types, datum.ids, datum.images)
        return self._types.Datum(model_input=text, loss_fn_inputs=tensors)

    def _adam(self, adam: Adam) -> Any:
        # Older clients do not know all of the fields.
        more = {"grad_clip_norm": adam.clip_grad, "emit_grad_norm_metrics": "basic"}
        known = getattr(self._types.AdamParams, "model_fields", {})
        return self._types.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.epsilon,
            weight_decay=adam.weight_decay,
            **{name: value for name, value in more.items() if name in known},
        )

    def _logprobs(self, out: Mapping[str, Any], datum: Datum) -> NDArray[np.float32]:
        if "logprobs" not in out:
            raise CloudError(f"{self._who} gave no logprobs of a forward pass", "refused")
        found = np.asarray(out["logprobs"].to_numpy(), dtype=np.float32)
        if found.size != datum.targets.size:
            raise CloudError(
                f"{found.size} logprobs came back for targets of shape {datum.targets.shape}: this server does not "
                "score several tokens in one place",
                "refused",
            )
        return found.reshape(datum.targets.shape)


def sparse(types: Any, values: NDArray[Any], lead: int) -> Any:
    """Values `[T, K]` as a CSR tensor of the library's `types`: all of the rows from `lead` on, zeros too, and nothing
    before.
    """
    rows, columns = values.shape
    kept = rows - lead
    return types.TensorData(
        data=np.ascontiguousarray(values[lead:]).reshape(-1),
        dtype="int64" if values.dtype.kind == "i" else "float32",
        shape=[rows, columns],
        sparse_crow_indices=[0] * lead + [columns * row for row in range(kept + 1)],
        sparse_col_indices=list(range(columns)) * kept,
    )


def _metric(name: str) -> str:
    plain = name.split(":")[0].rsplit("/")[-1]
    return "gradient/norm" if plain in _NORMS else f"provider/{name}"
