"""The gate in front of rendering: what a client sent becomes canonical messages, or a 400 that says what is wrong and
where.

Renderers drop what they do not know without a word (images, `developer` messages, unknown roles, numbers as content);
nothing of that gets past here. A canonical message is a plain dict:

    role         system | user | assistant | tool
    content      text ("" where the client sent null); where there are images, a list of text parts and image parts
                 (`shared.messages.images`), no two of text in a row: they are tokenized as one
    reasoning    text, assistant only, absent when empty
    tool_calls   [{id, name, arguments}], assistant only, absent when empty; arguments are an object, or the very text
                 when a model wrote something that is no JSON object: the conversation continues, and the policy sees
                 what was really written
    tool_call_id, name    as sent
    is_error     tool only, where the client says whether the tool failed: in the message, or for a call's id in
                 `tool_errors` next to the messages. It is evidence for the judge; no template shows it

Slash commands that a client put into one user message with other words (OpenClaw does, of messages in a row) become
messages of their own again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgspec

from openclaw_rl.shared.errors import BadRequest
from openclaw_rl.shared.messages.equality import parse_arguments, too_deep
from openclaw_rl.shared.messages.images import image_part
from openclaw_rl.shared.records import Message
from openclaw_rl.shared.text_reading import reads_text

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
INTERNAL_CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
ANY_TOOL = "*"

TEXT_ONLY = "the model takes text only"

_TEXT_PARTS = ("text", "input_text", "output_text")
_IMAGE_PARTS = ("image_url", "input_image")
_MOST_IMAGES = 1000  # each is opened to be measured
_MEDIA_PARTS = (*_IMAGE_PARTS, "image", "input_audio", "audio", "video_url", "video", "file", "input_file")
_COMMAND = re.compile(
    r"\s*(?:\[[^\]\n]*\]\s*)?/\s*(?:(?:good|bad)(?:@\w+)?(?:\s|\Z)|[a-z][\w-]*(?:@\w+)?\s*\Z)", re.IGNORECASE
)
"""A text part that is a slash command, perhaps behind a time stamp: feedback with words or not, others alone."""
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"


class ChatInput(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a chat request that decides the prompt.

    `tools` are what the prompt offers (none under `tool_choice: "none"`), `tools_json` their JSON (made when it is
    needed if left out), by which a rendered head is found again. `forced_tool` is "" (free), `ANY_TOOL` ("required") or
    the name of the tool that has to be called (under "required" the only one, if there is but one). `parallel_calls`
    is False when the answer may hold one call only.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] = []
    tools_json: bytes = b""
    forced_tool: str = ""
    parallel_calls: bool = True


def normalize_chat(body: Mapping[str, Any], *, blind: str = TEXT_ONLY) -> ChatInput:
    """A decoded `/v1/chat/completions` body as canonical input. `blind` says why images are refused, "" where they are
    not. Raises `BadRequest`."""
    messages = normalize_messages(body.get("messages"), blind=blind)
    sent = body.get("tool_errors")
    marks: dict[Any, Any] = sent if isinstance(sent, dict) else {}
    for message in messages if marks else ():
        if message["role"] == "tool" and isinstance(marks.get(message.get("tool_call_id")), bool):
            message["is_error"] = marks[message["tool_call_id"]]
    tools, tools_json = _tools(body.get("tools"))
    forced = _forced_tool(body.get("tool_choice"), tools)
    parallel = body.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        _refuse("parallel_tool_calls must be true or false.", "parallel_tool_calls")
    if body.get("tool_choice") == "none":
        tools, tools_json = [], b""
    return ChatInput(
        messages=messages,
        tools=tools,
        tools_json=tools_json,
        forced_tool=forced,
        parallel_calls=parallel is not False,
    )


def normalize_messages(messages: Any, *, blind: str = TEXT_ONLY) -> list[Message]:
    """A request's `messages` as canonical messages. Raises `BadRequest` naming the index."""
    if not isinstance(messages, list):
        _refuse("messages must be an array of messages.", "messages")
    if not messages:
        _refuse("messages is empty: send at least one message.", "messages")
    if not blind and (count := sum(map(_image_count, messages))) > _MOST_IMAGES:
        _refuse(f"The messages hold {count} images; at most {_MOST_IMAGES} are taken.", "messages")
    return [one for index, message in enumerate(messages) for one in _message(message, f"messages[{index}]", blind)]


