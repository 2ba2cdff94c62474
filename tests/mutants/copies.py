"""Copies of the repository in which tests run with a defect, two at a time. The working tree is
never changed.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from tests.cluster.tools import tool

AT_ONCE = 2
PASSED, FAILED, NO_RESULT = "passed", "failed", "no result"

T = TypeVar("T")
R = TypeVar("R")


@contextlib.contextmanager
def copies(root: Path) -> Iterator[Sequence[Path]]:
    """So many copies of the repository as tests run at the same time."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        yield [copy(root, Path(temporary) / str(number)) for number in range(AT_ONCE)]


def copy(root: Path, folder: Path) -> Path:
    """A copy of the repository as it is in the working tree, without what git ignores."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(
        words, cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0"):
        if name and (root / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def in_each(folders: Sequence[Path], items: Iterable[T], work: Callable[[Path, T], R]) -> list[R]:
    """What `work` returns for each item, in the order of the items. Each runs alone in a copy."""
    free: SimpleQueue[Path] = SimpleQueue()
    for folder in folders:
        free.put(folder)

    def one(item: T) -> R:
        folder = free.get()
        try:
            return work(folder, item)
        finally:
            free.put(folder)

    with ThreadPoolExecutor(len(folders)) as threads:
        return list(threads.map(one, items))


@contextlib.contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """The file has this text meanwhile."""
    original = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(original, encoding="utf-8")


def pytest(
    folder: Path,
    tests: Iterable[str],
    seconds: float,
    *,
    processes: int = 0,
    options: Sequence[str] = (),
) -> dict[str, str] | None:
    """PASSED, FAILED or NO_RESULT by test, and for one with parameters also for all of them
    together.

    Empty: a file could not be collected. None: they took longer than `seconds`, or have no report.
    """
    many = ["-n", str(processes), "--dist=worksteal"] if processes else []
    words = [
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-o",
        "junit_family=xunit1",
        *many,
        *options,
        *tests,
    ]
    return _reported(
        lambda report: [sys.executable, "-m", "pytest", f"--junitxml={report}", *words],
        folder,
        seconds,
    )


def helm_unittest(folder: Path, suite: str, seconds: float) -> dict[str, str] | None:
    """The same of the tests in a suite of helm-unittest."""
    charts, chart, file = suite.split("/", 2)
    words = [
        "--strict",
        "--color=false",
        f"--file={file}",
        "--output-type=JUnit",
        f"{charts}/{chart}",
    ]
    return _reported(
        lambda report: [tool("helm-unittest"), f"--output-file={report}", *words],
        folder,
        seconds,
        suite=suite,
    )


def _reported(
    command: Callable[[Path], Sequence[str | Path]],
    folder: Path,
    seconds: float,
    *,
    suite: str = "",
) -> dict[str, str] | None:
    # Python would take a changed module of the same size and second for the one that it has
    # compiled.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        try:
            subprocess.run(
                command(report),
                cwd=folder,
                env=environment,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return read(report, suite) if report.exists() else None


def read(report: Path, suite: str) -> dict[str, str]:
    """The results in a report in JUnit's format, by test."""
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - of our own test programs
        name = case.get("name", "")
        if not suite and not case.get("classname"):
            continue  # A file that could not be collected, which is no test.
        full = f"{suite}::it: {name}" if suite else f"{case.get('file')}::{name}"
        # A test that is skipped, or whose fixture fails, proves nothing.
        result = FAILED if case.find("failure") is not None else NO_RESULT if len(case) else PASSED
        for test in {full, full if suite else full.partition("[")[0]}:
            found[test] = max(
                found.get(test, result), result, key=[PASSED, NO_RESULT, FAILED].index
            )
    return found
