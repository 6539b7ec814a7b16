"""Requests to the teacher and the base, and the targets made of their answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.training import distributions as distributions_module
from openclaw_rl.trainer_local.training import targets
from openclaw_rl.trainer_local.training.batching import Row
from openclaw_rl.trainer_local.training.distributions import Likeliest
from openclaw_rl.trainer_local.training.slices import AnswerStates, RunModel, Slice, UseAnswers
from openclaw_rl.trainer_local.training.targets import LocalTarget, Question, distributions, old_policy, targets_of
from tests.trainer_local.tiny import anchor, sample

torch.set_num_threads(1)
VOCABULARY = 6


class Table:
    """Stands for a model: the logits of a token depend on the prompt's last token alone. Keeps the rows it saw."""

    def __init__(self, table: dict[int, list[float]], order: int = 1) -> None:
        self._table = table
        self._order = order
        self.rows: list[Row] = []

    def __call__(self, rows: Sequence[Row], use: UseAnswers) -> None:
        self.rows += rows
        for index in list(range(len(rows)))[:: self._order]:
            line = rows[index]
            use(answer(index, torch.tensor([self._table[line.ids[line.start - 1]]] * line.response_length)))


def answer(row: int, logits: Tensor) -> AnswerStates:
    """An answer whose hidden states are its logits."""
    return AnswerStates([row], [len(logits)], logits, lambda states: states, VOCABULARY)


def biased(token: int) -> list[float]:
    """Logits that prefer `token`, then the ones after it."""
    return [-float((place - token) % VOCABULARY) for place in range(VOCABULARY)]


def ask(questions: Sequence[Question | None], run: RunModel) -> list[Tensor | None]:
    """The log-probabilities of each question's answer."""
    found = distributions(questions, run, lambda _, log_probs: LocalTarget(sampled=log_probs))
    return [None if target is None else target.sampled for target in found]


MODEL = {token: biased(token) for token in range(VOCABULARY)}


def test_nothing_is_asked_where_no_term_needs_it() -> None:
    table = Table(MODEL)
    rewarded = sample(1, hints=0, reward=1.0, explicit=True)
    without_ratio = sample(2, no_ratio="sampled with top_p 0.9")
    recipe = Recipe(distillation="token")
    assert old_policy([rewarded, without_ratio], recipe, table, table) == {}
    select = Recipe(distillation="select", select_from="teacher")
    assert old_policy([rewarded], select, table, table) == {}
    assert targets_of([rewarded, without_ratio], recipe, {}, table, table) == [None, None]
    assert not [line for line in table.rows if line.response_length]


def test_the_base_and_the_teacher_are_asked_apart_when_they_differ() -> None:
    hinted = replace(sample(1, hints=0, response=2), prompt_ids=[0], hinted_prompts=[[0, 3]])
    kept = replace(anchor(2), prompt_ids=[4])
    base, other = Table(MODEL), Table({token: biased(5) for token in range(VOCABULARY)})
    first, second = targets_of([hinted, kept], Recipe(), {}, base, other)
    assert first is not None and first.base is None and isinstance(first.teacher, Tensor)
    assert first.teacher.argmax(-1).tolist() == [5, 5]
    assert second is not None and second.teacher is None and isinstance(second.base, Tensor)
    assert second.base.argmax(-1).tolist() == [4] * 4
    together = targets_of([hinted, kept], Recipe(), {}, Table(MODEL), None)
    assert together[0] is not None and isinstance(together[0].teacher, Tensor)
    assert together[0].teacher.argmax(-1).tolist() == [3, 3]


