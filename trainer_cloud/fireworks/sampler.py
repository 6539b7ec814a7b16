"""Sampling and scoring at Fireworks, from what it serves: a snapshot, or the base model. Tokens in, tokens out.

`DeploymentSampler` sends a completion request with `raw_output` and reads token ids from it. Two logprobs come with
each token: `logprob`, the model's own, which is used here, and `sampling_logprob`, after temperature and filters.
Prompt tokens come with theirs where the last of them are echoed. Likeliest tokens are five at most (the limit of
`top_logprobs`), and other tokens cannot be asked about.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.records import PromptImage
from openclaw_rl.shared.rendering.vocabulary import load_tokenizer
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.failures import status_of
from openclaw_rl.trainer_cloud.fireworks.sdk import library, to_cloud_error
from openclaw_rl.trainer_cloud.provider import CloudError, Sampled, Scored, ScoreRequest

MAX_TOP_LOGPROBS = 5
_MOST_STOPS = 4
READY_TRIES, READY_PAUSE = 3, 5.0
"""Tries, and seconds between them, for a snapshot that was saved a moment ago."""
_GONE = (404, 410)


@dataclass(eq=False)
class RolloutSampler:
    """Served weights as a `Sampler`. `url` is the endpoint of completions; `route` opens the way to the weights: their
    name in a request, for as long as that takes; `lost` says whether there is another way, now that a name is gone.
    Both raise `CloudError`.
    """

    settings: Settings
    url: str
    route: Callable[[], AbstractAsyncContextManager[str]]
    lost: Callable[[str], Awaitable[bool]] | None = None
    _clients: dict[str, Any] = field(default_factory=dict, init=False)

    async def ready(self) -> None:
        """Ask for one token, and wait a little for weights that are being loaded. Raises `CloudError`."""
        patient = {"hotload_max_retries": READY_TRIES, "hotload_retry_interval": READY_PAUSE}
        await self._completion((1, 2), 1, 1.0, {"top_p": 1.0, "top_k": 0, **patient}, "a first token")

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, top_logprobs: int = 0, images: Sequence[PromptImage] = ()
    ) -> Sampled:
        _check_blind(images)
        # Every field is set: what is left out, the model's own configuration chooses.
        asked: dict[str, Any] = {"top_p": params.top_p, "top_k": max(0, params.top_k)}
        seed = params.sampling_seed if params.sampling_seed is not None else params.seed
        asked |= {"seed": seed} if seed is not None else {}
        asked |= {"ignore_eos": True} if params.ignore_eos else {}
        asked |= {"top_logprobs": min(top_logprobs, MAX_TOP_LOGPROBS)} if top_logprobs else {}
        ends = await asyncio.to_thread(_control_tokens, Path(self.settings.engine.tokenizer_path))
        stops = [ends[one] for one in dict.fromkeys(params.stop_token_ids or ()) if one in ends][:_MOST_STOPS]
        asked |= {"stop": stops} if stops else {}
        answer = await self._completion(ids, params.max_new_tokens, params.temperature, asked, "sampling")
        tokens = answer.full_tokens[answer.prompt_len :]
        logprobs = answer.inference_logprobs or []
        if len(logprobs) != len(tokens):
            raise CloudError("Fireworks sent an answer without the logprobs of its tokens", "away")
        return Sampled(
            ids=[int(token) for token in tokens],
            logprobs=[float(one) for one in logprobs],
            finish="length" if answer.finish_reason == "length" else "stop",
            top_logprobs=_likeliest(answer, slice(None))
            if top_logprobs and answer.inference_topk_token_ids is not None
            else (),
        )

    async def score(self, asked: ScoreRequest) -> Scored:
        _check_blind(asked.images)
        if asked.chosen is not None:
            raise CloudError("Fireworks' deployments do not score chosen tokens", "refused", undone=True)
        ids, top_logprobs = asked.ids, asked.top_logprobs
        count = len(ids) - asked.start
        more: dict[str, Any] = {"top_p": 1.0, "top_k": 0, "echo_last": count}
        more |= {"top_logprobs": min(top_logprobs, MAX_TOP_LOGPROBS)} if top_logprobs else {}
        answer = await self._completion(ids, 1, 1.0, more, "scoring")
        logprobs = (answer.inference_logprobs or [])[:count]
        if len(logprobs) != count:
            raise CloudError(f"Fireworks scored {len(logprobs)} of {count} tokens of a text of {len(ids)}", "away")
        return Scored(
            logprobs=[float(one) for one in logprobs],
            top_logprobs=_likeliest(answer, slice(count)) if top_logprobs else (),
        )

    async def close(self) -> None:
        """Release connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            with contextlib.suppress(Exception):  # whatever the library does at its end
                http, client._async_client = client._async_client, None
                if http is not None:
                    await http.aclose()
                client.close()

    async def _completion(
        self, ids: Sequence[int], tokens: int, temperature: float, asked: Mapping[str, Any], doing: str
    ) -> Any:
        """The one completion of a request. Raises `CloudError`."""
        while True:
            async with self.route() as model:
                try:
                    async with asyncio.timeout(self.settings.serve.request_timeout):
                        answer = await self._client(model).sample_with_prompt_tokens_result(
                            [int(token) for token in ids],
                            max_tokens=tokens,
                            temperature=temperature,
                            logprobs=True,
                            http_timeout=self.settings.serve.request_timeout,
                            **{"hotload_max_retries": 0, **asked},
                        )
                    return answer.completions[0]
                except TimeoutError as error:
                    message = f"Fireworks did not answer within {self.settings.serve.request_timeout:.0f} s ({doing})"
                    raise CloudError(message, "away") from error
                except Exception as error:  # a library that raises all kinds of things
                    known = to_cloud_error(error, model=self.settings.engine.model, doing=doing)
                    if status_of(error) not in _GONE:
                        raise known from error
            if self.lost is None or not await self.lost(model):
                raise CloudError(f"Fireworks does not serve {model} (any more): {known}", "model", undone=True)

    def _client(self, model: str) -> Any:
        if model not in self._clients:
            client = library().DeploymentSampler(
                inference_url=self.url, model=model, api_key=self.settings.cloud.fireworks_api_key
            )
            # The engine has its own queues, and its own patience.
            client.concurrency_controller = None
            client._RETRY_MAX_ATTEMPTS = 1
            self._clients[model] = client
        return self._clients[model]


@functools.cache
def _control_tokens(tokenizer: Path) -> Mapping[int, str]:
    """Control tokens as the stop strings that the completions API takes; other tokens are left to the engine."""
    try:
        tokens = load_tokenizer(tokenizer).get_added_tokens_decoder()
    except ConfigError:  # the engine, which needs it, says so
        return {}
    return {number: token.content for number, token in tokens.items() if token.special}


def _check_blind(images: Sequence[PromptImage]) -> None:
    if images:
        raise CloudError("prompts with images are not sent to Fireworks", "refused", undone=True)


def _likeliest(answer: Any, places: slice) -> list[list[tuple[float, int]]]:
    """The likeliest tokens at some places, best first; of a place that has none an empty row."""
    if answer.inference_topk_token_ids is None or answer.inference_topk_logprobs is None:
        raise CloudError("Fireworks reported no likeliest tokens", "refused")
    rows = zip(answer.inference_topk_logprobs[places], answer.inference_topk_token_ids[places], strict=True)
    return [
        sorted(((float(logprob), int(token)) for logprob, token in zip(*row, strict=True)), reverse=True)
        for row in rows
    ]
