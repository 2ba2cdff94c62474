"""`make test SINCE=REVISION`: only what the changes since a Git revision can touch. CI runs
everything.

A unit test is touched by a change of a module that it imports, directly or not, of its conftest.py,
and of a data file whose folder one of these modules names. Tests with real daemons are touched by
what they import from `tests`, and by their subject. pytest-testmon would need a database for each
host, and sees neither YAML nor what other processes run.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from tests.cluster.errors import ClusterError
from tests.run import subjects

PACKAGES = ("sidecars", "postrender", "schemas", "release", "tests")
_MODULE = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)*")


def changed(root: Path, revision: str) -> list[str]:
    """Paths that differ from the last common commit with a revision, also those that Git doesn't
    know yet.
    """

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ClusterError(f"SINCE={revision}: {done.stderr.strip()}")
        return done.stdout.splitlines()

    base = git("merge-base", revision, "HEAD")[0]
    return sorted(
        {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}
    )


@dataclass(frozen=True)
class Source:
    """What a Python file refers to: modules of ours, and words that can be names of files."""

    modules: frozenset[str]
    words: frozenset[str]


def source(text: str) -> Source:
    """Read a Python file. A module that is named in a string counts: it may be run with `python
    -m`.
    """
    modules, words = set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _MODULE.fullmatch(node.value):
                modules |= {node.value, f"{node.value}.__main__"}
            if len(node.value) < 200:
                words |= {part for part in node.value.split("/") if part}
    return Source(frozenset(modules), frozenset(words))


@dataclass(frozen=True)
class Repository:
    """The Python files of a repository."""

    root: Path

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """By path."""
        paths = [path for package in PACKAGES for path in (self.root / package).rglob("*.py")]
        return {
            path.relative_to(self.root).as_posix(): source(path.read_text(encoding="utf-8"))
            for path in paths
        }

    def files(self, module: str) -> set[str]:
        """The files that an import of a module runs: its own, and those of the packages around
        it.
        """
        parts = module.split(".")
        packages = {
            "/".join([*parts[:number], "__init__.py"]) for number in range(1, len(parts) + 1)
        }
        return (packages | {f"{'/'.join(parts)}.py"}) & self.sources.keys()

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """The files that each file imports. A test file imports each conftest.py above it."""
        found = {}
        for path, read in self.sources.items():
            found[path] = {file for module in read.modules for file in self.files(module)}
            folders = PurePosixPath(path).parents
            found[path] |= {f"{folder}/conftest.py" for folder in folders} & self.sources.keys()
        return found

    def touched(self, changes: Iterable[str]) -> set[str]:
        """The Python files that changed, those that name changed data, and all that import them."""
        changes = set(changes)
        names = {name for path in changes if not path.endswith(".py") for name in _names(path)}
        reached = {
            path for path, read in self.sources.items() if path in changes or names & read.words
        }
        importers: dict[str, set[str]] = {}
        for path, imported in self.imports.items():
            for file in imported:
                importers.setdefault(file, set()).add(path)
        more = set(reached)
        while more := {importer for path in more for importer in importers.get(path, ())} - reached:
            reached |= more
        return reached


def _names(path: str) -> set[str]:
    """How Python files name a data file: by its own name, or by the folder at the top, below tests
    by the one below.
    """
    parts = path.split("/")
    top = parts[1] if parts[0] == "tests" and len(parts) > 2 else parts[0]
    return {top, parts[-1]}


@dataclass(frozen=True)
class Choice:
    """What a change touches. `whole`: the change because of which everything runs."""

    whole: str | None
    stages: frozenset[str]
    tests: Sequence[str]
    left_out: Sequence[str]

    def of(self, *folders: str) -> list[str]:
        """The chosen test files in these folders."""
        return [test for test in self.tests if test.startswith(folders)]


def choose(repository: Repository, changes: Sequence[str]) -> Choice:
    """Choose stages and test files."""
    folders = ("tests/unit/", "tests/integration/", "tests/slurm/", "tests/e2e/")
    every = [
        path for path in sorted(repository.sources) if path.startswith(folders) and "/test_" in path
    ]
    whole = next((path for path in changes if _matches(path, subjects.HARNESS)), None)
    if whole:
        return Choice(whole, frozenset(subjects.STAGES), every, [])
    stages = {
        stage
        for stage, patterns in subjects.STAGES.items()
        if any(_matches(path, patterns) for path in changes)
    }
    touched = repository.touched(changes)
    of_tests = repository.touched(path for path in changes if path.startswith("tests/"))
    product = [path for path in changes if _matches(path, subjects.PRODUCT)]

    def chosen(test: str) -> bool:
        if PurePosixPath(test).parent == PurePosixPath("tests/unit"):
            return True
        if test.startswith("tests/unit/"):
            return test in touched
        return test in of_tests or any(about(test, path) for path in product)

    tests = [test for test in every if chosen(test)]
    left_out = [
        *(stage for stage in subjects.STAGES if stage not in stages),
        *(test for test in every if test not in tests),
    ]
    return Choice(None, frozenset(stages), tests, left_out)


def about(test: str, path: str) -> bool:
    """Whether a file of tests with real daemons is about a file of the product."""
    found = [
        patterns
        for pattern, patterns in subjects.SUBJECTS.items()
        if _matches(test, [pattern]) or _matches(PurePosixPath(test).stem, [pattern])
    ]
    return not found or any(_matches(path, patterns) for patterns in found)


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(_expression(pattern).fullmatch(path) for pattern in patterns)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*"))


def summary(choice: Choice, changes: Sequence[str], revision: str) -> list[str]:
    """For people: what runs, and what doesn't."""
    lines = [f"{len(changes)} files differ from {revision}"]
    if choice.whole:
        return [*lines, f"everything runs, because of {choice.whole}"]
    unit = "tests/unit/"
    few = [path for path in choice.left_out if not path.startswith(unit)]
    return [
        *lines,
        "runs: "
        + ", ".join(
            [
                "static checks",
                "verify",
                *sorted(choice.stages),
                f"{len(choice.of(unit))} files of unit tests",
            ]
        ),
        *(f"runs: {test}" for test in choice.tests if not test.startswith(unit)),
        (f"skips: {', '.join([*few, f'{len(choice.left_out) - len(few)} files of unit tests'])}"),
    ]
