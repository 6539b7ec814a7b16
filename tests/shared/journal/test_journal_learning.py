from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion, Quarantine, Sample, Turn
from tests.shared.journal_records import agent_turns, judged, make_turn, same_turn, sample_of, thumb, user_reply


@pytest.fixture
def journal(tmp_path: Path):
    opened = Journal(tmp_path / "journal.db")
    opened.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    yield opened
    opened.close()


def ready(journal: Journal, count: int = 1, session_id: str = "ses") -> list[Sample]:
    samples = []
    for _ in range(count):
        turn = make_turn(session_id)
        journal.record_turn(turn)
        journal.add_sample(sample_of(turn))
    samples = journal.ready_samples(100)
    return samples[-count:]


def version(number: int, samples: list[Sample], **changes: Any) -> PolicyVersion:
    values: dict[str, Any] = {
        "number": number,
        "parent": number - 1,
        "state": "candidate",
        "checkpoint": f"checkpoints/{number}",
        "sample_ids": tuple(sample.sample_id for sample in samples),
        "method": "rehearse",
        "metrics": {"loss": 0.25},
        "time": 500.0,
    }
    return PolicyVersion(**(values | changes))


def test_a_sample_reads_back_with_the_ids_of_its_turn(journal: Journal) -> None:
    turn = next(agent_turns(1, system="short"))
    journal.record_turn(turn)
    hinted = [*turn.prompt_ids[:50], 1, 2, 3, *turn.prompt_ids[50:]]
    sample = sample_of(
        turn,
        hinted_prompts=(hinted, [], [5], list(turn.prompt_ids)),
        explicit=True,
        reward=None,
    )
    journal.add_sample(sample)
    (back,) = journal.ready_samples(10)
    assert [list(prompt) for prompt in back.hinted_prompts] == [hinted, [], [5], list(turn.prompt_ids)]
    for name in sample.__struct_fields__:
        if name != "hinted_prompts":
            assert getattr(back, name) == getattr(sample, name), name


def test_ids_are_not_stored_again_with_a_sample(journal: Journal) -> None:
    turn = next(agent_turns(1))
    journal.record_turn(turn)
    for_six_hints = [[*turn.prompt_ids[:-30], *range(40), *turn.prompt_ids[-30:]] for _ in range(6)]
    journal.add_sample(sample_of(turn, hinted_prompts=for_six_hints))
    connection = sqlite3.connect(journal.path)
    assert connection.execute("SELECT length(hinted_prompts) FROM samples").fetchone()[0] < 1000
    connection.close()


