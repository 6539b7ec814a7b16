"""`openclaw-rl estimate`: what chat and learning with a cloud backend will cost. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from openclaw_rl.cli.costs.costs import Amounts, CostItem, Costs, total
from openclaw_rl.cli.costs.spending import by_purpose, dollars, today
from openclaw_rl.cli.costs.workload import Workload
from openclaw_rl.cli.options import Json, print_json
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.cli.tables import console, table
from openclaw_rl.shared.backends import resolve_backend
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load, parse_flags
from openclaw_rl.trainer_cloud.budget.budget import LIMITS, DailyLimit
from openclaw_rl.trainer_cloud.budget.prices import PRICED, Price, Prices, cost


def estimate(
    context: typer.Context,
    prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens per prompt; default: recorded mean")] = None,
    answer_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens per answer; default: recorded mean")] = None,
    turns_per_day: Annotated[
        float | None, typer.Option(min=0, help="Main turns per day; default: recorded mean")
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate and show. Raises `ConfigError`, or `LedgerError` for a ledger that cannot be read."""
    settings = _settings(parse_flags(context.args))
    workload = Workload.from_settings(settings, prompt=prompt_tokens, answer=answer_tokens, turns=turns_per_day)
    found = figures(settings, workload)
    print_json(found) if as_json else _show(console(), found)


def figures(settings: Settings, workload: Workload) -> dict[str, Any]:
    """The estimate, ready for JSON: tokens of each kind and dollars, `unknown` the kinds without a price."""
    prices = Prices.load(settings.cloud.prices)
    dedicated = settings.engine.backend == "fireworks" and settings.cloud.fireworks.is_dedicated
    price = None if dedicated else prices.for_model(settings.engine.backend, settings.engine.model)
    costs = Costs(settings, workload)
    step, judging = costs.step(), costs.judging()
    chat_day, learning_day = costs.chat_day, costs.learning_day()
    spent = today(settings)

    def priced(amounts: Amounts) -> dict[str, Any]:
        paid = cost(price, amounts)
        kinds: dict[str, Any] = {kind: round(number, 1) for kind, number in amounts.items() if number}
        return {**kinds, "dollars": round(paid.dollars, 6), "unknown": list(paid.unknown)}

    def parts(of: list[CostItem]) -> dict[str, Any]:
        found = [{"what": part.name, **priced(part.amounts)} for part in of]
        return {"parts": found, **priced(total(part.amounts for part in of))}

    return {
        "provider": settings.engine.backend,
        "model": settings.engine.model,
        "method": settings.learning.method,
        "price": _price(price),
        "note": prices.notes.get(settings.engine.backend, ""),
        "chat_turn": priced(costs.chat_turn),
        "side_turn": priced(costs.side_turn) if workload.side else None,
        "step": {**parts(step), "turns": settings.learning.turns_a_step},
        "each_turn": parts(judging) if judging else None,
        "day": {
            "turns": round(workload.main + workload.side, 1),
            "steps": round(costs.steps, 2),
            "chat": priced(chat_day),
            "learning": priced(learning_day),
            "together": priced({kind: chat_day.get(kind, 0) + learning_day.get(kind, 0) for kind in PRICED}),
        },
        "limits": [_limit(settings, workload, costs, limit) for limit in LIMITS],
        "today": by_purpose(spent, prices),
        "assumptions": costs.assumptions,
    }


def _settings(flags: Mapping[str, str]) -> Settings:
    settings, sources = load(flags)
    if "backend" not in flags:
        given = {name: settings.value(name) for name, source in sources.items() if source.startswith("--")}
        settings = as_served(settings).replace(**given)
    settings = resolve_backend(settings)
    if not settings.engine.is_cloud:
        raise ConfigError(
            f"backend = {settings.engine.backend} trains on this machine and costs nothing; name a provider: "
            "openclaw-rl estimate --backend tinker --model Qwen/Qwen3-8B"
        )
    return settings


