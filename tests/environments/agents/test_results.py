from __future__ import annotations

from openclaw_rl.environments.agents.results import LONGEST, Changes, command_text, read_changes


def test_a_long_output_keeps_its_ends_and_many_paths_are_counted() -> None:
    text = command_text("a" * LONGEST + "z" * 10, 0, Changes(new=tuple(f"{n:02}.txt" for n in range(11))), 30.0)
    assert text.startswith("aaaa") and "zzzzzzzzzz\n[exit 0; new: 00.txt, " in text
    assert "\n[10 characters left out]\n" in text and text.endswith("07.txt, and 3 more]")


def test_a_command_that_was_stopped_has_no_code() -> None:
    assert command_text("half", None, Changes(), 30.0) == "half\n[stopped after 30 s]"


def test_changes_are_read_from_both_columns() -> None:
    listed = "1 17.5 gone.txt\n2 17.5 a b.txt\n\t3 18.25 a b.txt\n\t4 18.0 new.txt\nno such line"
    assert read_changes(listed) == Changes(new=("new.txt",), changed=("a b.txt",), gone=("gone.txt",))
    assert read_changes("") == Changes()
