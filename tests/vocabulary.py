"""The word list tests/vocabulary.yaml, and the check of texts against it."""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests/vocabulary.yaml"

_MARKDOWN_CODE = re.compile(
    r"^ *```.*?^ *```|^(?: {4}|\t).*?$|`[^`\n]*(?:\n[^`\n]+)?`|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
_SHELL_COMMENT = re.compile(r"(?:^|\s)#(?!!)(.*)$")
_HELM = re.compile(r"\{\{(?!-? ?/\*).*?\}\}", re.DOTALL)  # but not its comments


@dataclass(frozen=True)
class Word:
    """One entry of the list."""

    wrong: re.Pattern[str]
    right: str
    """What to write instead."""
    allowed: tuple[re.Pattern[str], ...]
    """Texts in which `wrong` has another sense."""
    bad: str
    """An example that the entry reports."""
    good: str
    """The same, as the entry wants it."""


@dataclass(frozen=True)
class List:
    """The whole word list."""

    words: tuple[Word, ...]
    """For prose."""
    names: tuple[Word, ...]
    """For identifiers, as `spoken` gives them."""
    checked: tuple[str, ...]
    """Patterns of the files to check."""
    excluded: frozenset[str]
    """Those of them that are not checked."""


@dataclass(frozen=True)
class Finding:
    """A wrong word in a text."""

    line: int
    """Counted from 1."""
    found: str
    right: str


@functools.cache
def word_list() -> List:
    """The list as tests/vocabulary.yaml has it."""
    document = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return List(
        words=tuple(_word(entry) for entry in document["words"]),
        names=tuple(_word(entry) for entry in document["names"]),
        checked=tuple(document["checked"]),
        excluded=frozenset(entry["path"] for entry in document["excluded"]),
    )


def _word(entry: dict[str, object]) -> Word:
    allowed = entry.get("allowed", [])
    assert isinstance(allowed, list)
    return Word(
        wrong=re.compile(str(entry["wrong"])),
        right=str(entry["right"]),
        allowed=tuple(re.compile(case["text"]) for case in allowed),
        bad=str(entry["bad"]),
        good=str(entry["good"]),
    )


def findings(text: str, words: tuple[Word, ...], first_line: int = 1) -> list[Finding]:
    """Wrong words in a text, those at the ends of lines included. Lines count from `first_line`."""
    found = []
    joined = re.sub(r"\n[ #*>]*", lambda newline: "\n".ljust(len(newline.group())), text.lower())
    for word in words:
        remaining = joined
        for allowed in word.allowed:
            remaining = _spaced(allowed).sub(
                lambda match: re.sub(r"\S", "-", match.group()), remaining
            )
        for match in _spaced(word.wrong).finditer(remaining):
            line = first_line + remaining.count("\n", 0, match.start())
            found.append(Finding(line, " ".join(match.group().split()), word.right))
    return sorted(found, key=lambda finding: finding.line)


@functools.cache
def _spaced(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """The pattern, in which a space stands for any white space, as a line may end there."""
    return re.compile(re.sub(r"(?<!\\) (?![*?+])", r"\\s+", pattern.pattern), pattern.flags)


def in_file(path: Path, listed: List) -> list[Finding]:
    """Wrong words in a file, read according to its name."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return in_python(text, listed)
    if path.suffix == ".md":
        return findings(without_code(text), listed.words)
    if path.suffix in {".sh", ".bash", ""}:
        return findings(comments(text), listed.words)
    return findings(without_code(_HELM.sub(_blank, text), indented=False), listed.words)


def in_python(text: str, listed: List) -> list[Finding]:
    """Wrong words in comments, strings and identifiers of a Python module."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found += findings(
                without_code(token.string, indented=False), listed.words, token.start[0]
            )
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += findings(without_code(node.value, indented=False), listed.words, line)
        found += [
            Finding(line, name, finding.right)
            for name in _identifiers(node)
            for finding in findings(spoken(name), listed.names)
        ]
    return sorted(set(found), key=lambda finding: (finding.line, finding.found))


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Identifiers that the node introduces; uses of foreign ones don't count."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.alias(asname=str(name)):
            yield name


def spoken(name: str) -> str:
    """The words of an identifier, separated by spaces."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).replace("_", " ").split()
    return " ".join(parts).lower()


def without_code(text: str, *, indented: bool = True) -> str:
    """A text without code: backquotes, fences, addresses of links, and lines with 4 spaces if
    `indented`.

    Lines stay where they are.
    """
    if not indented:
        return re.sub(r"`[^`\n]*`", _blank, text)
    return _MARKDOWN_CODE.sub(_blank, text)


def comments(text: str) -> str:
    """The comments of a shell script, a Makefile or a Containerfile; other lines are empty."""
    return "\n".join(
        match.group(1) if (match := _SHELL_COMMENT.search(line)) else ""
        for line in text.splitlines()
    )


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())
