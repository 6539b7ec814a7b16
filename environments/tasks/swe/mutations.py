"""Single mutations of Python source: a wrong constant, name, operator or boundary."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

import msgspec

Kind = Literal["constant", "name", "operator", "boundary"]
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
}
"""Text of an operator, and its mutation."""
BOUNDARIES: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """The text from `start` to `end` (offsets in characters of ASCII source) becomes `text`."""

    kind: Kind
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """The source with the fault."""
        return source[: self.start] + self.text + source[self.end :]


def mutations(source: str) -> Iterator[Mutation]:
    """Every mutation of the code inside functions. `source` is ASCII."""
    finder = _Finder(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            yield from finder.in_function(node)


class _Finder:
    def __init__(self, source: str) -> None:
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def in_function(self, function: ast.FunctionDef) -> Iterator[Mutation]:
        names = sorted({argument.arg for argument in function.args.args if argument.arg != "self"})
        docstring = function.body[0] if ast.get_docstring(function) else None
        for node in chain.from_iterable(
            ast.walk(statement) for statement in function.body if statement is not docstring
        ):
            if isinstance(node, ast.Constant) and type(node.value) is int:
                yield self._at("constant", node, str(node.value + 1))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
                yield from (self._at("name", node, other) for other in names if other != node.id)
            elif isinstance(node, ast.BinOp):
                yield from self._between("operator", node.left, node.right, node.op)
            elif isinstance(node, ast.BoolOp):
                yield from self._between("operator", node.values[0], node.values[1], node.op)
            elif isinstance(node, ast.Compare) and len(node.ops) == 1:
                kind: Kind = "boundary" if type(node.ops[0]) in BOUNDARIES else "operator"
                yield from self._between(kind, node.left, node.comparators[0], node.ops[0])

    def _at(self, kind: Kind, node: ast.expr, text: str) -> Mutation:
        return Mutation(kind=kind, start=self._offset(node), end=self._end(node), text=text)

    def _between(self, kind: Kind, left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Mutation]:
        found = (OPERATORS | BOUNDARIES).get(type(operator))
        if found is None:
            return
        begin, end = self._end(left), self._offset(right)
        place = self._source[begin:end].find(f" {found[0]} ")
        if place >= 0:
            start = begin + place + 1
            yield Mutation(kind=kind, start=start, end=start + len(found[0]), text=found[1])

    def _offset(self, node: ast.expr) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None, "parsed code has places"
        return self._lines[node.end_lineno - 1] + node.end_col_offset


def sources(files: Sequence[str]) -> list[str]:
    """The paths of code that is no test."""
    return sorted(path for path in files if path.endswith(".py") and not path.startswith("tests/"))
