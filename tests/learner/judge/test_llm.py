"""Judges that ask a language model, against a scripted OpenAI-compatible server over real HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from openclaw_rl.learner.judge import votes
from openclaw_rl.learner.judge.askers.litellm import LiteLLMAsker, asker_of
from openclaw_rl.learner.judge.protocol import Judge
from openclaw_rl.learner.judge.signals import defect
from openclaw_rl.shared.errors import JudgeAway
from openclaw_rl.shared.records import NextState
from openclaw_rl.shared.settings.model_reference import read_model
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.judge.scripted_model import ScriptedModel
from tests.learner.things import turn

ASKED = turn(1, question="Tell me about tides.", answer="**Tides** rise and fall.")
COMPLAINT = NextState(turn_id=ASKED.turn_id, role="user", text="No bold, please.")

Judges = Callable[..., Judge]


async def test_the_scripted_model_sees_request_answer_and_reaction_with_its_role(
    model: ScriptedModel, judge: Judges
) -> None:
    model.script = ["The user objects.\n\\boxed{-1}", "[HINT]Write without bold.[/HINT]"]
    judgement = await judge(judge_temperature=0.3).judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint) == (-1.0, "Write without bold.")
    assert (judgement.judge, judgement.prompt_version, judgement.selection) == (
        "openai/scripted",
        "judge-v2+hint-v2",
        "longest",
    )
    assert judgement.reason == "1 of 1 votes valid: 1 for -1; openai/scripted was asked for a hint"
    assert judgement.votes[0].text.startswith("The user objects.")
    assert len(model.requests) == 2
    for request in model.requests:
        asked = request["messages"][0]["content"]
        for part in ("Tell me about tides.", "**Tides** rise and fall.", "No bold, please.", "role: user"):
            assert part in asked
        assert request["temperature"] == 0.3
    score, hint = (request["messages"][0]["content"] for request in model.requests)
    assert ("[HINT]" in score, "\\boxed" in score) == (False, True)
    assert ("[HINT]" in hint, "\\boxed" in hint) == (True, False)


async def test_the_most_frequent_score_of_the_scripted_votes_decides(model: ScriptedModel, judge: Judges) -> None:
    model.script = [r"\boxed{-1}", r"\boxed{1}", r"\boxed{-1}"]
    assert (await judge(votes=3, method="binary").judge(ASKED, COMPLAINT)).score == -1.0
    model.script = [r"\boxed{-1}", r"\boxed{1}"]
    split = await judge(votes=2, method="binary").judge(ASKED, COMPLAINT)
    assert split.score == 0.0
    assert split.reason == "2 of 2 votes valid: 1 for +1, 1 for -1; a tie, which scores 0"
    model.script = [r"\boxed{-1}", r"\boxed{1}", r"\boxed{-1}"]
    assert (await judge(votes=3, judge_threshold=0.7, method="binary").judge(ASKED, COMPLAINT)).score == 0.0


async def test_scripted_votes_that_fail_are_failures_and_not_neutral(model: ScriptedModel, judge: Judges) -> None:
    model.script = [r"\boxed{1}", None, "I cannot say."]
    judgement = await judge(votes=3, method="binary").judge(ASKED, COMPLAINT)
    assert judgement.score == 1.0
    assert sorted(bool(vote.failure) for vote in judgement.votes) == [False, True, True]
    assert "I cannot say." in [vote.text for vote in judgement.votes if vote.failure]
    assert "1 of 3 votes valid" in judgement.reason and "2 of 3 votes failed" in judgement.reason

    model.script = [None, "I cannot say."]
    judgement = await judge(votes=2).judge(ASKED, COMPLAINT)
    assert judgement.score is None and judgement.hint is None and judgement.selection == "none"


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408, 429, 500, 503])
async def test_a_scripted_provider_that_cannot_be_had_lets_the_turn_wait_with_its_words(
    model: ScriptedModel, judge: Judges, status: int
) -> None:
    model.script, model.refusal = [None, None], (status, f"refused with {status}")
    with pytest.raises(JudgeAway, match=rf"openai/scripted waits for its provider: .*refused with {status}"):
        await judge(votes=2).judge(ASKED, COMPLAINT)
    assert len(model.requests) == 2
    assert (await judge().judge(ASKED, COMPLAINT)).score == 0.0  # it is back


async def test_a_question_that_the_scripted_provider_refuses_is_a_failed_vote(
    model: ScriptedModel, judge: Judges
) -> None:
    model.script, model.refusal = [None], (400, "the prompt is too long")
    judgement = await judge().judge(ASKED, COMPLAINT)
    assert judgement.score is None and "the prompt is too long" in judgement.reason


async def test_an_unreachable_or_unknown_provider_lets_the_turn_wait(judge: Judges) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        unreachable = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(JudgeAway, match=r"waits for its provider: .*[Cc]onnection"):
        await judge(judge=f"openai/scripted@{unreachable}").judge(ASKED, COMPLAINT)
    with pytest.raises(JudgeAway, match="LLM Provider NOT provided"):
        await judge(judge="unknown-model").judge(ASKED, COMPLAINT)


async def test_the_judge_is_not_asked_again_while_the_scripted_hint_model_is_away(
    model: ScriptedModel, judge: Judges
) -> None:
    asking = judge(hint_model=f"openai/hints@{model.url}")
    model.script = [r"\boxed{-1}", None]
    with pytest.raises(JudgeAway, match="openai/hints waits"):
        await asking.judge(ASKED, COMPLAINT)
    model.script = ["[HINT]Write without bold.[/HINT]"]
    judgement = await asking.judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint) == (-1.0, "Write without bold.")
    assert [request["model"] for request in model.requests] == ["scripted", "hints", "hints"]


async def test_a_scripted_failure_is_tried_again(
    model: ScriptedModel, judge: Judges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(votes, "TRIES", 2)
    model.script = [None, r"\boxed{1}"]
    assert (await judge(votes=1, method="binary").judge(ASKED, COMPLAINT)).score == 1.0
    assert len(model.requests) == 2


async def test_a_scripted_model_that_hangs_costs_no_more_than_the_time_out(model: ScriptedModel, judge: Judges) -> None:
    # Importing LiteLLM is no part of the vote.
    await LiteLLMAsker("openai/scripted", Settings(), api_base="", api_key="").load()
    model.released.clear()
    async with asyncio.timeout(30):
        with pytest.raises(JudgeAway, match=r"no answer within 0\.3 s"):
            await judge(judge_timeout=0.3).judge(ASKED, COMPLAINT)


async def test_no_more_votes_at_a_time_than_allowed_reach_the_scripted_model(
    model: ScriptedModel, judge: Judges
) -> None:
    asking = judge(votes=4, judge_concurrency=2)
    judgements = await asyncio.gather(*(asking.judge(ASKED, COMPLAINT) for _ in range(3)))
    assert [judgement.score for judgement in judgements] == [0.0] * 3
    assert len(model.requests) == 24 and model.most_together <= 2


@pytest.mark.parametrize("role", ["user", "tool", "environment"])
@pytest.mark.parametrize("score", [-1, 0, 1])
async def test_any_next_state_gives_a_hint_next_to_any_score_of_the_scripted_model(
    model: ScriptedModel, judge: Judges, role: Literal["user", "tool", "environment"], score: int
) -> None:
    model.script = [f"\\boxed{{{score}}}", "[HINT]Check the path first.[/HINT]"]
    state = NextState(turn_id=ASKED.turn_id, role=role, text="Error: no such file")
    judgement = await judge().judge(ASKED, state)
    assert (judgement.score, judgement.hint) == (score, "Check the path first.")
    assert f"role: {role}" in model.requests[1]["messages"][0]["content"]


async def test_no_hint_is_asked_for_without_a_score_or_a_next_state(model: ScriptedModel, judge: Judges) -> None:
    model.script = ["I cannot say."]
    assert (await judge().judge(ASKED, COMPLAINT)).hint is None
    await judge().judge(ASKED, NextState(turn_id=ASKED.turn_id, role="user", text=" "))
    assert len(model.requests) == 2


async def test_one_scripted_yes_among_three_is_a_hint(model: ScriptedModel, judge: Judges) -> None:
    model.script = [r"\boxed{-1}"] * 3 + ["[HINT]Write without bold.[/HINT]", "[NO HINT]", "[NO HINT]"]
    judgement = await judge(votes=3, judge_concurrency=1).judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint, judgement.selection) == (-1.0, "Write without bold.", "longest")


async def test_a_scripted_hint_of_ten_characters_is_dropped(model: ScriptedModel, judge: Judges) -> None:
    model.script = [r"\boxed{-1}", "[HINT]No tables.[/HINT]"]
    judgement = await judge().judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint, judgement.selection) == (-1.0, None, "none")
    assert "hints shorter than 11 characters were dropped" in judgement.reason
    assert judgement.votes[1].hint == "No tables."


async def test_a_scripted_judge_that_cannot_read_the_language_gives_no_score(
    model: ScriptedModel, judge: Judges
) -> None:
    model.script = [r"I do not know this language. \boxed{?}", None, r"\boxed{?}"]
    judgement = await judge(votes=3).judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint) == (None, None)
    assert judgement.reason.startswith("not understood") and defect(ASKED, judgement, Settings()).startswith(
        "not understood"
    )
    assert len(model.requests) == 3  # none of them was tried again, and no hint was asked for
    model.script = [r"\boxed{?}", r"\boxed{1}", r"\boxed{1}"]
    assert (await judge(votes=3).judge(ASKED, COMPLAINT)).score == 1.0


async def test_a_prompt_of_ones_own_that_asks_for_a_hint_too_is_asked_alone(
    model: ScriptedModel, judge: Judges, tmp_path: Path
) -> None:
    file = tmp_path / "both.md"
    file.write_text("Was {answer} fine, given {next_state}? \\boxed{} and [HINT]…[/HINT]")
    model.script = [r"\boxed{1} [HINT]Write without bold.[/HINT]"]
    judgement = await judge(judge_prompt=str(file)).judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint, len(model.requests)) == (1.0, "Write without bold.", 1)


async def test_a_prompt_of_ones_own_is_asked_and_recorded_by_content(
    model: ScriptedModel, judge: Judges, tmp_path: Path
) -> None:
    file = tmp_path / "mine.md"
    file.write_text("Was {answer} fine, given {next_state}? \\boxed{}")
    first = await judge(judge_prompt=str(file)).judge(ASKED, COMPLAINT)
    assert model.requests[0]["messages"][0]["content"] == (
        "Was **Tides** rise and fall. fine, given No bold, please.? \\boxed{}"
    )
    file.write_text("Again: was {answer} fine, given {next_state}? \\boxed{}")
    second = await judge(judge_prompt=str(file)).judge(ASKED, COMPLAINT)
    own, _, hint = first.prompt_version.partition("+")
    assert own.startswith("mine.md#") and len(own) == len("mine.md#") + 8 and hint == "hint-v2"
    assert second.prompt_version != first.prompt_version


async def test_the_scripted_hint_model_is_asked_in_place_of_the_judge(model: ScriptedModel, judge: Judges) -> None:
    model.script = [r"\boxed{-1} [HINT]The scorer's own.[/HINT]", "[HINT]Write without bold.[/HINT]"]
    judgement = await judge(hint_model=f"openai/hints@{model.url}").judge(ASKED, COMPLAINT)
    assert [request["model"] for request in model.requests] == ["scripted", "hints"]
    assert (judgement.score, judgement.hint, judgement.selection) == (-1.0, "Write without bold.", "longest")
    assert judgement.prompt_version == "judge-v2+hint-v2"
    assert [(vote.about, vote.hint) for vote in judgement.votes] == [("score", None), ("hint", "Write without bold.")]
    assert "openai/hints was asked for a hint" in judgement.reason


async def test_one_scripted_hint_among_votes_that_fail_or_decline_is_taken(model: ScriptedModel, judge: Judges) -> None:
    asking = judge(hint_model=f"openai/hints@{model.url}", votes=3, judge_concurrency=1)
    model.script = [r"\boxed{-1}"] * 3 + ["[HINT]Keep it short.[/HINT]", "It was only wrong. [NO HINT]", "No idea."]
    judged = await asking.judge(ASKED, COMPLAINT)
    assert (judged.score, judged.hint) == (-1.0, "Keep it short.")
    assert "1 of 3 hint votes failed" in judged.reason
    model.script = [r"\boxed{-1}"] * 3 + ["[NO HINT]", "No idea.", "No idea."]
    judged = await asking.judge(ASKED, COMPLAINT)
    assert (judged.hint, judged.selection) == (None, "none") and "2 of 3 hint votes failed" in judged.reason


async def test_the_rule_judge_can_have_a_scripted_hint_model(model: ScriptedModel, judge: Judges) -> None:
    model.script = ["[HINT]Use no bold type.[/HINT]"]
    asking = judge(judge="rules", hint_model=f"openai/hints@{model.url}")
    judgement = await asking.judge(ASKED, COMPLAINT)
    assert (judgement.score, judgement.hint, judgement.judge) == (-1.0, "Use no bold type.", "rules")
    assert judgement.prompt_version == "rules-v12+hint-v2"


@pytest.mark.parametrize(
    ("judge_name", "hint", "expected"),
    [
        ("openai/a@http://there/v1", "openai/b@http://there/v1", ("http://there/v1", "judge-key")),
        ("openai/a", "openai/b", ("", "judge-key")),
        ("openai/a@http://there/v1", "openai/b", ("", "")),
        ("openai/a", "anthropic/b", ("", "")),
        ("rules", "openai/b", ("", "")),
    ],
)
def test_a_hint_model_takes_the_judges_key_only_at_the_same_address_of_one_provider(
    judge_name: str, hint: str, expected: tuple[str, str]
) -> None:
    settings = Settings(judge=judge_name, hint_model=hint, model_keys="judge=judge-key")
    asker = asker_of(read_model(hint, "hint_model"), settings)
    assert (asker._api_base, asker._api_key) == expected
    own = asker_of(read_model(hint, "hint_model"), settings.replace(model_keys="judge=judge-key, hint=other"))
    assert own._api_key == "other"


async def test_a_scripted_judge_elsewhere_gets_no_secret_and_one_on_this_machine_gets_it(
    model: ScriptedModel, judge: Judges
) -> None:
    pytest.importorskip("detect_secrets")
    key = f"ghp_{'a1B2' * 9}"
    asked = turn(2, question=f"Log in with {key}.", answer="Done.")
    for place, here in (("127.0.0.1", True), ("0.0.0.0", False)):
        model.script = [r"\boxed{1}"]
        base = model.url.replace("127.0.0.1", place)
        assert (await judge(judge=f"openai/scripted@{base}").judge(asked, COMPLAINT)).score == 1.0
        question = model.requests[-1]["messages"][0]["content"]
        assert (key in question, "Log in with [SECRET]." in question) == (here, not here)
