from __future__ import annotations

import pytest

from openclaw_rl.evaluation.arm import Arm, Plan, Point
from openclaw_rl.evaluation.evaluate import Work, evaluate
from openclaw_rl.evaluation.experiment import Experiment, summary
from openclaw_rl.evaluation.probe import Probe
from openclaw_rl.evaluation.statistics import spread
from openclaw_rl.evaluation.suites import CodingTask
from openclaw_rl.evaluation.targets import Target
from openclaw_rl.shared.errors import ConfigError
from tests.evaluation.pupil import Pupil
from tests.scripted import scripted


async def test_every_suite_persona_and_seed_is_in_the_result_against_a_scripted_service() -> None:
    said: list[str] = []
    coding = CodingTask(id="double", prompt="Write double(n).", tests=["assert double(2) == 4"])
    async with scripted(Pupil(learns_after=3)) as service:
        target = Target("mine", service.url, "KEY", "policy@5")
        work = Work(seeds=(1, 2), personas=("student", "ta"), problems=3, sessions=8, suites={"own": [coding]})
        result = await evaluate(target, work, said.append)
    student, ta = result["conversation"]["student"], result["conversation"]["ta"]
    # The first seed is probed before the service has heard a complaint, the second after it has learned.
    assert [run["score"] for run in student["seeds"]] == [0.0, 1.0]
    assert student["score"] == [0.5, pytest.approx(12.706 * 0.5, abs=1e-3)]
    assert student["seeds"][0]["forms"] == {"base": 3}
    assert student["seeds"][1]["sessions"] == 3
    assert len(student["seeds"][0]["tasks"]) == 3
    assert ta["score"] == [0.0, 0.0]
    assert ta["sessions"] is None
    assert result["own"]["score"] == [0.0, 0.0]
    assert result["own"]["seeds"][0]["tasks"][0]["id"] == "double"
    assert len(said) == 6
    assert {body.get("model") for path, body, _ in service.requests if path == "/v1/chat/completions"} == {"policy@5"}


def test_an_interval_of_one_seed_is_unknown() -> None:
    assert spread([0.25]) == [0.25, None]


def test_a_data_set_has_nothing_to_grade() -> None:
    from openclaw_rl.evaluation.problems import take

    with pytest.raises(ConfigError, match="goes with student"):
        Work(dataset=take("train", 1, 2)).person("ta", 1)


def test_arms_are_summed_up_over_seeds() -> None:
    def arm(seed: int, after: float) -> Arm:
        points = [
            Point(0, 0, Probe(10, 0.0, 0.9, {"base": 9, "wanted": 1})),
            Point(8, 1, Probe(10, after, 0.8, {"wanted": 6, "bare": 4})),
        ]
        return Arm(Plan(seed), points=points, version=1, first_scores=[0.0, 1.0, 1.0, 1.0])

    (found,) = summary({"student": {"trained": [arm(1, 0.9), arm(2, 0.7)]}})["trained"].values()
    assert found["points"][1][0] == 8
    assert found["points"][1][1] == [0.8, pytest.approx(12.706 * 0.1, abs=1e-3)]
    assert found["points"][1][3] == [0.4, 0.0]
    assert found["sessions"] == [4, 4]


def test_an_arm_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="trained, control, placebo, irrelevant"):
        Experiment(arms=("trained", "sham")).check()
