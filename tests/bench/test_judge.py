"""The benchmark of judges: on the judge by rules, on one of our own, on the tiny policy's engine; and its page."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import judge, judge_page
from bench.pages import RESULTS
from openclaw_rl.evaluation import reactions
from openclaw_rl.shared.engine.protocol import Scores
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.records import Judgement, NextState, Turn
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE, SMOLLM2
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings

OWN = [
    {"answer": "4", "text": "Thanks, perfect!", "score": 1, "hint": False, "language": "en"},
    {"answer": "4", "text": "Too long, be shorter.", "score": -1, "hint": True, "language": "en"},
    {"answer": "4", "text": "And what is 3 + 3?", "score": 0, "hint": False, "language": "en"},
    {"answer": "4", "text": "Das stimmt leider nicht.", "score": -1, "hint": False, "language": "de"},
]


class Silent:
    """A judge that never understands; it counts the messages that it is asked about."""

    asked = 0

    def __init__(self, settings: Settings) -> None: ...

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        type(self).asked += 1
        return Judgement(turn_id=turn.turn_id, score=None, judge="silent", prompt_version="1", reason="not understood")

    async def close(self) -> None: ...


def measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> dict:
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(map(json.dumps, OWN)), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["bench.judge", "--reactions", str(file), "--json", *arguments])
    assert judge.main() == 0
    result: dict = json.loads(capsys.readouterr().out.splitlines()[-1])
    return result


def test_rules_are_measured_on_a_file_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = measured(tmp_path, capsys, monkeypatch, "--judge", "rules")
    rules = result["judges"]["rules"]
    assert (result["reactions"], result["held_out"]) == (4, 0)
    assert rules["by_language"]["en"] == 1.0 and rules["by_language"]["de"] == 0.0
    assert rules["hint_recall"] == 1.0 and rules["hint_precision"] == 1.0
    assert "development" not in rules


@pytest.mark.parametrize("fetched", [True, False])
def test_the_rules_and_smollm2_are_measured_unless_it_is_not_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fetched: bool
) -> None:
    @asynccontextmanager
    async def silent(name: str, options: object) -> AsyncIterator[dict[str, Silent]]:
        yield {name: Silent(Settings())}

    monkeypatch.setattr(judge, "judges_of", silent)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    if fetched:
        SMOLLM2.path.mkdir(parents=True)
    wanted = ["rules", "engine:smollm2"] if fetched else ["rules"]
    assert judge.chosen(None) == wanted
    assert ("`openclaw-rl fetch smollm2`" in capsys.readouterr().err) is not fetched
    assert list(measured(tmp_path, capsys, monkeypatch)["judges"]) == wanted


def test_without_a_cache_folder_the_rules_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError

    for variable in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert judge.chosen(None) == ["rules"]
    assert judge.chosen(["tiny"]) == ["tiny"]


def test_a_judge_that_understands_nothing_is_never_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{__name__}:Silent"
    found = measured(tmp_path, capsys, monkeypatch, "--judge", name)["judges"][name]
    assert (found["accuracy"], found["not_understood"], found["failed"]) == (0.0, 1.0, 0.0)


def test_an_interrupted_run_takes_the_verdicts_that_it_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, kept = f"{__name__}:Silent", tmp_path / "kept.jsonl"
    arguments = ("--judge", name, "--verdicts", str(kept))
    first = measured(tmp_path, capsys, monkeypatch, *arguments)
    lines = kept.read_text().splitlines()
    assert len(lines) == len(OWN)
    kept.write_text("\n".join(lines[:-1]) + "\n")
    asked = Silent.asked
    assert measured(tmp_path, capsys, monkeypatch, *arguments) == first
    assert Silent.asked == asked + 1
    kept.write_text("no verdict")
    with pytest.raises(ConfigError, match="holds no verdicts"):
        judge.KeptVerdicts(kept)


async def test_a_scripted_engine_says_the_score_that_it_finds_likeliest() -> None:
    class Engine:
        """Finds an answer the likelier the more tokens its score has: -1 wins."""

        closed = False

        async def score(self, prompt_ids: Sequence[int], continuation_ids: Sequence[int], **_: Any) -> Scores:
            self.prompt, self.said = prompt_ids, continuation_ids
            return Scores([1.0] * len(continuation_ids), 0)

        async def close(self) -> None:
            self.closed = True

    engine = Engine()
    likeliest = judge.LikeliestScore(engine, str(EMBEDDED_POLICY))  # type: ignore[arg-type]
    reaction = reactions.LabelledReaction(answer="4", text="No.", score=-1)
    assert (await likeliest.judge(reaction.turn(), reaction.next_state())).score == -1.0
    prompter = likeliest._prompter
    assert prompter.decode(engine.said) == "\\boxed{-1}" and "No." in prompter.decode(engine.prompt)
    await likeliest.close()
    assert engine.closed


@pytest.mark.real
@pytest.mark.timeout(240)
def test_a_named_model_is_measured_by_its_name_and_cannot_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--judge", "tiny", "--likeliest", "--max-tokens", "16")
    found = measured(tmp_path, capsys, monkeypatch, *arguments)["judges"]
    assert list(found) == ["engine:tiny", "engine:tiny, likeliest score"]
    assert (found["engine:tiny"]["failed"], found["engine:tiny"]["accuracy"]) == (1.0, 0.0)
    assert found["engine:tiny, likeliest score"]["failed"] == 0.0


def test_the_committed_results_are_of_the_set_and_of_the_shipped_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [json.loads((RESULTS / name).read_text("utf-8")) for name in (judge_page.RULES, judge_page.SMOLLM2)]
    rules, smollm2 = found[0]["judges"]["rules"], found[1]["judges"]["engine:smollm2"]
    for figures in (rules, smollm2):
        assert figures["reactions"] == len(reactions.load(reactions.HELD_OUT)) and len(figures["by_language"]) == 9
    assert smollm2["accuracy"] < rules["accuracy"], "else judge = auto would choose otherwise"
    monkeypatch.setattr(sys, "argv", ["bench.judge", "--judge", "rules", "--held-out", "--json"])
    assert judge.main() == 0
    now = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert now["judges"]["rules"] == rules, f"measure the rules again: --save bench/results/{judge_page.RULES}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:Judge", "no.such.module"),
        ("policy", "judge = policy needs the policy's engine, and there is none here"),
        ("auto", "judge = auto depends on the policy, and there is none here: name a judge"),
    ],
)
def test_a_judge_that_cannot_be_measured_is_refused(
    name: str, reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.judge", "--judge", name])
    assert judge.main() == 1
    assert reason in capsys.readouterr().err
