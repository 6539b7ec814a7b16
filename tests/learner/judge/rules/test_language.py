"""Messages that the rules do not read, since they are not in English."""

from __future__ import annotations

import pytest

from openclaw_rl.learner.judge.rules.language import is_foreign, is_unknown
from openclaw_rl.learner.judge.rules.rules import NOT_READ, RuleJudge, read_message
from openclaw_rl.learner.judge.signals import by_feedback, defect
from openclaw_rl.shared.records import Feedback, NextState
from openclaw_rl.shared.settings.settings import Settings
from tests.learner.things import turn as make_turn

FOREIGN = [
    "Das ist leider nicht, was ich wollte.",
    "Bitte ohne Aufzählungen antworten",
    "c'est beaucoup trop compliqué pour moi",
    "¿Puedes hacerlo más corto?",
    "Não era isso que eu pedi",
    "non ho capito niente di questa risposta",
    "太长了，请简短一点。",
    "もっと短くしてください",
    "Это именно то, что я искал",
    "Bu cevap yanlış, tekrar dene",
    "ні",
    "ужас",
    "违和",
    "だめ",
    "틀림",
]
SHORT = [
    *("daneben", "so nicht bitte", "viel zu knapp", "Blödsinn!", "stimmt so"),
    *("à côté", "pas terrible", "Inexact.", "trop vague", "on recommence"),
    *("peor", "demasiado formal", "no vale", "Equivocado.", "casi casi"),
    *("peggio", "troppo vago", "per niente", "Fuori tema", "quasi giusto"),
    *("ruim", "bem melhor", "muito vago", "Incorreta.", "quase isso"),
    *("вздор", "мимо кассы", "JSON кривой"),
    *("дурниця", "майже так"),
    *("离谱", "差一点", "PDF 打不开"),
    *("ひどい", "惜しい", "NGです"),
    *("berbat", "daha net", "tam tersi", "Eksik."),
]
"""Of one to three words; the classifier is not sure of most."""
ENGLISH = [
    *("hm", "Hmmm...", "ok", "k", "yes", "Maybe", "later", "next", "go on", "no idea", "Tomorrow?", "sounds familiar"),
    *("the second one", "Weather tomorrow?", "and in winter?", "monkeys", "two more stories", "lol", "brb dinner"),
    *(
        "Angela Merkel",
        "Berlin",
        "ask Ingeborg",
        "Kigali Mombasa",
        "use PyTorch",
        "README",
        "src/app.ts",
        "main.py",
    ),
    *("git push origin", "--force", "foo_bar", "useCallback", "3.14", "v2", "C++", "(x)", "👀 👀", "?!", "`nochmal`"),
]
BORROWED = [
    *("gracias, pero no", "Danke für nichts", "merci, c'est nul", "grazie, ma sbagliato", "obrigado, mas ficou ruim"),
    *("спасибо, не надо", "谢谢，没用", "ありがとう、でも違う", "Danke. Und wie lange dauert das bei zwei Personen?"),
    *(
        "Super, genau so wollte ich das",
        "Bravo, hai risolto tutto",
        "Thanks! Aber das ist alles daneben",
        "no, gracias",
    ),
]
READ = [
    "ok",
    "Berlin",
    "Use Python 3.12",
    "git push origin main",
    "And what about the second file?",
    "👀",
    "12 + 30",
    "",
    "`für alle Fälle nicht mehr als das`",
    "```\nprint('das ist falsch und das auch')\n```",
    "https://example.org/das-ist-eine-lange-deutsche-adresse",
]


@pytest.mark.parametrize("message", FOREIGN)
def test_a_foreign_message_has_no_score(message: str) -> None:
    assert is_foreign(message)
    reading = read_message(message, answer="42")
    assert (reading.score, reading.hint, reading.reason) == (None, None, NOT_READ)


@pytest.mark.parametrize("message", SHORT)
def test_a_short_message_of_unknown_words_has_no_score(message: str) -> None:
    reading = read_message(message, answer="The sum is 42.")
    assert (reading.score, reading.hint, reading.reason) == (None, None, NOT_READ)


@pytest.mark.parametrize("message", ENGLISH)
def test_a_short_message_of_english_words_names_or_code_says_nothing(message: str) -> None:
    assert read_message(message, answer="The sum is 42.").score == 0.0


def test_a_word_of_the_answer_or_a_lone_name_that_it_asks_for_is_known() -> None:
    assert is_unknown("Osmosis?", answer="Water moves through the wall.")
    assert not is_unknown("Osmosis?", answer="Water moves through the wall by osmosis.")
    assert is_unknown("Rosenheim", answer="The sum is 42.")
    assert not is_unknown("Rosenheim", answer="Which town do you mean?")
    assert is_unknown("rosenheim", answer="Which town do you mean?")
    assert is_unknown("Daneben", answer="Das Ergebnis ist leider nicht ganz daneben. Soll ich es erklären?")


@pytest.mark.parametrize("message", BORROWED)
def test_borrowed_praise_or_blame_in_a_foreign_message_has_no_score(message: str) -> None:
    assert (read_message(message).score, read_message(message).reason) == (None, NOT_READ)


@pytest.mark.parametrize(
    ("message", "score"),
    [
        *(
            (message, 1.0)
            for message in ("danke", "Merci!", "谢谢", "Спасибо!", "grazie mille", "ok danke", "thanks, merci")
        ),
        ("gracias, but that's wrong", -1.0),
        ("auf deutsch bitte", -1.0),
        ("merci, make it shorter", -1.0),
    ],
)
def test_borrowed_thanks_count_alone_and_next_to_english(message: str, score: float) -> None:
    assert read_message(message).score == score


@pytest.mark.parametrize("message", READ)
def test_a_message_that_may_be_english_is_read(message: str) -> None:
    assert not is_foreign(message)
    assert read_message(message, answer="42").score is not None


@pytest.mark.parametrize(
    ("message", "score"),
    [
        ("👍 genau so wollte ich das haben", 1.0),
        ("👎 das war leider nichts", -1.0),
        ("Danke für nichts 👎", -1.0),
        ("no, está perfecto así 👍", 1.0),
        ("👍 просто чудо", 1.0),
    ],
)
def test_a_thumb_counts_in_every_language(message: str, score: float) -> None:
    assert read_message(message).score == score


async def test_a_foreign_turn_is_set_aside_with_the_reason() -> None:
    turn = make_turn(1)
    state = NextState(turn_id=turn.turn_id, role="user", text=FOREIGN[0])
    judgement = await RuleJudge().judge(turn, state)
    assert judgement.score is None and [vote.failure for vote in judgement.votes] == [NOT_READ]
    assert defect(turn, judgement, Settings()) == NOT_READ


async def test_tool_results_are_read_in_every_language() -> None:
    turn = make_turn(1)
    judged = await RuleJudge().judge(turn, NextState(turn_id=turn.turn_id, role="tool", text="Datei wurde gespeichert"))
    assert judged.score == 1.0


def test_a_foreign_comment_alone_is_no_blame() -> None:
    turn = make_turn(1)
    judged = by_feedback(
        turn, [Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=None, text=FOREIGN[8])]
    )
    assert judged is not None and (judged.score, judged.hint) == (None, None)


def test_a_foreign_comment_with_a_thumb_down_is_the_wish() -> None:
    turn = make_turn(1)
    judged = by_feedback(
        turn, [Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=-1.0, text=FOREIGN[1])]
    )
    assert judged is not None and (judged.score, judged.hint) == (-1.0, FOREIGN[1])
