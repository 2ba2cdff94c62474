"""`python -m tests.mutants [NAME…]`: put each known defect into a copy of the code; the tests named for it must fail.

Two mutants run at a time, each in a copy of the repository in a temporary folder: the working tree is never changed.
Each test has to pass without a mutant first. NAME is a part of the names of mutants; without one, all run.

| result | means |
|---|---|
| caught | each test that is named for the defect fails |
| SURVIVED | a test passes in spite of the defect: it doesn't prove what it claims |
| no place | the file doesn't contain the text exactly once: the table is out of date |
| test fails | a named test fails without the defect, too, or doesn't exist |
| not run | a named test had no result, for example because the mutated module can't be imported |
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.cluster.tools import tool
from tests.mutants.table import ROOT, Mutant, load
from tests.support import named_tests

AT_ONCE = 2
SECONDS = 300
"""How long the tests of one mutant may run."""

MANY = 20
"""More tests than this run in several processes, and may take longer."""

PASSED, FAILED, NO_RESULT = "passed", "failed", "no result"


@dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    word: str
    """See the table above."""
    seconds: float = 0.0
    detail: str = ""


def main(arguments: Sequence[str]) -> int:
    """The command; 0 means that every mutant was caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Check that the tests find defects.")
    parser.add_argument("name", nargs="*", help="a part of the names of mutants; default: all mutants")
    names = parser.parse_args(arguments).name
    everything = load()
    if unknown := [name for name in names if not any(name in mutant.name for mutant in everything)]:
        parser.error(f"no mutant has a name with: {', '.join(unknown)}")
    chosen = [mutant for mutant in everything if not names or any(name in mutant.name for name in names)]
    started = time.monotonic()
    results = check(ROOT, chosen)
    for result in results:
        if result.word != "caught":
            print(f"\n{result.word}: {result.mutant.name}: {result.mutant.defect}\n{result.detail}")
    caught = sum(result.word == "caught" for result in results)
    print(f"\n{caught} of {len(results)} mutants caught in {time.monotonic() - started:.0f} s")
    return 0 if caught == len(results) else 1


def check(root: Path, mutants: Sequence[Mutant]) -> list[Result]:
    """The results of the mutants, in their order. Each is printed when it is known."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        copies = [copy(root, Path(temporary) / str(number)) for number in range(AT_ONCE)]
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        print(f"running the {len(tests)} tests without a defect first", flush=True)
        # Without the missing ones, because of which pytest would run no test at all.
        before = run_tests(copies[0], [test for test in tests if named_tests.exists(test, copies[0])])
        folders: SimpleQueue[Path] = SimpleQueue()
        for folder in copies:
            folders.put(folder)

        def one(mutant: Mutant) -> Result:
            folder = folders.get()
            try:
                result = check_one(folder, mutant, before)
            finally:
                folders.put(folder)
            print(f"{result.word:10} {mutant.name} ({result.seconds:.1f} s)", flush=True)
            return result

        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(one, mutants))


def check_one(folder: Path, mutant: Mutant, before: Mapping[str, str]) -> Result:
    """The result of one mutant in a copy of the repository. `before`: the results of the tests without it."""
    if wrong := [test for test in mutant.tests if before.get(test) != PASSED]:
        return Result(mutant, "test fails", detail=_listed("without the defect, too, or it doesn't exist", wrong))
    mutated = mutant.mutated(folder)
    if mutated is None:
        return Result(mutant, "no place", detail=f"  {mutant.file} doesn't contain the text exactly once")
    path = folder / mutant.file
    original = path.read_text(encoding="utf-8")
    started = time.monotonic()
    path.write_text(mutated, encoding="utf-8")
    try:
        after = run_tests(folder, mutant.tests)
    finally:
        path.write_text(original, encoding="utf-8")
    seconds = time.monotonic() - started
    if passed := [test for test in mutant.tests if after[test] == PASSED]:
        return Result(mutant, "SURVIVED", seconds, _listed("in spite of the defect these pass", passed))
    if unknown := [test for test in mutant.tests if after[test] == NO_RESULT]:
        return Result(mutant, "not run", seconds, _listed("without a result", unknown))
    return Result(mutant, "caught", seconds)


def _listed(title: str, tests: Iterable[str]) -> str:
    return "\n".join([f"  {title}:", *(f"    {test}" for test in tests)])


def copy(root: Path, folder: Path) -> Path:
    """A copy of the repository as it is in the working tree, without what git ignores."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (root / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name, follow_symlinks=False)
    return folder


def run_tests(folder: Path, tests: Iterable[str]) -> dict[str, str]:
    """PASSED, FAILED or NO_RESULT by test. A test with parameters has failed if it has for one of them."""
    found = dict.fromkeys(tests, NO_RESULT)
    suites: dict[str, list[str]] = defaultdict(list)
    for test in found:
        suites[test.partition("::")[0] if "::it: " in test else ""].append(test)
    many = len(found) > MANY
    for suite, members in suites.items():
        with tempfile.TemporaryDirectory() as temporary:
            report = Path(temporary) / "report.xml"
            words = _helm_unittest(suite, report) if suite else _pytest(members, report, many=many)
            # Python would take a changed module of the same size and second for the one that it has compiled.
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
            try:
                subprocess.run(
                    words,
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    timeout=SECONDS * (4 if many else 1),
                    check=False,
                )
            except subprocess.TimeoutExpired:
                continue
            if report.exists():
                for test, result in read(report, suite).items():
                    if test in found:
                        found[test] = result
    return found


def _pytest(tests: Iterable[str], report: Path, *, many: bool) -> list[str | Path]:
    options = ["-q", "--tb=no", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}"]
    processes = ["-n", str(AT_ONCE), "--dist=worksteal"] if many else []
    return [sys.executable, "-m", "pytest", *options, *processes, *tests]


def _helm_unittest(suite: str, report: Path) -> list[str | Path]:
    charts, chart, file = suite.split("/", 2)
    options = ["--strict", "--color=false", f"--file={file}", f"--output-file={report}", "--output-type=JUnit"]
    return [tool("helm-unittest"), *options, f"{charts}/{chart}"]


def read(report: Path, suite: str) -> dict[str, str]:
    """The results in a report in JUnit's format, by test."""
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - of our own test programs
        name = case.get("name", "")
        full = f"{suite}::it: {name}" if suite else f"{case.get('file')}::{name}"
        # A test that is skipped, or whose fixture fails, proves nothing.
        result = FAILED if case.find("failure") is not None else NO_RESULT if len(case) else PASSED
        for test in {full, full if suite else full.partition("[")[0]}:
            found[test] = max(found.get(test, result), result, key=[PASSED, NO_RESULT, FAILED].index)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
