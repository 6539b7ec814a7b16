"""Which requests a provider can be asked at all: the rest is refused in words before anything is sent."""

from __future__ import annotations

from openclaw_rl.shared.engine.wire import GenerateRequest, Refused

_UNSUPPORTED = ("min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens")


def no_tops(provider: str) -> Refused:
    """What is said where the likeliest tokens of an answer are asked for and the provider tells none."""
    return Refused(f"{provider} does not tell the likeliest tokens of an answer: leave top_logprobs out")


def admit(request: GenerateRequest, provider: str, *, vocabulary: int, context: int) -> None:
    """Raise `Refused` for what the provider cannot be asked. `vocabulary` and `context` in tokens; a context of 0 is
    not known.
    """
    ids, params = request.input_ids, request.sampling_params
    if request.image_data or request.video_data or request.audio_data:
        raise Refused("cloud backends take text only: leave image_data, video_data and audio_data out")
    if not ids:
        raise Refused("input_ids is empty: a prompt has at least one token")
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise Refused(f"input_ids has a token outside the vocabulary (0 to {vocabulary - 1})")
    if problem := params.problem():
        raise Refused(f"sampling_params: {problem}")
    neutral = type(params)()
    active = [name for name in _UNSUPPORTED if getattr(params, name) != getattr(neutral, name)]
    if active:
        raise Refused(f"sampling_params: {provider} cannot sample with {', '.join(active)}; leave it out")
    if any(not 0 <= token < vocabulary for token in params.stop_token_ids or ()):
        raise Refused("sampling_params: stop_token_ids has a token outside the vocabulary")
    if request.logprob_start_len is not None and request.logprob_start_len > len(ids):
        raise Refused("logprob_start_len is beyond the prompt")
    if request.score_temperature != 1:
        raise Refused(f"{provider} scores at temperature 1 only", 501)
    if context and len(ids) + params.max_new_tokens > context:
        raise Refused(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {len(ids) + params.max_new_tokens} tokens: {len(ids)} tokens from the input messages and "
            f"{params.max_new_tokens} tokens for the completion.",
            code="context_length_exceeded",
        )
