"""Tinker: sampling, scoring and LoRA training by the native client, 0.24 to 0.38.

Facts that shape this file (the library's source, and the Tinker-compatible server of the tests):

- A sampling client belongs to one set of weights. Publishing makes a new one beside the old, which goes on serving.
- A text's first token has no logprob; some servers leave its place out, so logprobs are counted from the end.
- Gradients are summed over all places. A place is masked by an advantage, or a weight, of 0.
- The library tries every request again by itself for minutes, whatever came of it. Twice is once too often for a
  gradient: a server need not recognise the second. So requests of training go out once, and one whose answer was lost
  leaves a client that is thrown away.
- After a fatal error a training client refuses everything.
- Its telemetry (figures and stack traces, to Tinker) is switched off.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import preflight
from openclaw_rl.trainer_cloud.pointer import Pointer
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Offer, Pass, Sampled, Scored
from openclaw_rl.trainer_cloud.tinker import export
from openclaw_rl.trainer_cloud.tinker.client import done, end, in_thread, library, once, types
from openclaw_rl.trainer_cloud.training.top_logprobs import TopsProbe

NAME = "tinker"
_START_SECONDS = 60.0
_REFUSED = ("refused", "gone")


def create(settings: Settings) -> Tinker:
    """The account and base model that `settings` name. Imports the library when it is first used."""
    return Tinker(settings)


class Tinker:
    """See `trainer_cloud.provider.Provider`. Nothing is sent before the first call."""

    name = NAME
    beside = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self._services: dict[str, Any] = {}
        self._tops = TopsProbe()

    async def offer(self) -> Offer:
        """See `Provider.offer`."""
        return await asyncio.to_thread(preflight.check, self._settings)

    async def tops(self, wanted: int) -> int:
        """See `Provider.tops`."""
        return await self._tops.most(await self.sampler(""), wanted)

    async def sampler(self, path: str) -> TinkerSampler:
        """See `Provider.sampler`."""
        service = await self._service("sampling")
        wanted = {"model_path": path} if path else {"base_model": self._settings.model}
        client = await self._new(lambda: service.create_sampling_client(**wanted), **self._asked_for(path))
        return TinkerSampler(client, self._settings, self._asked_for(path))

    async def train(self, *, rank: int, seed: int) -> TinkerTraining:
        """See `Provider.train`."""
        model = self._settings.model
        return await self._begun(
            lambda service: service.create_lora_training_client(model, rank=rank, seed=seed), model=model
        )

    async def resume(self, path: str, *, rank: int) -> TinkerTraining:
        """See `Provider.resume`."""
        try:
            return await self._begun(
                lambda service: service.create_training_client_from_state_with_optimizer(path), path=path
            )
        except CloudError as error:
            if error.trouble not in _REFUSED:  # a server that does not know the request says that it is not found
                raise
        # A server that loads states into a model that is there already.
        model = self._settings.model
        training = await self._begun(lambda service: service.create_lora_training_client(model, rank=rank), model=model)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                loading = training.client.load_state_with_optimizer(path)
            await self._awaited(loading, f"loading {path}", path=path)
        except BaseException:
            await training.close()
            raise
        return training

    async def delete(self, path: str) -> None:
        """See `Provider.delete`."""
        rest = await self._rest()
        try:
            await self._awaited(rest.delete_checkpoint_from_tinker_path(path), f"deleting {path}", path=path)
        except CloudError as error:
            if error.trouble not in _REFUSED:  # gone already, or a server that keeps everything
                raise

    async def download(self, found: Pointer, folder: str) -> None:
        """See `Provider.download`."""
        try:
            training = await self.resume(found.state, rank=found.rank)
            try:
                await export.exported(
                    training.client,
                    await self._rest(),
                    Path(folder),
                    done=self._awaited,
                    seconds=self._settings.cloud_timeout,
                )
            finally:
                await training.close()
        except CloudError as error:
            if error.trouble not in _REFUSED:
                raise
            await export.archived(found.sampler, Path(folder), self._settings)

    async def close(self) -> None:
        """See `Provider.close`."""
        services, self._services = self._services, {}
        await asyncio.gather(*(end(service) for service in services.values()))

    async def _rest(self) -> Any:
        known = library()
        if hasattr(known, "RestClient"):
            settings = self._settings
            url, key = preflight.base_url(settings), settings.tinker_api_key
            return await self._new(lambda: known.RestClient(base_url=url, api_key=key), seconds=_START_SECONDS)
        return (await self._service("sampling")).create_rest_client()

    def _asked_for(self, path: str) -> dict[str, Any]:
        """What a sampler of `path` is asked for by, for errors."""
        return {"path": path} if path else {"model": self._settings.model}

    async def _awaited(self, given: Any, doing: str, **asked: Any) -> Any:
        return await done(given, self._settings.cloud_timeout, doing, **asked)

    async def _begun(self, make: Callable[[Any], Any], **asked: Any) -> TinkerTraining:
        """A model in training in a session of its own, which ends with it: a client that is thrown away leaves nothing
        behind, and the next one begins afresh.
        """
        service = await self._new(lambda: self._connected("training"), seconds=_START_SECONDS)
        try:
            return TinkerTraining(await self._new(lambda: make(service), **asked), self._settings, service)
        except BaseException:
            await end(service)
            raise

    async def _service(self, purpose: str) -> Any:
        """The library's client of an account."""
        async with self._starting:
            if purpose not in self._services:
                self._services[purpose] = await self._new(lambda: self._connected(purpose), seconds=_START_SECONDS)
            return self._services[purpose]

    def _connected(self, purpose: str) -> Any:
        settings = self._settings
        problem = preflight.key_problem(settings)
        if problem is not None:
            raise problem
        service = library().ServiceClient(
            base_url=preflight.base_url(settings),
            api_key=settings.tinker_api_key,
            user_metadata={"program": "openclaw-rl", "purpose": purpose},
            **({"project_id": settings.tinker_project} if settings.tinker_project else {}),
        )
        holder = service.holder  # connects
        if purpose == "training":
            once(holder, settings.cloud_timeout)
        return service

    async def _new(self, make: Callable[[], Any], *, seconds: float = 0.0, **asked: Any) -> Any:
        """What a call of the library gives that blocks, or gives a future of it, by version."""

        def made() -> Any:
            given = make()
            return given.result() if hasattr(given, "result") else given

        return await done(in_thread(made), seconds or self._settings.cloud_timeout, "starting", **asked)


