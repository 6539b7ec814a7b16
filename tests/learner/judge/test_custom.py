"""Judges and reward models of the user's own, by import path and from files."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.judge.create import create
from openclaw_rl.shared.errors import ConfigError, JudgeAway
from openclaw_rl.shared.records import Judgement, NextState, Turn, Vote
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load, parse_flags
from tests.learner.things import turn
from tests.trainer_local.models.test_reward_model import write_classifier

ASKED = turn(1, question="How much is 7 and 5?", answer="It is 12.")
THANKS = NextState(turn_id=ASKED.turn_id, role="user", text="Thanks!")


class Own:
    """A judge of ours, made from the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.closed = False

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        return Judgement(turn_id="another turn's", score=0.25, votes=[Vote(text=next_state.text, score=0.25)])

    async def close(self) -> None:
        self.closed = True


class Broken(Own):
    said: Any = None

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


class Slow(Own):
    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        await asyncio.Event().wait()
        raise AssertionError


class NoJudge:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings


class CannotBeMade:
    def __init__(self, settings: Settings) -> None:
        raise RuntimeError("no licence")


def path(cls: type) -> str:
    return f"{__name__}:{cls.__name__}"


async def test_a_class_by_import_path_judges_and_what_it_left_out_is_filled_in() -> None:
    judge = create(Settings(judge=path(Own), votes=3))
    judgement = await judge.judge(ASKED, THANKS)
    assert (judgement.turn_id, judgement.score) == (ASKED.turn_id, 0.25)
    assert (judgement.judge, judgement.prompt_version) == (path(Own), path(Own))
    assert (judgement.selection, judgement.reason) == ("none", "scored +0.25")
    assert judge.made.settings.judge.votes == 3  # type: ignore[attr-defined]
    await judge.close()
    assert judge.made.closed  # type: ignore[attr-defined]


async def test_a_class_from_a_file_judges_and_its_content_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "judge.py"
    file.write_text(
        "from openclaw_rl.shared.records import Judgement\n"
        "class Judge:\n"
        "    def __init__(self, settings): pass\n"
        "    async def judge(self, turn, next_state):\n"
        "        return Judgement(turn_id=turn.turn_id, score=1.0, hint='Go on.', reason='liked')\n"
    )
    for name in (str(file), f"{file}:Judge"):
        judgement = await create(Settings(judge=name)).judge(ASKED, THANKS)
        assert (judgement.score, judgement.hint, judgement.selection) == (1.0, "Go on.", "own")
        assert judgement.prompt_version.startswith("judge.py") and "#" in judgement.prompt_version
        assert judgement.votes == [Vote(text="liked", score=1.0, hint="Go on.")]


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (ValueError("no idea"), "ValueError: no idea"),
        ("good", "it gave a str"),
        (Judgement(turn_id="x", score=1.5), "outside [-1, 1]"),
        (Judgement(turn_id="x", score=float("nan")), "outside [-1, 1]"),
    ],
    ids=["raises", "a text", "too large", "not a number"],
)
async def test_any_error_of_a_custom_judge_is_a_failed_vote(
    said: Any, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "said", said)
    judgement = await create(Settings(judge=path(Broken))).judge(ASKED, THANKS)
    assert judgement.score is None and failure in judgement.votes[0].failure
    assert judgement.reason == f"1 of 1 votes failed: {judgement.votes[0].failure}"


async def test_one_that_waits_for_its_own_model_may_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broken, "said", JudgeAway("the model is loading"))
    with pytest.raises(JudgeAway, match="loading"):
        await create(Settings(judge=path(Broken))).judge(ASKED, THANKS)


async def test_one_that_hangs_costs_no_more_than_the_time_out() -> None:
    async with asyncio.timeout(20):
        judgement = await create(Settings(judge=path(Slow), judge_timeout=0.05)).judge(ASKED, THANKS)
    assert judgement.score is None and "0.05 s" in judgement.votes[0].failure


def test_a_class_that_is_no_judge_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no method `judge`"):
        create(Settings(judge=path(NoJudge)))
    with pytest.raises(ConfigError, match="cannot be made: RuntimeError: no licence"):
        create(Settings(judge=path(CannotBeMade)))
    with pytest.raises(ConfigError):
        create(Settings(judge="no_such_module:Judge"))
    with pytest.raises(ConfigError, match="neither `judge` nor `score`"):
        create(Settings(custom_reward=path(NoJudge)))


REWARD = """
class Model:
    def __init__(self, config):
        self.config = config
    def score(self, prompt, response, next_state):
        assert "How much is 7 and 5?" in prompt and response == "It is 12." and next_state == "Thanks!"
        assert self.config["votes"] == self.config.votes == self.config.get("votes") == 3
        return {value}

def get_reward_model(config):
    return Model(config)
"""


@pytest.mark.parametrize(("value", "score"), [("1", 1.0), ("0.0", -1.0), ("0.75", 0.5), ("True", 1.0)])
async def test_a_reward_model_by_the_references_contract_is_mapped(tmp_path: Path, value: str, score: float) -> None:
    file = tmp_path / "reward.py"
    file.write_text(REWARD.format(value=value))
    for name in (str(file), f"{file}:get_reward_model"):
        judgement = await create(Settings(custom_reward=name, votes=3)).judge(ASKED, THANKS)
        assert judgement.score == score, judgement.reason
        assert judgement.judge == name and judgement.reason.endswith("of [0, 1]")