@pytest.mark.parametrize("order", [1, -1])
def test_each_token_takes_the_best_prompt_in_whatever_order_rows_come(order: int) -> None:
    prompts = [[0, token] for token in (5, 1, 2, 1)]
    # Overlaps with the first token's (1, 2): 0, 2, 1, 2; with the second token's (0, 5): 2, 0, 0, 0.
    own = torch.tensor([[1, 2], [0, 5]])
    found = ask([Question(prompts, [3, 3], 1.0, own)], Table(MODEL, order))[0]
    assert found is not None
    expected = torch.log_softmax(torch.tensor([biased(1), biased(5)]), dim=-1)
    assert torch.allclose(found, expected)
    tied = ask([Question(prompts[:2], [3], 1.0, torch.tensor([[3, 4]]))], Table(MODEL, order))[0]
    assert tied is not None and torch.allclose(tied, torch.log_softmax(torch.tensor([biased(5)]), dim=-1))


def test_questions_of_different_temperature_go_together() -> None:
    both = ask([Question([[1]], [3, 3], 0.5), None, Question([[2]], [3], 2.0)], Table(MODEL))
    assert both[1] is None and both[0] is not None and both[2] is not None
    assert torch.allclose(both[0], torch.log_softmax(torch.tensor([biased(1)] * 2) / 0.5, dim=-1))
    assert torch.allclose(both[2], torch.log_softmax(torch.tensor([biased(2)]) / 2.0, dim=-1))


def test_a_question_is_complete_as_soon_as_its_last_prompt_is_answered() -> None:
    events: list[object] = []

    def run(rows: Sequence[Row], use: UseAnswers) -> None:
        for index, line in enumerate(rows):
            use(answer(index, torch.zeros(line.response_length, VOCABULARY)))
            events.append(f"row {index}")

    questions = [Question([[1], [2]], [3]), Question([[4]], [3])]

    def note(one: Slice, log_probs: Tensor) -> LocalTarget:
        events.append(f"question {one.row}")
        return LocalTarget(sampled=log_probs)

    distributions(questions, run, note)
    assert events == ["row 0", "question 0", "row 1", "question 1", "row 2"]


def test_of_large_vocabularies_only_the_likeliest_tokens_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openclaw_rl.trainer_local.training.distributions.LARGE_VOCABULARY", VOCABULARY - 1)
    monkeypatch.setattr("openclaw_rl.trainer_local.training.distributions.LIKELIEST", 2)
    hinted = replace(sample(1, hints=0, response=2), prompt_ids=[0], hinted_prompts=[[0, 3]])
    kept = replace(anchor(2), prompt_ids=[4])
    first, second = targets_of([hinted, kept], Recipe(), {}, Table(MODEL), None)
    assert first is not None and first.small and isinstance(first.teacher, Likeliest)
    assert first.teacher.ids.tolist() == [[3, 4], [3, 4]]
    assert torch.allclose(first.teacher.log_probs, torch.log_softmax(torch.tensor([biased(3)] * 2), dim=-1)[:, 3:5])
    assert second is not None and second.small and isinstance(second.base, Likeliest)
    assert second.base.ids[0].tolist() == [4, 5]


def test_runs_hold_every_sample_once_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "TARGET_BYTES", 6)
    assert targets.runs_within_budget([3, 3, 0, 3, 9, 1]) == [[0, 1, 2], [3], [4], [5]]


def test_targets_take_the_size_of_the_form_in_which_they_are_kept() -> None:
    large = 151_936
    assert targets.kept_size(large, Recipe(custom_loss="loss.py:loss")) == 607_744
    assert targets.kept_size(large, Recipe(distillation="topk", topk_from="student")) == 607_744
    found = targets_of([replace(anchor(2), prompt_ids=[4])], Recipe(), {}, Table(MODEL), None)
    assert found[0] is not None and isinstance(found[0].base, Tensor)
    assert targets.kept_size(VOCABULARY, Recipe()) == found[0].base.nbytes / found[0].base.shape[0]
    likeliest = distributions_module.likeliest(torch.zeros(1, large), distributions_module.LIKELIEST)
    assert targets.kept_size(large, Recipe()) == likeliest.ids.nbytes + likeliest.log_probs.nbytes == 3072
