"""Makes the embedded policy: a Qwen3 of some 1.3 M parameters, trained on synthetic dialogues on one core.

    python -m bench.shipped_policy.pretrain [--out DIR] [--steps N] [--seconds S] [--seed 0]

Every five minutes of CPU time the state is kept in DIR; the same command continues from it, and ends with the same
weights as one that was not interrupted.

Dialogues are drawn afresh all the time (nothing is seen twice but by chance), rendered by `renderers` with thinking
off, exactly as the service renders its prompts, and learned by next-token cross-entropy on the assistant's tokens only,
`<|im_end|>` included. A step takes a fixed number of dialogues, sorts them by length and cuts them into micro-batches
of nearly equal lengths: almost no padding, and no dialogue sees another. Training starts from `initial.py`'s weights.

The tokenizer and the chat template are taken from the committed policy folder (`tokenizer.py` makes the tokenizer), the
README from `policy_readme.md`.
Ends with measurements on the files as they ship (`measure.py`), written to `card.json`.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from bench.shipped_policy import POLICY
from bench.shipped_policy.dialogues import sample_dialogue
from bench.shipped_policy.dialogues.acting.demonstrations import demonstrate
from bench.shipped_policy.examples import LONGEST, Renderer, micro_batches
from bench.shipped_policy.initial import lay_copying_circuit
from bench.shipped_policy.measure import measure, share
from bench.shipped_policy.tokenizer import CONTEXT
from openclaw_rl.shared.errors import ConfigError

COPIED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
README = Path(__file__).with_name("policy_readme.md")
STATE = "training.pt"
"""The file in the folder that an interrupted training continues from."""
KEPT_AFTER = 300.0
"""CPU-seconds from one state to the next."""


@dataclass(frozen=True)
class Recipe:
    """What a run is made of; `card.json` records it."""

    steps: int = 7400
    seconds: float | None = None
    seed: int = 0
    dialogues_per_step: int = 12
    micro_batch_tokens: int = 1024
    matrix_learning_rate: float = 8e-3
    embedding_learning_rate: float = 3e-3
    vector_learning_rate: float = 1e-2
    decay_from: float = 0.4
    rope_theta: float = 1_000_000.0
    warm_up: int = 60
    weight_decay: float = 0.02
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 384


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
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=padding,
        initializer_range=0.04,
    )
    model = Qwen3ForCausalLM(config)
    lay_copying_circuit(model)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=[end, padding], pad_token_id=padding
    )
    return model


def loss_sum(model: Qwen3ForCausalLM, ids: Tensor, weights: Tensor, positions: Tensor) -> Tensor:
    """Weighted sum of the learned tokens' cross-entropy (nats); logits are made for those alone."""
    hidden = model.model(
        input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False
    ).last_hidden_state
    marked = weights[:, 1:] > 0
    logits = model.lm_head(hidden[:, :-1][marked])
    losses = functional.cross_entropy(logits.float(), ids[:, 1:][marked], reduction="none")
    return (losses * weights[:, 1:][marked]).sum()