def _price(price: Price | None) -> dict[str, Any] | None:
    if price is None:
        return None
    rates: dict[str, Any] = {kind: getattr(price, kind) for kind in PRICED}
    return {
        **rates,
        "cached": price.cached,
        "as_of": str(price.as_of or ""),
        "source": price.source,
        "note": price.note,
    }


def _limit(settings: Settings, workload: Workload, costs: Costs, limit: DailyLimit) -> dict[str, Any]:
    """A daily limit, and a sentence about when it stops its purpose."""
    most = limit.amount(settings)
    found: dict[str, Any] = {"setting": limit.setting, "limit": most, "stops": ""}

    def counted(amounts: Amounts) -> float:
        return sum(number for kind, number in amounts.items() if kind in limit.kinds)

    if not most:
        return found
    if limit.purpose == "chat":
        each, day, what, number = counted(costs.chat_turn), counted(costs.chat_day), "chat turn", workload.main
    else:
        # A step waits until its turns are judged, which is paid from the same limit.
        each = sum(counted(part.amounts) for part in costs.step())
        each += sum(counted(part.amounts) for part in costs.judging()) * settings.learning.turns_a_step
        day, what, number = counted(costs.learning_day()), "step", costs.steps
    if each > most:
        found["stops"] = f"before the first {what}, which takes {each:,.0f}: raise it"
    elif day > most:
        found["stops"] = f"after {int(most // each):,} of a day's {number:,.1f} {what}s"
    else:
        found["stops"] = f"never: a day takes {day:,.0f}"
    return found


def _show(out: Console, found: dict[str, Any]) -> None:
    price = found["price"]
    out.print(f"{found['model']} at {found['provider']}, method {found['method']}. Nothing was sent.")
    if price is None:
        out.print("Its prices are unknown: tokens only. cloud_prices names a file with your own prices.")
    else:
        rates = ", ".join(f"{kind} {_rate(price[kind])}" for kind in PRICED)
        rates += f", cached prefill {_rate(price['cached'])}" if price["cached"] is not None else ""
        out.print(
            f"Dollars for a million tokens: {rates} (as of {price['as_of'] or 'an unknown day'}; {price['source']})"
        )
    if found["note"]:
        out.print(found["note"])
    out.print()
    shown = table("", "#prefill", "#sample", "#train", "#dollars")
    _row(shown, "a chat turn", found["chat_turn"])
    if found["side_turn"]:
        _row(shown, "a side turn", found["side_turn"])
    step, each, day = found["step"], found["each_turn"], found["day"]
    for name, row in ((f"a training step ({step['turns']} turns)", step), ("also, for each main turn", each)):
        if row:
            _row(shown, name, row)
            for part in row["parts"]:
                _row(shown, f"    {part['what']}", part)
    _row(shown, f"a day: {day['turns']:g} turns", day["chat"])
    _row(shown, f"a day: {day['steps']:g} steps", day["learning"])
    _row(shown, "a day", day["together"])
    out.print(shown)
    out.print()
    for limit in found["limits"]:
        stops = f"{limit['limit']:,} stops it {limit['stops']}" if limit["limit"] else "no limit (0)"
        out.print(f"{limit['setting']}: {stops}")
    for purpose, row in found["today"].items():
        amounts = ", ".join(f"{number:,} {kind}" for kind, number in row["amounts"].items())
        out.print(f"today's {purpose} so far: {amounts}; {dollars(row['dollars'], row['unknown'])}")
    if not found["today"]:
        out.print("today so far: nothing")
    out.print()
    out.print("Assumptions:")
    for line in found["assumptions"]:
        out.print(f"- {line}")


def _row(shown: Any, name: str, row: Mapping[str, Any]) -> None:
    numbers = [f"{row[kind]:,.0f}" if row.get(kind) else "–" for kind in PRICED]
    shown.add_row(name, *numbers, dollars(row["dollars"], row["unknown"]))


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:g}"
