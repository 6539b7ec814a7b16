"""`doctor --try-provider`: the smallest paid check of a provider. It says what it costs and asks first; the table shows
what the service really does, and is written to a file that can be sent on (docs/try-provider.md).
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import random
import secrets
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from openclaw_rl.cli.checks.cloud import PACKAGES
from openclaw_rl.cli.model_files import provided_tokenizer
from openclaw_rl.cli.tables import console, table
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.rendering.vocabulary import load_tokenizer
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import launch, preflight
from openclaw_rl.trainer_cloud.artifacts.cleanup import ArtifactCleanup
from openclaw_rl.trainer_cloud.budget.budget import Budget
from openclaw_rl.trainer_cloud.budget.ledger import Kind
from openclaw_rl.trainer_cloud.budget.prices import Cost, Price, Prices, cost
from openclaw_rl.trainer_cloud.provider import CloudError, Provider
from openclaw_rl.trainer_cloud.trial import ANSWER, PROMPT, Finding, Trial, scrubbed

FILE = "provider_trial.json"
_LIMITS = ("refused", "limit")
"""Troubles that say what a service does not do, and nothing against it."""


def try_provider(settings: Settings, *, yes: bool, as_json: bool) -> int:
    """Say the cost, ask, and show the table; the exit code: 1 if something failed. `settings` name the backend itself;
    `yes` answers the question. Raises `ConfigError`.
    """
    _check(settings)
    try:
        offer = preflight.check(settings)
        settings = settings.replace(tokenizer=provided_tokenizer(settings) or settings.engine.tokenizer)
        known = (offer.context_length, settings.engine.context_length)
        length = min([PROMPT + ANSWER, *(context - 1 for context in known if context)])
        text = text_ids(Path(settings.engine.tokenizer_path), length, secrets.randbits(32))
        price = Prices.load(settings.cloud.prices).for_model(settings.engine.backend, settings.engine.model)
        provider = launch.create_provider(settings)
        trial = Trial(
            provider,
            ArtifactCleanup(provider, settings),
            text,
            rank=settings.learning.lora_rank,
            loss=settings.cloud.loss,
            name=f"openclaw-rl-trial-{secrets.token_hex(4)}",
        )
        _ask(settings, trial, price, yes=yes)
        findings, spent = asyncio.run(_run(settings, provider, trial))
    except CloudError as error:
        raise ConfigError(str(error)) from error
    found = _content(settings, trial, findings, spent, price)
    path = settings.serve.data / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found)
    if as_json:
        typer.echo(path.read_text())
    else:
        _show(console(), findings, found, path)
    return int(any(finding.trouble and finding.trouble not in _LIMITS for finding in findings))


def text_ids(tokenizer: Path, count: int, seed: int) -> list[int]:
    """Token ids of a made-up text that no cache holds yet: sums, or tokens at random where a tokenizer reads none."""
    reader, draw = load_tokenizer(tokenizer), random.Random(seed)
    special = reader.get_added_tokens_decoder()
    plain = [token for token in range(reader.get_vocab_size()) if token not in special]
    ids: list[int] = []
    while len(ids) < count:
        first, second = draw.randrange(10_000), draw.randrange(10_000)
        line = reader.encode(f"{first} plus {second} is {first + second}. ", add_special_tokens=False).ids
        ids += line if len(set(line)) > 3 else [draw.choice(plain)]
    return ids[:count]


def _check(settings: Settings) -> None:
    if not settings.engine.is_cloud:
        raise ConfigError(f"backend = {settings.engine.backend} runs on this machine: there is no provider to try")
    if settings.engine.backend == "fireworks" and settings.cloud.fireworks.is_dedicated:
        raise ConfigError(
            "fireworks_mode = dedicated is billed for the time its machines stand, not for a few tokens: "
            "--try-provider asks shared machines only (fireworks_mode = serverless)"
        )
    if problem := preflight.key_problem(settings):
        raise ConfigError(str(problem))


def _ask(settings: Settings, trial: Trial, price: Price | None, *, yes: bool) -> None:
    """Say what it costs, and continue only if that is wanted. Raises `ConfigError` where no one can be asked."""
    name, plan = preflight.account(settings).name, trial.plan
    out = console(stderr=True, soft_wrap=True)
    out.print(
        f"This asks {name} about {settings.engine.model} with made-up text: at most {plan['prefill']:,} tokens read, "
        f"{plan['sample']:,} written and {plan['train']:,} trained on. {_costs(cost(price, plan), price)} It takes "
        "minutes, and counts in today's budget of learning. What is saved there is removed at the end."
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("--try-provider costs money, and there is no terminal to ask in: add --yes")
    typer.confirm("Ask now?", default=False, abort=True, err=True)


def _costs(paid: Cost, price: Price | None) -> str:
    if price is None:
        return "The model's price is not known here: look it up first."
    unknown = f", and {' and '.join(paid.unknown)} tokens whose price is not known here" if paid.unknown else ""
    since = f" (prices as of {price.as_of})" if price.as_of else ""
    return f"That is ${paid.dollars:.4f} at most{unknown}{since}."


async def _run(settings: Settings, provider: Provider, trial: Trial) -> tuple[list[Finding], Counter[Kind]]:
    """The rows, and the amounts that were spent. Raises `CloudError` where today's budget does not allow it."""
    budget, out = Budget(settings, provider.name, settings.engine.model), console(stderr=True, soft_wrap=True)
    findings: list[Finding] = []
    spent: Counter[Kind] = Counter()
    try:
        async with budget.spending("learning", trial.plan) as bill:
            with bill.request(trial.plan) as taken:
                async for finding in trial.run():
                    out.print(f"{finding.asked}: {finding.seconds:.1f} s{' (failed)' if finding.trouble else ''}")
                    findings.append(finding)
                    spent.update(finding.sent)
                taken.clear()
                taken.update(spent)
    finally:
        await provider.close()
        budget.close()
    return findings, spent


