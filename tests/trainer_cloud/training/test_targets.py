"""Requests before a step, their cost, and the targets made of the answers. `TorchSampler` and `TorchTraining` stand for
the provider.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective.terms import terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.provider import CloudError, Datum, Scored, ScoreRequest
from openclaw_rl.trainer_cloud.training.objective import CloudObjective
from openclaw_rl.trainer_cloud.training.scorer import AT_ONCE
from openclaw_rl.trainer_cloud.training.targets import CloudTarget, TargetQueries
from tests.trainer_cloud.both import World, make_world
from tests.trainer_cloud.torch_training import TorchSampler, TorchTraining, torch_scorer
from tests.trainer_local.tiny import VOCABULARY, anchor, sample


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("base"))


class Asked:
    """The samplers and trainers of a step, and what they were asked."""

    def __init__(self, world: World, *, most: int = 1000) -> None:
        self.base, self.live = TorchSampler(world.base, most=most), TorchSampler(world.before, most=most)
        self.trainings = TorchTraining(world.base), TorchTraining(world.before)
        self.bill = Bill()

    async def learn(
        self, samples: Sequence[Sample], recipe: Recipe, *, top_logprobs: int = VOCABULARY
    ) -> CloudObjective:
        objective = CloudObjective(samples, recipe, loss="ppo")
        base = torch_scorer(None, self.base, self.trainings[0])
        live = torch_scorer(None, self.live, self.trainings[1])
        teacher = live if recipe.teacher == "live" else base
        await objective.learn_targets(teacher, base, live, top_logprobs=top_logprobs, bill=self.bill)
        return objective

    @property
    def sampled(self) -> list[tuple[list[int], int, bool]]:
        """Texts that samplers scored."""
        return [*self.base.asked, *self.live.asked]

    @property
    def passes(self) -> list[Sequence[Datum]]:
        """Forward passes."""
        return [data for training in self.trainings for data in training.asked]

    @property
    def tokens(self) -> int:
        """The number of tokens sent; a forward pass is sent a text without its last."""
        forward = sum(len(datum.ids) for data in self.passes for datum in data)
        return sum(len(text) for text, _, _ in self.sampled) + forward

    @property
    def billed(self) -> int:
        """The number of tokens that count."""
        return sum(self.bill.taken().values())


async def target(world: World, one: Sample, recipe: Recipe, *, top_logprobs: int) -> CloudTarget:
    asking = TargetQueries(
        recipe,
        teacher=None,
        base=torch_scorer(world.base),
        live=torch_scorer(world.before),
        top_logprobs=top_logprobs,
        bill=Bill(),
    )
    return (await asking.targets([one], [terms_of(one, recipe)]))[0]


def log_probs(model: Any, prompt: Sequence[int], one: Sample) -> Any:
    """Over the vocabulary `[R, V]`, from which each token of the answer is drawn."""
    rows = torch.log_softmax(model(input_ids=torch.tensor([[*prompt, *one.response_ids]])).logits[0], dim=-1)
    return rows[len(prompt) - 1 : -1].detach()


async def test_rewards_alone_ask_no_sampler(world: World) -> None:
    asked = Asked(world)
    objective = await asked.learn(
        [sample(1, reward=1.0), sample(2, hints=0)], Recipe(distillation="none", rewards="all"), top_logprobs=0
    )
    assert asked.tokens == asked.billed == objective.plan(1).scored == 0
    assert objective.wanted_top_logprobs == 0 and not objective.needs_live


async def test_an_advantage_per_token_looks_once_under_each_hint_and_needs_no_likeliest_tokens(world: World) -> None:
    one = sample(1, hints=1)
    asked = Asked(world)
    objective = await asked.learn([one], Recipe(distillation="token"), top_logprobs=0)
    assert asked.sampled == [([*one.hinted_prompts[0], *one.response_ids], 0, False)]
    assert not asked.passes and not objective.needs_live
    assert asked.billed == asked.tokens == objective.plan(1).scored


KINDS = {
    "rehearse": Recipe(topk=9),
    "rehearse that may end early": Recipe(topk=9, early_stop=0.05),
    "one hint a token": Recipe(topk=9, hint_selection="overlap-token"),
    "live teacher": Recipe(topk=9, teacher="live"),
    "topk": Recipe(distillation="topk", topk=9),
    "topk of the student": Recipe(distillation="topk", topk=9, topk_from="student", kl_base=0.1),
    "select": Recipe(distillation="select", rewards="all", entropy=0.1, topk=9),
    "token": Recipe(distillation="token", rewards="all", topk=9),
    "token, one hint a token": Recipe(distillation="token", topk=9, hint_selection="overlap-token"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_sent_tokens_are_counted_and_no_more_than_planned(world: World, kind: str) -> None:
    samples = [
        sample(1, hints=3, reward=1.0),
        sample(2, hints=1, reward=-1.0, temperature=0.5),
        sample(3, hints=0),
        sample(4, hints=2, origin="rehearsal"),
        anchor(5),
        sample(6, hints=1, origin="demonstration", no_ratio="another prompt"),
        sample(7, hints=2, origin="demonstration", no_ratio="another prompt"),
        sample(8, hints=0, origin="revision", no_ratio="another prompt"),
    ]
    asked = Asked(world)
    objective = await asked.learn(samples, KINDS[kind], top_logprobs=20)
    assert asked.billed == asked.tokens > 0
    whole = asked.tokens + sum(len(data) for data in asked.passes)
    assert objective.plan(1).scored == pytest.approx(whole, rel=0.01)
    assert objective.needs_live == bool(asked.live.asked or asked.trainings[1].asked)
    assert max(top_logprobs for _, top_logprobs, _ in asked.sampled) == objective.wanted_top_logprobs
    assert not any(chosen for _, _, chosen in asked.sampled), "the number of chosen tokens is bounded there"


@pytest.mark.parametrize("distillation", ["none", "token", "select"])
async def test_an_imitation_asks_no_teacher_where_no_distributions_are_compared(
    world: World, distillation: str
) -> None:
    one = sample(1, hints=1, origin="demonstration", no_ratio="another prompt")
    asked = Asked(world)
    objective = await asked.learn([one], Recipe(distillation=distillation, teacher="live"), top_logprobs=20)
    assert asked.tokens == asked.billed == objective.plan(1).scored == 0 and not objective.needs_live
    assert [datum.targets.ndim for datum in objective.asked()] == [1], "one token in each place"
    assert objective.longest.start == len(one.prompt_ids)


async def test_an_imitation_compares_the_teachers_likeliest_tokens(world: World) -> None:
    one = sample(1, hints=1, response=5, origin="demonstration", no_ratio="another prompt")
    found = await target(world, one, Recipe(topk=6), top_logprobs=VOCABULARY)
    assert found.ids is not None
    assert found.ids.tolist() == log_probs(world.base, one.hinted_prompts[0], one).topk(6).indices.tolist()


async def test_no_more_likeliest_tokens_are_asked_for_than_are_reported(world: World) -> None:
    for recipe in KINDS.values():
        asked = Asked(world, most=3)
        await asked.learn([sample(1, hints=2, reward=1.0), anchor(2)], recipe.replace(select_k=5), top_logprobs=3)


async def test_under_full_the_sampled_token_the_policys_and_the_teachers_take_turns(world: World) -> None:
    one = sample(1, hints=1, response=9)
    found = await target(world, one, Recipe(topk=5), top_logprobs=VOCABULARY)
    policy = log_probs(world.before, one.prompt_ids, one).topk(VOCABULARY).indices.tolist()
    teacher = log_probs(world.base, one.hinted_prompts[0], one)
    likeliest = teacher.topk(VOCABULARY).indices.tolist()
    assert found.ids is not None and found.taught is not None
    for place, token in enumerate(one.response_ids):
        turns = [token, *(turn for pair in zip(policy[place], likeliest[place], strict=True) for turn in pair)]
        assert found.ids[place].tolist() == list(dict.fromkeys(turns))[:5]
        known = teacher[place, found.ids[place]].exp()
        assert found.taught[place].exp().tolist() == pytest.approx([*known.tolist(), 1 - float(known.sum())], abs=1e-5)


async def test_several_hints_make_a_mean_whose_tail_is_no_smaller_than_the_real_one(world: World) -> None:
    one = sample(2, hints=3, response=5)
    found = await target(world, one, Recipe(distillation="topk", topk=6), top_logprobs=8)
    real = torch.stack([log_probs(world.base, hint, one) for hint in one.hinted_prompts]).mean(dim=0).log_softmax(-1)
    assert found.ids is not None and found.taught is not None
    there = real.gather(-1, torch.from_numpy(found.ids))
    tail = 1 - there.exp().sum(dim=-1)
    probabilities = found.taught.exp()
    assert (probabilities[:, -1] >= tail - 1e-5).all() and torch.allclose(probabilities.sum(dim=-1), torch.ones(5))
    apart = found.taught[:, :-1] - there
    assert torch.allclose(apart, apart[:, :1].expand_as(apart), atol=1e-4), "exact but for the normaliser"


async def test_several_hints_of_a_sampled_token_lie_between_the_bare_mean_and_the_truth(world: World) -> None:
    one = sample(3, hints=3, response=6)
    tables = torch.stack([log_probs(world.base, hint, one) for hint in one.hinted_prompts]).mean(dim=0)
    place = torch.tensor(list(one.response_ids))[:, None]
    bare, real = tables.gather(-1, place)[:, 0], tables.log_softmax(-1).gather(-1, place)[:, 0]
    off = []
    for top_logprobs in (0, 5, 20, VOCABULARY):
        sampled = (await target(world, one, Recipe(distillation="token"), top_logprobs=top_logprobs)).sampled
        assert sampled is not None
        assert (sampled >= bare - 1e-5).all() and (sampled <= real + 1e-5).all()
        off.append(float((real - sampled).mean()))
    assert off == sorted(off, reverse=True) and off[-1] == pytest.approx(0.0, abs=1e-5)


async def test_each_token_takes_the_hint_that_is_most_like_the_policy(world: World) -> None:
    one = sample(20, hints=3, response=8)
    recipe = Recipe(distillation="token", hint_selection="overlap-token", select_k=6)
    found = await target(world, one, recipe, top_logprobs=6)
    own = log_probs(world.before, one.prompt_ids, one).topk(6).indices.tolist()
    under = [log_probs(world.base, hint, one) for hint in one.hinted_prompts]
    choices, wanted = [], []
    for place, token in enumerate(one.response_ids):
        common = [len(set(own[place]) & set(table[place].topk(6).indices.tolist())) for table in under]
        choices.append(common.index(max(common)))
        wanted.append(float(under[choices[-1]][place, token]))
    assert len(set(choices)) > 1, "the sample must make a difference"
    assert found.sampled is not None and found.sampled.tolist() == pytest.approx(wanted, abs=1e-5)


class Slow(TorchSampler):
    """Answers when it is let go, unless it fails; counts who waits."""

    def __init__(self, model: Any, failing: bool = False) -> None:
        super().__init__(model)
        self._failing = failing
        self._go = asyncio.Event()
        self.waiting = self.most_waiting = self.gone = 0

    async def score(self, asked: ScoreRequest) -> Scored:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            if self.waiting >= AT_ONCE:
                if self._failing:
                    raise CloudError("Tinker is away", "away")
                self._go.set()
            await self._go.wait()
        except asyncio.CancelledError:
            self.gone += 1
            raise
        finally:
            self.waiting -= 1
        return await super().score(asked)


async def test_only_a_few_texts_are_scored_at_a_time(world: World) -> None:
    slow = Slow(world.base)
    scorer = torch_scorer(world.base, slow)
    objective = CloudObjective([sample(seed, hints=2) for seed in range(20)], Recipe(distillation="token"), loss="ppo")
    await objective.learn_targets(None, scorer, None, top_logprobs=0, bill=Bill())
    assert slow.most_waiting == AT_ONCE and len(slow.asked) == 40


async def test_an_error_comes_as_it_is_and_ends_what_else_was_asked(world: World) -> None:
    failing = Slow(world.base, failing=True)
    objective = CloudObjective([sample(seed, hints=2) for seed in range(20)], Recipe(distillation="token"), loss="ppo")
    bill = Bill()
    with pytest.raises(CloudError, match="Tinker is away"):
        await objective.learn_targets(None, torch_scorer(world.base, failing), None, top_logprobs=0, bill=bill)
    assert failing.gone == AT_ONCE - 1 and failing.waiting == 0
    length = len(sample(0, hints=2).hinted_prompts[0]) + len(sample(0).response_ids)
    assert bill.taken()["prefill"] >= AT_ONCE * length, "what was sent may have been paid for"


class Broken(TorchSampler):
    """Leaves something out, or tells what is no number."""

    def __init__(self, model: Any, how: str) -> None:
        super().__init__(model)
        self._how = how

    async def score(self, asked: ScoreRequest) -> Scored:
        full = await super().score(asked)
        if self._how == "logprobs":
            return Scored(full.logprobs[:-1], full.top_logprobs, full.chosen)
        if self._how == "top_logprobs":
            return Scored(full.logprobs, (), full.chosen)
        return Scored([math.nan, *full.logprobs[1:]], full.top_logprobs, full.chosen)


@pytest.mark.parametrize("how", ["logprobs", "top_logprobs", "nan"])
async def test_a_provider_that_leaves_something_out_makes_no_step(world: World, how: str) -> None:
    objective = CloudObjective([sample(1)], Recipe(distillation="topk", topk=5), loss="ppo")
    broken = torch_scorer(world.base, Broken(world.base, how))
    with pytest.raises(TrainerError, match=r"of sample_1.*no step was made"):
        await objective.learn_targets(None, broken, None, top_logprobs=5, bill=Bill())
