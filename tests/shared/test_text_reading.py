from __future__ import annotations

from openclaw_rl.shared.text_reading import any_of, mentions


def test_a_pattern_of_alternatives_reads_any_case_and_every_line() -> None:
    pattern = any_of("^stop$", r"\bgo\b")
    assert pattern.search("wait\nSTOP\nwait")
    assert pattern.search("let us GO now")
    assert not pattern.search("wait, stop, gone")


def test_words_are_found_in_any_case() -> None:
    assert mentions("A Summary of it", ("title", "summar"))
    assert not mentions("A list of it", ("title", "summar"))
