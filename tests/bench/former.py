"""The same benchmark with a former commit: `python -m tests.bench NAME --former DIR`, DIR being a
worktree of it.

Both are measured in the same session, in turns, because the speed of this machine differs from hour
to hour.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.figures import Bench, Figure, rounded, table
from tests.bench.operator import CHECKOUT_VARIABLE

OF_THE_OPERATOR = frozenset({"nodeset"})
"""Benchmarks that look at the operator's process alone: this checkout measures the former operator,
so that new figures have a former value, too. In the others the former commit measures itself.
"""


def comparing(name: str, bench: Bench, checkout: Path, rounds: int) -> Bench:
    """A benchmark that measures the former commit first in each round, and prints the ratios."""

    def compare() -> list[Figure]:
        found: list[Figure] = []
        for number in range(1, rounds + 1):
            before = former(name, bench, checkout)
            found = bench()
            print(
                f"round {number} of {rounds}, beside {checkout}\n{table(beside(found, before))}\n",
                flush=True,
            )
        return found

    return compare


def former(name: str, bench: Bench, checkout: Path) -> list[Figure]:
    """The figures of the former commit. Raises CalledProcessError, or what `bench` raises."""
    if name in OF_THE_OPERATOR:
        os.environ[CHECKOUT_VARIABLE] = str(checkout)
        try:
            return bench()
        finally:
            del os.environ[CHECKOUT_VARIABLE]
    subprocess.run(
        [sys.executable, "-m", "tests.bench", name],
        cwd=checkout,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    figures = json.loads((checkout / "build" / "bench" / f"{name}.json").read_text())
    return [Figure(**figure) for figure in figures]


def beside(figures: Sequence[Figure], before: Sequence[Figure]) -> list[Figure]:
    """The figures that both have, with their ratio to the former value; none to a former 0."""
    values = {(it.figure, it.unit): it.value for it in before}
    found = []
    for it in figures:
        value = values.get((it.figure, it.unit))
        if value is not None:
            ratio = rounded(it.value / value) if value else None
            found.append(
                Figure(
                    it.figure,
                    it.value,
                    it.unit,
                    ratio=ratio,
                    against=f"former: {value:g} {it.unit}",
                )
            )
    return found
