"""The rule judge on what people type, in words of our own: praise, blame, wishes, and what only looks like them."""

from __future__ import annotations

import pytest

from openclaw_rl.learner.judge.rules.rules import RuleJudge, read_message
from openclaw_rl.shared.records import NextState
from tests.learner import typed, typed_held_out, typed_tone
from tests.learner.things import turn

PRAISE = [
    "thanks",
    "Thanks!",
    "thank you so much",
    "THANK YOU",
    "thx",
    "ty!",
    "ok thanks",
    "got it, thanks",
    "Great.",
    "great, thank you",
    "Perfect!",
    "perfect thanks",
    "That's perfect, exactly what I needed for the meeting.",
    "Nice one",
    "awesome 🎉",
    "Excellent work",
    "Well done!",
    "Good job",
    "Much better.",
    "that's better",
    "Yes, exactly like that.",
    "That works, cheers",
    "it worked!",
    "correct",
    "You're right",
    "You are awesome",
    "love it",
    "I like this style",
    "That's easy to read.",
    "Clear explanation, thanks",
    "👍",
    "👍🏽",
    "thanks :)",
    "no problem, thanks",
    "No worries, that's fine",
    "No, that's perfect.",
    "no that's all, thanks!",
    "not bad",
    "Nothing wrong with that, thanks",
    "Thanks! Next one: Ann has 4 hats and buys 3. How many hats does she have?",
    "Great. Now translate the second letter as well.",
    "[Fri 2026-11-20 09:54 UTC] thanks, that helps",
    "Thank you, no further questions",
]

BLAME = [
    "no",
    "No.",
    "NOPE",
    "nope, sorry",
    "wrong",
    "That's wrong.",
    "thats wrong",
    "No, that is wrong!",
    "wrong answer",
    "incorrect",
    "That is not correct",
    "that's not right",
    "The result is wrong.",
    "Your answer is wrong, I think",
    "No, it is 12.",
    "no, Ann has the hats and not Ben",
    "redo",
    "Redo it please",
    "try again",
    "Please try again.",
    "do it again",
    "Can you do that again?",
    "hmm, not what I asked for",
    "That's not what I meant.",
    "it doesn't work",
    "this doesn't make sense",
    "You forgot the last line",
    "you made a mistake in the second part",
    "There's a mistake in it.",
    "Thanks, but that's wrong.",
    "thanks for nothing",
    "I don't like it.",
    "👎",
    "👎🏻",
    "terrible",
    "This is useless",
    "[Fri 2026-11-20 09:54 UTC] no",
]

WISHES = [
    ("Please don't use bold.", "Please don't use bold."),
    ("don't use bold…", "don't use bold…"),
    ("please shorter", "please shorter."),
    ("Shorter, please!", "Shorter, please!"),
    ("plain sentences instead", "plain sentences instead."),
    ("Stop using bullet points.", "Stop using bullet points."),
    ("STOP WITH THE BOLD", "STOP WITH THE BOLD."),
    ("I'd prefer plain text.", "I'd prefer plain text."),
    ("I would rather read it as one paragraph", "I would rather read it as one paragraph."),
    ("thanks, but no more bullets please", "no more bullets please."),
    ("Good answer but too long.", "too long."),
    ("No, without the numbered list.", "without the numbered list."),
    ("wrong. and leave out the headings", "and leave out the headings."),
    ("That's too formal for me.", "That's too formal for me."),
    ("can you make it friendlier?", "can you make it friendlier?"),
    ("Could you say that without the steps?", "Could you say that without the steps?"),
    ("make it shorter", "make it shorter."),
    ("Rewrite it in simple words.", "Rewrite it in simple words."),
    ("try again without the markdown", "try again without the markdown."),
    ("I hate emojis", "I hate emojis."),
    ("be more specific", "be more specific."),
    ("Your comments should be more detailed.", "Your comments should be more detailed."),
    ("Please say which step is wrong.", "Please say which step is wrong."),
    ("You sound like a robot, write like a human", "You sound like a robot, write like a human."),
    ("Why is everything bold?", "Why is everything bold?"),
    ("From now on call me Kim.", "From now on call me Kim."),
    ("next time just one sentence", "next time just one sentence."),
    ("less formatting pls", "less formatting pls."),
    ("in plain english", "in plain english."),
    ("It is too long. Use whole sentences instead.", "It is too long. Use whole sentences instead."),
    ("Thanks! No lists next time, though.", "No lists next time, though."),
    ("[Fri 2026-11-20 09:54 UTC] no bold please", "no bold please."),
    ("> **Step 1:** add\n\nno steps please", "no steps please."),
    ("How much is 5 and 7? And no bold steps this time, please.", "And no bold steps this time, please."),
]

