from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest

from openclaw_rl.environments.families.calls import CALLS
from openclaw_rl.environments.families.family import TaskFamily
from openclaw_rl.environments.families.kinds import calls_kind, sums_kind
from openclaw_rl.environments.families.sums import LARGEST, SMALLEST, SUMS
from openclaw_rl.environments.kinds import KindOptions, Split
from openclaw_rl.environments.tools.checks import Checks


@pytest.mark.parametrize("family", [CALLS, SUMS], ids=lambda family: family.name)
@pytest.mark.parametrize("split", ["train", "held-out"])
def test_a_task_is_the_same_from_its_name_alone(family: TaskFamily, split: Split) -> None:
    tasks = list(islice(family.tasks(split, 3), 100))
    assert tasks == list(islice(family.tasks(split, 3), 100)) != list(islice(family.tasks(split, 4), 100))
    assert len({task.id for task in tasks}) == 100
    for task in tasks:
        made, checks = family.task(task.id), Checks.from_data(task.data, task.id)
        assert made.request == task.prompt and checks.expect == [made.call] and checks.answer == made.answer
        called = [tool["function"] for tool in made.tools if tool["function"]["name"] == made.call.name]
        assert len(called) == 1 and list(made.call.arguments) == called[0]["parameters"]["required"]
        for value in made.call.arguments.values():
            assert str(value) in task.prompt, "the agent can read all that it needs"
        assert made.value(made.call.arguments)


def test_names_of_other_families_are_refused() -> None:
    for name in ("calls/train/0/1", "sums/validation/0/1", ""):
        with pytest.raises(ValueError, match="no task of sums"):
            SUMS.task(name)


def test_no_pair_of_sums_is_in_both_splits() -> None:
    pairs = {}
    for split in ("train", "held-out"):
        made = [SUMS.task(task.id) for task in islice(SUMS.tasks(split, 0), 600)]  # type: ignore[arg-type]
        assert all(SMALLEST <= number <= LARGEST for task in made for number in task.call.arguments.values())
        pairs[split] = {tuple(sorted(task.call.arguments.values())) for task in made}
    assert len(pairs["held-out"]) > 200 and not pairs["train"] & pairs["held-out"]


def test_no_tool_is_called_with_the_same_value_in_both_splits() -> None:
    combinations = {
        split: {
            (task.call.name, *task.call.arguments.values())
            for task in (CALLS.task(one.id) for one in islice(CALLS.tasks(split, 0), 600))  # type: ignore[arg-type]
        }
        for split in ("train", "held-out")
    }
    assert not combinations["train"] & combinations["held-out"]


def test_calls_offers_up_to_three_tools_several_of_them_made_up() -> None:
    made = [CALLS.task(task.id) for task in islice(CALLS.tasks("train", 0), 300)]
    offered = Counter(len(task.tools) for task in made)
    assert set(offered) == {1, 2, 3}
    names = {tool["function"]["name"] for task in made for tool in task.tools}
    assert len(names) > 150, "made up for the task"
    for task in made:
        with pytest.raises(ValueError, match="not found"):
            task.value({parameter: "elsewhere" for parameter in task.call.arguments})


def test_the_tool_of_sums_adds() -> None:
    task = SUMS.task("sums/train/0/0")
    assert task.value({"a": 30, "b": 2.5}) == "32.5"
    for wrong in ({"a": 30}, {"a": "30", "b": 2}, {}):
        with pytest.raises(ValueError, match="two numbers"):
            task.value(wrong)


@pytest.mark.slow
async def test_the_families_share_a_server_that_knows_each_task() -> None:
    for kind in (calls_kind("calls", KindOptions()), sums_kind("sums", KindOptions())):
        for task in islice(kind.tasks("held-out", 0), 3):
            environment = kind.environment()
            await environment.reset(task, 0)
            expected = task.data["expect"][0]
            assert expected["name"] in [tool["function"]["name"] for tool in await environment.tools()]
            observed = await environment.call(expected["name"], expected["arguments"])
            assert not observed.error
            number = re.findall(r"\d+", observed.text)
            assert (await environment.evaluate(f"It is {number[-1] if number else ''}")).reward == 1.0
            assert (await environment.call(expected["name"], {"x": "nothing"})).error
            await environment.close()
        await kind.close()