class TinkerSampler:
    """See `trainer_cloud.provider.Sampler`. `asked_for` says of what, for errors."""

    def __init__(self, client: Any, settings: Settings, asked_for: Mapping[str, str]) -> None:
        self._client = client
        self._settings = settings
        self._asked_for = asked_for

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, tops: int = 0) -> Sampled:
        """See `Sampler.sample`. Every field is set: what the library leaves out, its server chooses."""
        asked = types().SamplingParams(
            max_tokens=params.max_new_tokens,
            seed=params.sampling_seed if params.sampling_seed is not None else params.seed,
            stop=list(params.stop_token_ids or ()),
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
        )
        wanted = {"topk_sample_logprobs": tops} if tops else {}
        answer = await self._asked(ids, asked, self._settings.request_timeout, wanted)
        sequence = answer.sequences[0]
        logprobs = sequence.logprobs
        if logprobs is None or len(logprobs) != len(sequence.tokens):
            raise CloudError("Tinker sent an answer without the logprobs of its tokens", "away", undone=True)
        found = getattr(sequence, "topk_logprobs", None) if tops else None
        return Sampled(
            ids=[int(token) for token in sequence.tokens],
            logprobs=[float(one) for one in logprobs],
            finish="stop" if str(sequence.stop_reason) == "stop" else "length",
            tops=[_best(row or ()) for row in found] if found else (),
        )

    async def score(
        self, ids: Sequence[int], start: int, *, tops: int = 0, chosen: NDArray[np.int64] | None = None
    ) -> Scored:
        """See `Sampler.score`."""
        count = len(ids) - start
        wanted: dict[str, Any] = {"topk_prompt_logprobs": tops} if tops else {}
        if chosen is not None:
            rows = np.full((len(ids) - 1, chosen.shape[1]), -1, dtype=np.int64)
            rows[start - 1 :] = chosen
            wanted["target_prompt_logprobs"] = types().TensorData.from_numpy(rows)
        asked = types().SamplingParams(max_tokens=1, seed=0, stop=[], temperature=1.0, top_k=-1, top_p=1.0)
        answer = await self._asked(
            ids, asked, self._settings.cloud_timeout, {"include_prompt_logprobs": True, **wanted}
        )
        logprobs = list(answer.prompt_logprobs or ())[-count:]
        if len(logprobs) != count or any(one is None for one in logprobs):
            raise CloudError(
                f"Tinker scored {len(logprobs)} of {count} tokens of a text of {len(ids)}", "away", undone=True
            )
        found = list(getattr(answer, "topk_prompt_logprobs", None) or ())[-count:] if tops else []
        values: Any = getattr(answer, "target_prompt_logprobs", None) if chosen is not None else None
        if chosen is not None and values is None:
            raise CloudError("this Tinker server does not score chosen tokens", "refused", undone=True)
        return Scored(
            logprobs=[float(one) for one in logprobs],
            tops=[_best(row or ()) for row in found],
            chosen=None if values is None else np.asarray(values.to_numpy()[start - 1 :], dtype=np.float32),
        )

    async def _asked(self, ids: Sequence[int], params: Any, seconds: float, wanted: Mapping[str, Any]) -> Any:
        prompt = types().ModelInput.from_ints([int(token) for token in ids])
        try:
            given = self._client.sample(prompt=prompt, num_samples=1, sampling_params=params, **wanted)
        except TypeError as error:  # an older library, which does not know the field
            told = f"this version of the Tinker library cannot do that ({error})"
            told += ": leave top_logprobs out" if "topk_sample_logprobs" in wanted else ""
            raise CloudError(told, "refused", undone=True) from error
        return await done(given, seconds, "sampling", **self._asked_for)


