"""The chat template of a model folder: a Jinja program that writes messages as the text the model was trained on.

It is run as transformers runs it (same filters, globals and white-space rules), in Jinja's sandbox, without importing
transformers. What it is given has been protected before (`shared.rendering.tokenizer`), so the control tokens in its
output are the template's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from openclaw_rl.shared.errors import BadRequest, ConfigError
from openclaw_rl.shared.files import read_config

PLAIN = """\
{{- bos_token if begin else '' -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content + '\\n\\n' }}
{%- elif message.role == 'assistant' -%}
{{ 'Assistant: ' + message.content + eos_token + '\\n' }}
{%- else -%}
{{ 'User: ' + message.content + '\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ 'Assistant:' }}
{%- endif -%}
"""
"""The template of a model without one, under `family = plain`."""

PLAIN_STOPS = ("\nUser:", "\nAssistant:")
"""Texts that end a plain answer, as its end token does: a base model continues with the next turn itself."""

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_FAILURES = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


class ChatTemplate:
    """`source` is the template, `with_tools` the one for requests with tools where the folder has two; `variables` are
    what both may use besides the messages. Raises `ConfigError` for a template that is no Jinja."""

    def __init__(self, source: str, variables: Mapping[str, Any], *, with_tools: str = "", name: str = "model") -> None:
        self.source = source + with_tools
        self.variables = dict(variables)
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self._with_tools = environment.from_string(with_tools) if with_tools else self._template
        except jinja2.TemplateError as error:
            raise ConfigError(f"The chat template of {name} is no valid Jinja template: {error}") from error

    def write(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        generate: bool = True,
        **options: Any,
    ) -> str:
        """The text of a conversation, up to where the answer begins if `generate`. Raises `BadRequest` where the
        template refuses the messages or fails on them."""
        template = self._with_tools if tools else self._template
        values = {**self.variables, **options, "messages": messages, "tools": tools or None, "documents": None}
        try:
            return template.render(values, add_generation_prompt=generate)
        except RecursionError:
            raise
        except _FAILURES as error:
            raise BadRequest(
                f"The chat template of this model cannot write these messages: {error}",
                param="messages",
                code="invalid_value",
            ) from error


def load_template(*folders: Path) -> ChatTemplate | None:
    """The template of the first of the folders that has one, None where none has. Raises `ConfigError`."""
    for folder in folders:
        config = read_config(folder / "tokenizer_config.json")
        found = _sources(folder, config)
        if found:
            source = found.get("default") or next(iter(found.values()))
            name = str(folder)
            return ChatTemplate(source, special_tokens(folder), with_tools=found.get("tool_use", ""), name=name)
    return None


def plain_template(folder: Path, *, begin: bool) -> ChatTemplate:
    """The template of a model that has none; `begin`: a text starts with the begin token."""
    return ChatTemplate(PLAIN, {"bos_token": "", "eos_token": "", **special_tokens(folder), "begin": begin})


def special_tokens(folder: Path) -> dict[str, str]:
    """The texts of the begin, end and other named tokens of a tokenizer folder, by name."""
    named = {**read_config(folder / "special_tokens_map.json"), **read_config(folder / "tokenizer_config.json")}
    texts: dict[str, str] = {}
    for name in _SPECIAL:
        token = named.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            texts[name] = text
    return texts


def _sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The folder's templates by name, in the places where transformers looks for them."""
    found: dict[str, str] = {}
    kept = config.get("chat_template")
    if isinstance(kept, str):
        found["default"] = kept
    elif isinstance(kept, list):
        found |= {str(one["name"]): one["template"] for one in kept if isinstance(one, dict) and "template" in one}
    processor = read_config(folder / "chat_template.json").get("chat_template")
    if isinstance(processor, str):
        found["default"] = processor
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = _text(path)
    if (folder / "chat_template.jinja").is_file():
        found["default"] = _text(folder / "chat_template.jinja")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's part for training masks; here its body is all of it."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
