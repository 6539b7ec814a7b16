"""An image in Anthropic's dialect is served, or refused by the name of the field; it is never dropped."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.proxy.dialects.messages import read_messages
from openclaw_rl.shared.errors import BadRequest

PLACE = "messages[0].content[0].source"


def body(source: Any, holder: str = "user") -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "image", "source": source}]
    if holder == "tool_result":
        blocks = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": blocks}]
    return {"model": "policy", "max_tokens": 9, "messages": [{"role": "user", "content": blocks}]}


@pytest.mark.parametrize(
    ("source", "param"),
    [
        ({"type": "file", "file_id": "file_1"}, f"{PLACE}.type"),
        ({}, f"{PLACE}.type"),
        ({"type": ["base64"]}, f"{PLACE}.type"),
        ({"type": "base64", "data": "AAAA"}, f"{PLACE}.media_type"),
        ({"type": "base64", "media_type": "image/png"}, f"{PLACE}.data"),
        ({"type": "url"}, f"{PLACE}.url"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_by_its_field(source: Any, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_messages(body(source))
    assert refused.value.param == param
    assert str(refused.value.param) in refused.value.message
    with pytest.raises(BadRequest) as refused:
        read_messages(body(source, "tool_result"))
    assert refused.value.param == param.replace("content[0]", "content[0].content[0]")


def test_a_source_that_can_be_read_is_taken() -> None:
    read_messages(body({"type": "base64", "media_type": "image/png", "data": "AAAA"}))
