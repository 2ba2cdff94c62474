"""Generic mutants of Python code: one comparison, `and`, `not`, condition, operation or returned
value is another.

mutmut and cosmic-ray do this, too, and don't fit: mutmut puts all mutants of a function into one
module, which tests that read the source then find, and first runs all tests for their coverage;
cosmic-ray lists every mutant in a database, and runs one command for all of them, in the working
tree.
"""

import ast
import io
import tokenize
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.mutants.table import EQUIVALENT

_COMPARISONS = {
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
_OPERATIONS = {"+": ("-",), "-": ("+",), "*": ("//",), "/": ("*",), "//": ("*",), "%": ("*",)}
"""Not `|` and `&`: most of them are of types, and end the module's import."""

_WORDS = {"and": ("or",), "or": ("and",)}

Place = tuple[int, int]
"""A line, from 1, and a column in characters."""


@dataclass(frozen=True)
class Change:
    """One mutant of a module's text."""

    file: str
    line: int
    last: int
    before: str
    """The lines from `line` to `last`."""
    after: str
    """What replaces them."""

    @property
    def words(self) -> tuple[str, str]:
        """Both without the space around them."""
        return self.before.strip(), self.after.strip()

    def applied(self, source: str) -> str | None:
        """The module with the defect; None if Python can't read it."""
        lines = source.splitlines(keepends=True)
        text = "".join([*lines[: self.line - 1], self.after, *lines[self.last :]])
        try:
            ast.parse(text)
        except SyntaxError:
            return None
        return text

    def __str__(self) -> str:
        before, after = self.words
        return f"{self.file}:{self.line}: {before}  →  {after}"


@dataclass(frozen=True)
class Equivalent:
    """A change that no test can find, with the reason."""

    file: str
    before: str
    after: str
    reason: str


def equivalents() -> list[Equivalent]:
    """Those that are listed."""
    text = (Path(__file__).parent / EQUIVALENT).read_text(encoding="utf-8")
    return [Equivalent(**row) for row in yaml.safe_load(text) or ()]


def changes(file: str, source: str, lines: Collection[int] | None = None) -> list[Change]:
    """All generic mutants of a module, in the order of their places; of these lines alone unless
    `lines` is None.
    """
    module = _Module(file, source)
    found = sorted(
        {it for node in ast.walk(module.tree) for it in module.of(node)},
        key=lambda it: (it.line, it.after),
    )
    return [it for it in found if lines is None or it.line in lines]


class _Module:
    def __init__(self, file: str, source: str) -> None:
        self.file, self.source = file, source
        self.tree = ast.parse(source)
        self.lines = source.splitlines(keepends=True)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        self.tokens = [it for it in tokens if it.type in {tokenize.OP, tokenize.NAME}]
        self.starts = [it.start for it in self.tokens]

    def of(self, node: ast.AST) -> Iterator[Change]:
        """The mutants of one node."""
        match node:
            case ast.Compare() if not _is_name(node.left, "__name__"):
                for left, right in zip(
                    [node.left, *node.comparators], node.comparators, strict=False
                ):
                    yield from self._operator(left, right, _COMPARISONS)
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._operator(left, right, _WORDS)
            case ast.BinOp() if not _is_text(node.left) and not _is_text(node.right):
                yield from self._operator(node.left, node.right, _OPERATIONS)
            case ast.UnaryOp(op=ast.Not()):
                yield from self._change(self._start(node), self._start(node.operand), "")
            case ast.If() | ast.While() | ast.IfExp() if not _is_name(node.test, "TYPE_CHECKING"):
                yield from self._condition(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self._condition(test)
            case ast.Return(value=ast.expr() as value):
                yield from self._returned(value)
            case _:
                pass

    def _operator(
        self, left: ast.expr, right: ast.expr, becomes: Mapping[str, Sequence[str]]
    ) -> Iterator[Change]:
        words = {word for operator in becomes for word in operator.split()}
        between = slice(
            bisect_left(self.starts, self._end(left)), bisect_left(self.starts, self._start(right))
        )
        tokens = [it for it in self.tokens[between] if it.string in words]
        for other in becomes.get(" ".join(it.string for it in tokens), ()):
            yield from self._change(tokens[0].start, tokens[-1].end, other)

    def _condition(self, test: ast.expr) -> Iterator[Change]:
        # A comparison and a `not` have mutants of their own.
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield from self._replaced(test, "not ({})")

    def _returned(self, value: ast.expr) -> Iterator[Change]:
        match value:
            case ast.Constant(value=bool(given)):
                yield from self._replaced(value, str(not given))
            case ast.Constant(value=int(given)):
                # Not None, which is 0 for who ends with it.
                yield from self._replaced(value, str(given + 1))
            case ast.Constant(value=None):
                return
            case _:
                yield from self._replaced(value, "None")

    def _replaced(self, node: ast.expr, pattern: str) -> Iterator[Change]:
        start, end = self._start(node), self._end(node)
        text = "".join(self.lines[start[0] - 1 : end[0]])[start[1] :]
        text = text[: len(text) - len(self.lines[end[0] - 1]) + end[1]]
        yield from self._change(start, end, pattern.format(text))

    def _change(self, start: Place, end: Place, becomes: str) -> Iterator[Change]:
        first, last = self.lines[start[0] - 1], self.lines[end[0] - 1]
        before = "".join(self.lines[start[0] - 1 : end[0]])
        yield Change(
            self.file, start[0], end[0], before, first[: start[1]] + becomes + last[end[1] :]
        )

    def _start(self, node: ast.expr) -> Place:
        return self._place(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> Place:
        return self._place(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _place(self, line: int, offset: int) -> Place:
        # `ast` counts bytes.
        return line, len(self.lines[line - 1].encode()[:offset].decode())


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and not isinstance(node.value, int)
    )


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
