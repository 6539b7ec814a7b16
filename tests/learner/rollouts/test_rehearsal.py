"""Hinted prompts, which prompts are rehearsed, and what becomes of the rollouts; with a scripted engine."""

from __future__ import annotations

from array import array
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from openclaw_rl.learner.judge.signals import defect
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.rollouts.rehearsal import Rollouts, anchor_prompts, choose, hinted_prompt, hinted_prompts
from openclaw_rl.shared.errors import BadRequest, ConfigError, ContextLengthExceeded, EngineError
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import ImageSpan, Judgement, Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn
from tests.learner.world import ScriptedEngine

HINT = "no bold please"


def rendered(prompter: Prompter, messages: list[dict[str, Any]], **changes: Any) -> Turn:
    ids = prompter.render(ChatInput(messages=messages, tools=[], tools_json=b"")).ids()
    return turn(1, **({"messages": messages, "prompt_ids": ids} | changes))


def test_the_hint_stands_behind_the_users_last_message(prompter: Prompter) -> None:
    made = rendered(prompter, [{"role": "user", "content": "How much is 7 and 5?"}])
    text = prompter.decode(hinted_prompt(prompter, made, HINT))
    plain = prompter.decode(made.prompt_ids)
    assert text.count("How much is 7 and 5?\n\n[user's hint / instruction]\nno bold please") == 1
    assert text.replace("\n\n[user's hint / instruction]\nno bold please", "") == plain


def test_sampled_tokens_of_earlier_answers_stay_as_they_were_sampled(prompter: Prompter) -> None:
    messages = [
        {"role": "user", "content": "How much is 7 and 5?"},
        {"role": "assistant", "content": "It is twelve."},
        {"role": "user", "content": "And 7 and 6?"},
    ]
    made = rendered(prompter, messages)
    usual = array("I", prompter.tokenizer.encode("It is twelve."))
    letters = array("I", [token for letter in "It is twelve." for token in prompter.tokenizer.encode(letter)])
    ids = array("I", made.prompt_ids)
    start = next(index for index in range(len(ids)) if ids[index : index + len(usual)] == usual)
    sampled = ids[:start] + letters + ids[start + len(usual) :]
    hinted = hinted_prompt(prompter, rendered(prompter, messages, prompt_ids=sampled), HINT)
    assert hinted[: start + len(letters)] == sampled[: start + len(letters)]
    assert prompter.decode(hinted) == prompter.decode(hinted_prompt(prompter, made, HINT))


def test_a_call_that_was_begun_for_the_policy_stays_begun(prompter: Prompter) -> None:
    made = rendered(prompter, [{"role": "user", "content": "Use a tool."}])
    begun = prompter.tokenizer.encode('{"name":')
    forced = rendered(
        prompter,
        [{"role": "user", "content": "Use a tool."}],
        prompt_ids=[*made.prompt_ids, *begun],
    )
    assert list(hinted_prompt(prompter, forced, HINT)) == [*hinted_prompt(prompter, made, HINT), *begun]


def test_a_turn_that_a_scripted_prompter_cannot_render_is_not_distilled() -> None:
    class Refusing:
        def render(self, *_: Any, **__: Any) -> Any:
            raise BadRequest("too deep")

    assert hinted_prompts(cast(Prompter, Refusing()), turn(1), [HINT]) == []


def test_every_prompt_is_rehearsed_as_often_as_the_others() -> None:
    turns = [turn(number, prompt_ids=[number] * 10) for number in range(1, 4)]
    chosen = choose(turns, 7, 1000, Random(0))
    counts = sorted(sum(one.turn_id == made.turn_id for one in chosen) for made in turns)
    assert counts == [2, 2, 3]
    assert choose(turns, 7, 1000, Random(0)) == chosen
    assert choose([], 7, 1000, Random(0)) == []


def test_rehearsals_keep_to_the_token_budget_and_shared_beginnings_are_free() -> None:
    system = [9] * 900
    turns = [turn(number, prompt_ids=[*system, number, number]) for number in range(1, 6)]
    assert len(choose(turns, 5, 910, Random(0))) == 5
    apart = [turn(number, prompt_ids=[number] * 400) for number in range(1, 6)]
    chosen = choose(apart, 16, 900, Random(0))
    assert len({one.turn_id for one in chosen}) == 2
    assert choose(apart, 16, 100, Random(0)) == []


