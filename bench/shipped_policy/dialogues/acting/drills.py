"""Names to copy: from behind a blank, from the start of a line, and after a quotation mark, where each is other tokens.

Many pairs for few tokens teach which tokens belong together.
"""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

from openclaw_rl.environments.tasks.families.words import TaskWords

_COMMANDS = ("cat", "rm", "sort", "echo", "cp", "mv", "grep", "touch")
_PARAMETERS = ("path", "old", "new", "command", "element", "text")


def naming_drill(random: Random) -> tuple[str, str]:
    """A request and its reply: "rm, by line:\\nkelo.txt\\nmira" and "rm kelo.txt; rm mira"."""
    words = TaskWords(random)
    names = [words.file() if random.random() < 0.6 else words.word() for _ in range(random.randint(3, 6))]
    form, command = random.random(), random.choice(_COMMANDS)
    if form < 0.3:
        return f"{command} with {' '.join(names)}", "; ".join(f"{command} {name}" for name in names)
    if form < 0.5:
        return "\n".join([f"{command}, by line:", *names]), "; ".join(f"{command} {name}" for name in names)
    if form < 0.7:
        pairs = list(zip(names[::2], names[1::2], strict=False))
        asked = ", ".join(f"{left} to {right}" for left, right in pairs)
        return f"{command} {asked}", "; ".join(f"{command} {left} {right}" for left, right in pairs)
    if form < 0.85:
        return f"> {' '.join(names)}", "; ".join(f"{name} > {other}" for name, other in pairwise(names))
    parameter = random.choice(_PARAMETERS)
    return f"As {parameter}: {' '.join(names)}", "; ".join(json.dumps({parameter: name}) for name in names)
