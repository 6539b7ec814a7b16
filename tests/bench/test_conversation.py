"""Random batches have the shape of OpenClaw's conversations."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.conversation import batch, conversation, scale_for
from openclaw_rl.shared.objective.terms import hints_of, terms_of
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings


def shared(one: Sample, other: Sample) -> int:
    """The tokens that both prompts begin with."""
    same = zip(one.prompt_ids, other.prompt_ids, strict=False)
    return next((index for index, (mine, theirs) in enumerate(same) if mine != theirs), len(one.prompt_ids))


def test_a_floating_context_keeps_prompts_from_continuing_each_other() -> None:
    floating, plain = (conversation(4, 20, floating=floating) for floating in (True, False))
    for turns, continues in ((floating, False), (plain, True)):
        for earlier, later in pairwise(turns):
            whole = [*earlier.prompt_ids, *earlier.response_ids]
            assert (list(later.prompt_ids[: len(whole)]) == whole) is continues
            assert shared(earlier, later) > 0.9 * len(earlier.prompt_ids)
    assert all(turn.explicit and turn.reward for turn in floating)


def test_a_hint_is_before_the_tool_call_that_followed_the_message() -> None:
    bare, hinted = (conversation(4, 20, floating=True, hints=hints) for hints in (0, 2))
    for plain, turn in zip(bare, hinted, strict=True):
        assert turn.prompt_ids == plain.prompt_ids and turn.response_ids == plain.response_ids
        assert len(turn.hinted_prompts) == 2 and turn.hinted_prompts[0] != turn.hinted_prompts[1]
    asked, called = (
        len(turn.prompt_ids)
        - next(
            length
            for length in range(len(turn.prompt_ids), 0, -1)
            if list(turn.hinted_prompts[0][:length]) == list(turn.prompt_ids[:length])
        )
        for turn in hinted[:2]
    )
    floating = len(conversation(1, 20, floating=True)[0].prompt_ids) - len(
        conversation(1, 20, floating=False)[0].prompt_ids
    )
    assert asked == floating
    assert called > floating + len(hinted[0].response_ids)


@pytest.mark.parametrize("tokens", [1024, 20480])
def test_the_longest_turn_has_the_length_that_was_asked_for(tokens: int) -> None:
    turns = conversation(8, scale_for(tokens, 8, floating=True), floating=True)
    longest = max(len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
    assert abs(longest - tokens) <= 0.01 * tokens


def test_rehearse_has_its_rollouts_and_hints_and_binary_has_neither() -> None:
    learning = Settings().learning
    found = batch(8, 40, method="rehearse", floating=True)
    counts = {origin: sum(one.origin == origin for one in found) for origin in ("turn", "rehearsal", "anchor")}
    assert counts == {"turn": 8, "rehearsal": learning.rehearsals, "anchor": learning.anchors}
    assert all(terms_of(one, learning) for one in found)
    assert all(len(hints_of(one, learning)) == learning.max_hints for one in found if one.origin != "anchor")
    plain = batch(8, 40, method="binary", floating=True)
    assert len(plain) == 8 and not any(one.hinted_prompts for one in plain)
