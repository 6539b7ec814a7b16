"""The end of an answer: a token, or a stop string, which no provider is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.trainer_cloud.provider import Sampled

LARGEST_SEED = 2**31 - 1


class Stopping:
    """The ends of a model's answers: `tokens`, and those that a request names."""

    def __init__(self, tokenizer: Any, tokens: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = tokens

    def named(self, params: SamplingParams) -> SamplingParams:
        """The parameters with every token that ends an answer named, and a seed that every provider takes."""
        ends = [] if params.ignore_eos else self._tokens
        seed = params.sampling_seed if params.sampling_seed is not None else params.seed
        return msgspec.structs.replace(
            params,
            stop=None,
            stop_token_ids=list(dict.fromkeys([*(params.stop_token_ids or ()), *ends])),
            sampling_seed=None if seed is None else seed & LARGEST_SEED,
            seed=None,
        )

    def cut(self, params: SamplingParams, answer: Sampled) -> tuple[Sequence[int], dict[str, Any]]:
        """The answer up to the end token, or to the token that completes a stop string, and why it ended."""
        ends = set(params.stop_token_ids or ()) | (set() if params.ignore_eos else set(self._tokens))
        stops = params.stops
        # Every token is at least one byte, so a stop string that a new token completes lies within this tail.
        tail = max((len(stop.encode()) for stop in stops), default=0) + 1
        for place, token in enumerate(answer.ids):
            if token in ends:
                return answer.ids[: place + 1], {"type": "stop", "matched": token}
            matched = self._matched(answer.ids[max(0, place + 1 - tail) : place + 1], stops) if stops else None
            if matched is not None:
                return answer.ids[: place + 1], {"type": "stop", "matched": matched}
        if answer.finish == "stop" and len(answer.ids) < params.max_new_tokens and not params.ignore_eos:
            # The provider left the end token out: what ended it is not known, and it is no answer that was cut off.
            return answer.ids, {"type": "stop", "matched": None}
        return answer.ids, {"type": "length", "length": len(answer.ids)}

    def _matched(self, ids: Sequence[int], stops: Sequence[str]) -> str | None:
        text = str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
        return next((stop for stop in stops if stop in text), None)