def test_a_sample_that_is_not_its_turn_is_refused(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    for changes in ({"response_ids": [9, 8, 7, 6]}, {"prompt_ids": [1]}, {"logprobs": [0.0] * 4}, {"versions": ()}):
        with pytest.raises(JournalError, match="does not hold the ids"):
            journal.add_sample(sample_of(turn, **changes))
    with pytest.raises(JournalError, match="comes from no turn"):
        journal.add_sample(sample_of(turn, origin="rehearsal", turn_id=None))
    with pytest.raises(JournalError, match="no turn turn_lost"):
        journal.add_sample(sample_of(turn, turn_id="turn_lost"))
    assert journal.ready_count() == 0


def test_samples_are_ready_until_a_version_holds_them(journal: Journal) -> None:
    samples = ready(journal, 3)
    committed = version(1, samples[:2], guard={"kl": 0.1})
    journal.commit_version(committed)
    assert [sample.sample_id for sample in journal.ready_samples(10)] == [samples[2].sample_id]
    assert journal.version(1) == committed
    explained = journal.explain(samples[0].turn_id or "")
    assert explained is not None and explained["versions"] == [1]
    row = journal.session("ses")
    assert row is not None and row.trained == 2
    assert journal.status()["consumed"] == 2


def test_a_step_that_was_not_committed_did_not_happen(journal: Journal) -> None:
    samples = ready(journal, 2)
    again = Journal(journal.path)
    assert [sample.sample_id for sample in again.ready_samples(10)] == [sample.sample_id for sample in samples]
    assert again.next_version_number() == 1
    again.close()


def test_no_sample_is_in_two_versions(journal: Journal) -> None:
    samples = ready(journal, 2)
    journal.commit_version(version(1, samples[:1]))
    with pytest.raises(JournalError, match="version 1 already consumed"):
        journal.commit_version(version(2, samples))
    with pytest.raises(JournalError, match="already consumed"):
        journal.commit_version(version(2, [samples[1], samples[1]]))
    assert journal.version(2) is None
    assert journal.ready_count() == 1


def test_a_turn_that_is_set_aside_during_a_step_is_not_learned_from(journal: Journal) -> None:
    (picked,) = ready(journal)
    journal.add_quarantine(Quarantine(turn_id=picked.turn_id or "", reason="no vote succeeded"))
    with pytest.raises(JournalError, match="set aside meanwhile"):
        journal.commit_version(version(1, [picked]))
    assert journal.version(1) is None


def test_versions_need_a_free_number_and_a_known_parent(journal: Journal) -> None:
    with pytest.raises(JournalError, match="already in the journal"):
        journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    with pytest.raises(JournalError, match="names version 7"):
        journal.commit_version(version(8, []))
    with pytest.raises(JournalError, match="version 5 is not in the journal"):
        journal.set_version_state(5, "live")


def test_going_live_retires_the_version_before(journal: Journal) -> None:
    journal.commit_version(version(1, ready(journal)))
    live = journal.live_version()
    assert live is not None and live.number == 0
    journal.set_version_state(1, "live", {"kl": 0.2})
    journal.set_version_state(1, "live")
    live = journal.live_version()
    assert live is not None and live.number == 1 and live.guard == {"kl": 0.2}
    assert [row.state for row in journal.versions()] == ["retired", "live"]
    # Rolling back.
    journal.set_version_state(0, "live")
    assert [row.state for row in journal.versions()] == ["live", "retired"]
    assert journal.next_version_number() == 2
    with pytest.raises(JournalError, match="cannot become candidate"):
        journal.set_version_state(1, "candidate")


@pytest.mark.parametrize("at_commit", [True, False])
def test_the_samples_of_a_rejected_version_are_quarantined_with_the_reason(journal: Journal, at_commit: bool) -> None:
    samples = ready(journal, 2)
    guard = {"reason": "KL 9.1 above 2.0"}
    if at_commit:
        journal.commit_version(version(1, samples, state="rejected", guard=guard))
    else:
        journal.commit_version(version(1, samples))
        journal.set_version_state(1, "rejected", guard)
    assert journal.ready_count() == 0
    assert journal.status()["quarantined"] == {"version 1 was rejected: KL 9.1 above 2.0": 2}
    with pytest.raises(JournalError, match="rejected and cannot become live"):
        journal.set_version_state(1, "live")
    row = journal.session("ses")
    assert row is not None and row.trained == 0


@pytest.mark.parametrize("at_commit", [True, False])
def test_a_word_that_came_during_a_rejected_step_waits_still(journal: Journal, at_commit: bool) -> None:
    (sample,) = ready(journal)
    if not at_commit:
        journal.commit_version(version(1, [sample]))
    turn = journal.turn(sample.turn_id or "")
    assert turn is not None
    journal.add_feedback(thumb(turn, 0.5))
    word = sample_of(turn, reward=0.5, explicit=True)
    journal.add_sample(word, correction=True)
    if at_commit:
        journal.commit_version(version(1, [sample], state="rejected", guard={"reason": "KL"}))
    else:
        journal.set_version_state(1, "rejected", {"reason": "KL"})
    assert [one.sample_id for one in journal.ready_samples(5)] == [word.sample_id]
    assert journal.status()["quarantined"] == {}


def test_a_second_judgement_replaces_the_sample_that_waits(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    first, second = sample_of(turn, reward=-1.0), sample_of(turn, reward=1.0)
    journal.add_sample(first)
    journal.add_sample(first)
    journal.add_sample(second)
    assert [sample.reward for sample in journal.ready_samples(10)] == [1.0]
    # A step that had already begun with the first one is not lost, and the turn does not count twice.
    journal.commit_version(version(1, [first]))
    assert journal.ready_count() == 0


def test_feedback_after_training_is_judged_but_the_turn_does_not_count_twice(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    journal.add_judgement(judged(turn))
    sample = sample_of(turn)
    journal.add_sample(sample)
    journal.commit_version(version(1, [sample]))
    journal.add_feedback(thumb(turn, 1.0))
    assert [waiting.turn_id for waiting in journal.unjudged(10)] == [turn.turn_id]
    journal.add_sample(sample_of(turn, reward=1.0))
    assert journal.ready_count() == 0


def test_forgetting_a_session_leaves_nothing_of_it_in_the_files(journal: Journal, tmp_path: Path) -> None:
    secret = "the password is xylophone-4711"
    turn = make_turn("private", text=secret)
    other = make_turn("public", text="nothing special")
    for each in (turn, other):
        journal.record_turn(each)
        journal.settle(user_reply(each, "xylophone-4711 again" if each is turn else "thanks"))
        journal.add_feedback(thumb(each, text="xylophone-4711 was wrong" if each is turn else ""))
        journal.add_judgement(judged(each, hint="never say xylophone-4711" if each is turn else "be kind"))
    sample = sample_of(turn)
    journal.add_sample(sample)
    journal.commit_version(version(1, [sample]))
    assert journal.forget("private") == [1]
    assert journal.forget("private") == []
    assert journal.turn(turn.turn_id) is None and journal.session("private") is None
    assert journal.recent_hints(10) == ["be kind"]
    assert same_turn(other, journal.turn(other.turn_id))
    kept = journal.version(1)
    assert kept is not None and kept.sample_ids == (sample.sample_id,)
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert b"xylophone" not in content and turn.turn_id.encode() not in content, file.name


def test_forgetting_a_session_keeps_what_others_share_with_it(journal: Journal) -> None:
    sessions = {
        name: list(agent_turns(3, name, seed=seed)) for seed, name in enumerate(("first", "second", "third"), 1)
    }
    for turns in sessions.values():
        for turn in turns:
            journal.record_turn(turn)
    crossing = make_turn(
        "second", parent_turn_id=sessions["first"][2].turn_id, prompt_ids=sessions["first"][2].prompt_ids
    )
    journal.record_turn(crossing)
    journal.forget("first")
    other = Journal(journal.path)
    for name in ("second", "third"):
        assert all(same_turn(turn, other.turn(turn.turn_id)) for turn in sessions[name])
    back = other.turn(crossing.turn_id)
    assert back is not None
    assert (back.parent_turn_id, back.parent_reason) == (None, "its parent was forgotten")
    assert list(back.prompt_ids) == list(crossing.prompt_ids)
    # The two that are left share the long beginning with each other again.
    connection = sqlite3.connect(journal.path)
    lengths = [length for (length,) in connection.execute("SELECT length(prompt_rest) FROM contents ORDER BY 1 DESC")]
    assert lengths[0] > 10_000 > 3_000 > lengths[2]
    connection.close()
    other.close()
    journal.forget("second")
    journal.forget("third")
    connection = sqlite3.connect(journal.path)
    assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (0,)
    connection.close()


def test_few_turns_hang_on_one_copy_so_that_forgetting_stays_quick(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw_rl.shared.journal.turns.FAN_OUT", 3)
    turns = [make_turn(f"ses{number}", text=f"question {number}") for number in range(12)]
    for turn in turns:
        journal.record_turn(turn)
    connection = sqlite3.connect(journal.path)
    hanging = connection.execute(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM turns GROUP BY base HAVING base NOT NULL)"
    )
    assert hanging.fetchone() == (3,)
    connection.close()
    journal.forget("ses0")
    assert all(same_turn(turn, journal.turn(turn.turn_id)) for turn in turns[1:])


def test_a_session_forgotten_during_a_step_drops_the_step(journal: Journal) -> None:
    samples = ready(journal, 1) + ready(journal, 1, "private")
    journal.forget("private")
    with pytest.raises(JournalError, match="may have been forgotten"):
        journal.commit_version(version(1, samples))
    assert [sample.sample_id for sample in journal.ready_samples(10)] == [samples[0].sample_id]


def test_a_damaged_journal_says_that_it_is_damaged(journal: Journal) -> None:
    turn: Turn = make_turn()
    journal.record_turn(turn)
    connection = sqlite3.connect(journal.path)
    connection.execute("UPDATE contents SET prompt_rest = x'77'")
    connection.execute("UPDATE blobs SET body = x'77'")
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match="does not know"):
        journal.turn(turn.turn_id)


def test_a_candidate_goes_live_only_from_the_version_it_was_made_from(journal: Journal) -> None:
    samples = ready(journal, 2)
    journal.commit_version(version(1, samples[:1]))
    assert journal.make_live(1)
    with pytest.raises(JournalError, match="was made from version 0, and version 1 is live now"):
        journal.commit_version(version(2, samples[1:], parent=0))
    assert journal.version(2) is None and journal.ready_count() == 1
    journal.commit_version(version(2, samples[1:], parent=1))
    journal.set_version_state(0, "live")
    assert not journal.make_live(2)
    assert {one.number: one.state for one in journal.versions()} == {0: "live", 1: "retired", 2: "retired"}
    assert journal.make_live(0)
    with pytest.raises(JournalError, match="version 9 is not in the journal"):
        journal.make_live(9)


def test_the_last_change_is_the_live_version_with_the_interactions_since(journal: Journal) -> None:
    assert journal.status()["last_change"]["version"] == 0
    old, new = make_turn(), make_turn()
    journal.record_turn(old)
    journal.settle(user_reply(old))
    journal.commit_version(PolicyVersion(number=7, parent=0, state="live", checkpoint="x", time=10.0))
    journal.record_turn(new)
    journal.settle(user_reply(new))
    assert journal.status()["last_change"] == {"version": 7, "time": 10.0, "interactions": 1}


def test_forgetting_what_came_before_a_change_leaves_the_interactions_since(journal: Journal) -> None:
    for session, version in (("old", 7), ("new", None)):
        turn = make_turn(session)
        journal.open_episode(session, "policy", "test")
        journal.record_turn(turn)
        journal.settle(user_reply(turn))
        if version is not None:
            journal.commit_version(PolicyVersion(number=version, parent=0, state="live", checkpoint="x"))
    journal.forget("old")
    status = journal.status()
    assert (status["interactions"], status["last_change"]["interactions"]) == (1, 1)
    journal.commit_version(PolicyVersion(number=8, parent=7, state="live", checkpoint="x"))
    journal.forget("new")
    assert journal.status()["last_change"]["interactions"] == 0
    reused = make_turn("ses")  # the row of a forgotten turn
    journal.record_turn(reused)
    journal.settle(user_reply(reused))
    assert journal.status()["last_change"]["interactions"] == 1


@pytest.mark.parametrize("reward, waits", [(-1.0, False), (0.5, True)])
def test_a_word_said_under_another_version_waits_only_if_it_says_something_new(
    journal: Journal, reward: float, waits: bool
) -> None:
    (lesson,) = ready(journal)
    journal.commit_version(version(1, [lesson], state="live"))
    journal.set_version_state(0, "live")
    turn = journal.turn(lesson.turn_id or "")
    assert turn is not None and lesson.reward == -1.0
    journal.add_sample(sample_of(turn, reward=reward, explicit=True))
    assert journal.ready_count() == 1
    journal.set_version_state(1, "live")
    assert journal.ready_count() == waits


def test_versions_are_read_without_their_samples_where_no_one_needs_them(journal: Journal) -> None:
    samples = ready(journal, 2)
    journal.commit_version(version(1, samples))
    assert [len(one.sample_ids) for one in journal.versions()] == [0, 2]
    assert [one.sample_ids for one in journal.versions(samples=False)] == [(), ()]


def test_only_a_correction_gets_into_a_turn_that_was_learned_from(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    first = sample_of(turn, reward=1.0)
    journal.add_sample(first)
    assert journal.last_lesson(turn.turn_id) is None
    journal.commit_version(
        PolicyVersion(number=7, parent=0, state="live", checkpoint="x", sample_ids=[first.sample_id])
    )
    lesson = journal.last_lesson(turn.turn_id)
    assert lesson is not None and lesson.reward == 1.0
    journal.add_sample(sample_of(turn, reward=-1.0))
    assert journal.ready_samples(5) == []
    correction = sample_of(turn, reward=-1.0)
    journal.add_sample(correction, correction=True)
    assert [one.sample_id for one in journal.ready_samples(5)] == [correction.sample_id]
    journal.add_sample(sample_of(turn, reward=1.0))  # what takes it back
    assert journal.ready_samples(5) == []


@pytest.mark.parametrize(("score", "hint", "waits"), [(-1.0, None, 1), (1.0, None, 0), (1.0, "no tables", 1)])
def test_a_persons_word_that_comes_during_a_step_is_kept_where_it_says_otherwise(
    journal: Journal, score: float, hint: str | None, waits: int
) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    learned = sample_of(turn, reward=1.0, hint=None, hinted_prompts=())
    journal.add_sample(learned)
    said = thumb(turn, score)  # while a step learns from the sample
    journal.add_feedback(said)
    word = sample_of(turn, reward=score, hint=hint, hinted_prompts=(), explicit=True)
    journal.add_sample(word)
    journal.add_judgement(judged(turn, score, hint, said))
    journal.commit_version(version(1, [learned]))
    assert [one.sample_id for one in journal.ready_samples(5)] == [word.sample_id][:waits]
    assert journal.unjudged(5) == []


def test_the_mean_rewards_are_those_of_the_steps_that_were_not_rejected(journal: Journal) -> None:
    samples = ready(journal, 4)
    for number, state, mean, learned in (
        (1, "live", 1.0, samples[:1]),
        (2, "rejected", -9.0, samples[1:2]),
        (3, "retired", None, samples[2:3]),
        (4, "retired", 0.25, samples[3:]),
        (5, "retired", 7.0, []),
    ):
        metrics = {} if mean is None else {"reward/mean": mean}
        journal.commit_version(version(number, learned, parent=None, state=state, metrics=metrics))
    assert journal.mean_rewards() == [1.0, 0.25]
