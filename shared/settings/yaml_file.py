"""YAML files of settings."""

from __future__ import annotations

from typing import Any

import yaml


def parse_yaml(text: str) -> Any:
    """The content of a document. Raises `ValueError`, also for a name that stands twice in a mapping: PyYAML takes the
    last one, and half of a file would be ignored.
    """
    try:
        _require_unique(yaml.compose(text, yaml.SafeLoader))
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _require_unique(root: Any) -> None:
    left, seen = [root], {id(None)}
    while left:
        node = left.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))  # an alias stands for its anchor's node
        if isinstance(node, yaml.SequenceNode):
            left.extend(node.value)
            continue
        names: set[str] = set()
        for key, value in node.value:
            if str(key.value) in names:
                raise ValueError(f"{key.value!r} is there twice{key.start_mark}")
            names.add(str(key.value))
            left.append(value)
