"""Tinker: sampling, scoring and LoRA training by the native client, 0.24 to 0.38.

Facts that shape this file (the library's source, and the Tinker-compatible server of the tests):

- A sampling client belongs to one set of weights. Publishing makes a new one next to the old, which keeps serving.
- A text's first token has no logprob; some servers leave its place out, so logprobs are counted from the end.
- Only the end of a text is scored (`prompt_logprobs_last_n`, since 0.38), so that its beginning can come from the
  service's cache. Servers that ignore or refuse the field, and older clients, are asked again without it, once.
- Chosen tokens can be scored in a sampling request, within a bound on `len(prompt) × distinct ids`.
- An untrained LoRA is the base model: its B is 0.
- Gradients are summed over all places. A place is masked by an advantage, or a weight, of 0.
- The library sends every request of training again by itself for minutes, under the sequence number that it had
  (`training_client._run_fwd_bwd`: fixed before `execute_with_retries`). Tinker's own service orders requests by that
  number and knows one that comes again. Other servers need not: SkyRL's counts it twice. There requests of training go
  out once, and one whose answer was lost leaves a client that is thrown away.
- An account without credit is an error at once; the library would wait an hour.
- After a fatal error a training client refuses everything.
- Its telemetry (figures and stack traces, to Tinker) is switched off.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.records import PromptImage
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import preflight
from openclaw_rl.trainer_cloud.artifacts import archive
from openclaw_rl.trainer_cloud.client_training import ClientTraining, sparse
from openclaw_rl.trainer_cloud.failures import status_of
from openclaw_rl.trainer_cloud.model_input import model_input
from openclaw_rl.trainer_cloud.pointer import Pointer
from openclaw_rl.trainer_cloud.provider import CloudError, Offer, Sampled, Scored, ScoreRequest
from openclaw_rl.trainer_cloud.tinker.client import done, end, library, made, report_billing, stop_retries

_START_SECONDS = 60.0
_KEPT_SECONDS = 3600
_REFUSED = ("refused", "gone")


class Tinker:
    """Tinker as a `Provider`. Imports the library when it is first used, and sends nothing before the first call."""

    name = "tinker"
    several_versions = True
    sees = True
    scores_texts = True
    most_top_logprobs = 1000  # not documented

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self._services: dict[str, Any] = {}
        self._suffixes = _SuffixScores()

    async def offer(self) -> Offer:
        return await asyncio.to_thread(preflight.check, self._settings)

    async def sampler(self, path: str) -> TinkerSampler:
        service = await self._service("sampling")
        wanted = {"model_path": path} if path else {"base_model": self._settings.engine.model}
        asked = {"path": path} if path else {"model": self._settings.engine.model}
        seconds = self._settings.serve.request_timeout
        client = await made(lambda: service.create_sampling_client(**wanted), seconds, **asked)
        return TinkerSampler(client, self._settings, asked, self._suffixes)

    async def train(self, *, rank: int, seed: int) -> TinkerTraining:
        model = self._settings.engine.model
        return await self._begun(
            lambda service: service.create_lora_training_client(model, rank=rank, seed=seed), model=model
        )

    async def base(self, *, rank: int) -> TinkerTraining:
        return await self.train(rank=rank, seed=0)

    async def resume(self, path: str, *, rank: int) -> TinkerTraining:
        try:
            return await self._begun(
                lambda service: service.create_training_client_from_state_with_optimizer(path), path=path
            )
        except CloudError as error:
            if error.trouble not in _REFUSED:  # a server that does not know the request says that it is not found
                raise
        # A server that loads states into a model that is there already.
        model = self._settings.engine.model
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
        rest = await self._rest()
        try:
            await self._awaited(rest.delete_checkpoint_from_tinker_path(path), f"deleting {path}", path=path)
        except CloudError as error:
            if error.trouble not in _REFUSED:  # gone already, or a server that keeps everything
                raise

    async def download(self, found: Pointer, folder: str) -> None:
        # Exported to be downloaded where the service can do that, else the archive of the sampler's weights, as older
        # services and clients have it.
        target = Path(folder)
        try:
            training = await self.resume(found.state, rank=found.rank)
            try:
                await _exported(training.client, await self._rest(), target, self._settings)
            finally:
                await training.close()
        except CloudError as error:
            if error.trouble not in _REFUSED:
                raise
            await _archived(found.sampler, target, self._settings)

    async def close(self) -> None:
        services, self._services = self._services, {}
        await asyncio.gather(*(end(service) for service in services.values()))

    async def _rest(self) -> Any:
        known = library()
        if hasattr(known, "RestClient"):
            url, key = preflight.base_url(self._settings), self._settings.cloud.tinker_api_key
            return await made(lambda: known.RestClient(base_url=url, api_key=key), _START_SECONDS)
        return (await self._service("sampling")).create_rest_client()

    async def _awaited(self, given: Any, doing: str, **asked: Any) -> Any:
        return await done(given, self._settings.serve.request_timeout, doing, **asked)

    async def _begun(self, make: Callable[[Any], Any], **asked: Any) -> TinkerTraining:
        """A model in training in its own session, which ends with it: a client that is thrown away leaves nothing
        behind.
        """
        service = await made(lambda: self._connected("training"), _START_SECONDS)
        try:
            client = await made(lambda: make(service), self._settings.serve.request_timeout, **asked)
            return TinkerTraining(client, self._settings, service)
        except BaseException:
            await end(service)
            raise

    async def _service(self, purpose: str) -> Any:
        """The library's client of an account."""
        async with self._starting:
            if purpose not in self._services:
                self._services[purpose] = await made(lambda: self._connected(purpose), _START_SECONDS)
            return self._services[purpose]

    def _connected(self, purpose: str) -> Any:
        settings = self._settings
        preflight.check_key(settings)
        service = library().ServiceClient(
            base_url=preflight.base_url(settings),
            api_key=settings.cloud.tinker_api_key,
            user_metadata={"program": "openclaw-rl", "purpose": purpose},
            **({"project_id": settings.cloud.tinker_project} if settings.cloud.tinker_project else {}),
        )
        holder = service.holder  # connects
        report_billing(holder)
        if purpose == "training" and not preflight.is_tinkers_own(preflight.base_url(settings)):
            stop_retries(holder, settings.serve.request_timeout)
        return service


