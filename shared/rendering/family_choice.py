"""Which family a model is served as, and who writes its prompts.

By itself (`auto`): the family of its `model_type`, if its tokenizer has that family's tokens and the library writes
what the folder's chat template writes; else that template. Without a template there is nothing to go by, and a person
has to say `plain`.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.rendering.chat_template import PLAIN_STOPS, ChatTemplate
from openclaw_rl.shared.rendering.families import (
    AUTO,
    CHOICES,
    FAMILIES,
    MODEL_TYPES,
    PLAIN,
    TEMPLATE,
    Family,
    Grammar,
    read_grammar,
)
from openclaw_rl.shared.rendering.tokenizer import PieceTokenizer
from openclaw_rl.shared.rendering.writers import LibraryWriter, TemplateWriter, Writer, same_prompts

log = logging.getLogger("rendering")


class Choice(msgspec.Struct, frozen=True):
    """`closes` is the control token after an answer in the history ("" for none); `text_stops` are texts that end an
    answer beside the tokens."""

    family: Family
    writer: Writer
    closes: str = ""
    text_stops: tuple[str, ...] = ()


def choose(
    name: str, config: dict[str, Any], template: ChatTemplate | None, tokenizer: PieceTokenizer, *, folder: str
) -> Choice:
    """The family called `name`, or for `auto` the one that fits the model. Raises `ConfigError` saying what to do."""
    if name not in CHOICES:
        raise ConfigError(f"family = {name!r} is no family; choose one of {', '.join(CHOICES)}")
    model_type = config.get("model_type")
    if name in FAMILIES:
        known: Family | None = FAMILIES[name]
    else:
        known = FAMILIES.get(MODEL_TYPES.get(model_type, "")) if name == AUTO and isinstance(model_type, str) else None
    own = None
    if template is not None and name not in FAMILIES:
        own = TemplateWriter(template, tokenizer, name=folder, options=known.options if known else None)
    if name == PLAIN:
        assert own is not None
        return Choice(Family(PLAIN, Grammar()), own, own.closes, PLAIN_STOPS)
    missing = [token for token in known.needs if token not in tokenizer.controls] if known else []
    if known is not None and not missing:
        library = LibraryWriter(known, tokenizer, name=folder)
        if own is None or same_prompts(library, own, tokenizer):
            return Choice(known, library)
        log.info("the chat template in %s is not the one of %s: it renders by itself", folder, known.name)
    if own is not None and template is not None:
        return Choice(Family(TEMPLATE, read_grammar(template.source, tokenizer.controls)), own, own.closes)
    lacks = (
        f"The tokenizer in {folder} lacks {', '.join(missing)}, with which a {known.name} model is written"
        if known
        else ""
    )
    if name in FAMILIES:
        raise ConfigError(f"{lacks}. Use the tokenizer that belongs to the model, or set family = auto.")
    raise ConfigError(
        f"The model in {folder} (model_type {model_type!r}) has no chat template, so nothing says how conversations "
        "are written for it. Set family = plain (--family plain) to write plain text, User: and Assistant:, put a "
        "chat_template.jinja into the folder, or serve a model that was trained to chat."
        + (f" {lacks}: perhaps it is not the tokenizer that belongs to the model." if lacks else "")
    )
