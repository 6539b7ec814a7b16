"""Tool calls that are read when they end: forms for which there is no streaming reader.

A section is what stands between the opening and the closing marker of calls; it can hold several. Its text is read by
patterns, in which a marker is a control token: the same characters, sampled letter by letter, are part of a value. As
in `shared.rendering.xml_calls`, the white space of a value is kept.

The forms are those of the published templates; Gemma 4's is read by `renderers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from openclaw_rl.shared.messages.equality import parse_arguments
from openclaw_rl.shared.rendering.tokenizer import PieceTokenizer
from openclaw_rl.shared.rendering.xml_calls import Schemas, typed_value


class SectionCall(NamedTuple):
    """A call, its arguments as text, and whether it keeps to its form and to the tool's schema."""

    name: str
    arguments: str
    regular: bool = True


class ReadSection(NamedTuple):
    """The calls of a section, and the text in it that belongs to none of them."""

    calls: list[SectionCall]
    rest: str


class SectionForm(msgspec.Struct, frozen=True):
    """`read` is given the text between the markers; `begins` is the beginning of an answer that calls `{name}`.
    `single`: a section is one call, so it is none before its end."""

    begins: str
    read: Callable[[str, Schemas], ReadSection] | None = None
    single: bool = False


class SectionReader:
    """Reads the sections of one form. `begins` is the beginning of an answer that calls a tool."""

    def __init__(self, form: str, tokenizer: PieceTokenizer) -> None:
        self._form = SECTIONS[form]
        self._tokenizer = tokenizer
        self._renderer: Any = None

    @property
    def begins(self) -> str:
        """The beginning of an answer that calls the tool `{name}`."""
        return self._form.begins

    def read(self, ids: Sequence[int], schemas: Schemas, *, ended: bool = True) -> ReadSection:
        """The calls in the tokens between the markers of a section; not `ended`: the answer was cut off in it."""
        if self._form.single and not ended:
            return ReadSection([], self._tokenizer.decode(ids))
        if self._form.read is None:
            return self._read_by_library(list(ids))
        found = self.read_text(self._tokenizer.marked_text(ids), schemas)
        calm = self._tokenizer.unprotect
        return ReadSection([SectionCall(calm(name), calm(text), good) for name, text, good in found[0]], calm(found[1]))

    def read_text(self, text: str, schemas: Schemas) -> ReadSection:
        """The calls in the text between spelled markers."""
        assert self._form.read is not None
        try:
            return self._form.read(text, schemas)
        except RecursionError:  # JSON that nests too deep
            return ReadSection([], text)

    def _read_by_library(self, ids: list[int]) -> ReadSection:
        import renderers  # heavy: only who needs it pays for it

        if self._renderer is None:
            self._renderer = renderers.create_renderer(self._tokenizer, renderers.Gemma4RendererConfig())
        opening, closing = (self._tokenizer.convert_tokens_to_ids(token) for token in ("<|tool_call>", "<tool_call|>"))
        parsed = self._renderer.parse_response([opening, *ids, closing])
        calls = [
            SectionCall(call.name, _json(dict(call.arguments))) for call in parsed.tool_calls if call.status == "ok"
        ]
        return ReadSection(calls, "" if calls else self._tokenizer.decode(ids))


_GLM_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _read_glm(text: str, schemas: Schemas) -> ReadSection:
    """`NAME`, then `<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>` for each argument."""
    start = text.find("<arg_key>")
    head, body = (text, "") if start < 0 else (text[:start], text[start:])
    name = head.strip()
    if not name:
        return ReadSection([], text)
    pairs = [(key.strip(), value) for key, value in _GLM_PAIR.findall(body)]
    if _GLM_PAIR.sub("", body).strip():
        return ReadSection([], text)
    return ReadSection([SectionCall(name, *_typed(pairs, schemas.get(name, {})))], "")


def _read_invocations(mark: str) -> Callable[[str, Schemas], ReadSection]:
    """`<invoke name="NAME">` around `<parameter name="KEY">VALUE</parameter>`, each name behind `mark`. An attribute
    `string` says whether a value is text; without it the schema does."""
    invoke = re.compile(rf'<{mark}invoke name="([^"]+)">(.*?)</{mark}invoke>', re.DOTALL)
    parameter = re.compile(
        rf'<{mark}parameter name="([^"]+)"(?: string="(true|false)")?>(.*?)</{mark}parameter>', re.DOTALL
    )

    def read(text: str, schemas: Schemas) -> ReadSection:
        calls: list[SectionCall] = []
        for name, body in invoke.findall(text):
            found = parameter.findall(body)
            declared = {
                key: {"type": "string" if kind == "true" else "any"} for key, kind, _ in found if kind
            } or schemas.get(name, {})
            arguments, fits = _typed([(key, value) for key, _, value in found], declared)
            calls.append(SectionCall(name, arguments, fits and not parameter.sub("", body).strip()))
        return ReadSection(calls, invoke.sub("", text).strip() if calls else text)

    return read