def _content(
    settings: Settings, trial: Trial, findings: list[Finding], spent: Counter[Kind], price: Price | None
) -> dict[str, Any]:
    """The file's content: no key, no id, no address and no text."""
    engine, backend = settings.engine, settings.engine.backend
    folder = Path(engine.model)
    hidden = [str(settings.value(preflight.account(settings).setting)), preflight.base_url(settings)]
    hidden += [engine.model] if folder.is_dir() else []
    own = preflight.is_tinkers_own if backend == "tinker" else preflight.is_fireworks_own
    rows = [
        {
            "asked": one.asked,
            "answered": scrubbed(one.answered, *hidden),
            "trouble": one.trouble,
            "seconds": round(one.seconds, 3),
            "sent": dict(one.sent),
            "consequence": one.consequence,
        }
        for one in findings
    ]
    paid = cost(price, spent)
    return {
        "format": 1,
        "date": datetime.now(UTC).date().isoformat(),
        "openclaw_rl": importlib.metadata.version("openclaw-rl"),
        "library": {name: importlib.metadata.version(name) for name in PACKAGES[backend]},
        "provider": backend,
        "own_service": own(preflight.base_url(settings)),
        "model": folder.name if folder.is_dir() else engine.model,
        "lora_rank": settings.learning.lora_rank,
        "text_tokens": trial.length,
        "planned": dict(trial.plan),
        "spent": dict(spent),
        "dollars": None if price is None else round(paid.dollars, 6),
        "findings": rows,
    }


def _show(out: Console, findings: list[Finding], found: dict[str, Any], path: Path) -> None:
    rows: Any = table("asked", "answered", "#seconds", "#tokens", "#cached", "so")
    for finding, row in zip(findings, found["findings"], strict=True):
        sent = {kind: amount for kind, amount in finding.sent.items() if kind != "step"}
        answered = f"{finding.trouble.upper()}: {row['answered']}" if finding.trouble else row["answered"]
        numbers = (f"{sum(sent.values()):,}" if sent else "–", f"{sent['cached']:,}" if sent.get("cached") else "–")
        rows.add_row(finding.asked, answered, f"{finding.seconds:.1f}", *numbers, finding.consequence)
    out.print(rows)
    amounts = ", ".join(f"{amount:,} {kind}" for kind, amount in found["spent"].items()) or "nothing"
    dollars = "" if found["dollars"] is None else f", ${found['dollars']:.4f} by the prices known here"
    out.print(f"\nSpent: {amounts}{dollars}.")
    out.print(f"Written to {path}: it holds no key, no address, no id and none of your text. See docs/try-provider.md.")
