"""The expression of a job's `--constraint`: whether a node has the features
(https://slurm.schedmd.com/sbatch.html).

`&` is "and", `|` is "or", parentheses group. `[a|b]`: all nodes have a, or all have b. Counts
(`a*2`) are not supported.
"""

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import lru_cache

Test = Callable[[AbstractSet[str]], bool]

_LONGEST = 500
"""Characters. A longer one could be nested more deeply than Python evaluates."""
_TOKEN = re.compile(r"\s*([&|()\[\]]|[^&|()\[\]\s]+)")


class UnsupportedFeatures(ValueError):
    """An expression that is wrong, too long or has counts. The text names it."""


@lru_cache(maxsize=1024)
def alternatives(expression: str) -> tuple[Test, ...]:
    """Return the tests of which all nodes of a job must pass the same one. Raises
    UnsupportedFeatures.
    """
    if len(expression) > _LONGEST:
        raise UnsupportedFeatures(expression[:_LONGEST])
    tokens = _TOKEN.findall(expression)
    if "*" in expression or "".join(tokens) != re.sub(r"\s", "", expression):
        raise UnsupportedFeatures(expression)
    choices = [tokens]
    if "[" in tokens:
        begin = tokens.index("[")
        try:
            end = tokens.index("]", begin)
        except ValueError:
            raise UnsupportedFeatures(expression) from None
        choices = [
            [*tokens[:begin], "(", *choice, ")", *tokens[end + 1 :]]
            for choice in _split(tokens[begin + 1 : end])
        ]
    return tuple(_Parser(choice, expression).whole() for choice in choices)


def _split(tokens: list[str]) -> list[list[str]]:
    """Return the parts between the `|` outside of parentheses."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")  # noqa: S105 - no password
        if token == "|" and depth == 0:  # noqa: S105 - no password
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class _Parser:
    """Slurm evaluates `&` and `|` from left to right; parentheses bind."""

    def __init__(self, tokens: list[str], expression: str) -> None:
        self._tokens = tokens
        self._at = 0
        self._expression = expression

    def whole(self) -> Test:
        found = self._sequence()
        if self._at != len(self._tokens):
            raise UnsupportedFeatures(self._expression)
        return found

    def _sequence(self) -> Test:
        left = self._operand()
        while self._next() in ("&", "|"):
            operator = self._next()
            self._at += 1
            left = (
                _both(left, self._operand()) if operator == "&" else _either(left, self._operand())
            )
        return left

    def _operand(self) -> Test:
        token = self._next()
        self._at += 1
        if token == "(":  # noqa: S105 - no password
            found = self._sequence()
            if self._next() != ")":
                raise UnsupportedFeatures(self._expression)
            self._at += 1
            return found
        if token in ("", ")", "&", "|", "[", "]"):
            raise UnsupportedFeatures(self._expression)
        return lambda features: token in features

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""


def _both(left: Test, right: Test) -> Test:
    return lambda features: left(features) and right(features)


def _either(left: Test, right: Test) -> Test:
    return lambda features: left(features) or right(features)