async def test_rehearsals_are_samples_for_the_teacher(prompter: Prompter, random_policy: Path) -> None:
    engine = ScriptedEngine(str(random_policy))
    engine.live = 3
    rollouts = Rollouts(engine, prompter, Settings(rehearsals=2, anchors=0, model=str(random_policy)))
    samples = await rollouts.rehearse([turn(1), turn(2)], [HINT, "shorter"], "seed")
    assert [sample.origin for sample in samples] == ["rehearsal"] * 2
    for sample in samples:
        assert len(sample.hinted_prompts) == 2
        assert (sample.turn_id, sample.reward, sample.versions[0].version) == (None, None, 3)
        assert len(sample.logprobs) == len(sample.response_ids) == 4


async def test_a_prompt_without_room_for_an_answer_is_left_out(prompter: Prompter, random_policy: Path) -> None:
    class FullEngine(ScriptedEngine):
        async def generate(self, prompt_ids: Any, sampling: Any, **options: Any) -> Any:
            raise ContextLengthExceeded(prompt_tokens=9, requested_tokens=9, context_length=10)
            yield

    rollouts = Rollouts(FullEngine(""), prompter, Settings(model=str(random_policy)))
    assert await rollouts.rehearse([turn(1)], [HINT], "seed") == []


async def test_an_engine_that_holds_the_live_version_alone_leaves_a_step_without_anchors(
    prompter: Prompter, random_policy: Path
) -> None:
    class LiveAlone(ScriptedEngine):
        status = 404

        async def generate(self, prompt_ids: Any, sampling: Any, **options: Any) -> Any:
            if options["version"] is not None and options["version"] != self.live:
                raise EngineError("it serves its live version only, not 0", status=self.status)
            async for tokens in super().generate(prompt_ids, sampling, **options):
                yield tokens

    engine, progress = LiveAlone(""), Progress()
    rollouts = Rollouts(engine, prompter, Settings(model=str(random_policy), anchors=2), progress)
    assert len(await rollouts.anchor("seed")) == 2 and not progress.notes
    engine.live = 1
    assert await rollouts.anchor("seed") == []
    assert "its live version only" in progress.notes["anchors"]
    engine.status = 500
    with pytest.raises(EngineError):
        await rollouts.anchor("seed")


async def test_anchors_repeat_when_there_are_few_drill_prompts(
    prompter: Prompter, random_policy: Path, tmp_path: Path
) -> None:
    (tmp_path / "drill.txt").write_text("# sums\n\n1 + 1 =\n2 + 2 =\n", encoding="utf-8")
    settings = Settings(anchors=5, model=str(random_policy), anchor_prompts=str(tmp_path / "drill.txt"))
    engine = ScriptedEngine("")
    samples = await Rollouts(engine, prompter, settings).anchor("seed")
    assert [sample.origin for sample in samples] == ["anchor"] * 5
    assert len({prompt for prompt, _, _ in engine.asked}) == 2
    assert {version for _, version, _ in engine.asked} == {0}


def test_drill_prompts_fit_the_model_and_can_be_ones_own(tmp_path: Path) -> None:
    own = anchor_prompts(Settings())
    other = anchor_prompts(Settings(model=str(tmp_path)))
    assert len(own) >= 40 and len(other) >= 40 and not set(own) & set(other)
    with pytest.raises(ConfigError, match="cannot be read"):
        anchor_prompts(Settings(anchor_prompts=str(tmp_path / "none.txt")))
    (tmp_path / "empty.txt").write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no prompt"):
        anchor_prompts(Settings(anchor_prompts=str(tmp_path / "empty.txt")))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "aborted", "error": "the client left"}, "cut off (aborted: the client left)"),
        ({"logprobs": [-1.0]}, "logprobs"),
        ({"prompt_ids": []}, "prompt"),
        ({"untrainable": "ids and text differ"}, "ids and text differ"),
        ({}, ""),
    ],
)
def test_defects_in_words(changes: dict[str, Any], reason: str) -> None:
    made = turn(1, **changes)
    found = defect(made, Judgement(turn_id=made.turn_id, score=1.0), Settings(max_sample_tokens=100))
    assert reason in found and bool(found) == bool(reason)


def test_fireworks_does_not_train_on_images() -> None:
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}
    made = turn(1, messages=[shown], image_spans=(ImageSpan(0, 1),))
    judged = Judgement(turn_id=made.turn_id, score=1.0)
    assert "images" in defect(made, judged, Settings(backend="fireworks"))
    assert not defect(made, judged, Settings()) and not defect(made, judged, Settings(backend="tinker"))