NOTHING = [
    "",
    "ok",
    "and what about 7 and 9?",
    "Why is it 12?",
    "What does that mean?",
    "How did you get that?",
    "Is that correct?",
    "are you sure?",
    "Ann has 4 hats and buys 3 more. How many hats does she have now?",
    "Ann has 4 hats and buys 3 more. How many hats does she have now? Thanks!",
    "There are no apples left and Ben buys 5. How many apples are there?",
    "Which of these sums is wrong: 2 + 2 = 5 or 3 + 3 = 6?",
    "Please check this solution: 7 + 5 = 13. Is it right or wrong?",
    "There were 12 pens in the box. Kim took 4. How many pens are left in the box?",
    "Write a poem without the letter e",
    "Write a short story about a dog.",
    "Write me a limerick about rain. Keep it short.",
    "List three good restaurants in Porto",
    "Translate 'no thanks' into French",
    "What is a perfect number?",
    "Please stop the server on port 8080",
    "Don't forget that my flight leaves at nine",
    "Never mind the weather, what should we cook?",
    "I had a terrible day at work",
    "Can you draft a thank-you note to my great aunt?",
    "Schedule a call with Lee, not before noon",
    "no thanks",
    "Tell me about the long war",
    "The no. 5 bus is late again, when does the next one come?",
    "Remind me tomorrow to buy bold coffee",
    "Thanks in advance",
]


@pytest.mark.parametrize("text", PRAISE + typed.PRAISE + typed_tone.PRAISE)
def test_praise_is_positive_and_no_hint(text: str) -> None:
    reading = read_message(text)
    assert (reading.score, reading.hint) == (1.0, None)


@pytest.mark.parametrize("text", BLAME + typed.REJECTION)
def test_blame_without_a_wish_is_negative_and_no_hint(text: str) -> None:
    reading = read_message(text)
    assert (reading.score, reading.hint) == (-1.0, None)


@pytest.mark.parametrize(("text", "hint"), WISHES)
def test_a_change_request_is_negative_and_becomes_the_hint(text: str, hint: str) -> None:
    reading = read_message(text)
    assert (reading.score, reading.hint) == (-1.0, hint)


@pytest.mark.parametrize("text", typed.WISHES + typed_tone.WISHES)
def test_a_wish_in_the_words_that_people_type_becomes_a_hint(text: str) -> None:
    reading = read_message(text)
    assert reading.score == -1.0 and reading.hint


@pytest.mark.parametrize("text", NOTHING + typed.NEUTRAL + typed_tone.NEUTRAL)
def test_a_new_request_or_a_question_says_nothing_about_the_answer(text: str) -> None:
    reading = read_message(text)
    assert (reading.score, reading.hint) == (0.0, None)


def test_case_does_not_matter() -> None:
    for text in PRAISE + BLAME:
        assert read_message(text.upper()).score == read_message(text.lower()).score, text


def test_phrasings_that_no_rule_was_made_for_are_mostly_understood() -> None:
    wanted = {text: 1.0 for text in typed_held_out.PRAISE}
    wanted |= dict.fromkeys(typed_held_out.BLAME + typed_held_out.WISHES, -1.0)
    wanted |= dict.fromkeys(typed_held_out.NEUTRAL, 0.0)
    read = {text: read_message(text).score for text in wanted}
    right = sum(score == wanted[text] for text, score in read.items() if score)
    precision = right / sum(score != 0.0 for score in read.values())
    recall = right / sum(score != 0.0 for score in wanted.values())
    assert precision >= 0.95 and recall >= 0.9, (precision, recall)


def test_hints_in_phrasings_that_no_rule_was_made_for_are_mostly_wishes() -> None:
    phrasings = typed_held_out.PRAISE + typed_held_out.BLAME + typed_held_out.WISHES + typed_held_out.NEUTRAL
    hinted = {text for text in phrasings if read_message(text).hint}
    right = len(hinted & set(typed_held_out.WISHES))
    precision, recall = right / len(hinted), right / len(typed_held_out.WISHES)
    assert precision >= 0.95 and recall >= 0.95, (precision, recall)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Please be nicer to her, she is only nine.", "Please be nicer to her, she is only nine."),
        ("She will cry if she reads that. Please be gentle and kind.", "Please be gentle and kind."),
        ("This is for my boss, make it more professional.", "make it more professional."),
        ("No, again without a nice word. Please encourage the child.", "Please encourage the child."),
        ("No, I still can't see which step you mean. Please name it.", "I still can't see which step you mean."),
    ],
)
def test_the_hint_is_the_wish_and_its_reason(text: str, hint: str) -> None:
    reading = read_message(text)
    assert reading.score == -1.0 and reading.hint is not None
    assert hint in reading.hint


