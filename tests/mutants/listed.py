"""The mutants of the table: each test that is named for one must fail with it, and pass without it.

| result | means |
|---|---|
| caught | each test that is named for the defect fails |
| SURVIVED | a test passes in spite of the defect: it doesn't prove what it claims |
| no place | the file doesn't contain the text exactly once: the table is out of date |
| test fails | a named test fails without the defect, too, or doesn't exist |
| not run | a named test had no result, for example because the mutated module can't be imported |
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.copies import (
    AT_ONCE,
    NO_RESULT,
    PASSED,
    changed,
    copies,
    helm_unittest,
    in_each,
    pytest,
)
from tests.mutants.table import Mutant
from tests.support import named_tests

SECONDS = 300
"""How long the tests of one mutant may run."""

MANY = 20
"""More tests than this run in several processes, and may take longer."""


@dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    word: str
    """See the table above."""
    seconds: float = 0.0
    detail: str = ""


def concerned(
    mutants: Sequence[Mutant], files: Collection[str], former: Collection[Mutant]
) -> list[Mutant]:
    """The mutants with a file or a test in one of these files, and those that were not in the table
    before.
    """
    known = set(former)
    return [
        mutant
        for mutant in mutants
        if mutant not in known
        or {mutant.file, *(test.partition("::")[0] for test in mutant.tests)} & {*files}
    ]


def check(root: Path, mutants: Sequence[Mutant]) -> list[Result]:
    """The results of the mutants, in their order. Each is printed when it is known."""
    with copies(root) as folders:
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        print(f"running the {len(tests)} tests without a defect first", flush=True)
        # Without the missing ones, because of which pytest would run no test at all.
        before = run_tests(
            folders[0], [test for test in tests if named_tests.exists(test, folders[0])]
        )

        def one(folder: Path, mutant: Mutant) -> Result:
            result = check_one(folder, mutant, before)
            print(f"{result.word:10} {mutant.name} ({result.seconds:.1f} s)", flush=True)
            return result

        return in_each(folders, mutants, one)


def check_one(folder: Path, mutant: Mutant, before: Mapping[str, str]) -> Result:
    """The result of one mutant in a copy of the repository. `before`: the results of the tests
    without it.
    """
    if wrong := [test for test in mutant.tests if before.get(test) != PASSED]:
        return Result(
            mutant,
            "test fails",
            detail=_shown("without the defect, too, or it doesn't exist", wrong),
        )
    mutated = mutant.mutated(folder)
    if mutated is None:
        return Result(
            mutant, "no place", detail=f"  {mutant.file} doesn't contain the text exactly once"
        )
    started = time.monotonic()
    with changed(folder / mutant.file, mutated):
        after = run_tests(folder, mutant.tests)
    seconds = time.monotonic() - started
    if passed := [test for test in mutant.tests if after[test] == PASSED]:
        return Result(
            mutant, "SURVIVED", seconds, _shown("in spite of the defect these pass", passed)
        )
    if unknown := [test for test in mutant.tests if after[test] == NO_RESULT]:
        return Result(mutant, "not run", seconds, _shown("without a result", unknown))
    return Result(mutant, "caught", seconds)


def _shown(title: str, tests: Iterable[str]) -> str:
    return "\n".join([f"  {title}:", *(f"    {test}" for test in tests)])


def run_tests(folder: Path, tests: Iterable[str]) -> dict[str, str]:
    """PASSED, FAILED or NO_RESULT by test. A test with parameters has failed if it has for one of
    them.
    """
    found = dict.fromkeys(tests, NO_RESULT)
    suites: dict[str, list[str]] = defaultdict(list)
    for test in found:
        suites[test.partition("::")[0] if "::it: " in test else ""].append(test)
    many = len(found) > MANY
    seconds = SECONDS * (4 if many else 1)
    for suite, members in suites.items():
        if suite:
            results = helm_unittest(folder, suite, seconds)
        else:
            results = pytest(folder, members, seconds, processes=AT_ONCE if many else 0)
        found.update((test, result) for test, result in (results or {}).items() if test in found)
    return found
