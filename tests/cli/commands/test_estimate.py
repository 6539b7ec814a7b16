"""`openclaw-rl estimate`: its inputs, its cost of a step, and that nothing is sent for it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli.costs.costs import Costs, total
from openclaw_rl.cli.costs.spending import spending_line
from openclaw_rl.cli.costs.workload import Workload
from openclaw_rl.cli.main import app
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Timings, VersionSpan, now
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import Budget
from tests.shared.journal_records import judged, make_turn, user_reply

MODEL = "Qwen/Qwen3-8B"
LOAD = Workload(prompt=1000, answer=100, main=40)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fail the test at any connection."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("something was sent"))


def estimated(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["estimate", "--json", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    estimate: dict[str, Any] = json.loads(result.stdout)
    return estimate


def costs(load: Workload = LOAD, **settings: Any) -> Costs:
    return Costs(Settings(backend="tinker", model=MODEL, **settings), load)


def parts(found: Costs) -> dict[str, dict[Any, float]]:
    return {part.name: part.amounts for part in found.step()}


def test_a_step_of_a_policy_gradient_is_a_forward_before_and_after_and_a_backward() -> None:
    found = parts(costs(method="binary", batch_size=4, guard=False, audit_fraction=0))
    places = 4 * 1099
    assert found == {
        "the policy's logprobs, forward": {"prefill": 2 * places},
        "training, forward and backward": {"train": places, "step": 1},
    }


def test_distillation_pays_for_the_teacher_and_every_pass_for_training_again() -> None:
    own = parts(costs(method="opd", batch_size=4, guard=False, audit_fraction=0, epochs=3))
    assert own["teacher and base score the answers"]["prefill"] == 4 * (1040 + 100)
    assert own["training, forward and backward"] == {"train": 3 * 4 * 1099, "step": 3}
    assert own["the policy's logprobs, forward"] == {"prefill": 4 * 4 * 1099}
    both = total(part.amounts for part in costs(method="rehearse", max_hints=2).step())
    more = total(part.amounts for part in costs(method="rehearse", max_hints=6).step())
    assert more["prefill"] > both["prefill"] and more["train"] == both["train"]


def test_rehearsals_anchors_and_probes_are_sampled_and_what_is_switched_off_costs_nothing() -> None:
    found = parts(costs(method="rehearse"))
    assert found["16 rehearsals are sampled"] == {"prefill": 16 * 1000, "sample": 16 * 100}
    assert found["8 anchors are sampled"]["sample"] == 8 * 100
    assert found["the guard probes the version, at most"]["sample"] > 16 * 100
    bare = parts(costs(method="rehearse", rehearsals=0, anchors=0, guard=False, audit_fraction=0))
    assert not any("sampled" in name or "guard" in name or "audit" in name for name in bare)


def test_prompts_beyond_the_budget_of_rehearsals_are_not_rehearsed_and_that_is_said() -> None:
    long = costs(Workload(prompt=40_000, answer=100, main=10), method="rehearse")
    assert not any("rehearsals" in name for name in parts(long))
    assert any("max_sample_tokens" in line for line in long.assumptions)


def test_a_judge_through_the_policy_is_paid_for_every_turn() -> None:
    assert not any("judging" in part.name for part in costs(judge="rules").judging())
    (judging, _) = costs(judge="policy", method="binary", votes=3).judging()
    assert judging.name == "judging: score, 3 votes each" and judging.amounts["sample"] == 3 * 1024
    (judging, _) = costs(judge="policy", method="rehearse", votes=3).judging()
    assert judging.name == "judging: score and hint, 3 votes each" and judging.amounts["sample"] == 2 * 3 * 1024
    (judging, _) = costs(judge="rules", hint_model="policy", votes=3).judging()
    assert judging.name == "judging: hint, 3 votes each"
    paid, free = costs(judge="policy").learning_day(), costs(judge="rules").learning_day()
    assert paid["prefill"] > free["prefill"]


def test_the_automatic_judge_is_paid_and_said() -> None:
    assert costs().judging() == costs(judge="policy").judging()
    assert any(line.startswith("the judge is policy (auto: ") for line in costs().assumptions)
    assert not any("the judge is" in line for line in costs(judge="rules").assumptions)


def test_without_training_only_chat_is_paid() -> None:
    found = costs(train=False, audit_fraction=0)
    assert found.learning_day().get("train", 0) == 0 and found.chat_day["prefill"] == 40_000


def test_given_traffic_is_estimated_in_tokens_and_dollars(tmp_path: Path) -> None:
    arguments = ["--prompt-tokens", "1000", "--answer-tokens", "100", "--turns-per-day", "40", "--method", "binary"]
    estimate = estimated("--backend", "tinker", "--model", MODEL, *arguments)
    assert estimate["chat_turn"]["dollars"] == pytest.approx((1000 * 0.195 + 100 * 0.6) / 1e6)
    assert estimate["price"]["as_of"] == "2026-10-07" and "thinkingmachines" in estimate["price"]["source"]
    assert estimate["day"]["steps"] == 40 / 16
    day = estimate["day"]
    assert day["together"]["dollars"] == pytest.approx(day["chat"]["dollars"] + day["learning"]["dollars"], abs=1e-5)
    assert estimate["step"]["train"] == sum(part.get("train", 0) for part in estimate["step"]["parts"])
    assert not (tmp_path / "data").exists()


def test_an_unknown_price_is_said_and_not_guessed() -> None:
    lengths = ["--prompt-tokens", "10", "--answer-tokens", "10", "--turns-per-day", "4", "--backend", "tinker"]
    estimate = estimated("--model", "author/unknown", *lengths)
    assert estimate["price"] is None and estimate["chat_turn"]["unknown"] == ["prefill", "sample"]
    result = CliRunner().invoke(app, ["estimate", "--model", "author/unknown", *lengths], catch_exceptions=False)
    assert "prices are unknown" in result.stdout
    dedicated = estimated("--model", MODEL, *lengths[:-1], "fireworks", "--fireworks-mode", "dedicated")
    assert dedicated["price"] is None and "by time" in dedicated["note"]


def test_limits_say_when_they_stop_what(tmp_path: Path) -> None:
    def limits(**given: int) -> dict[str, str]:
        flags = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        lengths = ["--prompt-tokens", "1000", "--answer-tokens", "100", "--turns-per-day", "64", "--method", "binary"]
        estimate = estimated("--backend", "tinker", "--model", MODEL, *lengths, *flags)
        return {one["setting"]: one["stops"] for one in estimate["limits"]}

    assert set(limits().values()) == {""}
    found = limits(cloud_daily_train_tokens=100, cloud_daily_steps=2, cloud_daily_chat_tokens=11_000)
    assert found["cloud_daily_train_tokens"].startswith("before the first step")
    assert found["cloud_daily_steps"] == "after 2 of a day's 4.0 steps"
    assert found["cloud_daily_chat_tokens"] == "after 10 of a day's 64.0 chat turns"
    assert limits(cloud_daily_steps=4)["cloud_daily_steps"].startswith("never")


def test_recorded_turns_are_the_measure_and_what_is_given_wins(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    journal = Journal(settings.serve.journal_path)
    for number in range(4):
        lengths = {"prompt_ids": list(range(100)), "response_ids": list(range(10)), "logprobs": [-1.0] * 10}
        times = Timings(arrived=now(), first_token=None, finished=now())
        spans = [VersionSpan(0, 0, 10)]
        turn = make_turn(f"s{number}", **lengths, timings=times, versions=spans)
        journal.record_turn(turn)
        if number < 2:
            journal.settle(user_reply(turn, "thanks"))
            journal.add_judgement(judged(turn, hint="shorter" if number else None))
    journal.close()
    load = Workload.from_settings(settings)
    assert (load.prompt, load.answer, load.main, load.answered) == (100, 10, 4, 0.5)
    assert load.hints == 1 and "4 main" in load.source
    given = Workload.from_settings(settings, prompt=7)
    assert (given.prompt, given.answer) == (7, 10) and "prompt as given" in given.source


def test_without_traffic_it_names_the_missing_options() -> None:
    with pytest.raises(ConfigError, match=r"answer tokens, turns a day.*--answer-tokens and --turns-per-day"):
        Workload.from_settings(Settings(data=Path("nowhere")), prompt=5)
    result = CliRunner().invoke(app, ["estimate"])
    assert isinstance(result.exception, ConfigError) and "--backend tinker" in str(result.exception)


def test_the_cost_of_today_is_in_status_and_in_the_estimate(tmp_path: Path) -> None:
    settings = Settings(
        data=tmp_path / "data", backend="tinker", model=MODEL, cloud_daily_chat_tokens=5000, cloud_daily_steps=9
    )
    assert spending_line(Settings(data=tmp_path)) == ""
    assert spending_line(settings) == "0 of 9 learning steps, 0 of 5,000 chat tokens today (UTC), $0.00"
    budget = Budget(settings, "tinker", MODEL)
    budget.add("chat", {"prefill": 1_000_000})
    budget.add("learning", {"train": 10})
    Budget(settings, "tinker", "author/unknown").add("learning", {"train": 5})
    line = spending_line(settings)
    assert "15 learning tokens" in line and "1,000,000 of 5,000 chat tokens" in line
    assert "$0.20 plus unknown prices" in line
    flags = [
        "--prompt-tokens",
        "10",
        "--answer-tokens",
        "10",
        "--turns-per-day",
        "4",
        "--data",
        str(settings.serve.data),
    ]
    today = estimated("--backend", "tinker", "--model", MODEL, *flags)["today"]
    assert today["chat"] == {"amounts": {"prefill": 1_000_000}, "dollars": 0.195, "unknown": []}
    assert today["learning"]["unknown"] == ["train"]