class TinkerTraining:
    """See `trainer_cloud.provider.Training`."""

    def __init__(self, client: Any, settings: Settings, service: Any) -> None:
        self.client = client
        self._settings = settings
        self._service = service

    async def forward(self, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        """See `Training.forward`."""
        if not data:
            return []
        given = self.client.forward([_datum(one, "cross_entropy") for one in data], "cross_entropy")
        answer = await self._done(given, "a forward pass")
        return [_logprobs(out, one) for out, one in zip(answer.loss_fn_outputs, data, strict=True)]

    async def update(self, passes: Sequence[Pass], adam: Adam) -> Mapping[str, float]:
        """See `Training.update`."""
        given = [
            self.client.forward_backward(
                [_datum(one, part.loss) for one in part.data], part.loss, dict(part.config) or None
            )
            for part in passes
        ]
        given.append(
            self.client.optim_step(
                types().AdamParams(
                    learning_rate=adam.learning_rate,
                    beta1=adam.beta1,
                    beta2=adam.beta2,
                    eps=adam.epsilon,
                    weight_decay=adam.weight_decay,
                    **_clipping(adam.clip_grad),
                )
            )
        )
        # All of them are awaited, whichever fails: an error that nobody awaits is lost.
        answers = await asyncio.gather(*(self._done(one, "a training step") for one in given), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        told_of = getattr(answers[-1], "metrics", None) or {}
        known = {"grad_norm": "gradient/norm", "gradient_norm": "gradient/norm"}
        found = {
            known.get(name.split(":")[0].rsplit("/")[-1], f"provider/{name}"): value for name, value in told_of.items()
        }
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}

    async def save_state(self, name: str) -> str:
        """See `Training.save_state`."""
        return str((await self._done(self.client.save_state(name), "saving the state")).path)

    async def save_sampler(self, name: str) -> str:
        """See `Training.save_sampler`."""
        return str((await self._done(self.client.save_weights_for_sampler(name), "saving the weights")).path)

    async def close(self) -> None:
        """See `Training.close`: Tinker lets go of a model with its session."""
        await end(self._service)

    async def _done(self, given: Any, doing: str) -> Any:
        return await done(given, self._settings.cloud_timeout, doing, training=True)


def _datum(datum: Datum, loss: str) -> Any:
    parts: dict[str, NDArray[Any] | None] = {"target_tokens": datum.targets.astype(np.int64)}
    if loss == "cross_entropy":
        weights = np.zeros(datum.targets.shape, dtype=np.float32) if datum.weights is None else datum.weights
        parts["weights"] = weights.astype(np.float32)
    else:
        parts |= {"logprobs": datum.logprobs, "advantages": datum.advantages}
    inputs = {name: types().TensorData.from_numpy(np.ascontiguousarray(part)) for name, part in parts.items()}
    return types().Datum(
        model_input=types().ModelInput.from_ints([int(token) for token in datum.ids]), loss_fn_inputs=inputs
    )


def _logprobs(out: Mapping[str, Any], datum: Datum) -> NDArray[np.float32]:
    found = np.asarray(out["logprobs"].data, dtype=np.float32)
    if found.size != datum.targets.size:
        raise CloudError(f"Tinker told {found.size} logprobs for {datum.targets.size} targets", "away")
    return found.reshape(datum.targets.shape)


def _best(row: Sequence[tuple[int, float]]) -> list[tuple[float, int]]:
    return [(float(logprob), int(token)) for token, logprob in row]


def _clipping(norm: float) -> dict[str, float]:
    known = "grad_clip_norm" in getattr(types().AdamParams, "model_fields", {})
    return {"grad_clip_norm": norm} if known else {}
