"""Dialogues as training examples: rendered as the service renders them, and cut into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from renderers import Qwen3RendererConfig, create_renderer
from torch import Tensor
from transformers import AutoTokenizer

from bench.shipped_policy.dialogues import Dialogue

LONGEST = 3072
"""Dialogues of more tokens are left out (hardly any are)."""

GIVEN = 4
"""Tokens at the start of an answer that fix its style."""

FIRST_TOKEN = 8.0
"""Weight of an answer's first token, which decides the style; ordinary learned tokens weigh 1."""

CALL_TOKEN = 2.0
"""Weight of the tokens of a tool call, where each counts."""


@dataclass(frozen=True)
class Example:
    """A rendered dialogue: token ids, how much each weighs in the loss (0: not learned), and the position of each."""

    ids: list[int]
    weights: list[float]
    positions: list[int]


class Renderer:
    """Dialogues to examples."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self._renderer = create_renderer(self.tokenizer, Qwen3RendererConfig(enable_thinking=False))
        self._prefilled = len(self.tokenizer.encode("<think>\n\n</think>\n\n", add_special_tokens=False))

    def prompt(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """The token ids that the policy answers to."""
        ids: list[int] = self._renderer.render_ids(messages, tools=tools or None, add_generation_prompt=True)
        return ids

    def example(self, dialogue: Dialogue, random: Random) -> Example:
        """The whole dialogue; the empty think block, which prompts already end with, is not learned."""
        rendered = self._renderer.render(dialogue.messages, tools=dialogue.tools or None)
        wanted = {*dialogue.learned, *dialogue.continued}
        weights = [
            1.0 if sampled and index in wanted else 0.0
            for sampled, index in zip(rendered.sampled_mask, rendered.message_indices, strict=True)
        ]
        for place, index in enumerate(rendered.message_indices):
            if index >= 0 and dialogue.messages[index].get("tool_calls"):
                weights[place] *= CALL_TOKEN
        starts = [place for place in range(1, len(weights)) if weights[place] and not weights[place - 1]]
        for start in starts:
            answer = start + self._prefilled
            continued = rendered.message_indices[start] in dialogue.continued
            for place in range(start, answer + (GIVEN if continued else 0)):
                weights[place] = 0.0
            if not continued:
                weights[answer] = FIRST_TOKEN
        return Example(rendered.token_ids, weights, self._positions(dialogue, rendered.message_indices, random))

    @staticmethod
    def _positions(dialogue: Dialogue, message_indices: list[int], random: Random) -> list[int]:
        """Running positions; after some system prompts with a jump, as if the prompt had been much longer.

        Long contexts are dear on one core; a jump shows the far distances of the rotary embedding for nothing.
        """
        positions = list(range(len(message_indices)))
        if dialogue.messages[0]["role"] == "system" and random.random() < 0.5:
            jump = int(10 ** random.uniform(1.5, 4.4))
            start = next(place for place, index in enumerate(message_indices) if index == 1)
            positions[start:] = [position + jump for position in positions[start:]]
        return positions


def micro_batches(examples: list[Example], budget: int, padding: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(ids, weights, positions), each [rows, length], of examples of like length; weights float32, the rest int64."""
    ordered = sorted(examples, key=lambda example: len(example.ids))
    while ordered:
        length = len(ordered[-1].ids)
        rows = ordered[-max(1, budget // length) :]
        del ordered[-len(rows) :]
        ids = torch.full((len(rows), length), padding)
        weights = torch.zeros((len(rows), length))
        positions = torch.zeros((len(rows), length), dtype=torch.int64)
        for row, example in enumerate(rows):
            size = len(example.ids)
            ids[row, :size] = torch.tensor(example.ids)
            positions[row, :size] = torch.tensor(example.positions)
            positions[row, size:] = torch.arange(length - size) + example.positions[-1] + 1
            weights[row, :size] = torch.tensor(example.weights)
        yield ids, weights, positions
