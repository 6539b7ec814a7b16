"""The condition for an importance ratio: an answer's logprobs can be compared with the policy's own.

The ratio π/μ of a sampled token needs both sides over the same tokens. A trainer repeats a temperature exactly. Filters
(top-k, top-p, min-p) leave tokens out that the policy has, so that π/μ stays below 1 even for the policy that sampled,
and a schema does the same; penalties follow what was said before; greedy decoding samples from nothing, and engines
report logprobs at temperature 1 for it. Answers sampled so are distilled like any other (those terms compare whole
distributions and know no μ), but no term with a ratio takes them. The same holds for imported answers: their sampling
is not known at all; and for those of engines that report logprobs at temperature 1 whatever they sampled at.
"""

from __future__ import annotations

from openclaw_rl.shared.records import Sampling

GREEDY_BELOW = 1e-5
"""Engines take the best token at temperatures below this."""

IMPORTED = "imported, so the probabilities of its sampling are not known"
"""What `no_ratio` says of an answer that came from a file."""

_NEUTRAL = Sampling()
_FILTERS = ("top_p", "top_k", "min_p")
_PENALTIES = ("frequency_penalty", "presence_penalty", "repetition_penalty")


def greedy(sampling: Sampling) -> bool:
    """True if the best token was taken instead of a sampled one."""
    return sampling.temperature < GREEDY_BELOW


def reshaped(sampling: Sampling) -> str:
    """The parameters, with their values, that made the distribution another one than the policy's at a temperature; ""
    if none did.
    """
    names = _PENALTIES if greedy(sampling) else _FILTERS + _PENALTIES
    active = [name for name in names if getattr(sampling, name) != getattr(_NEUTRAL, name)]
    named = [f"{name} {getattr(sampling, name):g}" for name in active]
    return " and ".join([*named, "a JSON schema"] if sampling.json_schema else named)


def no_ratio(sampling: Sampling) -> str:
    """The reason why an answer sampled so has no importance ratio, as it follows "it was"; "" if it has one."""
    if sampling.imported:
        return IMPORTED
    if greedy(sampling):
        return "decoded greedily (temperature 0), so no probability of sampling its tokens exists"
    if sampling.unscaled:
        return f"sampled at temperature {sampling.temperature:g} by an engine that reports its logprobs at 1"
    what = reshaped(sampling)
    return f"sampled with {what}, so its logprobs are not the policy's own" if what else ""
