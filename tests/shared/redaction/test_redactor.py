"""Redaction of an export: secrets are replaced, other text stays."""

from __future__ import annotations

import base64
import hashlib
import importlib
import time

import pytest

pytest.importorskip("datafog")
pytest.importorskip("detect_secrets")

from openclaw_rl.shared.redaction.redactor import _KEY_FORMS, _LEFT_OUT, _NAMED_VALUES, Redactor
from tests.fixtures.openclaw import CASES

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
        ('{"password":"p4ss","name":"x","api_key":"k3y-1"}', '{"password":"[SECRET]","name":"x","api_key":"[SECRET]"}'),
        (r"{\"password\": \"p4ss\"}", r"{\"password\": \"[SECRET]\"}"),
        ('secret = "secret1"', 'secret = "[SECRET]"'),
        ("A=1\nexport DB_PASSWORD=hunter2\nB=2", "A=1\nexport DB_PASSWORD=[SECRET]\nB=2"),
        ("postgres://ann:hunter2@db/x", "postgres://ann:[SECRET]@db/x"),
        (r"line\nghp_" + "a1B2" * 9, r"line\n[SECRET]"),
        (f"sk_live_{'a1' * 40}.", "[SECRET]."),
        (f"bearer eyJhbGciOiJIUzI1NiJ9.{'eyJzdWIiOiIxIn0'}.SflKxwRJSMeKKF2QT4 is", "bearer [SECRET] is"),
        (f"sk-ant-api03-{'Ab1_' * 8}", "[SECRET]"),
        (f"//registry.npmjs.org/:_authToken=npm_{'a' * 36}", "//registry.npmjs.org/:_authToken=[SECRET]"),
    ],
)
def test_known_forms_are_taken_out(redactor: Redactor, text: str, left: str) -> None:
    assert redactor.text(text) == left


@pytest.mark.parametrize(
    "text", ["", "How much is 12 and 30?", "It is **42**, not 3.14159.", "See 2026-05-01, page 7."]
)
def test_plain_text_stays_as_it_is(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) is text


SHA = "f1c5ff3e0a2b4c6d8e9f0a1b2c3d4e5f60718293"
AGENT_TRAFFIC = (
    f"commit {SHA}\nindex {SHA[:7]}..{SHA[7:14]} 100644",
    f"sha256:{hashlib.sha256(b'layer').hexdigest()}",
    f'"integrity": "sha512-{base64.b64encode(hashlib.sha512(b"left-pad").digest()).decode()}"',
    f"1764000000:{SHA} refs/heads/main",
    "session=agent:main:dashboard:6f1c9d4e-8a1b-4c8e-9b57-2f0d6f3a9c11 | sessionId=6f1c9d4e8a1b4c8e9b572f0d6f3a9c11",
    "sessionKey: agent:main:subagent:0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f",
    "/home/ann/.openclaw/agents/main/sessions/6f1c9d4e-8a1b-4c8e.jsonl",
    "call_0123456789abcdef0123456789abcdef toolu_01A09q90qw90lq917835lq9",
    "token = parser.next_token()\nkey = cache_key(request)\nself._password: str | None = None",
    'api_key = os.environ["OPENAI_API_KEY"]\npassword = "${DB_PASSWORD}"\nsecret: "<your secret>"',
    'password = "db_password"  # the column\nPASSWORD=$(cat file)',
    '{"type": "object", "properties": {"password": {"type": "string", "description": "The password of the user"}}}',
    '"secret": "the sauce is mayonnaise and a lot of patience"',
    "AC/DC, SK Telecom, eyJ and AKIA are words",
    base64.b64encode(bytes(range(256)) * 40).decode(),
)


@pytest.mark.parametrize("text", AGENT_TRAFFIC)
def test_hashes_ids_paths_and_code_are_no_secrets(text: str) -> None:
    assert Redactor(personal=False).text(text) is text


def test_the_requests_of_openclaw_hold_no_secrets() -> None:
    redactor = Redactor(personal=False)
    for case in CASES:
        redactor.value(case.body)
    assert not redactor.found


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ",
        "-eyJ.",
        "password",
        "password='",
        "PASSWORD_KEY",
        '"https://a.b/c?d=1",',
        "1234567890 ",
        "1.1",
        "aws key '",
    ],
)
def test_time_grows_with_the_length_of_a_text_and_no_faster(piece: str) -> None:
    redactor = Redactor()

    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        started = time.process_time()
        redactor.text(text)
        return time.process_time() - started

    seconds(1000)
    assert seconds(200_000) < 60 * max(seconds(20_000), 0.01)


def test_the_key_forms_are_detectors_that_the_library_has() -> None:
    importlib.import_module("detect_secrets.core.plugins.util").get_mapping_from_secret_type_to_class()
    known = {
        one.__name__
        for one in importlib.import_module("detect_secrets.plugins.base").RegexBasedDetector.__subclasses__()
    }
    assert known >= _KEY_FORMS | _NAMED_VALUES | _LEFT_OUT


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
