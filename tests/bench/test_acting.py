"""The dialogues in which the policy acts: results as the real programs print them, and a known share that is right."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

from bench.shipped_policy.dialogues.acting.demonstrations import Demonstration, demonstrate
from bench.shipped_policy.dialogues.acting.drills import naming_drill
from bench.shipped_policy.dialogues.acting.pages import page_dialogue
from bench.shipped_policy.dialogues.acting.shell import Shell
from bench.shipped_policy.dialogues.mixture import sample_dialogue
from openclaw_rl.environments.agents.computer import TOOLS, first_message
from openclaw_rl.environments.families.family import split_of
from openclaw_rl.environments.tasks.families.computer_task import bash, edit
from openclaw_rl.environments.tasks.families.draws import FAMILIES

DRAWN = 1500


@pytest.fixture(scope="module")
def demonstrations() -> list[Demonstration]:
    random = Random(1)
    return [demonstrate(random) for _ in range(DRAWN)]


def commands(demonstration: Demonstration) -> list[str]:
    calls = [call["function"] for message in demonstration.messages for call in message.get("tool_calls", ())]
    return [call["arguments"]["command"] for call in calls if call["name"] == "bash"]


def test_about_two_in_five_are_right_in_every_family(demonstrations: list[Demonstration]) -> None:
    right: defaultdict[str, list[bool]] = defaultdict(list)
    for one in demonstrations:
        right[one.task.family].append(one.is_right)
    assert right.keys() == {family for families in FAMILIES.values() for family in families}
    shares = {family: sum(found) / len(found) for family, found in right.items()}
    assert all(0.25 < share < 0.55 for share in shares.values()), shares
    assert 0.36 < sum(one.is_right for one in demonstrations) / DRAWN < 0.45


def test_no_held_out_combination_is_shown(demonstrations: list[Demonstration]) -> None:
    assert all(split_of(one.task.family, *one.task.values) == "train" for one in demonstrations)


def test_mistakes_are_decisions_and_copy_well(demonstrations: list[Demonstration]) -> None:
    """Each word of a command can be read in the request, a file or a result, or is a command's own."""
    own = {"answer.txt", ">", "*", "-c", "-l", "grep", "mv", "cp", "rm", "cat", "sort", "echo", "mkdir", "touch"}
    for one in demonstrations:
        seen = " ".join([one.task.request, *one.task.files, *one.task.files.values()])
        for command in commands(one):
            assert all(word in own or word in seen for word in command.split()), command


def test_a_dialogue_is_the_loops_own(demonstrations: list[Demonstration]) -> None:
    for one in demonstrations[:200]:
        first, *middle, last = one.messages
        assert first == {"role": "user", "content": first_message(one.task.request)}
        assert [message["role"] for message in middle] == ["assistant", "tool"] * (len(middle) // 2)
        assert last["role"] == "assistant" and "tool_calls" not in last


def test_results_are_those_of_the_real_programs(demonstrations: list[Demonstration], tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    compared: set[tuple[str, bool]] = set()
    for number, one in enumerate(demonstrations[:90]):
        shell, folder = Shell(one.task.files), tmp_path / str(number)
        for path, text in one.task.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        for command in commands(one):
            ran = shell.run(command)
            real = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            assert (command, ran.stdout, ran.stderr, ran.code) == (command, real.stdout, real.stderr, real.returncode)
            compared.add((command.split()[0], ran.code == 0))
        after = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
        assert after == shell.files
    assert len(compared) > 10


def test_the_computer_of_the_demonstrations_reports_changes() -> None:
    shell = Shell({"a.txt": "one\n", "b/c.txt": "two\n"})
    assert shell.call(bash("cat a.txt")) == "one\n[exit 0]"
    assert shell.call(bash("mv a.txt b")) == "[exit 0; new: b/a.txt; gone: a.txt]"
    assert shell.call(bash("echo new > b/c.txt")) == "[exit 0; changed: b/c.txt]"
    assert shell.call(edit("b/c.txt", "new", "old")) == "[changed: b/c.txt]"
    assert shell.call(edit("b/c.txt", "new", "old")) == "Error: the old text is 0 times in b/c.txt, not once"


def test_pages_have_steps_by_the_names_of_elements() -> None:
    random = Random(2)
    right = 0
    for _ in range(300):
        messages, tools = page_dialogue(random)
        assert [tool["function"]["name"] for tool in tools] == ["click", "fill"]
        page = messages[0]["content"]
        for message in messages:
            for call in message.get("tool_calls", ()):
                arguments = call["function"]["arguments"]
                assert all(f'"{value}"' in page for value in arguments.values())
        right += "tool_calls" in messages[-1]
    assert 100 < right < 280, "some come to an end"


def test_drills_repeat_all_names() -> None:
    random = Random(3)
    for _ in range(100):
        question, reply = naming_drill(random)
        assert reply and all(word.strip('{}";:,') in question for word in reply.replace(">", " ").split()), (
            question,
            reply,
        )


def test_a_tenth_of_the_dialogues_act_and_offer_their_tools_alone() -> None:
    random = Random(4)
    drawn = [sample_dialogue(random) for _ in range(1000)]
    acting = [dialogue for dialogue in drawn if dialogue.kind == "acting"]
    assert 50 < len(acting) < 120
    assert all(len(dialogue.tools) == 2 and len(dialogue.learned) >= 1 for dialogue in acting)
    assert sum(dialogue.tools == TOOLS for dialogue in acting) > len(acting) / 2
