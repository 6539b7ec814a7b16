"""Small model folders of families whose calls are read when they end: control tokens, and a template of their form."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from openclaw_rl.shared.rendering.prompter import Prompter
from tests.shared.tiny_tokenizers import byte_level, write_folder


class CallForm(NamedTuple):
    """`template` writes prompts in the form, `call` the calls of an answer (each a name and a path), and `ends` closes
    an answer with calls, and one without. `reading` opens and closes reasoning."""

    calls: str
    tokens: tuple[str, ...]
    template: str
    call: Callable[..., str]
    ends: tuple[str, str]
    reading: tuple[str, str] = ("<think>", "</think>")


THINK = ("<think>", "</think>")
_TOOLS = "{%- if tools -%}{{ '<sys>' + tools | tojson + '\\n' }}{%- endif -%}\n"


def _template(user: str, answer: str, calls: str, end: str, result: str, *, call_end: str = "") -> str:
    """A template out of the texts before a message of the user and of the assistant, its calls, and a result."""
    return (
        _TOOLS
        + "{%- for message in messages -%}\n"
        + "{%- if message.role == 'assistant' -%}{{ '" + answer + "' + message.content }}\n"
        + "{%- if message.tool_calls -%}{{ '\\n' if message.content }}" + calls + "{{ '" + (call_end or end) + "' }}\n"
        + "{%- else -%}{{ '" + end + "' }}{%- endif -%}\n"
        + "{%- elif message.role == 'tool' -%}" + result + "\n"
        + "{%- else -%}{{ '" + user + "' + message.content + '\\n' }}{%- endif -%}\n"
        + "{%- endfor -%}\n"
        + "{%- if add_generation_prompt -%}{{ '" + answer + "' }}{%- endif -%}\n"
    )  # fmt: skip


_EACH = "{%- for call in message.tool_calls -%}"
_END = "{%- endfor -%}"
_VALUE = "(value if value is string else value | tojson)"
_RESULT = "{{ '<tool>' + message.content + '\\n' }}"

_GLM = CallForm(
    "glm",
    ("<|user|>", "<|assistant|>", "<|observation|>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
     "<arg_value>", "</arg_value>", *THINK),
    _template(
        "<|user|>", "<|assistant|>",
        _EACH + "{{ '\\n' if not loop.first }}{{ '<tool_call>' + call.function.name + '\\n' }}"
        "{%- for key, value in call.function.arguments.items() -%}"
        "{{ '<arg_key>' + key + '</arg_key>\\n<arg_value>' + " + _VALUE + " + '</arg_value>\\n' }}{%- endfor -%}"
        "{{ '</tool_call>' }}" + _END,
        "<|user|>",
        "{{ '\\n<tool_response>' + message.content + '</tool_response>' }}", call_end="<|observation|>",
    ).replace("{{ '<|user|>' + message.content", "{{ ('' if loop.index0 else '<|user|>') + message.content"),
    lambda *calls: "\n".join(
        f"<tool_call>{name}\n<arg_key>path</arg_key>\n<arg_value>{path}</arg_value>\n</tool_call>"
        for name, path in calls
    ),
    ("<|observation|>", "<|user|>"),
)  # fmt: skip
_MINIMAX = CallForm(
    "minimax",
    ("]~b]", "[e~[", "<minimax:tool_call>", "</minimax:tool_call>", *THINK),
    "{%- set opening = '<minimax:tool_call>' -%}\n" + _template(
        "]~b]user\\n", "]~b]ai\\n",
        "{{ opening + '\\n' }}" + _EACH + "{{ '<invoke name=\"' + call.function.name + '\">\\n' }}"
        "{%- for key, value in call.function.arguments.items() -%}"
        "{{ '<parameter name=\"' + key + '\">' + " + _VALUE + " + '</parameter>\\n' }}{%- endfor -%}"
        "{{ '</invoke>\\n' }}" + _END + "{{ '</minimax:tool_call>' }}",
        "[e~[", "{{ ']~b]tool\\n' + message.content + '[e~[\\n' }}",
    ),
    lambda *calls: "<minimax:tool_call>\n" + "".join(
        f'<invoke name="{name}">\n<parameter name="path">{path}</parameter>\n</invoke>\n' for name, path in calls
    ) + "</minimax:tool_call>",
    ("[e~[", "[e~["),
)  # fmt: skip
_KIMI = CallForm(
    "kimi",
    ("<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>", "<|im_system|>", "<|tool_call_begin|>",
     "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
     *THINK),
    _template(
        "<|im_user|>user<|im_middle|>", "<|im_assistant|>assistant<|im_middle|>",
        "{{ '<|tool_calls_section_begin|>' }}" + _EACH + "{{ '<|tool_call_begin|>' + call.id + "
        "'<|tool_call_argument_begin|>' + call.function.arguments | tojson + '<|tool_call_end|>' }}" + _END
        + "{{ '<|tool_calls_section_end|>' }}",
        "<|im_end|>",
        "{{ '<|im_system|>tool<|im_middle|>' + message.tool_call_id + '\\n' + message.content + '<|im_end|>' }}",
    ),
    lambda *calls: "<|tool_calls_section_begin|>" + "".join(
        f'<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{{"path": "{path}"}}<|tool_call_end|>'
        for number, (name, path) in enumerate(calls)
    ) + "<|tool_calls_section_end|>",
    ("<|im_end|>", "<|im_end|>"),
)  # fmt: skip
_DEEPSEEK_TOKENS = (
    *("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", *THINK),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    *("<｜tool▁sep｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
)
_OUTPUT = "{{ '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}"
_V3 = CallForm(
    "deepseek",
    _DEEPSEEK_TOKENS,
    _template(
        "<｜User｜>", "<｜Assistant｜>",
        "{{ '<｜tool▁calls▁begin｜>' }}" + _EACH + "{{ '\\n' if not loop.first }}"
        "{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + "
        "call.function.arguments + '\\n```<｜tool▁call▁end｜>' }}" + _END
        + "{{ '<｜tool▁calls▁end｜>' }}",
        "<｜end▁of▁sentence｜>", _OUTPUT,
    ),
    lambda *calls: "<｜tool▁calls▁begin｜>" + "\n".join(
        f'<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{{"path": "{path}"}}\n```<｜tool▁call▁end｜>'
        for name, path in calls
    ) + "<｜tool▁calls▁end｜>",
    ("<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
)  # fmt: skip
_V31 = CallForm(
    "deepseek-v3.1",
    _DEEPSEEK_TOKENS,
    _template(
        "<｜User｜>", "<｜Assistant｜>",
        "{{ '<｜tool▁calls▁begin｜>' }}" + _EACH + "{{ '<｜tool▁call▁begin｜>' }}"
        "{{ call.function.name + '<｜tool▁sep｜>' + call.function.arguments + '<｜tool▁call▁end｜>' }}"
        + _END + "{{ '<｜tool▁calls▁end｜>' }}",
        "<｜end▁of▁sentence｜>", _OUTPUT,
    ),
    lambda *calls: "<｜tool▁calls▁begin｜>" + "".join(
        f'<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{{"path": "{path}"}}<｜tool▁call▁end｜>' for name, path in calls
    ) + "<｜tool▁calls▁end｜>",
    ("<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
)  # fmt: skip
_DSML = CallForm(
    "dsml",
    ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "｜DSML｜", *THINK),
    "{%- set mark = '｜DSML｜' -%}\n" + _template(
        "<｜User｜>", "<｜Assistant｜>",
        "{{ '<' + mark + 'tool_calls>\\n' }}" + _EACH
        + "{{ '<' + mark + 'invoke name=\"' + call.function.name + '\">\\n' }}"
        "{%- for key, value in call.function.arguments.items() -%}"
        "{{ '<' + mark + 'parameter name=\"' + key + '\" string=\"' + ('true' if value is string else 'false') }}"
        "{{ '\">' + " + _VALUE + " + '</' + mark + 'parameter>\\n' }}{%- endfor -%}"
        "{{ '</' + mark + 'invoke>\\n' }}" + _END + "{{ '</' + mark + 'tool_calls>' }}",
        "<｜end▁of▁sentence｜>", _RESULT,
    ),
    lambda *calls: "<｜DSML｜tool_calls>\n" + "".join(
        f'<｜DSML｜invoke name="{name}">\n<｜DSML｜parameter name="path" string="true">{path}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n" for name, path in calls
    ) + "</｜DSML｜tool_calls>",
    ("<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
)  # fmt: skip
_GEMMA = CallForm(
    "gemma",
    ("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>",
     "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|image>", "<|image|>", "<image|>",
     '<|"|>'),
    _template(
        "<|turn>user\\n", "<|turn>model\\n",
        _EACH + "{{ '<|tool_call>call:' + call.function.name + '{' }}"
        "{%- for key, value in call.function.arguments.items() -%}"
        "{{ key + ':<|\"|>' + value + '<|\"|>' }}{%- endfor -%}{{ '}<tool_call|>' }}" + _END,
        "<turn|>", "{{ 'response:' + message.content + '<tool_response|>' }}", call_end="<|tool_response>",
    ),
    lambda *calls: "".join(f'<|tool_call>call:{name}{{path:<|"|>{path}<|"|>}}<tool_call|>' for name, path in calls),
    ("<|tool_response>", "<turn|>"),
    ("<|channel>thought\n", "<channel|>"),
)  # fmt: skip
_MISTRAL_TOKENS = ("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[THINK]", "[/THINK]")
_RESULTS = "{{ '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}"
_MISTRAL = CallForm(
    "mistral",
    (*_MISTRAL_TOKENS, "[ARGS]", "[CALL_ID]", "</s>"),
    _template(
        "[INST]", "[/INST]",
        _EACH + "{{ '[TOOL_CALLS]' + call.function.name + '[ARGS]' + call.function.arguments | tojson }}" + _END,
        "</s>", _RESULTS,
    ),
    lambda *calls: "".join(f'[TOOL_CALLS]{name}[ARGS]{{"path": "{path}"}}' for name, path in calls),
    ("</s>", "</s>"),
    ("[THINK]", "[/THINK]"),
)  # fmt: skip


def _json_list(calls: tuple[tuple[str, str], ...]) -> str:
    return "[" + ", ".join(f'{{"name": "{name}", "arguments": {{"path": "{path}"}}}}' for name, path in calls) + "]"


_LIST = (
    "{{ '[' }}" + _EACH + "{{ ', ' if not loop.first }}"
    "{{ '{\"name\": \"' + call.function.name + '\", \"arguments\": ' + call.function.arguments | tojson + '}' }}"
    + _END + "{{ ']' }}"
)  # fmt: skip
_MISTRAL_LIST = CallForm(
    "mistral-list",
    (*_MISTRAL_TOKENS, "</s>"),
    _template("[INST]", "[/INST]", "{{ '[TOOL_CALLS]' }}" + _LIST, "</s>", _RESULTS),
    lambda *calls: "[TOOL_CALLS]" + _json_list(calls),
    ("</s>", "</s>"),
    ("[THINK]", "[/THINK]"),
)
_NEMOTRON_LIST = CallForm(
    "nemotron-list",
    ("<SPECIAL_11>", "<SPECIAL_12>", "<TOOLCALL>", "</TOOLCALL>", *THINK),
    _template("<SPECIAL_11>User\\n", "<SPECIAL_11>Assistant\\n", "{{ '<TOOLCALL>' }}" + _LIST + "{{ '</TOOLCALL>' }}",
              "<SPECIAL_12>", _RESULT),
    lambda *calls: f"<TOOLCALL>{_json_list(calls)}</TOOLCALL>",
    ("<SPECIAL_12>", "<SPECIAL_12>"),
)  # fmt: skip
_HARMONY = CallForm(
    "harmony",
    ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>", "<|endoftext|>"),
    _TOOLS + "{%- for message in messages -%}\n"
    "{%- if message.role == 'assistant' and message.tool_calls -%}\n"
    "{%- if message.thinking and message.content -%}{{ raise_exception('both') }}{%- endif -%}\n"
    "{%- if message.thinking or message.content -%}\n"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + (message.thinking or message.content) + '<|end|>' }}\n"
    "{%- endif -%}\n"
    "{{ '<|start|>assistant<|channel|>commentary to=functions.' + message.tool_calls[0].function.name + "
    "' <|constrain|>json<|message|>' + message.tool_calls[0].function.arguments | tojson + '<|call|>' }}\n"
    "{%- elif message.role == 'assistant' -%}\n"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}\n"
    "{%- elif message.role == 'tool' -%}\n"
    "{{ '<|start|>functions to=assistant<|channel|>commentary<|message|>' + message.content | tojson + '<|end|>' }}\n"
    "{%- else -%}{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}\n",
    lambda *calls: "<|start|>assistant".join(
        f'<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{{"path": "{path}"}}<|call|>'
        for name, path in calls
    ).removesuffix("<|call|>"),
    ("<|call|>", "<|return|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
)

CALL_FORMS = {
    form.calls: form
    for form in (*(_GLM, _MINIMAX, _KIMI, _V3, _V31, _DSML, _GEMMA, _MISTRAL, _MISTRAL_LIST, _NEMOTRON_LIST, _HARMONY),)
}


@cache
def form_folder(calls: str) -> Path:
    """A model folder of the form."""
    form = CALL_FORMS[calls]
    folder = Path(mkdtemp(prefix="tiny-form-"))
    return write_folder(folder, byte_level(form.tokens), config={"model_type": "any"}, template=form.template)


@cache
def form_prompter(calls: str) -> Prompter:
    """A prompter of that folder."""
    return Prompter(form_folder(calls))
