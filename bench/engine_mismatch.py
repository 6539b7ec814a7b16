"""Compare the logprobs of an engine that serves with those of the trainer, and swap adapters under load.

    python -m bench.engine_mismatch [--backend megatron] [--trainer megatron] [--model FOLDER] [--device cuda:0]
        [--answers 64] [--tokens 512] [--prompt-tokens 256] [--swaps 3] [--clients 8] [--lend] [--json] [--save FILE]

The engine samples `--answers` answers of `--tokens` tokens to random prompts at temperature 1, then scores them without
its caches, and the trainer scores them too. `decode` are the logprobs reported while sampling, `prefill` those of the
engine's scores, `trainer` the trainer's. Then the trainer makes `--swaps` versions. While `--clients` clients stream,
each version is published; it answers, and its logprobs are compared with the trainer's. `moved` is how far the training
has moved the trainer's logprobs of these answers from the base's.

`--backend embedded` starts the embedded engine, `--backend megatron` SGLang as the settings in the environment say
(`OPENCLAW_RL_SGLANG_PYTHON`, `OPENCLAW_RL_SGLANG_ARGS`). With `--lend` SGLang gives its memory to the trainer and takes
it back (it needs `--enable-memory-saver` among its arguments).

The exit code is 1 if a comparison passes 0.02 nats in the mean or 0.1 in the root mean square, a version is nearer to
the base than to the trainer, a request fails or is cut, or memory that was lent is less than the model's weights.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import torch
from torch import Tensor

from bench.checks import Threshold, as_json, verdict
from bench.program import log, parser, report, run, service
from bench.random_model import even_sample
from bench.trainer_watch import answer_logprobs
from openclaw_rl.cli.client import running as part_running
from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.backends import create_engine
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.files import read_config
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.records import Sample, Sampling
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.shared.trainer import Recipe

TRAINERS = {
    "transformers": "openclaw_rl.trainer_local.transformers_trainer:create",
    "megatron": "openclaw_rl.trainer_local.megatron.trainer:create",
}
MEAN, ROOT_MEAN_SQUARE = 0.02, 0.1
"""Limits in nats; the second is that of the audit (`audit_tolerance`)."""
RATE = 2e-3
PASSES = 4
"""Enough for a version to differ from the base in bfloat16."""
LOAD_TOKENS = 64
"""Tokens of an answer of a client that streams meanwhile."""


@dataclass
class Load:
    """Requests of clients that streamed while versions were published."""

    requests: int = 0
    failed: list[str] = field(default_factory=list)
    cut: int = 0


class EngineComparison:
    """An engine and a trainer of the model that `settings` name."""

    def __init__(self, settings: Settings, trainer: Any, options: argparse.Namespace) -> None:
        self.engine: Any = create_engine(settings, owns=True)
        self.trainer = trainer
        self.settings = settings
        self._tokens: int = options.tokens
        self._clients: int = options.clients
        self._draw = Random(0)
        config = read_config(Path(settings.engine.model) / "config.json")
        # Ids at the end of a vocabulary are often special tokens.
        self._words = range(config["vocab_size"] * 3 // 4)
        self._prompt_tokens: int = options.prompt_tokens
        passes = {"epochs": PASSES, "minibatches": 1, "learning_rate": RATE}
        self._recipe: Recipe = METHODS["binary"].recipe(settings.learning.replace(**passes))

    async def sample(self, version: int, *, tokens: int) -> Sample:
        """One answer, all of `tokens` tokens, with its logprobs. Raises `EngineError`."""
        prompt = [self._draw.choice(self._words) for _ in range(self._prompt_tokens)]
        sampling = Sampling(temperature=1.0, max_tokens=tokens, ignore_eos=True)
        ids: list[int] = []
        logprobs: list[float] = []
        reason = None
        answer = self.engine.generate(prompt, sampling, version=version)
        async with contextlib.aclosing(answer):
            async for part in answer:
                ids += part.ids
                logprobs += part.logprobs
                reason = part.finish_reason
        if reason != "length" or len(ids) != tokens:
            raise EngineError(f"an answer ended after {len(ids)} of {tokens} tokens: {reason}")
        reward = self._draw.choice((-1.0, 1.0))
        name = f"answer-{self._draw.random()}"
        made = even_sample(name, prompt, ids, 0.0, turn_id=name, reward=reward, explicit=True)
        return msgspec.structs.replace(made, logprobs=logprobs)

    async def samples(self, count: int, version: int) -> list[Sample]:
        """Answers of a version, asked for at once."""
        return await gather(*(self.sample(version, tokens=self._tokens) for _ in range(count)))

    async def prefilled(self, samples: Sequence[Sample], version: int) -> Tensor:
        """The engine's own scores of the answers, without what it kept of them."""
        scores = await gather(
            *(self.engine.score(one.prompt_ids, one.response_ids, version=version, fresh=True) for one in samples)
        )
        return torch.tensor([value for score in scores for value in score.logprobs])

    async def trained(self, samples: Sequence[Sample], *, base: bool = False) -> Tensor:
        """The trainer's logprobs of the answers."""
        return torch.cat(await answer_logprobs(self.trainer, samples, self._recipe, base=base))

    async def publish(self, samples: Sequence[Sample], version: int) -> None:
        """Train on the samples and make the result live as `version`."""
        await self.trainer.step(samples, self._recipe)
        saved = await self.trainer.save(str(self.settings.checkpoints_path / str(version)))
        await self.trainer.publish(saved, version, self.engine, live=True)

    @asynccontextmanager
    async def loaded(self, load: Load) -> AsyncIterator[None]:
        """Let clients stream from the live version while the block runs, and to the end of their answers."""
        over = asyncio.Event()

        async def client(number: int) -> None:
            draw = Random(1000 + number)
            while not over.is_set():
                load.requests += 1
                prompt = [draw.choice(self._words) for _ in range(self._prompt_tokens)]
                sampling = Sampling(temperature=1.0, max_tokens=LOAD_TOKENS, ignore_eos=True)
                reason = None
                try:
                    async for part in self.engine.generate(prompt, sampling):
                        reason = part.finish_reason
                except EngineError as error:
                    load.failed.append(str(error))
                load.cut += reason != "length"

        clients = [asyncio.create_task(client(number)) for number in range(self._clients)]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*clients)


