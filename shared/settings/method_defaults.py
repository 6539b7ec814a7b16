"""The defaults of each published recipe that differ from ours: an unset setting takes its method's own.

Sources: the OpenClaw-RL papers and the recipes published with them; for `sdpo` its paper (arXiv 2601.20802) and the
runs of its verl fork with 100 tokens and Jensen-Shannon divergence; for `follow-up` its paper (arXiv 2603.12273) and
the code published with it (docs/methods.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHODS = ("rehearse", "binary", "opd", "combined", "topk", "topk-select", "sdpo", "follow-up")

_PUBLISHED: Mapping[str, Any] = {
    "learning_rate": 1e-5,
    "batch_size": 16,
    "epochs": 1,
    "minibatches": 1,
    "early_stop": 0.0,
    "weight_decay": 0.1,
    "rehearsals": 0,
    "anchors": 0,
}
METHOD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "rehearse": {},
    "binary": {**_PUBLISHED, "votes": 3},
    "opd": {**_PUBLISHED, "votes": 1},
    "combined": {**_PUBLISHED, "votes": 1},
    "topk": {**_PUBLISHED, "learning_rate": 1e-6, "batch_size": 4, "votes": 3},
    "topk-select": {**_PUBLISHED, "votes": 3, "hint_selection": "overlap-sequence", "advantage_clip": 1.0},
    "sdpo": {
        **_PUBLISHED,
        "lr_warmup_steps": 10,
        "beta2": 0.999,
        "weight_decay": 0.01,
        "batch_size": 32,
        "topk": 100,
        "topk_from": "student",
        "teacher": "ema",
        "ema_decay": 0.95,
        "votes": 1,
    },
    "follow-up": {
        **_PUBLISHED,
        "learning_rate": 5e-6,
        "beta2": 0.999,
        "weight_decay": 0.0,
        "teacher": "live",
        "advantage_clip": 2.0,
        "clip_high": 0.2,
        "judge": "rules",
        "votes": 1,
    },
}


def method_defaults(method: object) -> Mapping[str, Any]:
    """The settings of a method by its own name; none for one that is not ours."""
    return METHOD_DEFAULTS.get(str(method), {})
