"""Small policies and an embedded engine that serves them over a real socket, in a thread of the test process."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import uvicorn
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from openclaw_rl.shared.engine.protocol import Tokens
from openclaw_rl.shared.engine.server import create_app
from openclaw_rl.trainer_local.embedded.engine import EmbeddedEngine, EngineOptions

VOCABULARY = 96
END = 1
CONTEXT = 8192


def write_model(folder: Path, *, seed: int = 0, scale: float = 1.0, **changes: Any) -> Path:
    """A random Qwen3 folder whose tokens are single characters; `scale` widens its logits."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "eos_token_id": END,
        "initializer_range": 0.08 * scale,
    }
    Qwen3ForCausalLM(Qwen3Config(**(shape | changes))).save_pretrained(folder)
    characters = ["<pad>", "<end>", *(chr(code) for code in range(33, 33 + VOCABULARY - 2))]
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(characters)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>").save_pretrained(folder)
    return folder


def write_adapter(base: Path, folder: Path, *, seed: int = 1, **changes: Any) -> Path:
    """A random LoRA adapter on `base` that changes its answers."""
    torch.manual_seed(seed)
    config = {"r": 4, "lora_alpha": 8.0, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | changes
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), LoraConfig(**config))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.3)
    model.save_pretrained(folder)
    return folder


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random prompt ids."""
    draw = random.Random(seed)
    return [draw.randrange(2, VOCABULARY) for _ in range(length)]


class Reference:
    """The training forward: transformers, one sequence at a time, no cache."""

    def __init__(self, folder: Path, adapter: Path | None = None) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        if adapter is not None:
            self.model.load_adapter(str(adapter))
        self.model.eval()

    @torch.no_grad()
    def logprobs(self, ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
        """Row i is the distribution of the token after the first i + 1: `[len(ids), vocabulary]`."""
        logits = self.model(input_ids=torch.tensor([list(ids)])).logits[0].float()
        return torch.log_softmax(logits / temperature, dim=-1)

    def score(self, prompt_ids: Sequence[int], response: Sequence[int], temperature: float = 1.0) -> list[float]:
        """Logprobs of `response` after `prompt_ids`."""
        rows = self.logprobs([*prompt_ids, *response], temperature)[len(prompt_ids) - 1 : -1]
        return [float(row[token]) for row, token in zip(rows, response, strict=True)]


@dataclass
class Answer:
    """A whole answer, put together from its stream."""

    ids: list[int]
    logprobs: list[float]
    last: Tokens
    top: list[Sequence[tuple[float, int]]]
    version_numbers: set[int]


async def collect(stream: AsyncIterator[Tokens]) -> Answer:
    """Read a stream to its end."""
    answer = Answer([], [], Tokens((), (), -1), [], set())
    async for tokens in stream:
        answer.ids.extend(tokens.ids)
        answer.logprobs.extend(tokens.logprobs)
        answer.top.extend(tokens.top_logprobs)
        answer.version_numbers.add(tokens.version)
        answer.last = tokens
    return answer


def close_to(found: Sequence[float], wanted: Sequence[float], tolerance: float = 1e-4) -> bool:
    """Equal within an absolute tolerance, item by item."""
    return len(found) == len(wanted) and all(
        math.isclose(one, other, rel_tol=0, abs_tol=tolerance) for one, other in zip(found, wanted, strict=True)
    )


@contextmanager
def serving(
    model: Path,
    *,
    incremental: bool = True,
    port: int = 0,
    on_failure: Callable[[], None] = lambda: None,
    **changes: Any,
) -> Iterator[tuple[str, Any]]:
    """An engine over HTTP until the block ends: its URL and the `EmbeddedEngine`."""
    engine = EmbeddedEngine(EngineOptions(model=str(model), device="cpu", **changes), on_failure=on_failure)
    config = uvicorn.Config(
        create_app(engine, incremental=incremental),
        port=port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        bound = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{bound}", engine
    finally:
        server.should_exit = True
        thread.join(15)


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Poll until `condition` holds; fails when the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.005)
