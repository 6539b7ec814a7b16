"""Conversations, candidates and guards for tests of the guard."""

from __future__ import annotations

from typing import Any

from openclaw_rl.learner.guard.guard import Guard
from openclaw_rl.learner.methods import method
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Feedback, PolicyVersion, Sample, Turn, VersionSpan
from openclaw_rl.shared.trainer import Recipe
from tests.learner.things import turn
from tests.learner.world import World

NAMES = ("Tom", "Anna", "Ben", "Mia", "Sam", "Lily", "Jack", "Emma")
THINGS = ("apples", "books", "pencils", "marbles", "cookies")
BATCH = 4


async def said(world: World, number: int, score: float | None, text: str = "", *, answer: str = "") -> Turn:
    """A recorded answer in plain prose, and what a person thought of it."""
    name, things = NAMES[number % 8], THINGS[number % 5]
    a, b = 2 + number % 7, 3 + number % 11
    question = f"{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?"
    messages = [{"role": "user", "content": question}]
    prompt = world.prompter.render(ChatInput(messages=messages, tools=[], tools_json=b"")).ids()
    ids = world.prompter.tokenizer.encode(
        answer or f"{name} has {a} {things} and buys {b} more. {a} plus {b} is {a + b}, so {name} has {a + b} {things}."
    )
    ids = [*ids, world.prompter.vocab.added["<|im_end|>"]]
    live = await world.journal.live_version()
    number_of = live.number if live else 0
    scores = await world.engine.score(prompt, ids, version=number_of)
    made = turn(
        number,
        messages=messages,
        prompt_ids=prompt,
        response_ids=ids,
        logprobs=list(scores.logprobs),
        versions=[VersionSpan(number_of, 0, len(ids))],
    )
    await world.journal.record_turn(made)
    if score is not None:
        await world.journal.add_feedback(
            Feedback(turn_id=made.turn_id, session_id=made.session_id, score=score, text=text)
        )
    return made


async def batch(world: World, first: int, score: float, text: str = "", *, count: int = BATCH) -> PolicyVersion:
    """A judged batch of them, learned from; the version that came of it."""
    for number in range(first, first + count):
        await said(world, number, score, text)
    await world.judge_all()
    assert await world.learner.once()
    return (await world.journal.versions())[-1]


def guard_of(world: World, **changes: Any) -> Guard:
    settings = world.settings.replace(**changes)
    rewards = method(settings.learning.method, settings).trains_reward
    return Guard(world.journal, world.engine, world.prompter, settings, rewards)


async def candidate(world: World, *, rate: float = 0.0, number: int = 1) -> int:
    """Load a candidate next to the base: the base itself, or the base after a step of this learning rate on noise."""
    if rate:
        noise = world.prompter.tokenizer.encode('orange upl image {" hat.md path 57 brushes IFty')
        one = Sample(
            sample_id="noise",
            turn_id=None,
            policy="policy",
            origin="turn",
            prompt_ids=world.prompter.tokenizer.encode("How much is 7 and 5?"),
            response_ids=noise,
            logprobs=[-1.0] * len(noise),
            versions=[VersionSpan(0, 0, len(noise))],
            reward=1.0,
            explicit=True,
        )
        recipe = method("binary").recipe(Recipe(learning_rate=rate, epochs=6))
        await world.trainer.step([one], recipe)
    saved = await world.trainer.save(str(world.settings.checkpoints_path / str(number)))
    await world.trainer.publish(saved, number, world.engine, live=False)
    return number


async def accepted(world: World, count: int = 6) -> None:
    await world.versions.start()
    for number in range(1, count + 1):
        await said(world, number, 1.0)
    await world.judge_all()