def new_optimizers(model: Qwen3ForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers (it needs fewer tokens than AdamW), AdamW for the rest."""
    matrices = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    muon = torch.optim.Muon(
        matrices, lr=recipe.matrix_learning_rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    adam = torch.optim.AdamW(
        [
            {"params": [model.model.embed_tokens.weight], "lr": recipe.embedding_learning_rate},
            {"params": vectors, "lr": recipe.vector_learning_rate},
        ],
        betas=(0.9, 0.98),
        weight_decay=0.0,
    )
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return [muon, adam]


@dataclass
class Training:
    """A training in progress. `cpu_seconds` are those of all processes that took part in it."""

    recipe: Recipe
    model: Qwen3ForCausalLM
    optimizers: list[torch.optim.Optimizer]
    random: Random
    step: int = 0
    tokens: int = 0
    learned_tokens: int = 0
    cpu_seconds: float = 0.0

    @classmethod
    def begin(cls, recipe: Recipe, tokenizer: Any) -> Training:
        """A training that has made no step."""
        model = new_model(recipe, tokenizer)
        return cls(recipe, model, new_optimizers(model, recipe), Random(recipe.seed))

    def keep(self, path: Path) -> None:
        """Write the state to a file, which is there whole or not at all."""
        state = {
            "recipe": vars(self.recipe),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "random": self.random.getstate(),
            **self.counts(),
            "cpu_seconds": self.cpu_seconds,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        torch.save(state, written)
        written.replace(path)

    def continue_from(self, path: Path) -> None:
        """Take over the state in a file. Raises `ConfigError` if another recipe made it."""
        state = torch.load(path, weights_only=False)
        if state["recipe"] != vars(self.recipe):
            raise ConfigError(f"{path} is of another recipe: delete it, or give the same options")
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.random.setstate(state["random"])
        self.step, self.tokens, self.learned_tokens = (state[name] for name in ("steps", "tokens", "learned_tokens"))
        self.cpu_seconds = state["cpu_seconds"]

    def counts(self) -> dict[str, int]:
        """Steps and tokens so far."""
        return {"steps": self.step, "tokens": self.tokens, "learned_tokens": self.learned_tokens}

    @property
    def progress(self) -> float:
        """The share of the training that is done."""
        done = self.step / self.recipe.steps
        return done if self.recipe.seconds is None else max(done, self.cpu_seconds / self.recipe.seconds)

    def take_step(self, renderer: Renderer) -> float:
        """Draw dialogues and learn from them; returns the loss in nats per token."""
        recipe, model = self.recipe, self.model
        begun = time.process_time()
        progress = self.progress
        scale = min(1.0, (self.step + 1) / recipe.warm_up, (1 - progress) / (1 - recipe.decay_from))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * scale
        examples = [
            renderer.example(sample_dialogue(self.random), self.random) for _ in range(recipe.dialogues_per_step)
        ]
        examples = [example for example in examples if len(example.ids) <= LONGEST]
        weight = sum(sum(example.weights) for example in examples)
        total = 0.0
        for ids, weights, positions in micro_batches(examples, recipe.micro_batch_tokens, model.config.pad_token_id):
            loss = loss_sum(model, ids, weights, positions) / weight
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += sum(len(example.ids) for example in examples)
        self.learned_tokens += sum(place > 0 for example in examples for place in example.weights)
        self.cpu_seconds += time.process_time() - begun
        return total


def train(recipe: Recipe, renderer: Renderer, state: Path, *, until: int | None = None) -> Training:
    """Train, or continue a training whose `state` was kept, until it is done or has made the step `until`."""
    torch.set_num_threads(1)
    training = Training.begin(recipe, renderer.tokenizer)
    training.model.train()
    if state.exists():
        training.continue_from(state)
    shown = kept = training.cpu_seconds
    while training.progress < 1 and training.step != until:
        loss = training.take_step(renderer)
        if training.cpu_seconds - shown >= 10 or training.step == 1:
            shown = training.cpu_seconds
            print(
                f"step {training.step} of {recipe.steps}, {shown:.0f} CPU-seconds, {training.tokens / 1e6:.2f} M "
                f"tokens, loss {loss:.3f} nats per token",
                file=sys.stderr,
                flush=True,
            )
        if training.cpu_seconds - kept >= KEPT_AFTER:
            kept = training.cpu_seconds
            training.keep(state)
    return training


def ship(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Writes the weights in bfloat16 with their configuration, and the tokenizer's files beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    for name in COPIED:
        if folder.resolve() != POLICY.resolve():
            shutil.copyfile(POLICY / name, folder / name)
    shutil.copyfile(README, folder / "README.md")
    for path in folder.iterdir():
        path.chmod(0o644)  # save_pretrained leaves 0600


def main(arguments: list[str] | None = None) -> None:
    defaults = Recipe()
    parser = argparse.ArgumentParser(description="Makes the embedded policy from synthetic dialogues on one core.")
    parser.add_argument("--out", type=Path, default=POLICY, help="folder to write (default: the one that ships)")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seconds", type=float, help="CPU-seconds at most (a run that this ends is not reproducible)")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--problems", type=int, default=400, help="problems per measurement; 0 measures nothing")
    chosen = parser.parse_args(arguments)

    recipe = Recipe(steps=chosen.steps, seconds=chosen.seconds, seed=chosen.seed)
    renderer = Renderer(POLICY)
    state = chosen.out / STATE
    training = train(recipe, renderer, state)
    training.keep(state)  # the measurements may be interrupted too
    ship(training.model, chosen.out)
    card = {
        "made_by": "python -m bench.shipped_policy.pretrain",
        "parameters": training.model.num_parameters(),
        "recipe": vars(recipe),
        "effort": {**training.counts(), "cpu_seconds": round(training.cpu_seconds)},
        "demonstrations": demonstrations_right(),
        "made_with": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "figures": measure(chosen.out, renderer, chosen.problems, chosen.seed) if chosen.problems else None,
    }
    (chosen.out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    state.unlink()
    print(json.dumps(card["figures"]))


def demonstrations_right(count: int = 2000) -> dict[str, dict[str, float]]:
    """The share of demonstrations that solve their task, by family."""
    random = Random(0)
    right: defaultdict[str, list[bool]] = defaultdict(list)
    for _ in range(count):
        shown = demonstrate(random)
        right[shown.task.family].append(shown.is_right)
    return {family: share(found) for family, found in sorted(right.items())}


if __name__ == "__main__":
    main()