def assistant_message(content: str, reasoning: str = "", tool_calls: list[dict[str, Any]] | None = None) -> Message:
    """The canonical message of an answer: the same one that its echo in a later request becomes."""
    content, inline = _split_reasoning(content)
    message: Message = {"role": "assistant", "content": content}
    if reasoning or inline:
        message["reasoning"] = "\n".join(filter(None, (reasoning, inline)))
    if tool_calls:
        message["tool_calls"] = tool_calls
    return message


def text_of(message: Message) -> str:
    """The text of a canonical message, without its images."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def is_internal_context(message: Message) -> bool:
    """True if this is the user message that OpenClaw appends to agent runs and keeps out of the history."""
    return message["role"] == "user" and text_of(message).startswith(INTERNAL_CONTEXT)


def _message(message: Any, where: str, blind: str) -> Iterator[Message]:
    if not isinstance(message, dict):
        _refuse(f"{where} must be an object with role and content.", where)
    sent = message.get("role")
    role = ROLES.get(sent) if isinstance(sent, str) else None
    if role is None:
        _refuse(f"{where}.role is {_show(sent)}; it must be one of {', '.join(sorted(ROLES))}.", f"{where}.role")
    if "content" not in message and role != "assistant":
        _refuse(f"{where}.content is missing.", f"{where}.content")
    seeing = role in ("user", "tool")
    parts = _parts(
        message.get("content"),
        f"{where}.content",
        blind if seeing or blind else f"images have no place in {role} messages",
    )
    if role == "assistant":
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        reasoning = clean_text(reasoning) if isinstance(reasoning, str) else ""
        yield assistant_message(str(_content(parts)), reasoning, _tool_calls(message, where))
        return
    others: dict[str, Any] = {}
    if role == "tool" and isinstance(message.get("is_error"), bool):
        others["is_error"] = message["is_error"]
    for field in ("tool_call_id", "name"):
        value = message.get(field)
        if value is None or (field == "tool_call_id" and role != "tool"):
            continue
        if not isinstance(value, str):
            _refuse(f"{where}.{field} must be a string.", f"{where}.{field}")
        others[field] = clean_text(value)
    for group in _apart(parts) if role == "user" and len(parts) > 1 else [parts]:
        yield {"role": role, "content": _content(group), **others}


def _parts(content: Any, where: str, blind: str) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": clean_text(content)}]
    if not isinstance(content, list):
        _refuse(f"{where} is {_show(content)}; it must be a string or an array of parts.", where)
    return [_part(sent, f"{where}[{index}]", blind) for index, sent in enumerate(content)]


def _apart(parts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The parts of a user message, each slash command among them by itself."""
    if not any(map(_is_command, parts)):
        return [parts]
    groups: list[list[dict[str, Any]]] = []
    alone = True
    for part in parts:
        if part["type"] == "text" and not part["text"].strip():
            continue
        command = _is_command(part)
        if alone or command:
            groups.append([])
        groups[-1].append(part)
        alone = command
    return groups


def _is_command(part: dict[str, Any]) -> bool:
    return part["type"] == "text" and _COMMAND.match(part["text"]) is not None


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    joined: list[dict[str, Any]] = []
    for part in parts:
        if part["type"] == "text" and joined and joined[-1]["type"] == "text":
            part = {"type": "text", "text": joined.pop()["text"] + part["text"]}
        joined.append(part)
    return joined


