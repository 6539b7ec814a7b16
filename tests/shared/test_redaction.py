"""What is taken out of an export, and what stays."""

from __future__ import annotations

import pytest

pytest.importorskip("datafog")
pytest.importorskip("detect_secrets")

from shared.redaction import Redactor

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza\nC1rZXk=\n-----END OPENSSH PRIVATE KEY-----"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Mail jane.doe@example.org now", "Mail [EMAIL] now"),
        ("Call +44 20 7946 0958!", "Call [PHONE]!"),
        ("Card 4111 1111 1111 1111.", "Card [CREDIT_CARD]."),
        ("It is 192.168.1.20 here", "It is [IP_ADDRESS] here"),
        ("AKIAIOSFODNN7EXAMPLE is it", "[SECRET] is it"),
        (f"ghp_{'a1B2' * 9} too", "[SECRET] too"),
        (f"Before\n{PEM}\nafter", "Before\n[SECRET]\nafter"),
        ('password = "correct-horse"', 'password = "[SECRET]"'),
    ],
)
def test_known_forms_are_taken_out(redactor: Redactor, text: str, left: str) -> None:
    assert redactor.text(text) == left


@pytest.mark.parametrize(
    "text", ["", "How much is 12 and 30?", "It is **42**, not 3.14159.", "See 2026-05-01, page 7."]
)
def test_plain_text_stays_as_it_is(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) is text


def test_every_text_of_a_value_and_a_count() -> None:
    redactor = Redactor()
    image = "data:image/png;base64,AAAA4111111111111111"
    value = {"messages": [{"content": [{"text": "a@b.org"}, {"url": image}]}], "score": 1.0, "note": None}
    assert redactor.value(value) == {
        "messages": [{"content": [{"text": "[EMAIL]"}, {"url": image}]}],
        "score": 1.0,
        "note": None,
    }
    assert dict(redactor.found) == {"EMAIL": 1}
