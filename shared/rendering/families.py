"""Model families that can be served: how their prompts are rendered and how their answers are parsed.

A family is found by the `model_type` of the model folder's `config.json`; a new one is an entry here, and a parser
where its answers follow a grammar that `shared.rendering.answer_parser` does not know yet. A model of no family is
rendered by
its own chat template, and its grammar is read off the template and the vocabulary. `docs/models.md` has the table for
people.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_config

AUTO, PLAIN, TEMPLATE, WORDS, REFUSE = "auto", "plain", "template", "words", "refuse"

CallFormat = Literal[
    "", "json", "xml", "bare", "harmony", "glm", "minimax", "dsml", "kimi", "deepseek", "deepseek-v3.1", "gemma",
    "mistral", "mistral-list", "nemotron-list",
]  # fmt: skip


class Grammar(msgspec.Struct, frozen=True):
    """The control tokens of an answer: reasoning, tool calls, and what ends the answer; "" for what it has not.

    `calls` is what stands between `call_open` and `call_close` (without a `call_close`, up to the end of the answer): a
    JSON object, Qwen's XML, or a form of `shared.rendering.section_calls`; a `bare` call is a JSON object that is the
    whole answer, without markers. A `harmony` answer consists of messages with headers, which say whether one is
    reasoning, text or a call. `think_label` is text after `think_open` that is no reasoning yet. `arguments` is the
    JSON key of a call's arguments. `spelled`: the markers of a call are plain text, not tokens.
    """

    think_open: str = ""
    think_close: str = ""
    think_label: str = ""
    call_open: str = ""
    call_close: str = ""
    stops: tuple[str, ...] = ()
    calls: CallFormat = ""
    arguments: str = "arguments"
    spelled: bool = False


class Family(msgspec.Struct, frozen=True):
    """`config(thinking)` is the configuration `renderers` takes, None where the folder's own template renders. `needs`
    are control tokens without which the family cannot be. `options` are what its template is given besides the
    messages. `images`: whether the family sees (which of its models do, `shared.messages.images` reads in their
    folders)."""

    name: str
    grammar: Grammar
    config: Callable[[bool], Any] | None = None
    needs: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    images: bool = False


_CHATML_STOPS = ("<|im_end|>", "<|endoftext|>")
_CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_TOOL_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_THINK_TOKENS = ("<think>", "</think>")
_VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_LLAMA_TOKENS = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>",
)  # fmt: skip

_LLAMA_DATE = "26 Jul 2024"  # the template's own default; a date of today would change every prompt at midnight

HERMES = Grammar(
    "<think>", "</think>", call_open="<tool_call>", call_close="</tool_call>", stops=_CHATML_STOPS, calls="json"
)
QWEN_XML = msgspec.structs.replace(HERMES, calls="xml")
LLAMA = Grammar(stops=("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"), calls="bare", arguments="parameters")


def _config(name: str, *, thinks: bool = False, **options: Any) -> Callable[[bool], Any]:
    """Makes the configuration called `name` of the `renderers` library; `thinks`: it can be given reasoning."""

    def make(thinking: bool) -> Any:
        import renderers  # heavy: only who renders pays for it

        return getattr(renderers, name)(**options, **({"enable_thinking": thinking} if thinks else {}))

    return make


_QWEN3 = _config("Qwen3RendererConfig", thinks=True)
_QWEN35 = _config("Qwen35RendererConfig", thinks=True)
_QWEN3_VL = _config("Qwen3VLRendererConfig")
_LLAMA3 = _config("Llama3RendererConfig", date_string=_LLAMA_DATE)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("qwen3", HERMES, _QWEN3, (*_CHATML, *_TOOL_TOKENS, *_THINK_TOKENS)),
        Family("qwen3.5", QWEN_XML, _QWEN35, (*_CHATML, *_TOOL_TOKENS, *_THINK_TOKENS, *_VISION_TOKENS), images=True),
        Family("qwen3-vl", HERMES, _QWEN3_VL, (*_CHATML, *_TOOL_TOKENS, *_THINK_TOKENS, *_VISION_TOKENS), images=True),
        Family("llama-3", LLAMA, _LLAMA3, _LLAMA_TOKENS, {"date_string": _LLAMA_DATE}),
    )
}
"""Families that `renderers` writes by hand, by name; each name can be forced by the setting `family`."""

MODEL_TYPES: dict[str, str] = {
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
    "qwen3_5": "qwen3.5",
    "qwen3_5_moe": "qwen3.5",
    "qwen3_5_text": "qwen3.5",
    "qwen3_5_moe_text": "qwen3.5",
    "qwen3_vl": "qwen3-vl",
    "qwen3_vl_moe": "qwen3-vl",
    "qwen3_vl_text": "qwen3-vl",
    "qwen3_vl_moe_text": "qwen3-vl",
    "llama": "llama-3",
}
"""`model_type` of a `config.json` to the family that is tried first."""

CHOICES = (AUTO, PLAIN, TEMPLATE, *FAMILIES)


class _TemplateForm(msgspec.Struct, frozen=True):
    """A grammar that a template with `word` teaches, if its `needs` are control tokens."""

    grammar: Grammar
    needs: tuple[str, ...]
    word: str


_GEMMA_TOKENS = (
    *("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>"),
    *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|image>", "<|image|>", "<image|>"),
)
_DEEPSEEK_TOKENS = (
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    "<｜tool▁sep｜>",
)
_KIMI_TOKENS = (
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
)
_HARMONY_TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
_GLM_TOKENS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_GLM_STOPS = ("<|user|>", "<|observation|>", "<|endoftext|>")
_DEEPSEEK_STOPS = ("<｜end▁of▁sentence｜>",)


def _section(
    calls: CallFormat,
    opening: str,
    closing: str,
    *stops: str,
    think: tuple[str, str] = _THINK_TOKENS,
    label: str = "",
    spelled: bool = False,
) -> Grammar:
    return Grammar(*think, label, opening, closing, stops, calls, spelled=spelled)


_HARMONY = Grammar(stops=("<|return|>", "<|call|>", "<|endoftext|>"), calls="harmony")
_DEEPSEEK = _section("deepseek", *_DEEPSEEK_TOKENS[:2], *_DEEPSEEK_STOPS)
_MISTRAL = _section("mistral", "[TOOL_CALLS]", "", "</s>", think=("[THINK]", "[/THINK]"))

_TEMPLATE_FORMS = (
    _TemplateForm(
        Grammar(stops=("<|return|>", "<|call|>", "<|endoftext|>"), calls="harmony"), _HARMONY_TOKENS, "<|channel|>"
    ),
    _TemplateForm(_section("glm", *_GLM_TOKENS[:2], *_GLM_STOPS), _GLM_TOKENS, "<arg_key>"),
    _TemplateForm(
        _section("minimax", "<minimax:tool_call>", "</minimax:tool_call>", "[e~["),
        ("<minimax:tool_call>", "</minimax:tool_call>"),
        "<minimax:tool_call>",
    ),
    _TemplateForm(_section("kimi", *_KIMI_TOKENS[:2], "<|im_end|>"), _KIMI_TOKENS, _KIMI_TOKENS[0]),
    _TemplateForm(_DEEPSEEK, _DEEPSEEK_TOKENS, "```json"),
    _TemplateForm(msgspec.structs.replace(_DEEPSEEK, calls="deepseek-v3.1"), _DEEPSEEK_TOKENS, _DEEPSEEK_TOKENS[0]),
    *(
        _TemplateForm(
            _section("dsml", f"<｜DSML｜{name}>", f"</｜DSML｜{name}>", *_DEEPSEEK_STOPS, spelled=True),
            ("｜DSML｜",),
            f"<｜DSML｜{name}>",
        )
        for name in ("tool_calls", "function_calls")
    ),
    _TemplateForm(
        _section(
            *("gemma", "<|tool_call>", "<tool_call|>", "<turn|>", "<|tool_response>", "<eos>"),
            think=("<|channel>", "<channel|>"),
            label="thought\n",
        ),
        _GEMMA_TOKENS,
        "<|tool_call>",
    ),
    _TemplateForm(_MISTRAL, ("[TOOL_CALLS]", "[ARGS]"), "[ARGS]"),
    _TemplateForm(msgspec.structs.replace(_MISTRAL, calls="mistral-list"), ("[TOOL_CALLS]",), "[TOOL_CALLS]"),
    _TemplateForm(
        _section("nemotron-list", "<TOOLCALL>", "</TOOLCALL>", *_CHATML_STOPS),
        ("<TOOLCALL>", "</TOOLCALL>"),
        "<TOOLCALL>",
    ),
)
"""Forms of published templates, the narrower first."""


def read_grammar(template: str, tokens: Collection[str]) -> Grammar:
    """The grammar of answers that a chat template teaches, as far as its markers are control tokens of the vocabulary.

    Without markers that we know, an answer is plain text.
    """
    controls = set(tokens)
    think = _THINK_TOKENS if controls >= set(_THINK_TOKENS) else ("", "")
    for form in _TEMPLATE_FORMS:
        if controls >= set(form.needs) and form.word in template:
            return form.grammar
    stops = tuple(stop for stop in _CHATML_STOPS if stop in controls)
    if controls >= {"<tool_call>", "</tool_call>"} and "<tool_call>" in template and "<arg_key>" not in template:
        calls: CallFormat = "xml" if "<function=" in template else "json"
        return Grammar(*think, "", "<tool_call>", "</tool_call>", stops, calls)
    if controls >= {"<|start_header_id|>", "<|eot_id|>"} and '"parameters": ' in template:
        return msgspec.structs.replace(LLAMA, stops=tuple(stop for stop in LLAMA.stops if stop in controls))
    return Grammar(*think, stops=stops)


def model_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a model folder. Raises `ConfigError`."""
    path = folder / "config.json"
    config = read_config(path)
    if not config:
        raise ConfigError(
            f"{path} cannot be read, or is not a JSON object. Point the model setting at a Hugging Face model folder."
        )
    return config


_LENGTH_FIELDS = ["max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length"]


def context_length(config: dict[str, Any]) -> int:
    """The number of tokens a model was made for, 0 where its config does not say."""
    for holder in (config.get("text_config"), config):
        for name in _LENGTH_FIELDS:
            value = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(value, int) and value > 0:
                return value
    return 0


def vocabulary_size(config: dict[str, Any]) -> int:
    """The number of a model's logits, 0 where its config does not say."""
    for holder in (config.get("text_config"), config):
        value = holder.get("vocab_size") if isinstance(holder, dict) else None
        if isinstance(value, int):
            return value
    return 0


def usual_temperature(folder: Path) -> float:
    """The sampling temperature that the model's own files recommend (generation config), else 1."""
    value = read_config(folder / "generation_config.json").get("temperature")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2 else 1.0


def end_tokens(folder: Path, config: dict[str, Any]) -> list[int]:
    """The ids that end an answer as the model's own files say: generation config first, then config."""
    found: list[int] = []
    for holder in (read_config(folder / "generation_config.json"), config.get("text_config"), config):
        named = holder.get("eos_token_id") if isinstance(holder, dict) else None
        for number in named if isinstance(named, list) else [named]:
            if isinstance(number, int) and number not in found:
                found.append(number)
    return found
