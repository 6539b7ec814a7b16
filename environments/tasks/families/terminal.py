"""Eight families for a shell, of one or two commands each."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from openclaw_rl.environments.tasks.families.computer_task import ComputerTask, Draw, bash
from openclaw_rl.environments.tasks.families.words import TaskWords

ANSWER = "answer.txt"


def count(random: Random, words: TaskWords) -> ComputerTask:
    """Count the lines that have a word."""
    file, word = words.file(), words.word()
    hits, others = random.randint(1, 5), random.randint(1, 3)
    lines = [word] * hits + [words.text(1) for _ in range(others)]
    random.shuffle(lines)
    return ComputerTask(
        family="count",
        request=words.request("count", file=file, word=word),
        values=(file, word),
        files={file: "\n".join(lines) + "\n", words.file(): words.line()},
        calls=(bash(f"grep -c {word} {file} > {ANSWER}"),),
        wanted={ANSWER: str(hits)},
    )


def move(random: Random, words: TaskWords) -> ComputerTask:
    """Move a file into a folder, which is there or has to be made."""
    file, folder = words.file(), words.word()
    text, inside = words.line(), f"{folder}/{words.file()}"
    made = random.random() < 0.35
    moved = bash(f"mv {file} {folder}")
    return ComputerTask(
        family="move",
        request=words.request("move_new" if made else "move", file=file, folder=folder),
        values=(file, folder),
        files={file: text, words.file() if made else inside: words.line()},
        calls=(bash(f"mkdir {folder}"), moved) if made else (moved,),
        wanted={f"{folder}/{file}": text},
        gone=(file,),
    )


def copy(random: Random, words: TaskWords) -> ComputerTask:
    """Copy a file."""
    file, other = words.file(), words.file()
    text = words.line()
    return ComputerTask(
        family="copy",
        request=words.request("copy", file=file, other=other),
        values=(file, other),
        files={file: text, words.file(): words.line()},
        calls=(bash(f"cp {file} {other}"),),
        wanted={other: text},
    )


def write(random: Random, words: TaskWords) -> ComputerTask:
    """Write words into a new file."""
    text, out = " ".join(words.word() for _ in range(random.choice((1, 2, 2)))), words.file()
    return ComputerTask(
        family="write",
        request=words.request("write", text=text, out=out),
        values=(text, out),
        files={words.file(): words.line()},
        calls=(bash(f"echo {text} > {out}"),),
        wanted={out: text},
    )


def look_up(random: Random, words: TaskWords) -> ComputerTask:
    """Look up the number of a word in a table."""
    file = words.file()
    keys = [words.word() for _ in range(random.randint(3, 5))]
    numbers = [str(number) for number in random.sample(range(10, 100), len(keys))]
    place = random.randrange(len(keys))
    table = "".join(f"{key} {number}\n" for key, number in zip(keys, numbers, strict=True))
    return ComputerTask(
        family="look_up",
        request=words.request("look_up", file=file, word=keys[place]),
        values=(file, keys[place], numbers[place]),
        files={file: table, words.file(): words.line()},
        calls=(bash(f"grep {keys[place]} {file}"), bash(f"echo {numbers[place]} > {ANSWER}")),
        wanted={ANSWER: numbers[place]},
    )


def find(random: Random, words: TaskWords) -> ComputerTask:
    """Find the file that has a word."""
    word, files = words.word(), [words.file() for _ in range(random.randint(3, 4))]
    file = random.choice(files)
    return ComputerTask(
        family="find",
        request=words.request("find", word=word),
        values=(word, file),
        files=_texts(word, file, files, words),
        calls=(bash(f"grep -l {word} * > {ANSWER}"),),
        wanted={ANSWER: file},
    )


def sort(random: Random, words: TaskWords) -> ComputerTask:
    """Sort the lines of a file into another."""
    file, out = words.file(), words.file()
    lines = [words.text(1) for _ in range(random.randint(4, 6))]
    while lines == sorted(lines):
        random.shuffle(lines)
    return ComputerTask(
        family="sort",
        request=words.request("sort", file=file, out=out),
        values=(file, out),
        files={file: "\n".join(lines) + "\n", words.file(): words.line()},
        calls=(bash(f"sort {file} > {out}"),),
        wanted={out: "\n".join(sorted(lines))},
    )


def remove(random: Random, words: TaskWords) -> ComputerTask:
    """Delete a file, by its name or by a word in it."""
    files = [words.file() for _ in range(3)]
    file = random.choice(files)
    if random.random() < 0.35:
        word = words.word()
        return ComputerTask(
            family="remove",
            request=words.request("remove_found", word=word),
            values=(word, file),
            files=_texts(word, file, files, words),
            calls=(bash(f"grep -l {word} *"), bash(f"rm {file}")),
            gone=(file,),
        )
    return ComputerTask(
        family="remove",
        request=words.request("remove", file=file),
        values=(file,),
        files={name: words.line() for name in files},
        calls=(bash(f"rm {file}"),),
        gone=(file,),
    )


def _texts(word: str, file: str, files: list[str], words: TaskWords) -> dict[str, str]:
    """Texts of the files, of which one has the word."""
    return {name: f"{words.text(1)} {word}\n" if name == file else words.line() for name in files}


TERMINAL: Mapping[str, Draw] = {
    "count": count,
    "move": move,
    "copy": copy,
    "write": write,
    "look_up": look_up,
    "find": find,
    "sort": sort,
    "remove": remove,
}
