from __future__ import annotations

from openclaw_rl.learner.fitting import within_limit
from tests.trainer_local.tiny import anchor, sample


def test_samples_that_fit_stay_as_they_are() -> None:
    samples = [sample(1), sample(2, hints=2), anchor(3)]
    assert within_limit(samples, 10_000) == (samples, "")


def test_long_hinted_prompts_and_rollouts_are_left_out_and_turns_stay() -> None:
    turn = sample(1, prompt=6, response=4, hinted_prompts=[[5] * 6, [5] * 7, [5] * 8])
    rollout = anchor(2)
    long = sample(3, prompt=12, origin="rehearsal", turn_id=None)
    kept, note = within_limit([turn, rollout, long], 11)
    assert [list(map(len, one.hinted_prompts)) for one in kept] == [[6, 7], []]
    assert [one.sample_id for one in kept] == [turn.sample_id, rollout.sample_id]
    assert note == "left out, with the answer longer than max_sample_tokens = 11: hinted prompts: 1, rollouts: 1"
