"""JSON bodies: requests read strictly, or leniently where a client cut an emoji in two; responses by msgspec."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.normalize import clean_text

Fields = TypeVar("Fields", bound=msgspec.Struct)

_TYPES = {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}


def decode_object(data: bytes) -> dict[str, Any]:
    """A request body as a JSON object. Raises `BadRequest`."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        body = _decode_leniently(data)
    if not isinstance(body, dict):
        raise BadRequest(
            f"The body must be a JSON object, not {_TYPES.get(type(body), 'a number')}.", code="invalid_json"
        )
    return body


def read_fields(body: Mapping[str, Any], fields: type[Fields], *, strict: bool = True) -> Fields:
    """The fields of a body that `fields` defines, without nulls. `strict`: a text is no number. Raises `BadRequest`."""
    given = {name: value for name in fields.__struct_fields__ if (value := body.get(name)) is not None}
    for name, value in given.items():
        if isinstance(value, float) and value.is_integer():  # some clients count in floats
            given[name] = int(value)
    try:
        return msgspec.convert(given, fields, strict=strict)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).rpartition(" - at ")
        param = re.sub(r"\[.*", "", path.strip("`$."))
        sent = f" is {str(given[param])[:60]}" if param in given else ""
        raise BadRequest(f"{param}{sent}: {problem}.", param=param, code="invalid_value") from error


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response (records are encoded as objects, bytes as base64)."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def _decode_leniently(data: bytes) -> Any:
    """JSON with half surrogate pairs, which become U+FFFD everywhere: they cannot be encoded later on."""
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        return json.loads(clean_text(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}", code="invalid_json") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")
