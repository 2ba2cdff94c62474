"""What has changed in the repository since a revision, the working tree included."""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

MAIN = "origin/main"
RECENT = 20
"""Commits that count as new where nothing differs from `origin/main`, or that doesn't exist."""


def git(root: Path, *words: str) -> str | None:
    """What git prints; None if it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def head(root: Path) -> str:
    """The id of the commit; "" before the first."""
    return (git(root, "rev-parse", "--quiet", "--verify", "HEAD") or "").strip()


def base(root: Path, since: str = "") -> str:
    """The commit to compare with: the last one that this branch has in common with `since`.

    Raises ValueError if git doesn't know `since`. Without it, `origin/main` counts. Where that has
    everything already, as in a clone of it, or doesn't exist, the last `RECENT` commits count as
    new; "" for all commits.
    """
    found = git(root, "merge-base", since or MAIN, "HEAD")
    if found is None and since:
        raise ValueError(f"git knows no common ancestor of {since} and HEAD")
    commit = (found or "").strip()
    if since or (commit and files(root, commit)):
        return commit
    commits = (
        git(root, "rev-list", "--first-parent", f"--max-count={RECENT + 1}", "HEAD") or ""
    ).split()
    return commits[RECENT] if len(commits) > RECENT else ""


def files(root: Path, commit: str) -> set[str]:
    """The files that differ from the commit."""
    if not commit:
        return set(
            (git(root, "ls-files", "--cached", "--others", "--exclude-standard") or "").splitlines()
        )
    return {*(git(root, "diff", "--name-only", commit) or "").splitlines(), *_untracked(root)}


def lines(root: Path, commit: str) -> dict[str, set[int]]:
    """The numbers of the lines that differ from the commit, by file."""
    found: dict[str, set[int]] = defaultdict(set)
    file = ""
    for line in (
        git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", commit) or ""
    ).splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(match[1]), int(match[2] or 1)
            found[file].update(range(start, start + count))
    for name in files(root, "") if not commit else _untracked(root):
        if (root / name).is_file() and name.endswith(".py"):
            found[name] = set(
                range(1, len((root / name).read_text(encoding="utf-8").splitlines()) + 1)
            )
    return {name: numbers for name, numbers in found.items() if numbers}


def _untracked(root: Path) -> list[str]:
    return (git(root, "ls-files", "--others", "--exclude-standard") or "").splitlines()