@pytest.mark.parametrize(
    "work",
    [
        "\nProblem: Tom has 3 apples.\nSolution: 3 + 1 = 5",
        " Here it is: 3 + 1 = 5",
        "\n```\nx = 1\n```",
        " Here:\nx is one",
    ],
)
@pytest.mark.parametrize("wish", ["Please be friendly with him.", "Please explain every step in detail."])
def test_a_wish_that_comes_with_new_work_is_about_that_work(wish: str, work: str) -> None:
    assert read_message(wish).score == -1.0
    assert read_message(wish + work).score == 0.0


def test_taking_up_an_offer_to_explain_is_no_complaint() -> None:
    accepted = "Yes, please explain every step in detail."
    assert read_message(accepted, answer="It is 12. Shall I explain the steps?").score == 0.0
    assert read_message(accepted, answer="It is 12.").score == -1.0


def test_a_question_which_step_is_meant_counts_only_where_nothing_comes_before_it() -> None:
    assert read_message("Which step do you mean?").score == -1.0
    assert read_message("Tom wrote 8. Where exactly is the mistake?").score == 0.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Great, short and clear.", 1.0),
        ("Great, but short and clear would be nicer.", -1.0),
        ("short and clear, please", -1.0),
        ("That is detailed enough.", 1.0),
        ("That is not detailed enough.", -1.0),
        ("The first answer was clearer.", -1.0),
        ("The answer is clearer now.", 1.0),
    ],
)
def test_a_quality_is_praised_or_wished_for_by_the_words_around_it(text: str, score: float) -> None:
    assert read_message(text).score == score


@pytest.mark.parametrize(
    ("text", "answer", "score"),
    [
        ("are you sure? i think it's 8", "3 + 4 makes **7**.", -1.0),
        ("are you sure? i get 7 too", "3 + 4 makes **7**.", 0.0),
        ("i get 7", "3 + 4 makes **7**.", 0.0),
        ("i get 8", "3 + 4 makes **7**.", -1.0),
        ("i think it's 8", "How many hats does Ann have?", 0.0),
    ],
)
def test_a_claim_counts_against_an_answer_that_says_something_else(text: str, answer: str, score: float) -> None:
    assert read_message(text, answer=answer).score == score


def test_naming_a_language_is_no_complaint_where_the_answer_offers_a_choice() -> None:
    assert read_message("in spanish please", answer="Which language would you like?").score == 0.0
    assert read_message("as a table please", answer="Shall I write it as a list or as a table?").score == 0.0
    assert read_message("in spanish please", answer="It is 12. Anything else?").hint == "in spanish please."


@pytest.mark.parametrize(
    "text",
    [
        "Perfect, except that the second point is wrong.",
        "Good, but the date is wrong",
        "Nice, although the second step is missing",
        "Thanks, however you forgot the title",
        "Great work. One problem: the total is wrong.",
        "Thanks! Only the third item is wrong.",
        "Good answer, except for the last sentence.",
        "Perfect apart from the typo in line 2.",
        "Exactly what I needed, except the bold.",
        "Great! The last number is not right though.",
    ],
)
def test_praise_with_a_reservation_is_no_praise(text: str) -> None:
    reading = read_message(text)
    assert (reading.score, reading.hint) == (-1.0, None)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Great, except it's too long.", "it's too long."),
        ("Good answer, although it's a bit long", "it's a bit long."),
    ],
)
def test_a_reservation_that_is_a_wish_becomes_the_hint(text: str, hint: str) -> None:
    reading = read_message(text)
    assert (reading.score, reading.hint) == (-1.0, hint)


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, but why is step 2 needed?",
        "awesome, but can you also add tests?",
        "Great! My code is wrong though, can you look at it?",
        "Perfect, but my total is wrong",
        "Thanks! Now list all countries except France.",
        "Great, thanks. What do I eat if bread is missing?",
        "Thanks! Is the date wrong?",
    ],
)
def test_another_subject_after_praise_takes_nothing_from_it(text: str) -> None:
    assert read_message(text).score == 1.0


@pytest.mark.parametrize(
    "text", ["All fruits except bananas", "The date is wrong on my phone", "Everyone but Tom came"]
)
def test_a_reservation_without_praise_says_nothing(text: str) -> None:
    assert read_message(text).score == 0.0


