"""Makes the embedded policy: a Qwen3 of some 1.3 M parameters, trained on synthetic dialogues on one core.

    python -m trainer_local.embedded.pretrain [--out DIR] [--steps N] [--seconds S] [--seed 0]

Dialogues are drawn afresh all the time (nothing is seen twice but by chance), rendered by `renderers` with thinking off,
exactly as the service renders its prompts, and learned by next-token cross-entropy on the assistant's tokens only,
`<|im_end|>` included. A step takes a fixed number of dialogues, sorts them by length and cuts them into micro-batches of
nearly equal lengths: almost no padding, and no dialogue sees another.

The tokenizer and the chat template are taken from the committed policy folder (`tokenizer.py` makes the tokenizer).
Ends with measurements on the files as they ship (`measure.py`), written to `card.json`.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers
from renderers import Qwen3RendererConfig, create_renderer
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from trainer_local.embedded.dialogues import Dialogue, sample_dialogue
from trainer_local.embedded.tokenizer import CONTEXT, POLICY

COPIED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "README.md")
LONGEST = 3072
"""Dialogues of more tokens are left out (hardly any are)."""


@dataclass(frozen=True)
class Recipe:
    """What a run is made of; `card.json` records it."""

    steps: int = 6000
    seconds: float | None = None
    seed: int = 0
    dialogues_per_step: int = 24
    micro_batch_tokens: int = 1024
    learning_rate: float = 4e-3
    warm_up: int = 100
    weight_decay: float = 0.02
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 384


@dataclass(frozen=True)
class Example:
    """A rendered dialogue: token ids, which of them are learned, and the position of each."""

    ids: list[int]
    learned: list[bool]
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
        wanted = set(dialogue.learned)
        learned = [
            sampled and index in wanted
            for sampled, index in zip(rendered.sampled_mask, rendered.message_indices, strict=True)
        ]
        starts = [place for place in range(1, len(learned)) if learned[place] and not learned[place - 1]]
        for start in starts:
            for place in range(start, start + self._prefilled):
                learned[place] = False
        return Example(rendered.token_ids, learned, self._positions(dialogue, rendered.message_indices, random))

    @staticmethod
    def _positions(dialogue: Dialogue, message_indices: list[int], random: Random) -> list[int]:
        """Running positions; after some system prompts with a jump, as if the prompt had been thousands of tokens longer.

        Long contexts are dear on one core; a jump shows the far distances of the rotary embedding for nothing.
        """
        positions = list(range(len(message_indices)))
        if dialogue.messages[0]["role"] == "system" and random.random() < 0.5:
            jump = int(10 ** random.uniform(1.5, 4.4))
            start = next(place for place, index in enumerate(message_indices) if index == 1)
            positions[start:] = [position + jump for position in positions[start:]]
        return positions


def new_model(recipe: Recipe, tokenizer: Any) -> Qwen3ForCausalLM:
    """A freshly initialised Qwen3 with tied embeddings."""
    torch.manual_seed(recipe.seed)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    padding = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.key_value_heads,
        head_dim=recipe.hidden // recipe.heads,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=padding,
        initializer_range=0.04,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=[end, padding], pad_token_id=padding
    )
    return model


def micro_batches(examples: list[Example], budget: int, padding: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(ids, labels, positions), each [rows, length] of int64, of examples of like length; labels −100 are not learned."""
    ordered = sorted(examples, key=lambda example: len(example.ids))
    while ordered:
        length = len(ordered[-1].ids)
        rows = ordered[-max(1, budget // length) :]
        del ordered[-len(rows) :]
        ids = torch.full((len(rows), length), padding)
        labels = torch.full((len(rows), length), -100)
        positions = torch.zeros((len(rows), length), dtype=torch.int64)
        for row, example in enumerate(rows):
            size = len(example.ids)
            ids[row, :size] = torch.tensor(example.ids)
            positions[row, :size] = torch.tensor(example.positions)
            positions[row, size:] = torch.arange(length - size) + example.positions[-1] + 1
            marked = torch.tensor(example.learned)
            labels[row, :size][marked] = ids[row, :size][marked]
        yield ids, labels, positions


def loss_sum(model: Qwen3ForCausalLM, ids: Tensor, labels: Tensor, positions: Tensor) -> Tensor:
    """Summed cross-entropy (nats) of the learned tokens; logits are made for those alone."""
    hidden = model.model(
        input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False
    ).last_hidden_state
    targets = labels[:, 1:]
    marked = targets != -100
    logits = model.lm_head(hidden[:, :-1][marked])
    return functional.cross_entropy(logits.float(), targets[marked], reduction="sum")


def train(recipe: Recipe, renderer: Renderer) -> tuple[Qwen3ForCausalLM, dict[str, Any]]:
    """The trained model in float32 and what it took."""
    torch.set_num_threads(1)
    model = new_model(recipe, renderer.tokenizer)
    model.train()
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
    )
    random = Random(recipe.seed)
    start, cpu_start, tokens, learned_tokens, shown = time.monotonic(), time.process_time(), 0, 0, 0.0
    step = 0
    while step < recipe.steps:
        elapsed = time.monotonic() - start
        progress = step / recipe.steps
        if recipe.seconds is not None:
            progress = max(progress, elapsed / recipe.seconds)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1.0, (step + 1) / recipe.warm_up) * max(1 - progress, 0.01)
        examples = [renderer.example(sample_dialogue(random), random) for _ in range(recipe.dialogues_per_step)]
        examples = [example for example in examples if len(example.ids) <= LONGEST]
        count = sum(sum(example.learned) for example in examples)
        total = 0.0
        for ids, labels, positions in micro_batches(
            examples, recipe.micro_batch_tokens, model.config.pad_token_id
        ):
            loss = loss_sum(model, ids, labels, positions) / count
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        tokens += sum(len(example.ids) for example in examples)
        learned_tokens += count
        if elapsed - shown >= 10 or step == 1:
            shown = elapsed
            rate = tokens / (time.process_time() - cpu_start)
            print(
                f"step {step} of {recipe.steps}, {elapsed:.0f} s, {tokens / 1e6:.2f} M tokens, {rate:.0f} tokens per CPU-second, "
                f"loss {total:.3f} nats per token",
                file=sys.stderr,
                flush=True,
            )
    effort = {
        "steps": step,
        "seconds": round(time.monotonic() - start),
        "cpu_seconds": round(time.process_time() - cpu_start),
        "tokens": tokens,
        "learned_tokens": learned_tokens,
    }
    return model, effort


