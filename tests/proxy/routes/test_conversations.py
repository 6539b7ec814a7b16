"""An answer in pieces: each token with the text that it adds."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.proxy.routes.conversations import token_texts


def decoded(ids: Sequence[int]) -> str:
    return bytes(ids).decode(errors="replace")


def test_each_token_has_the_text_that_it_adds_also_where_a_character_takes_several() -> None:
    text = "Grüße an 東京 👍🏽, " + "langer Text ohne Ende " * 3 + "é"
    ids = list(text.encode())
    pieces = token_texts(decoded, ids)
    assert len(pieces) == len(ids) and "".join(pieces) == text
    assert pieces[:4] == ["G", "r", "", "ü"]


def test_an_answer_that_ends_within_a_character_is_shown_as_far_as_it_goes() -> None:
    assert token_texts(decoded, list("ab東".encode())[:-1]) == ["a", "b", "", "\N{REPLACEMENT CHARACTER}"]
    assert token_texts(decoded, []) == []
