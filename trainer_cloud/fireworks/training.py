"""A LoRA in training at Fireworks. The SDK refuses everything after a request that failed to be submitted, and so does
this: whoever holds it makes a new one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.fireworks.errors import told
from openclaw_rl.trainer_cloud.fireworks.sdk import Leash, library
from openclaw_rl.trainer_cloud.futures import finished, in_thread
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass

_CLOSE_SECONDS = 5.0
_LONGEST_LABEL = 54  # the SDK adds "-" and eight digits, and a label has 63 characters at most


class FireworksTraining:
    """See `trainer_cloud.provider.Training`. `place` puts the path of a sampler snapshot into words that stay true
    outside this session, `job` is the trainer job of one's own machines ("" on shared ones).
    """

    def __init__(self, client: Any, settings: Settings, *, place: Callable[[Any], str], job: str = "") -> None:
        # Half the time-out: a refusal is told before it is taken for silence.
        self._leash = Leash(client.holder, settings.cloud_timeout / 2)
        client.holder = self._leash
        self._client = client
        self._settings = settings
        self._place = place
        self._job = job
        self._names: set[str] = set()

    @property
    def usable(self) -> bool:
        """Whether it still takes requests."""
        return not self._leash.cut and getattr(self._client, "_sequence_error", None) is None

    def holds(self, path: str) -> bool:
        """Whether its weights are those that were saved at `path`."""
        return any(path.rsplit("/", 1)[-1].startswith(name) for name in self._names)

    async def load(self, path: str) -> None:
        """Go on from what `save_state` kept, optimizer included. Raises `CloudError`."""
        reference, _, name = path.partition("#")
        own = f"cross_job://{self._job}/"
        if self._job and reference.startswith(own):
            reference = reference.removeprefix(own)
        load = self._client.load_state_with_optimizer
        if "://" in reference and not reference.startswith("cross_job://"):
            # Another server's path, which Fireworks' own class would refuse before it is sent.
            above: Any = super(library().FiretitanTrainingClient, self._client)
            load = above.load_state_with_optimizer
        await self._done(load, reference, doing=f"loading {reference}")
        self._names = {name} if name else set()

    async def forward(self, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        """See `Training.forward`."""
        if not data:
            return []
        given = [_datum(one, "cross_entropy") for one in data]
        answer = await self._done(self._client.forward, given, "cross_entropy", doing="a forward pass")
        return [_logprobs(out, one) for out, one in zip(answer.loss_fn_outputs, data, strict=True)]

    async def update(self, passes: Sequence[Pass], adam: Adam) -> Mapping[str, float]:
        """See `Training.update`. Nothing tells that a step did not happen: after an error nobody knows."""
        self._names = set()
        given = []
        for part in passes:
            data = [_datum(one, part.loss) for one in part.data]
            given.append(self._submitted(self._client.forward_backward, data, part.loss, dict(part.config) or None))
        given.append(self._submitted(self._client.optim_step, _adam(adam)))
        try:
            # All of them are awaited, whichever fails: an error that nobody awaits is lost.
            answers = await asyncio.gather(
                *(self._finished(one, "a training step") for one in given), return_exceptions=True
            )
        except asyncio.CancelledError:
            self._leash.cut = True
            raise
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if failed:
            self._leash.cut = True
            # The first has the reason; the ones behind it were not sent.
            raise _unknown(failed[0])
        metrics = getattr(answers[-1], "metrics", None) or {}
        return {_metric(name): float(value) for name, value in metrics.items() if isinstance(value, int | float)}

    async def save_state(self, name: str) -> str:
        """See `Training.save_state`."""
        label = _label(name)
        path = str((await self._done(self._client.save_state, label, doing="saving the state")).path)
        self._names.add(label)
        # On machines of one's own a path is a name within a job, and another job may have to find it.
        return f"cross_job://{self._job}/{path}#{label}" if self._job and "/" not in path else f"{path}#{label}"

    async def save_sampler(self, name: str) -> str:
        """See `Training.save_sampler`."""
        label = _label(name)

        def save() -> str:
            return self._place(self._client.save_weights_for_sampler_ext(label, checkpoint_type="base"))

        path = await self._finished(in_thread(save, "fireworks"), "saving the weights")
        self._names.add(label)
        return str(path)

    async def close(self) -> None:
        """See `Training.close`."""
        self._leash.cut = True
        with contextlib.suppress(Exception):  # whatever the library does at its end
            self._client.holder = self._leash.holder
            unloading = asyncio.wrap_future(self._client.unload_model().future())
            unloading.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([unloading], timeout=_CLOSE_SECONDS)

    async def _done(self, call: Callable[..., Any], *args: Any, doing: str) -> Any:
        return await self._finished(self._submitted(call, *args), doing)

    def _submitted(self, call: Callable[..., Any], *args: Any) -> Any:
        """The future that a call of the library gives, or one of the error that it raises at once."""
        try:
            return call(*args)
        except Exception as error:
            failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
            failed.set_exception(error)
            return failed

    async def _finished(self, given: Any, doing: str) -> Any:
        def in_words(error: Exception) -> CloudError:
            if "sequence failed" in str(error) and error.__cause__ is not None:
                return CloudError(
                    f"an earlier request failed, and Fireworks' client with it: {error.__cause__}", "away"
                )
            return told(error, model=self._settings.model, doing=doing)

        try:
            return await finished(given, self._settings.cloud_timeout, who="Fireworks", doing=doing, told=in_words)
        except CloudError as error:
            if not error.undone or not self.usable:
                self._leash.cut = True
                raise _unknown(error) from error
            raise


def _unknown(error: BaseException) -> BaseException:
    """The error without its certainty that nothing happened."""
    if isinstance(error, CloudError) and error.undone:
        return CloudError(str(error), error.trouble, retry_after=error.retry_after)
    return error


def _label(name: str) -> str:
    """A checkpoint's name as Fireworks takes it: a DNS label."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_LABEL].strip("-") or "checkpoint"