class _SuffixScores:
    """Remembers that scores of the end of a text alone cannot be had."""

    field = "prompt_logprobs_last_n"

    def __init__(self) -> None:
        self.known = True


class TinkerSampler:
    """A sampling client as a `Sampler`. `asked` says of what, for errors."""

    def __init__(self, client: Any, settings: Settings, asked: Mapping[str, str], suffixes: _SuffixScores) -> None:
        self._client = client
        self._settings = settings
        self._asked = asked
        self._suffixes = suffixes

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, top_logprobs: int = 0, images: Sequence[PromptImage] = ()
    ) -> Sampled:
        # Every field is set: what the library leaves out, its server chooses.
        wanted = library().types.SamplingParams(
            max_tokens=params.max_new_tokens,
            seed=params.sampling_seed if params.sampling_seed is not None else params.seed,
            stop=list(params.stop_token_ids or ()),
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
        )
        more = {"topk_sample_logprobs": top_logprobs} if top_logprobs else {}
        prompt = await _prompt(ids, images)
        answer = await self._answer(prompt, wanted, self._settings.serve.request_timeout, more)
        sequence = answer.sequences[0]
        logprobs = sequence.logprobs
        if logprobs is None or len(logprobs) != len(sequence.tokens):
            raise CloudError("Tinker sent an answer without the logprobs of its tokens", "away")
        found = getattr(sequence, "topk_logprobs", None) if top_logprobs else None
        return Sampled(
            ids=[int(token) for token in sequence.tokens],
            logprobs=[float(one) for one in logprobs],
            finish="stop" if str(sequence.stop_reason) == "stop" else "length",
            top_logprobs=[_pairs(row or ()) for row in found] if found else (),
            cached=_cached(answer),
        )

    async def score(self, asked: ScoreRequest) -> Scored:
        ids, start, top_logprobs, chosen = asked.ids, asked.start, asked.top_logprobs, asked.chosen
        count = len(ids) - start
        more: dict[str, Any] = {"include_prompt_logprobs": True}
        more |= {"topk_prompt_logprobs": top_logprobs} if top_logprobs else {}
        if chosen is not None:
            rows = np.concatenate([np.zeros((start - 1, chosen.shape[1]), dtype=np.int64), chosen])
            more["target_prompt_logprobs"] = sparse(library().types, rows, start - 1)
        answer = await self._scored(await _prompt(ids, asked.images), count, more)
        logprobs = list(answer.prompt_logprobs or ())[-count:]
        if len(logprobs) != count or any(one is None for one in logprobs):
            scored = f"{len(logprobs)} of {count} tokens of a text of {len(ids)}"
            raise CloudError(f"Tinker scored {scored}", "away")
        found = list(getattr(answer, "topk_prompt_logprobs", None) or ())[-count:] if top_logprobs else []
        values: Any = getattr(answer, "target_prompt_logprobs", None) if chosen is not None else None
        if chosen is not None and values is None:
            raise CloudError("this Tinker server does not score chosen tokens", "refused")
        return Scored(
            logprobs=[float(one) for one in logprobs],
            top_logprobs=[_pairs(row or ()) for row in found],
            chosen=None if values is None else np.asarray(values.to_numpy()[start - 1 :], dtype=np.float32),
            cached=_cached(answer),
        )

    async def _scored(self, text: Any, count: int, more: Mapping[str, Any]) -> Any:
        """The answer to a request for the logprobs of the last `count` tokens of a text, or of all where that cannot
        be asked.
        """
        params = library().types.SamplingParams(max_tokens=1, seed=0, stop=[], temperature=1.0, top_k=-1, top_p=1.0)
        seconds, suffixes = self._settings.serve.request_timeout, self._suffixes
        if suffixes.known and count:
            try:
                return await self._answer(text, params, seconds, {**more, suffixes.field: count})
            except CloudError as error:
                if suffixes.field not in str(error):
                    raise
                suffixes.known = False
        return await self._answer(text, params, seconds, more)

    async def _answer(self, prompt: Any, params: Any, seconds: float, more: Mapping[str, Any]) -> Any:
        try:
            given = self._client.sample(prompt=prompt, num_samples=1, sampling_params=params, **more)
        except TypeError as error:  # an older library, which does not know the field
            advice = ": leave top_logprobs out" if "topk_sample_logprobs" in more else ""
            message = f"this version of the Tinker library cannot do that ({error}){advice}"
            raise CloudError(message, "refused", undone=True) from error
        return await done(given, seconds, "sampling", **self._asked)


