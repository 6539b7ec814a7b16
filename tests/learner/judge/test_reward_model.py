"""A scalar reward model as the judge, with a real classifier made here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from openclaw_rl.learner.judge.create import create
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.learner.judge.reward_model import RewardModelJudge, conversation
from openclaw_rl.shared.backends import Rating
from openclaw_rl.shared.errors import JudgeAway
from openclaw_rl.shared.records import NextState
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.models.reward_model import SequenceClassifier
from tests.learner.judge.scripted_model import ScriptedModel
from tests.learner.things import turn
from tests.trainer_local.models.test_reward_model import write_classifier

ASKED = turn(1, question="How much is 7 and 5?", answer="It is 12.")
THANKS = NextState(turn_id=ASKED.turn_id, role="user", text="thanks")
WRONG = NextState(turn_id=ASKED.turn_id, role="user", text="no, wrong")


async def test_its_score_is_the_judgement_and_it_gives_no_hint(tmp_path: Path) -> None:
    folder = write_classifier(tmp_path / "rm")
    for name in (f"reward-model:{folder}", str(folder)):  # a classifier's folder is a judge by itself
        judgement = await create(Settings(judge=name, device="cpu", votes=3)).judge(ASKED, THANKS)
        expected, reason = await SequenceClassifier(str(folder), device="cpu").rate(
            [("user", "How much is 7 and 5?"), ("assistant", "It is 12."), ("user", "thanks")]
        )
        assert -1 < expected < 1 and judgement.score == pytest.approx(expected)
        assert (judgement.hint, judgement.selection, judgement.judge) == (None, "none", "reward-model:rm")
        assert judgement.prompt_version == "reward-model-v1" and judgement.reason == reason


async def test_turns_wait_for_a_folder_that_cannot_be_loaded_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "rm"
    folder.mkdir()
    judge = create(Settings(judge=f"reward-model:{folder}", device="cpu"))
    with pytest.raises(JudgeAway, match="cannot be loaded as a sequence classifier"):
        await judge.judge(ASKED, THANKS)
    write_classifier(folder)
    assert (await judge.judge(ASKED, THANKS)).score is not None
    await judge.close()


class SlowToLoad:
    """Stands for a reward model that loads slowly, or rates slowly once it is loaded."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.rated = 0

    async def rate(self, conversation: Sequence[tuple[str, str]]) -> Rating:
        await self.ready.wait()
        self.rated += 1
        return Rating(0.5, "scripted")


async def test_the_first_load_of_a_scripted_model_is_no_part_of_a_vote_and_its_rating_is() -> None:
    model = SlowToLoad()
    judge = RewardModelJudge(model, "rm", Settings(judge_timeout=0.05))
    for _ in range(2):
        with pytest.raises(JudgeAway, match="still loading"):
            await judge.judge(ASKED, THANKS)
    model.ready.set()
    assert [one.score for one in await asyncio.gather(*(judge.judge(ASKED, THANKS) for _ in range(3)))] == [0.5] * 3
    assert model.rated == 4  # it loaded once
    model.ready.clear()
    slow = await judge.judge(ASKED, THANKS)
    assert slow.score is None and "no score within 0.05 s" in slow.votes[0].failure


async def test_with_a_scripted_hint_model_it_yields_hints_next_to_any_score(
    tmp_path: Path, model: ScriptedModel, judge: Callable[..., Judge]
) -> None:
    folder = write_classifier(tmp_path / "rm")
    asking = judge(judge=f"reward-model:{folder}", hint_model=f"openai/hints@{model.url}")
    rated = asking.scorer._model  # type: ignore[attr-defined]
    scores = {}
    for came in (THANKS, WRONG):
        model.script = ["[HINT]Check the sum.[/HINT]"]
        judgement = await asking.judge(ASKED, came)
        scores[came.text] = judgement.score
        assert judgement.score == (await rated.rate(conversation(ASKED, came))).score
        assert judgement.hint == "Check the sum."
    rated._model.score.weight.data *= -1  # the same words, the other way round
    model.script = ["[HINT]Check the sum.[/HINT]"]
    turned = await asking.judge(ASKED, THANKS)
    assert turned.score == pytest.approx(-scores["thanks"])
    assert turned.hint == "Check the sum."


def test_it_reads_the_conversation() -> None:
    made = turn(1, messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}])
    environment = NextState(turn_id=made.turn_id, role="environment", text="done")
    assert conversation(made, environment) == [
        ("system", "Be kind."),
        ("user", "Hi"),
        ("assistant", "It is 12."),
        ("tool", "done"),
    ]