def _metric(name: str) -> str:
    plain = name.split(":")[0].rsplit("/")[-1]
    return "gradient/norm" if plain in ("grad_norm", "gradient_norm", "global_grad_norm") else f"provider/{name}"


def _adam(adam: Adam) -> Any:
    return library().types.AdamParams(
        learning_rate=adam.learning_rate,
        beta1=adam.beta1,
        beta2=adam.beta2,
        eps=adam.epsilon,
        weight_decay=adam.weight_decay,
        grad_clip_norm=adam.clip_grad,
        emit_grad_norm_metrics="basic",
    )


def _datum(datum: Datum, loss: str) -> Any:
    types = library().types
    parts: dict[str, NDArray[Any] | None] = {"target_tokens": datum.targets.astype(np.int64)}
    if loss == "cross_entropy":
        parts["weights"] = np.zeros(datum.targets.shape) if datum.weights is None else datum.weights
    else:
        parts |= {"logprobs": datum.logprobs, "advantages": datum.advantages}
    inputs = {
        name: types.TensorData.from_numpy(
            np.ascontiguousarray(part if name == "target_tokens" else np.asarray(part, dtype=np.float32))
        )
        for name, part in parts.items()
    }
    return types.Datum(
        model_input=types.ModelInput.from_ints([int(token) for token in datum.ids]), loss_fn_inputs=inputs
    )


def _logprobs(out: Mapping[str, Any], datum: Datum) -> NDArray[np.float32]:
    if "logprobs" not in out:
        raise CloudError("Fireworks told no logprobs of a forward pass", "refused", undone=True)
    found = np.asarray(out["logprobs"].data, dtype=np.float32)
    if found.size != datum.targets.size:
        raise CloudError(
            f"{found.size} logprobs came back for targets of shape {datum.targets.shape}: this server does not score "
            "several tokens in one place",
            "refused",
            undone=True,
        )
    return found.reshape(datum.targets.shape)
