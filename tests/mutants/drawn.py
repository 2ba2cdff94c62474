"""Generic mutants that are drawn at random: the unit tests must fail with each of them.

First run the tests of the changed module's own file, then those of its whole folder, those that
import the module, and those of the modules that import it.

| result | means |
|---|---|
| caught | a test fails with the defect, and passes without it |
| SURVIVED | none does |
| not run | the tests took too long, or had no result |
"""

import ast
import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.mutants import changes as of_git
from tests.mutants.copies import PASSED, changed, copies, in_each, pytest
from tests.mutants.generic import Change, changes, equivalents
from tests.support.coverage import Coverage

SECONDS = 300
"""How long the tests of one mutant may run, each time."""

UNIT = Path("tests/unit")


@dataclass(frozen=True)
class Outcome:
    """What became of one change."""

    change: Change
    word: str
    """See the table above."""
    test: str = ""
    """The one that has caught it."""


@dataclass(frozen=True)
class Tests:
    """Which unit tests can find a defect of a module, in the repository in `root`."""

    root: Path

    def own(self, module: str) -> list[str]:
        """Return the test that reaches the module first: that of its name, if it has one."""
        package, _, name = module.partition("/")
        return [str(it.relative_to(self.root)) for it in self._tested[package].by(name)[:1]]

    def around(self, module: str) -> list[str]:
        """Those of the module's folder, those that import it, and those of the modules that import
        it.
        """
        found = {
            str(path.relative_to(self.root))
            for own in self.own(module)
            for path in self._beside(own)
        }
        for importer in self._importers.get(module, ()):
            found.update(self.own(importer) if not importer.startswith("tests/") else [importer])
        return sorted(found - {*self.own(module)})

    def _beside(self, test: str) -> Iterable[Path]:
        folder = (self.root / test).parent
        return () if folder == self.root / UNIT else folder.glob("test_*.py")

    @cached_property
    def _tested(self) -> Mapping[str, Coverage]:
        return {
            "sidecars": Coverage(self.root / "sidecars", self.root / UNIT),
            "postrender": Coverage(self.root / "postrender", self.root / UNIT / "postrender"),
        }

    @cached_property
    def _importers(self) -> Mapping[str, set[str]]:
        """The modules and test files that import a module, by its path."""
        found: dict[str, set[str]] = {}
        for path in [*modules(self.root), *(self.root / UNIT).rglob("test_*.py")]:
            for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
                place = name.replace(".", "/")
                for imported in (f"{place}.py", f"{place}/__init__.py"):
                    if (self.root / imported).is_file():
                        found.setdefault(imported, set()).add(str(path.relative_to(self.root)))
        return found


def _imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def modules(root: Path) -> list[Path]:
    """Return the modules of the product that mutants are of: those that `Coverage` knows."""
    found = [
        path
        for package in ("sidecars", "postrender")
        for path in sorted((root / package).rglob("*.py"))
    ]
    return [path for path in found if path.name != "generated.py"]


def draw(root: Path, count: int, lines: Mapping[str, Collection[int]] | None) -> list[Change]:
    """So many changes, the same ones for the same commit. `lines`: of these alone, by file; None:
    of all.

    Those that are listed as equivalent are never among them.
    """
    everything: list[Change] = []
    for path in modules(root):
        name = str(path.relative_to(root))
        if lines is None or name in lines:
            everything += changes(
                name, path.read_text(encoding="utf-8"), lines[name] if lines is not None else None
            )
    known = {(it.file, it.before, it.after) for it in equivalents()}
    random.Random(of_git.head(root)).shuffle(everything)  # noqa: S311 - repeatable, not secret
    usable = (
        it
        for it in everything
        if (it.file, *it.words) not in known
        and it.applied((root / it.file).read_text(encoding="utf-8"))
    )
    return list(itertools.islice(usable, count))


def check(root: Path, drawn: Sequence[Change]) -> list[Outcome]:
    """What became of the changes, in their order. Each is printed when it is known."""
    tests = Tests(root)
    with copies(root) as folders:

        def one(folder: Path, change: Change) -> Outcome:
            outcome = check_one(folder, tests, change)
            print(f"{outcome.word:8} {change}", flush=True)
            return outcome

        return in_each(folders, drawn, one)


def check_one(folder: Path, tests: Tests, change: Change) -> Outcome:
    """What became of one change in a copy of the repository."""
    word = "not run"
    mutated = change.applied((folder / change.file).read_text(encoding="utf-8"))
    assert mutated is not None, f"{change} can't be read"
    for files in (tests.own(change.file), tests.around(change.file)):
        if not files:
            continue
        with changed(folder / change.file, mutated):
            results = pytest(folder, files, SECONDS, options=["-x"])
        own = tests.own(change.file) == files
        # None is also the result of a run that takes too long, which proves nothing of many files.
        if not results and (own or results is not None) and _importable(folder, files):
            return Outcome(
                change, "caught", f"{files[0] if own else 'a test around it'} can't be imported"
            )
        failed = [test for test, result in (results or {}).items() if result != PASSED]
        # A test that fails without the defect, too, has not found it.
        if failed and (pytest(folder, failed, SECONDS) or {}).get(failed[0]) == PASSED:
            return Outcome(change, "caught", failed[0])
        word = "SURVIVED" if results and not failed else word
    return Outcome(change, word)


def _importable(folder: Path, files: Sequence[str]) -> bool:
    """Whether pytest can collect these tests without the defect."""
    return bool(pytest(folder, files, SECONDS, options=["-x"]))


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many were caught of those with a result."""
    words = Counter(outcome.word for outcome in outcomes)
    known = words["caught"] + words["SURVIVED"]
    rate = f" ({100 * words['caught'] / known:.0f} %)" if known else ""
    unknown = f", {words['not run']} without a result" if words["not run"] else ""
    return f"{words['caught']} of {known} random mutants caught{rate}{unknown}"
