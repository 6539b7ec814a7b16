"""Check the data of bench/real_model without a model: counts, lengths, no duplicates, two separate halves."""

import re
import tomllib
from pathlib import Path

import msgspec

DATA = Path(__file__).parents[3] / "bench" / "real_model"
PEOPLE = {"plain", "brief", "asking"}


class Phrases(msgspec.Struct, forbid_unknown_fields=True):
    """One person's reactions to answers."""

    complaints: list[str]
    again: list[str]
    thanks: list[str]


class Halves(msgspec.Struct, forbid_unknown_fields=True):
    """One person's prompts, for training and for measuring."""

    train: list[str]
    held_out: list[str]


class Known(msgspec.Struct, forbid_unknown_fields=True):
    """One short question with its accepted answers."""

    question: str
    answers: list[str]


class Passage(msgspec.Struct, forbid_unknown_fields=True):
    """One text whose log-likelihood is measured."""

    text: str


def by_person(name: str, kind: type) -> dict:
    return msgspec.convert(tomllib.loads((DATA / name).read_text()), dict[str, kind])


def lines(name: str, kind: type) -> list:
    return [msgspec.json.decode(line, type=kind) for line in (DATA / name).read_bytes().splitlines()]


def key(text: str) -> str:
    """The text without case and punctuation, so that near copies are found."""
    return " ".join(re.findall(r"\w+", text.lower()))


def assert_unique(texts: list[str]) -> None:
    assert len({key(text) for text in texts}) == len(texts)


def test_each_person_has_the_phrases_of_a_talk():
    people = by_person("people.toml", Phrases)

    assert people.keys() == PEOPLE
    for phrases in people.values():
        assert (len(phrases.complaints), len(phrases.again), len(phrases.thanks)) == (16, 6, 10)
        every = phrases.complaints + phrases.again + phrases.thanks
        assert_unique(every)
        assert all(1 <= len(text.split()) <= 20 and text == text.strip() for text in every)


def test_complaints_state_the_wish():
    wishes = {"plain": r"list|bullet|bold|number", "brief": r"sentences", "asking": r"question|ask"}

    people = by_person("people.toml", Phrases)

    for person, wish in wishes.items():
        for complaint in people[person].complaints + people[person].again:
            assert re.search(wish, complaint, re.IGNORECASE), complaint


def test_prompts_are_short_lines_and_none_is_in_both_halves():
    prompts = by_person("prompts.toml", Halves)

    assert prompts.keys() == PEOPLE
    for halves in prompts.values():
        assert (len(halves.train), len(halves.held_out)) == (48, 32)
    every = [prompt for halves in prompts.values() for prompt in halves.train + halves.held_out]
    assert_unique(every)
    assert all(2 <= len(prompt.split()) <= 15 and "\n" not in prompt for prompt in every)


def test_questions_have_short_answers_that_the_question_does_not_give_away():
    known = lines("knowledge.jsonl", Known)

    assert len(known) >= 260
    assert_unique([entry.question for entry in known])
    for entry in known:
        assert entry.answers
        for answer in entry.answers:
            assert 1 <= len(answer.split()) <= 3
            given_away = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", entry.question, re.IGNORECASE)
            assert not given_away, entry


def test_texts_are_paragraphs_of_one_length():
    texts = [entry.text for entry in lines("texts.jsonl", Passage)]

    assert len(texts) == 24
    assert_unique(texts)
    assert all(60 <= len(text.split()) <= 90 for text in texts)