def test_the_hint_keeps_the_spelling_of_the_user() -> None:
    assert read_message("could u not number ur steps").hint == "could u not number ur steps."
    assert read_message("that was too stiff, be nice").hint == "that was too stiff, be nice."


@pytest.mark.parametrize("text", ["ugh, my bus is late again", "Ugh. The build is red again, look into it", "wtf"])
def test_a_sigh_is_blame_only_where_it_is_all_that_is_said(text: str) -> None:
    assert read_message(text).score == (-1.0 if text == "wtf" else 0.0)


def test_no_to_a_question_of_the_assistant_rejects_nothing() -> None:
    assert read_message("no", answer="Done. Shall I delete the file as well?").score == 0.0
    assert read_message("no", answer="The answer is 12.").score == -1.0
    assert read_message("No, that's wrong.", answer="It is 12, isn't it?").score == -1.0


def test_a_long_message_gives_a_hint_of_bounded_length() -> None:
    reading = read_message("Please no bold, " + "and no lists, " * 100 + "please.")
    assert reading.score == -1.0
    assert reading.hint is not None and len(reading.hint) <= 300


async def test_the_judge_says_what_it_saw_and_which_rules_it_used() -> None:
    asked = turn(1, answer="**12**")
    judgement = await RuleJudge().judge(asked, NextState(turn_id=asked.turn_id, role="user", text="no bold please"))
    assert (judgement.turn_id, judgement.score, judgement.hint) == (asked.turn_id, -1.0, "no bold please.")
    assert (judgement.judge, judgement.prompt_version) == ("rules", "rules-v12")
    assert judgement.votes[0].score == -1.0 and judgement.reason


async def test_a_tool_result_never_gives_a_hint() -> None:
    asked = turn(1, answer="")
    for text, score in (("Error: please don't use bold", -1.0), ("please don't use bold", 1.0)):
        judgement = await RuleJudge().judge(asked, NextState(turn_id=asked.turn_id, role="tool", text=text))
        assert (judgement.score, judgement.hint) == (score, None)


@pytest.mark.parametrize(("text", "score"), [("👍", 1.0), ("👎", -1.0), (" 👍🏽 ", 1.0), ("👎👎", -1.0)])
async def test_a_bare_thumb_is_explicit_feedback(text: str, score: float) -> None:
    reading = read_message(text)
    assert (reading.score, reading.hint, reading.thumb) == (score, None, True)
    judgement = await RuleJudge().judge(turn(1), NextState(turn_id="turn_1", role="user", text=text))
    assert (judgement.score, judgement.signal) == (score, "feedback")


def test_a_thumb_next_to_words_is_read_with_them() -> None:
    assert not read_message("thanks 👍").thumb


@pytest.mark.parametrize("text", ["Can you write a numbered list of countries?", "Make a table of prime numbers"])
def test_a_task_that_names_its_form_is_no_complaint(text: str) -> None:
    assert (read_message(text).score, read_message(text).hint) == (0.0, None)


@pytest.mark.parametrize(
    "text",
    [
        "Summarize our conversation so far, please.",
        "Please summarize the conversation briefly.",
        "Summarize our conversation in a short paragraph, please.",
        "Give this conversation a short title, please.",
        "Give the chat a short title",
        "Can you write a short summary of our discussion?",
        "Please give me a list of the three main points from this chat, in bullets.",
        "Name this chat.",
    ],
)
def test_a_request_about_the_conversation_says_nothing_about_the_answer(text: str) -> None:
    reading = read_message(text, answer="There are five apples.")
    assert (reading.score, reading.hint) == (0.0, None)


@pytest.mark.parametrize(
    "text",
    [
        "Summarize our chat better, you missed the point.",
        "Summarize our chat again, you forgot the price.",
        "Write it again, that is wrong.",
    ],
)
def test_blame_behind_an_order_to_do_better_is_about_the_answer(text: str) -> None:
    assert read_message(text, answer="Five apples.").score == -1.0


@pytest.mark.parametrize(
    "text",
    [
        "Please keep this conversation short and simple.",
        "Make the summary of this conversation shorter.",
        "Make your summary of our discussion more detailed.",
        "Write in plain sentences in this chat, please.",
        "Give me a short answer, please.",
        "Summarize it in a shorter paragraph, please.",
        "No bullets in this chat.",
    ],
)
def test_a_wish_about_the_answers_of_a_conversation_is_one(text: str) -> None:
    assert read_message(text, answer="There are **five** apples:\n- one\n- two").score == -1.0