def apart(one: Tensor, other: Tensor) -> dict[str, float]:
    """The difference of two lists of logprobs, in nats."""
    difference = (one.double() - other.double()).abs()
    return {
        "mean": float(difference.mean()),
        "root_mean_square": float(difference.square().mean().sqrt()),
        "p99": float(difference.quantile(0.99)),
        "max": float(difference.max()),
    }


def reported(samples: Sequence[Sample]) -> Tensor:
    """The logprobs that the engine reported while it sampled."""
    return torch.tensor([value for one in samples for value in one.logprobs])


async def compare_base(comparison: EngineComparison, answers: int) -> tuple[dict[str, dict[str, float]], list[Sample]]:
    """The three views of the base's answers, pairwise; and the answers."""
    samples = await comparison.samples(answers, 0)
    decode, prefill = reported(samples), await comparison.prefilled(samples, 0)
    trainer = await comparison.trained(samples)
    pairs = {
        "decode, prefill": apart(decode, prefill),
        "decode, trainer": apart(decode, trainer),
        "prefill, trainer": apart(prefill, trainer),
    }
    return pairs, samples


async def swap(comparison: EngineComparison, samples: list[Sample], version: int, load: Load) -> dict[str, float]:
    """Publish a version under load; the comparison of its answers with the trainer."""
    async with comparison.loaded(load):
        await comparison.publish(samples, version)
    answers = await comparison.samples(max(1, len(samples) // 4), version)
    trainer = await comparison.trained(answers)
    moved = apart(trainer, await comparison.trained(answers, base=True))["root_mean_square"]
    return apart(reported(answers), trainer) | {"moved": moved}


async def lend(comparison: EngineComparison, device: torch.device) -> dict[str, int]:
    """The free bytes of the device before SGLang's memory is lent, while it is, and after."""

    def free() -> int:
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]

    before = free()
    async with comparison.engine.lend_memory() as lent:
        during = free() if lent else before
    return {"free_before": before, "free_while_lent": during, "free_after": free()}


async def measure(options: argparse.Namespace) -> int:
    """Start the engine, load the trainer, and compare; returns the exit code."""
    model = str(Path(options.model).resolve())
    port = claim_port("127.0.0.1", 0, setting="engine_port")
    fields = {"model": model, "backend": options.backend, "device": options.device}
    async with service(options, {**fields, "engine_port": port}, only=("engine", "proxy")) as running:
        card = part_running(running.data, "engine") if running.data else None  # its URL holds the engine's secret
        settings = Settings(**fields, engine_port=port, engine_url=card["url"] if card else "", data=running.data)
        trainer = await asyncio.to_thread(resolve(TRAINERS[options.trainer]), settings)
        comparison = EngineComparison(settings, trainer, options)
        try:
            result = await compare(comparison, options)
        finally:
            await comparison.engine.close()
            await trainer.close()
    checks = checks_of(result)
    result["checks"] = as_json(checks)
    columns = ["compared", "mean", "root mean square", "99 %", "max", "moved"]
    rows = [
        [name, *(f"{figures[key]:.2e}" if key in figures else "" for key in (*MEASURES, "moved"))]
        for name, figures in {**result["base"], **result["versions"]}.items()
    ]
    report(options, f"Logprobs of {options.backend}'s engine and the {options.trainer} trainer", columns, rows, result)
    return verdict(checks)


MEASURES = ("mean", "root_mean_square", "p99", "max")


async def compare(comparison: EngineComparison, options: argparse.Namespace) -> dict[str, Any]:
    """All comparisons."""
    base, samples = await compare_base(comparison, options.answers)
    log.print(f"base: {base}")
    load = Load()
    versions: dict[str, dict[str, float]] = {}
    for version in range(1, options.swaps + 1):
        versions[f"version {version}"] = await swap(comparison, samples, version, load)
        log.print(f"version {version}: {versions[f'version {version}']}")
    names = ("backend", "trainer", "model", "device", "answers", "tokens", "prompt_tokens", "clients")
    result: dict[str, Any] = {name: getattr(options, name) for name in names}
    result |= {"base": base, "versions": versions, "requests": load.requests, "failed": load.failed, "cut": load.cut}
    if options.lend:
        result["memory"] = await lend(comparison, torch.device(options.device))
        weights = Path(comparison.settings.engine.model).glob("*.safetensors")
        result["memory"]["weights"] = sum(file.stat().st_size for file in weights)
    return result


def checks_of(result: dict[str, Any]) -> list[Threshold]:
    """The limits that the comparisons must keep."""
    checks = []
    for name, figures in {**result["base"], **result["versions"]}.items():
        checks.append(Threshold(f"{name}: mean |Δlogprob|", figures["mean"], MEAN))
        checks.append(Threshold(f"{name}: root mean square", figures["root_mean_square"], ROOT_MEAN_SQUARE))
        if "moved" in figures:
            share = figures["root_mean_square"] / figures["moved"] if figures["moved"] else math.inf
            checks.append(Threshold(f"{name}: distance from the trainer, relative to how far it has moved", share, 0.5))
    checks.append(Threshold("requests that failed while versions were published", len(result["failed"]), 0))
    checks.append(Threshold("answers that were cut while versions were published", result["cut"], 0))
    if "memory" in result:
        memory = result["memory"]
        lent, missing = (memory[name] - memory["free_before"] for name in ("free_while_lent", "free_after"))
        checks.append(Threshold("weights, relative to memory that was lent", memory["weights"] / max(lent, 1), 1))
        share = missing / max(lent, 1)
        checks.append(Threshold("memory that was not taken back, relative to memory that was lent", share, 0.1))
    return checks


def main() -> int:
    options = parser(__doc__)
    options.set_defaults(url=None, set=[])
    options.add_argument("--data", type=Path, metavar="FOLDER", help="keep the engine's data and logs there")
    options.add_argument("--backend", choices=["embedded", "megatron"], default="megatron", help="engine to start")
    options.add_argument("--trainer", choices=list(TRAINERS), default="megatron")
    options.add_argument("--model", default=str(EMBEDDED_POLICY), help="folder of the policy; default: the tiny one")
    options.add_argument("--device", default="cuda:0", help="of the embedded engine and of the trainer")
    options.add_argument("--answers", type=int, default=64, help="answers, asked for at once")
    options.add_argument("--tokens", type=int, default=512, help="length of an answer")
    options.add_argument("--prompt-tokens", type=int, default=256, help="length of a prompt")
    options.add_argument("--swaps", type=int, default=3, help="versions to publish")
    options.add_argument("--clients", type=int, default=8, help="clients that stream meanwhile")
    options.add_argument("--lend", action="store_true", help="lend SGLang's memory to the trainer and take it back")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
