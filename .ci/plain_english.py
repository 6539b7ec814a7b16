"""Check the language of code and documents: `python .ci/plain_english.py [PATH…]`, by default everything git tracks.

Reports words that are not the field's English, in identifiers, comments, docstrings, messages and pages, and docstrings
and names of tests that begin with a relative clause. Text that other people wrote or say (prompts, recorded requests,
the rules by which a judge reads people) is data and is left out. So are the string literals of tests: users and models
say them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BANNED = {
    r"(?<![a-zA-Z])told(?![a-zA-Z])": "describe, reported, passed, status text",
    r"\banew\b": "again",
    r"\bnobody\b": "no one, nothing",
    r"\bsomebody\b": "the caller, the user, another program",
    r"\bwhoever\b": "the caller, anyone who",
    r"\bone's own\b": "your own",
    r"\b(?:go(?:es)?|went) on\b": "continue",
    r"(?<![.\w\"`])beside\b(?! *[=:\"`])": "next to",
    r"\b(?:for|after|while|is) so long\b|\bso long as\b|, so long\b": "while",
    r"\breckon(?:s|ed|ing)?\b": "estimate",
    r"\bwhere is trained\b": "the training endpoint",
    r"\b[Ll]east [a-z]+ [a-z]+ of\b": "minimum number of",
    r"pip install '?openclaw-rl\b(?! *-)": "no name is registered at an index: .venv/bin/pip install -e '.[extra]'",
}
"""Pattern: what to write instead."""

RIDDLES = re.compile(r"\s*(?:What|Which|Who|Whom|Whose|Whether|How|Where|Why|Those)\b")
RIDDLE_TESTS = re.compile(r"test_(?:what|which|who|whom|whose|whether|how|where|those)_")
TESTS = "tests/"
LEFT_OUT = re.compile(
    r"(^|/)(prompts|builtin|anchors|openclaw-traffic|results|policy|shipped_policy|node_modules)/"
    r"|^learner/judge/rules/"
    r"|^\.ci/plain_english\.py|^LICENSE"
)


def main(paths: list[str]) -> int:
    """Print each finding as `path:line: word: advice`; return the number of findings, at most 1 as exit status."""
    found = 0
    for path in paths or _tracked():
        if LEFT_OUT.search(path) or not Path(path).is_file():
            continue
        for line, text in _findings(path):
            print(f"{path}:{line}: {text}")
            found += 1
    if found:
        print(f"{found} places to say more plainly", file=sys.stderr)
    return min(found, 1)


def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    return [path for path in listed.stdout.splitlines() if path.endswith((".py", ".md", ".ts", ".toml", "Makefile"))]


def _findings(path: str) -> Iterator[tuple[int, str]]:
    source = Path(path).read_text()
    checked = _without_literals(source) if path.startswith(TESTS) and path.endswith(".py") else source
    for number, line in enumerate(checked.splitlines(), start=1):
        if path.endswith(".md") and line.startswith(">"):  # the words of a person or of a model
            continue
        for pattern, advice in BANNED.items():
            for match in re.finditer(pattern, _words(line), re.IGNORECASE):
                yield number, f"“{match.group().strip(', ')}”: {advice}"
    if path.endswith(".py"):
        yield from _riddles(source)


def _words(line: str) -> str:
    """The line with its identifiers taken apart: `_told_once` reads as ` told once`."""
    return line.replace("_", " ")


def _without_literals(source: str) -> str:
    """Blank the string literals of `source`, except docstrings of definitions and of constants."""
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    lines = source.encode().splitlines(keepends=True)  # `ast` counts columns in bytes
    for node in ast.walk(tree):
        literal = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        if not literal or node in docstrings:
            continue
        for index in range(node.lineno - 1, node.end_lineno):
            line = lines[index]
            begin = node.col_offset if index == node.lineno - 1 else 0
            end = node.end_col_offset if index == node.end_lineno - 1 else len(line.rstrip(b"\r\n"))
            lines[index] = line[:begin] + b" " * (end - begin) + line[end:]
    return b"".join(lines).decode()


def _riddles(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring and RIDDLES.match(docstring):
                yield (
                    node.body[0].lineno,
                    f"docstring begins with “{docstring.split()[0]}”: begin with a verb or a noun",
                )
            if not isinstance(node, ast.Module) and RIDDLE_TESTS.match(node.name):
                yield node.lineno, f"{node.name} begins with a relative clause: begin with a noun or a condition"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
