"""The text of a command's result: its output, and a last line with exit code and changed files.

The embedded policy's pre-training (`bench.shipped_policy`) writes its results with the same functions.
"""

from __future__ import annotations

import re

import msgspec

LONGEST = 4_000
"""Characters of an output that the agent reads: its first and its last half."""
_NAMES = 8
"""Paths that are named for each kind of change."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of files, in order, that are new, have changed or are gone."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def parts(self) -> list[str]:
        """A text for each kind of change that there is: `new: a.txt, b.txt`."""
        kinds = {"new": self.new, "changed": self.changed, "gone": self.gone}
        return [f"{kind}: {_named(paths)}" for kind, paths in kinds.items() if paths]


def command_text(output: str, code: int | None, changes: Changes, seconds: float) -> str:
    """The result of a command; without a code it was stopped after `seconds`."""
    end = f"exit {code}" if code is not None else f"stopped after {seconds:g} s"
    return "\n".join(filter(None, [shortened(output.rstrip()), bracketed([end, *changes.parts()])]))


def bracketed(parts: list[str]) -> str:
    """The last line of a result: `[exit 0; new: a.txt]`."""
    return f"[{'; '.join(parts)}]"


def shortened(output: str) -> str:
    """The output, without its middle if it is long."""
    if len(output) <= LONGEST:
        return output
    half = LONGEST // 2
    return f"{output[:half]}\n[{len(output) - LONGEST} characters left out]\n{output[-half:]}"


LIST_FILES = r"""old=${TMPDIR:-/tmp}/.files new=$old.$$
find . -name .git -prune -o ! -type d -printf '%s %T@ %P\n' 2>/dev/null | LC_ALL=C sort > "$new"
[ -f "$old" ] && LC_ALL=C comm -3 "$old" "$new" | head -n 400
mv "$new" "$old"
"""
"""A command that prints the files that were changed since it ran last: a line of size, time and path for each file as
it was, and one behind a tab for each as it is. Without GNU's find it prints nothing. The list stays in the sandbox.
"""
_LISTED = re.compile(r"(\t?)\d+ [\d.]+ (.+)")


def read_changes(listed: str) -> Changes:
    """The changes that `LIST_FILES` has printed."""
    found = [match.groups() for line in listed.splitlines() if (match := _LISTED.fullmatch(line))]
    before, after = ({path for tab, path in found if bool(tab) is is_after} for is_after in (False, True))
    return Changes(
        new=tuple(sorted(after - before)), changed=tuple(sorted(after & before)), gone=tuple(sorted(before - after))
    )


def _named(paths: tuple[str, ...]) -> str:
    rest = [f"and {len(paths) - _NAMES} more"] if len(paths) > _NAMES else []
    return ", ".join([*paths[:_NAMES], *rest])