def _part(part: Any, where: str, blind: str) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": clean_text(part)}
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": clean_text(part["text"])}
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": clean_text(part["refusal"])}
    if kind in _IMAGE_PARTS and not blind:
        image = part.get("image_url")
        return image_part(image.get("url") if isinstance(image, dict) else image, where)
    if kind in _MEDIA_PARTS:
        reason = blind or "the model takes text and image_url parts only"
        _refuse(f"{where} has type {_show(kind)}, but {reason}. Remove it, or serve a model that can.", where)
    _refuse(f"{where} is not a text part: expected {{'type': 'text', 'text': '...'}}.", where)


def _image_count(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else ()
    return sum(isinstance(part, dict) and part.get("type") in _IMAGE_PARTS for part in parts)


def _tool_calls(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    if calls is None and message.get("function_call") is not None:
        calls = [{"id": "", "type": "function", "function": message["function_call"]}]
    if calls is None:
        return []
    if not isinstance(calls, list):
        _refuse(f"{where}.tool_calls must be an array.", f"{where}.tool_calls")
    return [_tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        _refuse(f"{where} must be {{'type': 'function', 'function': {{'name': ..., 'arguments': ...}}}}.", where)
    arguments = function.get("arguments")
    if arguments is None:
        arguments = {}
    elif isinstance(arguments, str):
        arguments = parse_arguments(clean_text(arguments))
    elif isinstance(arguments, dict) and not too_deep(arguments):
        arguments = _clean(arguments)
    else:
        _refuse(f"{where}.function.arguments must be a string of JSON.", f"{where}.function.arguments")
    identity = call.get("id")
    return {
        "id": clean_text(identity) if isinstance(identity, str) else "",
        "name": clean_text(name),
        "arguments": arguments,
    }


def _tools(tools: Any) -> tuple[list[dict[str, Any]], bytes]:
    """The tools and their JSON."""
    if not tools and (tools is None or isinstance(tools, list)):
        return [], b""
    if not isinstance(tools, list):
        _refuse("tools must be an array.", "tools")
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            kind = tool.get("type") if isinstance(tool, dict) else tool
            _refuse(f"{where} has type {_show(kind)}; only 'function' tools are served.", where)
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            _refuse(f"{where}.function.name is missing.", f"{where}.function.name")
    try:
        return tools, msgspec.json.encode(tools)
    except UnicodeEncodeError:
        tools = _clean(tools)
        return tools, msgspec.json.encode(tools)
    except RecursionError as error:
        raise BadRequest("tools are nested too deeply.", param="tools", code="invalid_value") from error


def _forced_tool(choice: Any, tools: list[dict[str, Any]]) -> str:
    if choice is None or choice in ("auto", "none"):
        return ""
    if choice == "required":
        if not tools:
            _refuse("tool_choice is 'required', but the request has no tools.", "tool_choice")
        only: str = tools[0]["function"]["name"]
        return only if len(tools) == 1 else ANY_TOOL
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        expected = "'none', 'auto', 'required' or {'type': 'function', 'function': {'name': ...}}"
        _refuse(f"tool_choice is {_show(choice)}; it must be {expected}.", "tool_choice")
    if name not in [tool["function"]["name"] for tool in tools]:
        _refuse(f"tool_choice names {_show(name)}, which is not among the tools.", "tool_choice")
    return name


def _split_reasoning(content: str) -> tuple[str, str]:
    """Content and reasoning of a client that echoes the latter inside the text, as a leading `<think>` block."""
    body = content.lstrip()
    if not body.startswith(_THINK_OPEN) or _THINK_CLOSE not in body:
        return content, ""
    reasoning, _, rest = body[len(_THINK_OPEN) :].partition(_THINK_CLOSE)
    return rest.strip(), reasoning.strip()


@reads_text()
def clean_text(text: str) -> str:
    """The text with half surrogate pairs (clients cut emoji in two) as U+FFFD, as every UTF-8 encoder writes them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _clean(value: Any) -> Any:
    return json.loads(clean_text(json.dumps(value, ensure_ascii=False)))


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _refuse(message: str, param: str) -> NoReturn:
    raise BadRequest(message, param=param, code="invalid_value")
