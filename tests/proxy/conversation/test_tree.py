"""The message tree is bounded by the turns in it, however few their digests are."""

from __future__ import annotations

from openclaw_rl.proxy.conversation.tree import Tree
from openclaw_rl.shared.journal import TurnRef


def ref(number: int, digest: int) -> TurnRef:
    key = digest.to_bytes(4, "big")
    return TurnRef(f"turn-{number}", f"session-{number}", 0, "main", "complete", key, key, float(number), settled=False)


def test_turns_of_few_digests_count_one_by_one() -> None:
    tree = Tree(capacity=100)
    for number in range(400):
        tree.add([ref(number, digest=number % 8)])
    found = [one.turn_id for digest in range(8) for one in tree.answers("", digest.to_bytes(4, "big"))]
    assert len(found) <= 100 and {f"turn-{number}" for number in range(392, 400)} <= set(found)


def test_sessions_that_wait_for_an_answer_count_one_by_one() -> None:
    tree = Tree(capacity=100)
    for number in range(400):
        tree.began(b"hello" if number % 2 else b"bye", f"session-{number}", float(number))
    waiting = [*tree.unanswered("", b"hello", 0.0), *tree.unanswered("", b"bye", 0.0)]
    assert "session-399" in waiting and len(waiting) <= 100
    for session_id in waiting:
        tree.answered(b"hello", session_id)
        tree.answered(b"bye", session_id)
    assert tree.unanswered("", b"hello", 0.0) == tree.unanswered("", b"bye", 0.0) == []