class TinkerTraining(ClientTraining):
    """A training client as a `Training`."""

    def __init__(self, client: Any, settings: Settings, service: Any) -> None:
        # The client itself sends such targets like this if they are PyTorch's. Other servers need not read it.
        own = preflight.is_tinkers_own(preflight.base_url(settings))
        super().__init__(client, library().types, who="Tinker", is_sparse=own)
        self._settings = settings
        self._service = service

    async def save_state(self, name: str) -> str:
        return str((await self.finish(self.client.save_state(name), "saving the state")).path)

    async def save_sampler(self, name: str) -> str:
        return str((await self.finish(self.client.save_weights_for_sampler(name), "saving the weights")).path)

    async def close(self) -> None:
        # Tinker lets go of a model with its session.
        await end(self._service)

    async def finish(self, given: Any, doing: str) -> Any:
        return await done(given, self._settings.serve.request_timeout, doing, training=True)


async def _prompt(ids: Sequence[int], images: Sequence[PromptImage]) -> Any:
    """A prompt as the library takes it, made in a thread: converting images would hold up other answers."""
    return await asyncio.to_thread(model_input, library().types, ids, images)


def _cached(answer: Any) -> int:
    """The tokens of a prompt that were billed as found in the cache; older clients do not tell."""
    return int(getattr(answer, "prompt_cache_hit_tokens", 0) or 0)


def _pairs(row: Sequence[tuple[int, float]]) -> list[tuple[float, int]]:
    return [(float(logprob), int(token)) for token, logprob in row]


async def _exported(client: Any, rest: Any, folder: Path, settings: Settings) -> None:
    """Have a training client's weights exported, and download them into `folder`. Raises `CloudError`: `refused` where
    library or service cannot do it.
    """
    if not hasattr(client, "save_weights_external") or not hasattr(rest, "get_external_weights_urls"):
        raise CloudError("this version of the Tinker library exports no weights", "refused", undone=True)
    seconds = settings.serve.request_timeout
    saving = client.save_weights_external("export", ttl_seconds=_KEPT_SECONDS)
    path = (await done(saving, seconds, "exporting the weights")).path
    urls = (await done(rest.get_external_weights_urls(path), seconds, f"asking where {path} is")).urls
    await archive.fetch_adapter(urls, folder, path, seconds=seconds)


async def _archived(path: str, folder: Path, settings: Settings) -> None:
    """Download the archive of a sampler's weights at `path` into `folder`. Raises `CloudError`."""
    run, _, rest = path.removeprefix("tinker://").partition("/")
    name = rest.rpartition("/")[2]
    root = f"{preflight.base_url(settings)}/api/v1/training_runs/{quote(run, safe='')}/checkpoints"
    headers = {"X-API-Key": settings.cloud.tinker_api_key}
    last: Exception | None = None
    async with httpx.AsyncClient(
        timeout=settings.serve.request_timeout, follow_redirects=True, headers=headers
    ) as http:
        for url in (f"{root}/{quote(rest)}/archive", f"{root}/{quote(name)}/archive"):
            try:
                await archive.fetch_archive(http, url, folder)
                return
            except httpx.HTTPError as error:
                last = error
                if status_of(error) not in (400, 404, 405, 422):
                    break
    raise CloudError(f"the archive of {path} cannot be downloaded: {last}", "away", undone=True) from last
