"""The defaults of each published recipe that differ from ours: an unset setting takes its method's own.

Sources: the OpenClaw-RL papers and the recipes published with them (docs/methods.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHODS = ("rehearse", "binary", "opd", "combined", "topk", "topk-select")

_PUBLISHED: Mapping[str, Any] = {
    "learning_rate": 1e-5,
    "batch_size": 16,
    "epochs": 1,
    "minibatches": 1,
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
    "topk-select": {**_PUBLISHED, "votes": 3, "hint_selection": "overlap-sequence"},
}


def method_defaults(method: object) -> Mapping[str, Any]:
    """The settings of a method by its own name; none for one that is not ours."""
    return METHOD_DEFAULTS.get(str(method), {})
