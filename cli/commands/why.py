"""`openclaw-rl why TURN`: the story of one turn, as sentences and then as figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service
from openclaw_rl.cli.tables import console, table
from openclaw_rl.shared.records import Sampling


def why(
    turn: Annotated[str, typer.Argument(help="Turn id (turn_…) or the id of a completion (chatcmpl-…)")],
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Ask for everything known of the turn and show it."""
    known = service(data, url, key).get(f"/rl/turns/{quote(turn, safe='')}")
    if as_json:
        print_json(known)
        return
    out = console()
    for line in known["story"]:
        out.print(line, soft_wrap=True)
    out.print()
    shown = table("", "")
    shown.show_header = False
    for name, value in _details(known["turn"]):
        shown.add_row(name, value)
    out.print(shown)


def _details(turn: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    timings, sampling = turn["timings"], turn["sampling"]
    spans = (f"{span['version']} (tokens {span['start']}–{span['end']})" for span in turn["versions"])
    yield "policy version", ", ".join(spans) or "–"
    yield "tokens", f"{turn['prompt_tokens']} in the prompt, {turn['response_tokens']} sampled"
    yield "ended because", str(turn["finish_reason"])
    usual = msgspec.structs.asdict(Sampling())
    always = {"temperature", "max_tokens"}
    yield "sampling", ", ".join(f"{name} {value}" for name, value in sampling.items()
                                if name in always or (value and value != usual.get(name)))  # fmt: skip
    if turn["mean_logprob"] is not None:
        yield "mean logprob", f"{turn['mean_logprob']:.3f}"
    if timings["first_token"] is not None:
        first, total = timings["first_token"] - timings["arrived"], timings["finished"] - timings["arrived"]
        yield "time", f"{first:.3f} s to the first token, {total:.3f} s in all"
    yield "dialect", turn["dialect"]
