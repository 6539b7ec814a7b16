"""Measure the time of one update of the shipped policy at default settings: 8 turns, 16 rehearsals, 8 anchors, 6 hints.

    python -m bench.updates [--updates 3] [--prompt-tokens 0] [--json] [--save FILE]

`--prompt-tokens` adds a system prompt of about that length to every turn (9000 in an OpenClaw request); the trainer
computes it once per pass, whatever the number of turns. Only the trainer runs: the engine would sample the rollouts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

from bench.program import log, parser, report, run
from bench.random_model import even_sample
from openclaw_rl.evaluation.personas import Student
from openclaw_rl.evaluation.problems import take
from openclaw_rl.shared.backends import create_trainer
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Message, Sample
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import Settings

ANSWER = "**Step 1:** Tom has 7 apples.\n**Step 2:** Tom buys 5 more.\n**Step 3:** 7 + 5 = 12\n\n**Tom has 12 apples.**"
DRILL_ANSWER = "7 + 5 = 12"
HINTS = (
    "no bold please",
    "don't use numbered steps",
    "just say it in one sentence",
    "write like a person would",
    "no lists",
    "plain text instead",
)
FILLER = ("Read a file before you edit it. ", "Tools: read, write, exec. ", "The workspace is kept tidy. ")


def samples(prompter: Prompter, settings: Settings, prompt_tokens: int) -> list[Sample]:
    """Build a batch as the learner does."""
    random = Random(0)
    student = Student(0)
    system = "".join(random.choice(FILLER) for _ in range(prompt_tokens // 7))
    start: list[Message] = [{"role": "system", "content": system}] if system else []

    def prompt(messages: list[Message], hint: str | None = None) -> list[int]:
        return prompter.render(ChatInput(messages=messages, tools=[], tools_json=b""), hint=hint).ids()

    def sample(number: int, origin: str, messages: list[Message], answer: str, hints: tuple[str, ...]) -> Sample:
        hinted = [prompt(messages, hint) for hint in hints]
        ids = prompter.tokenizer.encode(answer)
        return even_sample(f"{origin}-{number}", prompt(messages), ids, -1.0, origin=origin, hinted_prompts=hinted)

    made = []
    problems = take("train", 0, settings.learning.batch_size + settings.learning.rehearsals)
    for number, problem in enumerate(problems):
        messages = [*start, {"role": "user", "content": student.ask(problem)}]
        if number % 2:
            messages += [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": HINTS[number % 6]}]
        origin = "turn" if number < settings.learning.batch_size else "rehearsal"
        made.append(sample(number, origin, messages, ANSWER, HINTS[: settings.learning.max_hints]))
    for number in range(settings.learning.anchors):
        made.append(sample(number, "anchor", [{"role": "user", "content": f"{number} + 5 ="}], DRILL_ANSWER, ()))
    return made


async def measure(options: argparse.Namespace) -> None:
    """Time updates and checkpoints."""
    settings = Settings()
    batch = samples(Prompter(settings.engine.tokenizer_path), settings, options.prompt_tokens)
    tokens = sum(len(one.prompt_ids) + len(one.response_ids) for one in batch)
    trainer = await asyncio.to_thread(create_trainer, settings)
    walls, works, teachers, saves = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.updates):
            work = time.process_time()
            step = await trainer.step(batch, settings.learning)
            works.append(time.process_time() - work)
            walls.append(step.metrics["seconds"])
            teachers.append(step.metrics["seconds/teacher"])
            started = time.perf_counter()
            await trainer.save(str(Path(folder) / "checkpoint"))
            saves.append(time.perf_counter() - started)
            log.print(f"update {number + 1}: {walls[-1]:.2f} s, {works[-1]:.2f} CPU-seconds, save {saves[-1]:.2f} s")
    await trainer.close()
    if not walls:
        raise TrainerError("--updates must be at least 1")
    result = {
        "samples": len(batch),
        "tokens": tokens,
        "seconds": round(median(walls), 3),
        "cpu_seconds": round(median(works), 3),
        "teacher_seconds": round(median(teachers), 3),
        "save_seconds": round(median(saves), 3),
    }
    rows = [[name.replace("_", " "), f"{value:g}"] for name, value in result.items()]
    report(options, "One update (medians)", ["figure", "value"], rows, result)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--updates", type=int, default=3)
    options.add_argument("--prompt-tokens", type=int, default=0, help="tokens of a system prompt before every turn")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
