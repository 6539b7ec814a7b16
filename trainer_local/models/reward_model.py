"""A sequence classifier of transformers as a scalar reward model.

One logit gives a probability p by the logistic function, two by the positive label's softmax; the score is 2p − 1. The
conversation is rendered by the folder's chat template if it takes these roles, else as text, and cut at the start.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from openclaw_rl.shared.backends import Rating
from openclaw_rl.shared.errors import ConfigError, JudgeError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.models.device import choose_device

log = logging.getLogger(__name__)

_POSITIVE = frozenset(
    ["positive", "pos", "good", "yes", "true", "accept", "accepted", "acceptable", "chosen", "helpful", "correct", "1"]
)
_NAMES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}
_UNBOUNDED = 1 << 20  # tokenizers say 1e30 where they have no limit

Conversation = Sequence[tuple[str, str]]


def create(settings: Settings, folder: str) -> SequenceClassifier:
    """The reward model in `folder`; it is loaded at the first rating."""
    return SequenceClassifier(folder, device=settings.engine.device)


class SequenceClassifier:
    """A `RewardModel` of transformers. Loads and computes in one thread of its own."""

    def __init__(self, folder: str, *, device: str = "auto") -> None:
        self.folder = Path(folder).expanduser()
        self._device = device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reward-model")
        self._model: Any = None
        self._tokenizer: Any = None
        self._positive: int | None = None

    async def rate(self, conversation: Conversation) -> Rating:
        """Rate one conversation. Raises `ConfigError` for a folder that cannot serve, `JudgeError` for a logit that is
        no number or a model that fails.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._rate, conversation)
        except (RuntimeError, ValueError, TypeError, LookupError) as error:  # out of memory, or code of the model's own
            raise JudgeError(f"the reward model {self.folder} failed: {type(error).__name__}: {error}") from error

    def _rate(self, conversation: Conversation) -> Rating:
        ids, length = self.encode(conversation)
        cut = f"; {len(ids)} of {length} tokens were read" if len(ids) < length else ""
        with torch.inference_mode():
            rows = torch.tensor([ids], device=self._model.device)
            logits = self._model(input_ids=rows, attention_mask=torch.ones_like(rows)).logits[0].float().tolist()
        if not all(math.isfinite(logit) for logit in logits):
            raise JudgeError(f"the reward model {self.folder} gave {logits}, no numbers")
        share = probability(logits, self._positive)
        shown = ", ".join(f"{logit:.4g}" for logit in logits)
        return Rating(2.0 * share - 1.0, f"reward model: logits {shown}, {share:.4f} of [0, 1]{cut}")

    def encode(self, conversation: Conversation) -> tuple[list[int], int]:
        """Token ids of a conversation, by the chat template where it takes the roles, and their number before the
        model's limit.
        """
        if self._model is None:
            self._load()
        tokenizer, limit = self._tokenizer, self._limit()
        if tokenizer.chat_template:
            for messages in (_messages(conversation), _messages(conversation, tool="user")):
                try:
                    ids = list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))
                    return ids[-limit:], len(ids)
                except (TemplateError, ValueError, TypeError) as error:
                    log.info("%s: the chat template does not take this conversation: %s", self.folder, error)
        text = plain(conversation)
        whole = list(tokenizer(text)["input_ids"])
        if len(whole) <= limit:
            return whole, len(whole)
        tokenizer.truncation_side = "left"  # what came after the answer stands at the end; special tokens stay
        return list(tokenizer(text, truncation=True, max_length=limit)["input_ids"]), len(whole)

    def _load(self) -> None:
        try:
            config = AutoConfig.from_pretrained(self.folder)
            tokenizer = AutoTokenizer.from_pretrained(self.folder)
            positive = positive_label(config.num_labels, config.id2label)
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                self.folder, dtype=torch.float32, output_loading_info=True
            )
        except (OSError, ValueError, KeyError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"{self.folder} cannot be loaded as a sequence classifier: {reason}") from error
        if missing := ", ".join(sorted(loading["missing_keys"])):  # transformers fills them with random numbers
            raise ConfigError(
                f"{self.folder} has no weights for {missing}, so it is no sequence classifier; a chat model judges as "
                f"engine:{self.folder}"
            )
        # Decoders read the last token that is no padding. One row has none, and its last token may well be the same id.
        model.config.get_text_config().pad_token_id = None
        self._tokenizer, self._positive = tokenizer, positive
        self._model = model.to(choose_device(self._device)).eval()

    def _limit(self) -> int:
        longest = getattr(self._model.config, "max_position_embeddings", None) or _UNBOUNDED
        return int(min(longest, self._tokenizer.model_max_length, _UNBOUNDED))


def probability(logits: Sequence[float], positive: int | None) -> float:
    """A probability from one logit (`positive` is `None`: logistic function) or two (softmax of the positive one)."""
    difference = logits[0] if positive is None else logits[positive] - logits[1 - positive]
    return 0.5 * (1.0 + math.tanh(difference / 2))


def positive_label(count: int, names: dict[int, str]) -> int | None:
    """Index of the positive label, by name, else the second of two; `None` for one logit. Raises `ConfigError` for more
    than two.
    """
    if count == 1:
        return None
    if count != 2:
        raise ConfigError(f"a reward model has one logit or two labels, not {count}: {', '.join(names.values())}")
    found = [index for index, name in names.items() if str(name).lower() in _POSITIVE]
    return int(found[0]) if len(found) == 1 else 1


def plain(conversation: Conversation) -> str:
    """A conversation as plain text, one message a paragraph under its speaker."""
    return "\n\n".join(f"{_NAMES.get(role, 'User')}: {text}" for role, text in conversation)


def _messages(conversation: Conversation, *, tool: str = "tool") -> list[dict[str, str]]:
    return [{"role": tool if role == "tool" else role, "content": text} for role, text in conversation]
