from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from openclaw_rl.shared.errors import BadRequest, ConfigError
from openclaw_rl.shared.rendering.chat_template import (
    PLAIN,
    ChatTemplate,
    load_template,
    plain_template,
    special_tokens,
)
from tests.shared.tiny_tokenizers import CHATML, byte_level, write_folder

MESSAGES = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Ninety."}]
EVERYTHING = """\
{%- set found = namespace(first=true) -%}
{{ bos_token }}
{% for message in messages %}
    {%- if loop.index0 > 9 %}{% break %}{% endif %}
    {%- if message['role'] == 'assistant' %}{% generation %}{{ message.content | trim }}{% endgeneration %}
    {% else %}{{ message.content | tojson }}{{ found.first }}{% set found.first = false %}{% endif %}
{% endfor %}
{{ tools | tojson(indent=2) if tools else 'no tools' }} {{ strftime_now('%Y') }} {{ eos_token }} {{ documents is none }}
{{ enable_thinking is defined }}{{ '<think>' if add_generation_prompt }}
"""


def write(source: str, messages: list[dict[str, Any]] | None = None, **options: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).write(messages or MESSAGES, **options)


@pytest.mark.parametrize("source", [CHATML, EVERYTHING])
@pytest.mark.parametrize("generate", [False, True])
def test_a_template_writes_what_transformers_writes(source: str, generate: bool, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level(["<s>", "</s>"]), template=source, eos="</s>", bos_token="<s>")
    tools = [{"type": "function", "function": {"name": "é", "parameters": {"type": "object"}}}]
    messages = [*MESSAGES, {"role": "user", "content": '"né" <b> 🙂'}, {"role": "assistant", "content": " a \n"}]
    theirs = PreTrainedTokenizerFast.from_pretrained(folder).apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=generate, enable_thinking=True
    )
    own = load_template(folder)
    assert own is not None
    assert own.write(messages, tools, generate=generate, enable_thinking=True) == theirs


def test_the_date_is_todays() -> None:
    assert write("{{ strftime_now('%Y') }}") == str(datetime.now().year)


def test_the_template_is_found_where_transformers_keeps_it(tmp_path: Path) -> None:
    assert load_template(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "string"}))
    assert load_template(tmp_path).write([]) == "string"  # type: ignore[union-attr]
    both = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    config.write_text(json.dumps({"chat_template": both}))
    found = load_template(tmp_path)
    assert found is not None
    assert (found.write([]), found.write([], [{"type": "function"}])) == ("plain", "tools")
    (tmp_path / "chat_template.jinja").write_text("file")
    assert load_template(tmp_path / "absent", tmp_path).write([]) == "file"  # type: ignore[union-attr]
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("file for tools")
    assert load_template(tmp_path).write([], [{}]) == "file for tools"  # type: ignore[union-attr]


def test_named_tokens_are_strings_or_objects(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": {"content": "<s>"}, "eos_token": "old"}')
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>", "pad_token": null}')
    assert special_tokens(tmp_path) == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_refusal_of_a_template_is_a_bad_request_with_its_words() -> None:
    with pytest.raises(BadRequest, match="roles must alternate"):
        write("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(BadRequest, match="cannot write these messages"):
        write("{{ messages[0].content + 1 }}")


def test_a_template_cannot_reach_the_machine() -> None:
    with pytest.raises(BadRequest, match="unsafe"):
        write("{{ messages.__class__.__mro__ }}")


def test_a_broken_template_is_reported_at_start(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ConfigError, match=r"chat template of .* is no valid Jinja"):
        load_template(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer_config.json cannot be read as JSON"):
        load_template(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_template(tmp_path)


def test_plain_text_names_who_speaks(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>", "bos_token": "<s>"}')
    messages = [{"role": "system", "content": "Be brief."}, *MESSAGES, {"role": "user", "content": "Thanks."}]
    expected = "Be brief.\n\nUser: How many?\nAssistant: Ninety.</s>\nUser: Thanks.\nAssistant:"
    assert plain_template(tmp_path, begin=False).write(messages) == expected
    assert plain_template(tmp_path, begin=True).write(messages) == "<s>" + expected
    assert write(PLAIN, begin=False, eos_token="") == "User: How many?\nAssistant: Ninety.\nAssistant:"
