"""`python -m tests.mutants [NAME…]`: put each known defect into a copy of the code; the tests named
for it must fail.

NAME is a part of the names of mutants; without one, all run. `--since REVISION`: only those whose
file or named test has changed since then, without REVISION since this branch left `origin/main`.
`--at-most N` draws some of them by the commit's hash, for a run of seconds.

`--random N` draws N generic mutants instead: of the lines that have changed, or with `--everywhere`
of the whole product. `tests.mutants.listed` and `tests.mutants.drawn` describe the results.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.mutants import changes, drawn, listed
from tests.mutants.table import ROOT, Mutant, load, rows


def main(arguments: Sequence[str]) -> int:
    """The command; 0 means that every mutant was caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Check that the tests find defects."
    )
    parser.add_argument(
        "name", nargs="*", help="a part of the names of mutants; default: all mutants"
    )
    parser.add_argument(
        "--since",
        nargs="?",
        const="",
        metavar="REVISION",
        help="those that a change since then touches",
    )
    parser.add_argument(
        "--at-most",
        type=int,
        metavar="N",
        help="no more than N of them, drawn by the commit's hash",
    )
    parser.add_argument(
        "--random", type=int, metavar="N", help="N generic mutants of changed lines instead"
    )
    parser.add_argument(
        "--everywhere", action="store_true", help="of all lines of the product; with --random"
    )
    given = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        commit = (
            changes.base(ROOT, given.since or "")
            if given.since is not None or given.random
            else None
        )
    except ValueError as error:
        parser.error(str(error))
    if given.random:
        lines = None if given.everywhere else changes.lines(ROOT, commit or "")
        outcomes = drawn.check(ROOT, drawn.draw(ROOT, given.random, lines))
        print(f"\n{drawn.summary(outcomes)} in {time.monotonic() - started:.0f} s")
        return 0 if all(outcome.word == "caught" for outcome in outcomes) else 1
    everything = load()
    if unknown := [
        name for name in given.name if not any(name in mutant.name for mutant in everything)
    ]:
        parser.error(f"no mutant has a name with: {', '.join(unknown)}")
    chosen = [
        mutant
        for mutant in everything
        if not given.name or any(name in mutant.name for name in given.name)
    ]
    if commit is not None:
        chosen = listed.concerned(chosen, changes.files(ROOT, commit), former(commit))
        print(
            f"{len(chosen)} mutants have a file or a test that has changed since "
            f"{commit[:12] or 'the first commit'}"
        )
    if given.at_most is not None and len(chosen) > given.at_most:
        names = {it.name for it in random.Random(changes.head(ROOT)).sample(chosen, given.at_most)}  # noqa: S311
        print(f"{given.at_most} of them run here, and all with `make mutants SINCE={commit or ''}`")
        chosen = [mutant for mutant in chosen if mutant.name in names]
    if not chosen:
        return 0
    results = listed.check(ROOT, chosen)
    for result in results:
        if result.word != "caught":
            print(f"\n{result.word}: {result.mutant.name}: {result.mutant.defect}\n{result.detail}")
    caught = sum(result.word == "caught" for result in results)
    print(f"\n{caught} of {len(results)} mutants caught in {time.monotonic() - started:.0f} s")
    return 0 if caught == len(results) else 1


def former(commit: str) -> list[Mutant]:
    """The mutants of the table at a commit."""
    listing = (
        changes.git(ROOT, "ls-tree", "--name-only", commit, "tests/mutants/") if commit else None
    )
    found: list[Mutant] = []
    for name in (listing or "").splitlines():
        if name.endswith(".yaml") and not name.endswith("equivalent.yaml"):
            found += rows(changes.git(ROOT, "show", f"{commit}:{name}") or "")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
