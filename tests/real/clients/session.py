"""A person's conversations with a client: the same words for each, and a compaction and a helper where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import Proxy, run_proxy
from tests.real.clients.client import SECONDS, Client, Site
from tests.real.clients.scoring import Score, judge_all, score
from tests.real.clients.scripted_engine import HELP, LOOK, ScriptedEngine, run_scripted_engine
from tests.real.clients.tap import dump, run_tap

FILE = "fruit.txt"
REQUESTS = "requests.jsonl"
PROBLEM = "problem.txt"


def measure(client: Client, folder: Path) -> Score:
    """Drive a client against a service of its own, and score what the service made of it. `folder` keeps the logs."""
    installed = client.install()
    with _service(folder) as (proxy, engine), run_tap(proxy.url) as tap:
        engine.wording = client.wording and type(client).wording
        site = Site(folder / "home", installed, tap, proxy.key)
        site.work.mkdir(parents=True)
        (site.work / FILE).write_text("6 apples\n")
        problem = ""
        try:
            client.configure(site)
            talk(client, site)
        except Exception as error:  # a client may fail in any way, and the others are still to be measured
            problem = f"{type(error).__name__}: {error}"
            (folder / PROBLEM).write_text(problem)
        (folder / REQUESTS).write_text(dump(tap.exchanges))
        judge_all(proxy.settings)
        return score(client, tap, proxy.journal(), problem)


@contextmanager
def _service(folder: Path) -> Iterator[tuple[Proxy, ScriptedEngine]]:
    folder.mkdir(parents=True, exist_ok=True)
    changes = {"max_output_tokens": 2000, "judge": "rules"}
    with run_scripted_engine(folder) as (reached, engine), run_proxy(reached, folder / "data", **changes) as proxy:
        yield proxy, engine


def talk(client: Client, site: Site) -> None:
    """Have two conversations."""
    with _conversation(client, site) as say:
        say(f"{LOOK} {site.work / FILE} and say how many apples there are.", "ask")
        if not client.talks:
            return
        say("No, wrong: there are six apples.", "complaint")
        say("And how many would two more make?", "ask")
        say("Thanks, that is perfect.", "thanks")
        if "compact" in client.features:
            say("", "compact")
            say("Which fruit did I ask about?", "ask")
            say("No, that's wrong. It was another one.", "complaint")
    with _conversation(client, site) as say:
        say("What do pears go well with?", "ask")
        say("That is wrong, try again.", "complaint")
        if "helper" in client.features:
            say(f"{HELP} count the pears in the garden of the neighbour.", "ask")
        else:
            say("And plums?", "ask")
        say("Perfect, thank you!", "thanks")


@contextmanager
def _conversation(client: Client, site: Site) -> Iterator[Callable[[str, str], None]]:
    site.tap.begin()
    with contextmanager(client.converse)(site) as send:

        def say(words: str, kind: str) -> None:
            site.tap.note(words, kind)
            before = len(site.tap.exchanges)
            if kind == "compact":
                client.compact(site, send)
            else:
                send(words)
            site.tap.settle(before, SECONDS)

        yield say
