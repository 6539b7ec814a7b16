"""The real Claude Code works against the running service, headless and in a terminal; the engine in front says what the
policy answers next.

It is given only the address of the service: it asks for models by names of its own (`model_aliases`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.records import Turn
from tests.clients.engine_log import run_logged_engine
from tests.processes import Engine, run_proxy
from tests.real.conversations import Captured
from tests.rigs.claude_code import ClaudeCode

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONDENSED = "<analysis>All is told.</analysis>\n<summary>Beans are planted in May, peas in March.</summary>"


@pytest.fixture(scope="module")
def holding(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    """A service whose engine says that it can hold answers to a schema."""
    with run_logged_engine(engine_server) as (logged, engine):
        engine.constrains = True
        with run_proxy(logged, tmp_path_factory.mktemp("holding"), model_aliases="*=policy") as proxy:
            yield Captured(proxy, engine)


def _calling(text: str, **calls: Any) -> str:
    """An answer with calls of these tools."""
    calls_written = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls.items()]
    return text + "".join(f"\n<tool_call>\n{one}\n</tool_call>" for one in calls_written)


def _heard(captured: Captured, words: str) -> list[Turn]:
    """The turns that were answered with these words."""
    journal = captured.proxy.journal()
    found: list[Turn] = []
    for row in journal.sessions(limit=1000):
        session = journal.session(row.session_id)
        turns = [journal.turn(summary.turn_id) for summary in session.turns] if session is not None else []
        found += [turn for turn in turns if turn is not None and turn.answer["content"] == words]
    return found


def _refused(captured: Captured) -> float:
    """Count the requests in the Messages dialect that got a 400."""
    with captured.proxy.client() as client:
        lines = client.get("/metrics").text.splitlines()
    figures = [
        line.split()[-1]
        for line in lines
        if "dialect_requests_total{" in line and '"messages"' in line and '"400"' in line
    ]
    return sum(map(float, figures))


def _said(turns: list[Turn]) -> list[tuple[str, str, str, str, str]]:
    return [(turn.dialect, turn.kind, turn.kind_reason, turn.status, turn.untrainable) for turn in turns]


MAIN = ("messages", "main", "tools", "complete", "")


def test_two_tools_at_once_their_results_and_a_second_task(captured: Captured, tmp_path: Path) -> None:
    claude = ClaudeCode(captured.proxy, tmp_path)
    (claude.work / "fruit.txt").write_text("5 apples\n")
    look = {"file_path": str(claude.work / "fruit.txt")}
    listing = {"command": "ls", "description": "List files"}
    captured.engine.say(_calling("I look.", Read=look, Bash=listing), "There are five apples.")
    captured.engine.say(_calling("I add.", Bash={"command": "expr 5 + 2", "description": "Add"}), "Seven.")
    with captured.watch() as turns:
        first = claude.ask("How many apples are in fruit.txt?")
        second = claude.ask("And with two more?", "--continue")
    assert (first["result"], second["result"]) == ("There are five apples.", "Seven.")
    assert all(name.startswith("claude-") for name in first["modelUsage"]), "a name of its own, answered as asked"
    looked, counted, added, answered = turns
    assert _said(turns) == [MAIN] * 4
    assert {turn.session_id for turn in turns} == {first["session_id"]} == {second["session_id"]}
    assert [turn.parent_turn_id for turn in turns] == [None, looked.turn_id, counted.turn_id, added.turn_id]
    captured.followed(looked, "tool", "1\t5 apples\n2\t\n\nfruit.txt")
    captured.followed(counted, "user", "And with two more?")
    captured.followed(added, "tool", "7")
    captured.unanswered(answered)
    usage = first["usage"]
    assert usage["output_tokens"] == len(looked.response_ids) + len(counted.response_ids)


def test_a_tool_that_it_finds_by_search_is_offered_from_then_on(captured: Captured, tmp_path: Path) -> None:
    search = {"query": "select:NotebookEdit", "max_results": 3}
    captured.engine.say(_calling("I search.", ToolSearch=search), "I can do that.")
    with captured.watch() as turns:
        report = ClaudeCode(captured.proxy, tmp_path).ask("Can you edit notebooks?")
    assert report["result"] == "I can do that."
    searched, _ = turns
    assert _said(turns) == [MAIN] * 2
    names = [{tool["function"]["name"] for tool in turn.tools} for turn in turns]
    assert "ToolSearch" in names[0] and names[1] - names[0] == {"NotebookEdit"}
    captured.followed(searched, "tool", "Tool found: NotebookEdit\n")


def test_a_sub_agent_is_a_side_turn_and_what_it_brings_no_persons_words(captured: Captured, tmp_path: Path) -> None:
    agent = {"description": "Count pears", "prompt": "Walk to the tree.", "subagent_type": "general-purpose"}
    asked = "Have the pears counted."
    captured.engine.say(_calling("I send somebody.", Agent=agent), "I wait.", "Nine pears.", to=asked)
    captured.engine.say("There are nine.", to="Walk to the tree.")
    with captured.watch() as turns:
        assert ClaudeCode(captured.proxy, tmp_path).ask(asked)["result"] == "Nine pears."
    sent, waited, answered = (turn for turn in turns if turn.kind == "main")
    (helper,) = (turn for turn in turns if turn.kind == "side")
    assert (helper.kind_reason, helper.parent_turn_id, helper.answer["content"]) == (
        "claude-code-subagent",
        None,
        "There are nine.",
    )
    assert [waited.parent_turn_id, answered.parent_turn_id] == [sent.turn_id, waited.turn_id]
    state = captured.proxy.journal().next_state(sent.turn_id)
    assert state is not None and state.role == "tool" and "launched" in state.text
    for turn in (waited, answered, helper):
        captured.unanswered(turn)


def test_in_a_terminal_a_title_that_is_refused_is_no_trouble_and_a_compaction_continues(
    captured: Captured, tmp_path: Path
) -> None:
    """The embedded engine cannot hold an answer to the schema that titles are asked for with."""
    words = ["I plant beans in May.", "And peas in March."]
    captured.engine.say("Beans in May.", to=words[0])
    refused = _refused(captured)
    with captured.watch() as turns, ClaudeCode(captured.proxy, tmp_path).terminal() as terminal:
        terminal.say(words[0])
        terminal.until(lambda: bool(_heard(captured, "Beans in May.")), "an answer")
        captured.engine.say("Peas in March.", to=words[1])
        terminal.say(words[1])
        terminal.until(lambda: bool(_heard(captured, "Peas in March.")), "a second answer")
        captured.engine.say(CONDENSED, to="Your task is to create a detailed summary")
        terminal.until(lambda: "PeasinMarch." in terminal.letters(), "the answer on the screen")
        terminal.say("/compact")
        terminal.until(lambda: bool(_heard(captured, CONDENSED)), "a summary")
        terminal.until(lambda: "Compacted" in terminal.text(), "the end of the compaction")
        captured.engine.say("Beans again.", to="What do I plant in May?")
        terminal.say("What do I plant in May?")
        terminal.until(lambda: bool(_heard(captured, "Beans again.")), "an answer after the compaction")
    assert _refused(captured) > refused, "a title was asked for"
    first, second, summary, after = turns
    assert _said([first, second, after]) == [MAIN] * 3
    assert (summary.kind, summary.kind_reason) == ("side", "compaction")
    assert second.parent_turn_id == first.turn_id
    assert after.session_id == second.session_id
    assert after.parent_turn_id is None and "compacted" in after.parent_reason, after.parent_reason
    captured.followed(first, "user", words[1])
    captured.unanswered(second)


def test_in_a_terminal_a_title_is_a_side_turn_where_the_engine_can_hold_to_its_schema(
    holding: Captured, tmp_path: Path
) -> None:
    title = '{"title": "Zebra garden"}'
    holding.engine.say(title, to="You are naming")
    holding.engine.say("Stripes it is.", to="Plan stripes.")
    with holding.watch() as turns, ClaudeCode(holding.proxy, tmp_path).terminal() as terminal:
        terminal.say("Plan stripes.")
        terminal.until(lambda: bool(_heard(holding, "Stripes it is.") and _heard(holding, title)), "answer and title")
        terminal.until(lambda: b"Zebra garden" in terminal.shown, "the title on the terminal")
    (named,) = (turn for turn in turns if turn.answer["content"] == title)
    assert (named.kind, named.kind_reason, named.parent_turn_id) == ("side", "title", None)
    assert "title" in json.loads(named.sampling.json_schema)["properties"]
    (answered,) = (turn for turn in turns if turn.kind == "main")
    assert _said([answered]) == [MAIN]
    for turn in turns:
        holding.unanswered(turn)
