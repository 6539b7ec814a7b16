"""A repository with commits that only its reflog knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

WORDS = ("harbour", "market", "bridge", "tower", "school", "station", "garden", "library")


def fill(workspace: Path, random: Random, git: Callable[..., str]) -> dict[str, str]:
    """Make `project`. The check's `plan.md` is what has to be brought back."""
    project = workspace / "project"
    project.mkdir()

    def logged(*arguments: str) -> None:
        git(project, "-c", "core.logAllRefUpdates=true", *arguments)

    logged("init", "-q", "--template=", "-b", "main")
    plan = ""
    for number in range(6):
        if number == 2:
            logged("checkout", "-q", "-b", "planning")
        (project / "readme.md").write_text(f"A project. Revision {number}.\n")
        if 2 <= number < 5:
            places = random.sample(WORDS, 4)
            plan = "# Plan\n\n" + "".join(f"{step}. The {place}.\n" for step, place in enumerate(places, start=1))
            (project / "plan.md").write_text(plan)
        if number == 5:
            (project / "plan.md").unlink()
        logged("add", "-A")
        logged("commit", "-q", "-m", f"Revision {number}", "--date", f"2024-02-0{number + 1}T12:00:00Z")
    logged("reset", "-q", "--hard", "main")
    logged("checkout", "-q", "main")
    logged("branch", "-q", "-D", "planning")
    return {"plan.md": plan}