@pytest.mark.parametrize(
    ("value", "failure"),
    [
        ("1.01", "outside [0, 1]"),
        ("-0.5", "outside [0, 1]"),
        ("float('nan')", "outside [0, 1]"),
        ("None", "no number"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
async def test_a_reward_that_is_none_is_a_failed_vote_and_not_neutral(tmp_path: Path, value: str, failure: str) -> None:
    file = tmp_path / "reward.py"
    file.write_text(REWARD.format(value=value))
    judgement = await create(Settings(custom_reward=str(file), votes=3)).judge(ASKED, THANKS)
    assert judgement.score is None and failure in judgement.votes[0].failure


async def test_the_examples_of_the_page_work(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "judging.md").read_text()
    judge, reward = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "judge.py").write_text(judge)
    (tmp_path / "reward.py").write_text(reward)
    own = await create(Settings(judge=str(tmp_path / "judge.py"))).judge(ASKED, THANKS)
    assert (own.score, own.reason) == (-0.5, "looked for a please")
    assert (await create(Settings(custom_reward=str(tmp_path / "reward.py"))).judge(ASKED, THANKS)).score == 0.0


async def test_a_reward_model_may_be_a_coroutine_or_a_judge_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text(
        "class Model:\n    async def score(self, prompt, response, next_state):\n        return 0.5\n"
        "def get_reward_model(config):\n    return Model()\n"
    )
    assert (await create(Settings(custom_reward=str(file))).judge(ASKED, THANKS)).score == 0.0
    assert (await create(Settings(custom_reward=path(Own))).judge(ASKED, THANKS)).score == 0.25


CLASSIFIER = """
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class Classifier:
    def __init__(self, model_path: str):
        self.tokenizer = AutoTokenizer.from_pretrained(model_path)
        self.model = AutoModelForSequenceClassification.from_pretrained(model_path, torch_dtype=torch.bfloat16).eval()

    def score(self, prompt: str, response: str, next_state: str) -> float:
        inputs = self.tokenizer(f"{prompt} / {response} / {next_state}", return_tensors="pt", truncation=True)
        with torch.no_grad():
            return torch.sigmoid(self.model(**inputs).logits.float())[0, 0].item()


def get_reward_model(config):
    return Classifier(config["prm_model_path"])
"""


@pytest.mark.parametrize("source", ["PRM_MODEL_PATH", "--rm-checkpoint", "--judge", "reward-model:"])
async def test_a_reward_file_loads_the_classifier_that_the_service_was_given(tmp_path: Path, source: str) -> None:
    folder = str(write_classifier(tmp_path / "rm"))
    file = tmp_path / "custom_rm.py"
    file.write_text(CLASSIFIER)
    flags = ["--custom-rm-path", str(file)]
    environ = {source: folder} if source.isupper() else {}
    flags += [source, folder] if source.startswith("--") else []
    flags += ["--judge", source + folder] if source.endswith(":") else []
    settings, _ = load(parse_flags(flags), environ=environ, file=Path("/dev/null"))
    judge = create(settings)
    judgement = await judge.judge(ASKED, THANKS)
    assert judgement.score is not None and -1 < judgement.score < 1, judgement.reason
    other = await judge.judge(ASKED, NextState(turn_id=ASKED.turn_id, role="user", text="no no no, wrong"))
    assert other.score != judgement.score  # the model was asked


async def test_a_reward_file_without_the_path_that_it_needs_says_what_to_set(tmp_path: Path) -> None:
    file = tmp_path / "custom_rm.py"
    file.write_text(CLASSIFIER)
    with pytest.raises(ConfigError, match="prm_model_path is not set; set PRM_MODEL_PATH"):
        create(Settings(custom_reward=str(file)))


COMPUTE = """
class CustomRewardModel:
    def __init__(self, checkpoint_path: str):
        self.path = checkpoint_path

    def compute_reward(self, prompt: str, response: str, next_feedback: str) -> float:
        return 0.75 if self.path == "/models/prm" and next_feedback == "Thanks!" else 0.0

    def batch_compute_rewards(self, batch_data):
        raise AssertionError("turns are scored one by one")
"""


async def test_a_class_with_compute_reward_is_made_from_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "custom_reward.py"
    file.write_text(COMPUTE)
    for name in (str(file), f"{file}:CustomRewardModel"):
        flags = parse_flags(["--custom-rm-path", name, "--rm-checkpoint", "/models/prm"])
        settings, _ = load(flags, environ={}, file=Path("/dev/null"))
        assert (await create(settings).judge(ASKED, THANKS)).score == 0.5
    with pytest.raises(ConfigError, match=r"cannot be made: KeyError: .*set PRM_MODEL_PATH"):
        create(Settings(custom_reward=str(file)))


def test_a_reward_file_with_neither_name_says_how_to_name_its_class(tmp_path: Path) -> None:
    file = tmp_path / "custom_reward.py"
    file.write_text("class Mine: pass\n")
    with pytest.raises(
        ConfigError, match=r"no 'get_reward_model'; .*a class of yours is named as .*custom_reward.py:CLASS"
    ):
        create(Settings(custom_reward=str(file)))