def ship(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Writes the weights in bfloat16 with their configuration, and the tokenizer's files beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    for name in COPIED:
        if folder.resolve() != POLICY.resolve():
            shutil.copyfile(POLICY / name, folder / name)
    for path in folder.iterdir():
        path.chmod(0o644)  # save_pretrained leaves 0600


def main(arguments: list[str] | None = None) -> None:
    defaults = Recipe()
    parser = argparse.ArgumentParser(description="Makes the embedded policy from synthetic dialogues on one core.")
    parser.add_argument("--out", type=Path, default=POLICY, help="folder to write (default: the one that ships)")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seconds", type=float, help="end after so long, whatever the steps (then not reproducible)")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--problems", type=int, default=400, help="problems per measurement; 0 measures nothing")
    chosen = parser.parse_args(arguments)

    from trainer_local.embedded.measure import measure

    recipe = Recipe(
        steps=chosen.steps, seconds=chosen.seconds, seed=chosen.seed, learning_rate=chosen.learning_rate
    )
    renderer = Renderer(POLICY)
    model, effort = train(recipe, renderer)
    ship(model, chosen.out)
    card = {
        "made_by": "python -m trainer_local.embedded.pretrain",
        "parameters": model.num_parameters(),
        "recipe": vars(recipe),
        "effort": effort,
        "made_with": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "figures": measure(chosen.out, renderer, chosen.problems, chosen.seed) if chosen.problems else None,
    }
    (chosen.out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(card["figures"]))


if __name__ == "__main__":
    main()
