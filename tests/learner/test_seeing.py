"""Turns whose prompts show pictures, in everything the learner asks an engine: with the pictures, at their places. The
engine is scripted, since no small one that runs everywhere sees; a real one is in `tests/real/test_sglang_learning.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from msgspec.structs import replace

from openclaw_rl.learner.audit import Auditor
from openclaw_rl.learner.guard.guard import Guard
from openclaw_rl.learner.hints import HintMemory
from openclaw_rl.learner.judge.selection import Selector
from openclaw_rl.learner.judge.signals import sample_of
from openclaw_rl.learner.methods import method
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.rollouts.rehearsal import Rollouts, hinted_prompts
from openclaw_rl.learner.rollouts.rollouts import RolloutContext
from openclaw_rl.shared.engine.protocol import EngineInfo, Scores, Tokens
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.images import images_of
from openclaw_rl.shared.messages.normalize import ChatInput, normalize_messages
from openclaw_rl.shared.records import (
    ImageSpan,
    Judgement,
    NextState,
    PromptImage,
    Sampling,
    Turn,
    VersionSpan,
    Vote,
)
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import ready, turn
from tests.learner.world import ScriptedEngine
from tests.shared.tiny_vision import data_url, picture, vision_folder

RED, BLUE = picture(96, 64, "red"), picture(128, 128, "blue")


class SeeingEngine(ScriptedEngine):
    """A scripted engine that sees, or refuses pictures as one does that takes text only, and checks their places."""

    def __init__(self, prompter: Prompter, *, sees: bool = True, says: Sequence[int] = (300, 301)) -> None:
        super().__init__("policy")
        assert prompter.vision is not None
        self.vision = prompter.vision
        self.sees = sees
        self.says = list(says)
        self.shown: list[list[str]] = []

    async def generate(self, prompt_ids: Any, sampling: Sampling, **options: Any) -> AsyncIterator[Tokens]:
        self.look(prompt_ids, options["images"])
        spans = [VersionSpan(0, 0, len(self.says))]
        yield Tokens(self.says, [-1.0] * len(self.says), 0, finish_reason="stop", versions=spans)

    async def score(self, prompt_ids: Sequence[int], continuation_ids: Sequence[int], **options: Any) -> Scores:
        self.look(prompt_ids, options["images"])
        top = [[(-1.0, 7)]] * len(continuation_ids) if options.get("top_k") else ()
        return Scores([-1.0] * len(continuation_ids), options.get("version") or 0, top)

    async def info(self) -> EngineInfo:
        return replace(await super().info(), sees=self.sees)

    def look(self, prompt_ids: Sequence[int], images: Sequence[PromptImage]) -> None:
        if images and not self.sees:
            raise EngineError("the engine takes text only", status=400)
        assert self.vision.spans(prompt_ids) == [ImageSpan(image.start, image.end) for image in images]
        self.shown.append([image.url for image in images])


@pytest.fixture(scope="module")
def seeing_prompter() -> Prompter:
    return Prompter(vision_folder(Path(mkdtemp(prefix="tiny-vision-"))))


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[AsyncJournal]:
    one = AsyncJournal(tmp_path / "journal.db")
    yield one
    await one.close()


def seen(prompter: Prompter, number: int, *files: bytes, after: bool = False, **changes: Any) -> Turn:
    """A turn that shows pictures: before the user's words, or (`after`) in a tool's result behind them."""
    parts = [{"type": "image_url", "image_url": {"url": data_url(file)}} for file in files]
    words = {"role": "user", "content": f"What is it? {number}"}
    call = {"type": "function", "id": "1", "function": {"name": "look", "arguments": "{}"}}
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": f"What is it? {number}"}]}]
    if after:
        result = {"role": "tool", "tool_call_id": "1", "content": parts}
        messages = [words, {"role": "assistant", "content": "", "tool_calls": [call]}, result]
    canonical = normalize_messages(messages, blind="")
    prompt = prompter.render(ChatInput(messages=canonical, tools=[], tools_json=b""))
    spans = tuple(ImageSpan(image.start, image.end) for image in prompt.placed_images())
    fields = {"messages": canonical, "prompt_ids": prompt.ids(), "image_spans": spans, "session_id": f"s{number}"}
    return turn(number, **(fields | changes))


@pytest.mark.parametrize("after", [False, True])
def test_a_hinted_prompt_shows_the_pictures_of_its_turn(seeing_prompter: Prompter, after: bool) -> None:
    made = seen(seeing_prompter, 1, RED, BLUE, after=after)
    (hinted,) = hinted_prompts(seeing_prompter, made, ["Be brief."])
    assert seeing_prompter.vision is not None
    spans = seeing_prompter.vision.spans(hinted)
    assert [span.end - span.start for span in spans] == [6, 16]
    moved = spans[0].start - made.image_spans[0].start
    assert moved > 0 if after else moved == 0
    assert "Be brief." in seeing_prompter.decode(hinted)


def test_a_turn_that_was_recorded_with_another_image_processor_is_not_distilled(seeing_prompter: Prompter) -> None:
    made = seen(seeing_prompter, 1, RED, after=True)
    (span,) = made.image_spans
    pad = made.prompt_ids[span.start]
    longer = replace(
        made,
        prompt_ids=[*made.prompt_ids[: span.end], pad, *made.prompt_ids[span.end :]],
        image_spans=(ImageSpan(span.start, span.end + 1),),
    )
    assert hinted_prompts(seeing_prompter, longer, ["Be brief."]) == []


async def test_earlier_prompts_are_rehearsed_with_their_pictures_where_the_engine_sees(
    seeing_prompter: Prompter, journal: AsyncJournal
) -> None:
    made = seen(seeing_prompter, 1, RED, after=True)
    await journal.record_turn(made)
    await journal.settle(NextState(turn_id=made.turn_id, role="user", text="No."))
    settings = Settings(rehearsals=2, anchors=0)
    for sees in (True, False):
        engine = SeeingEngine(seeing_prompter, sees=sees)
        rollouts = Rollouts(engine, seeing_prompter, settings)
        context = RolloutContext(journal, rollouts, batch=[], hints=["Be brief."], live=0)
        samples = await context.rehearsals()
        assert len(samples) == (2 if sees else 0)
        assert all(one.images == images_of(made) and one.hinted_prompts for one in samples)
        assert engine.shown == [[data_url(RED)]] * len(samples)


async def test_rehearsals_with_pictures_leave_out_untrainable_answers(seeing_prompter: Prompter) -> None:
    """An answer that holds the placeholder of a picture; and a `custom_generate`, which is given ids alone."""
    made = seen(seeing_prompter, 1, RED)
    settings = Settings(rehearsals=1, anchors=0)
    says = [300, made.prompt_ids[made.image_spans[0].start]]
    rollouts = Rollouts(SeeingEngine(seeing_prompter, says=says), seeing_prompter, settings)
    assert await rollouts.rehearse([made], ["Be brief."], "seed") == []
    own = Settings(rehearsals=1, anchors=0, custom_generate=f"{__name__}:own_answers")
    assert not await Rollouts(SeeingEngine(seeing_prompter), seeing_prompter, own).sees()


async def own_answers(prompt_ids: list[int], sampling: Sampling, **_: Any) -> tuple[list[int], list[float]]:
    return [300], [-1.0]


async def test_hints_are_held_against_accepted_answers_with_their_pictures(
    seeing_prompter: Prompter, journal: AsyncJournal
) -> None:
    complained, accepted = seen(seeing_prompter, 1, RED), seen(seeing_prompter, 2, BLUE, after=True)
    for made, score, hint in ((complained, -1.0, "Be brief."), (accepted, 1.0, None)):
        await journal.record_turn(made)
        await journal.settle(NextState(turn_id=made.turn_id, role="user", text="."))
        await journal.add_judgement(Judgement(turn_id=made.turn_id, score=score, hint=hint))
    engine = SeeingEngine(seeing_prompter)
    memory = HintMemory(journal, engine, seeing_prompter, Settings())
    assert await memory.standing() == ["Be brief."]
    assert engine.shown == [[data_url(BLUE)]] * 2


def damaged(made: Turn) -> list[Turn]:
    """The turn as journals hold it that something else wrote to."""
    (span,) = made.image_spans
    spans = [(), (span, span), (ImageSpan(span.start + 1, span.end + 1),), (ImageSpan(9999, 9999 + 6),)]
    return [
        replace(made, turn_id=f"turn_{number:032x}", session_id=f"s{number}", image_spans=wrong)
        for number, wrong in enumerate(spans, start=10)
    ]


async def test_a_turn_whose_images_have_no_places_is_sent_to_no_engine(
    seeing_prompter: Prompter, journal: AsyncJournal
) -> None:
    turns = damaged(seen(seeing_prompter, 1, RED))
    for made in turns:
        await journal.record_turn(made)
        await journal.settle(NextState(turn_id=made.turn_id, role="user", text="Thanks."))
        await journal.add_judgement(Judgement(turn_id=made.turn_id, score=1.0))
    settings = Settings(rehearsals=2, anchors=0, guard_answers=2, audit_fraction=1.0)
    engine = SeeingEngine(seeing_prompter)
    engine.live = 1
    auditor = Auditor(journal, engine, settings, Progress())
    assert await auditor.once() == len(turns)
    audits = [await journal.audit(made.turn_id) for made in turns]
    assert {audit.verdict for audit in audits if audit} == {"incomparable"} and None not in audits
    rollouts = Rollouts(engine, seeing_prompter, settings)
    context = RolloutContext(journal, rollouts, batch=[], hints=["Be brief."], live=0)
    assert await context.rehearsals() == []
    memory = HintMemory(journal, engine, seeing_prompter, settings)
    await journal.add_judgement(Judgement(turn_id=turns[0].turn_id, score=-1.0, hint="Be brief."))
    assert await memory.standing() == ["Be brief."]
    votes = [Vote(score=-1.0, hint=hint) for hint in ("Please be brief.", "In one word, please.")]
    selector = Selector(Settings(hint_selection="overlap-sequence"), engine, ready(seeing_prompter))
    assert {(await selector.choose(made, votes)).selection for made in turns} == {"shortest"}
    guard = Guard(journal, engine, seeing_prompter, settings, method("binary", settings).trains_reward)
    assert (await guard.probe(2, 1, ["turn_of_no_one"])).passed
    assert not any(engine.shown)


async def test_a_sample_whose_images_lost_their_places_is_set_aside_and_the_others_are_learned_from(
    seeing_prompter: Prompter, tmp_path: Path, journal: AsyncJournal
) -> None:
    turns = [seen(seeing_prompter, number, RED) for number in (1, 2)]
    for made in turns:
        await journal.record_turn(made)
        await journal.add_sample(sample_of(made, Judgement(turn_id=made.turn_id, score=1.0)))
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        connection.execute("UPDATE turns SET image_spans = x'5b5d' WHERE turn_id = ?", (turns[0].turn_id,))
        connection.execute("UPDATE contents SET checksum = NULL")  # as an older version left it
    connection.close()
    assert [sample.turn_id for sample in await journal.ready_samples(10)] == [turns[1].turn_id]
    assert await journal.ready_count() == 1
    explained = await journal.explain(turns[0].turn_id)
    assert explained is not None and "show 1 images, and 0 are placed" in explained["quarantine"]["reason"]


async def test_hints_are_compared_with_the_pictures(seeing_prompter: Prompter) -> None:
    made = seen(seeing_prompter, 1, RED, BLUE)
    engine = SeeingEngine(seeing_prompter)
    settings = Settings(hint_selection="overlap-sequence")
    votes = [Vote(score=-1.0, hint=hint) for hint in ("Please be brief.", "In one word, please.")]
    found = await Selector(settings, engine, ready(seeing_prompter)).choose(made, votes)
    assert found.selection == "overlap-sequence" and len(engine.shown) == 3
    blind = SeeingEngine(seeing_prompter, sees=False)
    found = await Selector(settings, blind, ready(seeing_prompter)).choose(made, votes)
    assert found.selection == "shortest" and "text only" in found.reason


async def test_the_guard_scores_answers_with_their_pictures(seeing_prompter: Prompter, journal: AsyncJournal) -> None:
    turns = [seen(seeing_prompter, number, RED) for number in range(1, 7)]
    for made in turns:
        await journal.record_turn(made)
        await journal.settle(NextState(turn_id=made.turn_id, role="user", text="Thanks."))
        await journal.add_judgement(Judgement(turn_id=made.turn_id, score=1.0))
    settings = Settings(guard_answers=2, anchors=0)
    trains = method("binary", settings).trains_reward
    rewarded = [sample_of(turns[0], Judgement(turn_id=turns[0].turn_id, score=1.0, signal="feedback"))]
    for sees in (True, False):
        engine = SeeingEngine(seeing_prompter, sees=sees)
        engine.live = 1
        guard = Guard(journal, engine, seeing_prompter, settings, trains)
        assert (await guard.rewards(rewarded, [turns[0].turn_id], 0)).passed
        verdict = await guard.probe(2, 1, ["turn_of_no_one"])
        assert verdict.passed and verdict.figures["accepted"]["answers"] == (6 if sees else 0)
        assert ([data_url(RED)] in engine.shown) is sees