_KIMI_CALL = re.compile(
    r"<\|tool_call_begin\|>(.*?)<\|tool_call_argument_begin\|>(.*?)(?:<\|tool_call_end\|>|(?=<\|tool_call_begin\|>))",
    re.DOTALL,
)
_KIMI_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d*)?", re.DOTALL)


def _read_kimi(text: str, schemas: Schemas) -> ReadSection:
    """Calls as an id, `functions.NAME:NUMBER`, and a JSON object."""
    calls = [
        _with_json(found[1], arguments)
        for name, arguments in _KIMI_CALL.findall(text)
        if (found := _KIMI_ID.fullmatch(name.strip()))
    ]
    return ReadSection(calls, _KIMI_CALL.sub("", text).strip() if calls else text)


_DEEPSEEK_CALL = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?\n?(.*?)\n?```", re.DOTALL)


def _read_deepseek(text: str, schemas: Schemas) -> ReadSection:
    """Calls as `function`, a separator, the name, and JSON in a fence (V3, R1); or as the name, a separator, and JSON
    (V3.1)."""
    calls: list[SectionCall] = []
    for head, body in _DEEPSEEK_CALL.findall(text):
        name, arguments = head.strip(), body
        if name == "function" and not body.lstrip().startswith("{"):
            name, _, fenced = body.strip().partition("\n")
            fence = _FENCE.fullmatch(fenced.strip())
            arguments = fence[1] if fence else fenced
        if name.strip():
            calls.append(_with_json(name.strip(), arguments))
    return ReadSection(calls, _DEEPSEEK_CALL.sub("", text).strip() if calls else text)


def _read_list(text: str, schemas: Schemas) -> ReadSection:
    """A JSON array of objects with `name` and `arguments`."""
    start = len(text) - len(text.lstrip())
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return ReadSection([], text)
    calls: list[SectionCall] = []
    for one in value if isinstance(value, list) else [value]:
        name = one.get("name") if isinstance(one, dict) else None
        if not isinstance(name, str) or not name:
            return ReadSection([], text)
        arguments = one.get("arguments")
        calls.append(_with_json(name, arguments if isinstance(arguments, str) else _json(arguments or {})))
    return ReadSection(calls, text[end:].strip() if calls else text)


_MISTRAL_CALL = re.compile(r"(.+?)(?:\[CALL_ID\].*?)?\[ARGS\](.*)", re.DOTALL)


def _read_mistral(text: str, schemas: Schemas) -> ReadSection:
    """Calls as `NAME[ARGS]` and a JSON object, with `[TOOL_CALLS]` between them."""
    calls: list[SectionCall] = []
    rest: list[str] = []
    for one in text.split("[TOOL_CALLS]"):
        found = _MISTRAL_CALL.fullmatch(one.strip())
        if found is None:
            rest.append(one)
            continue
        calls.append(_with_json(found[1].strip(), found[2]))
    return ReadSection(calls, "".join(rest).strip() if calls else text)


def _typed(pairs: Sequence[tuple[str, str]], schemas: Mapping[str, Mapping[str, Any]]) -> tuple[str, bool]:
    """Named values as a JSON object, and whether each is what its schema allows."""
    values = {key: typed_value(value, schemas.get(key)) for key, value in pairs}
    return _json({key: value for key, (value, _) in values.items()}), all(fits for _, fits in values.values())


def _with_json(name: str, arguments: str) -> SectionCall:
    """A call with the JSON that was written, which is given on even if it is broken."""
    arguments = arguments.strip() or "{}"
    return SectionCall(name, arguments, not isinstance(parse_arguments(arguments), str))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


HARMONY_CALL = "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
"""The beginning of an answer of gpt-oss that calls a tool."""

SECTIONS: dict[str, SectionForm] = {
    "glm": SectionForm("<tool_call>{name}\n", _read_glm, single=True),
    "minimax": SectionForm('<minimax:tool_call>\n<invoke name="{name}">', _read_invocations("")),
    "dsml": SectionForm('<｜DSML｜tool_calls>\n<｜DSML｜invoke name="{name}">\n', _read_invocations("｜DSML｜")),
    "kimi": SectionForm("<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:", _read_kimi),
    "deepseek": SectionForm(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n", _read_deepseek
    ),
    "deepseek-v3.1": SectionForm("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>", _read_deepseek),
    "gemma": SectionForm("<|tool_call>call:{name}{", single=True),
    "mistral": SectionForm("[TOOL_CALLS]{name}[ARGS]", _read_mistral),
    "mistral-list": SectionForm('[TOOL_CALLS][{"name": "{name}", "arguments":', _read_list),
    "nemotron-list": SectionForm('<TOOLCALL>[{"name": "{name}", "arguments":', _read_list),
}
"""Forms by the name that `Grammar.calls` has for them."""
