"""The page docs/support-matrix.md: with which releases of Slurm, Kubernetes and Helm this
product works, and what shows it.
"""

from pathlib import Path
from typing import Any

import yaml

from schemas import markdown, sources
from sidecars.slurm import versions

ROOT = Path(__file__).parent.parent
SOURCE = Path("schemas/support.yaml")

MARKS = {"tested": "✔", "recorded": "○", "refused": "✘", "unknown": ""}
"""The sign of each mark."""

SINCE = {"power_saving": versions.POWER_SAVING, "bridge": versions.BRIDGE}
"""The first release with a feature, where the product refuses older ones."""

_HEAD = """\
Each row names the tests that show it. What isn't here has not been tried.

## Slurm

| sign | meaning |
|---|---|
| ✔ | `make test` runs it with real Slurm daemons of this release |
| ○ | Real daemons of the release in brackets were tried once. `make test` checks their answers |
| ✘ | The product refuses the release, which slurmrestd reports, and names the one that is needed |
| (empty) | Not tried |
"""

_UNKNOWN = """\
A release that slurmrestd doesn't report, or that is newer than these, is not refused. Slurm's
daemons may be of different releases only in the order of [Upgrades](upgrades.md)."""


def read(root: Path = ROOT) -> dict[str, Any]:
    """Return what is supported. Raises SchemaError for a row with a wrong number of marks, an
    unknown mark, or without a test that exists.
    """
    found: dict[str, Any] = yaml.safe_load((root / SOURCE).read_text(encoding="utf-8"))
    releases = found["slurm"]["releases"]
    for row in found["slurm"]["features"]:
        marks = row["marks"]
        if len(marks) != len(releases) or not set(marks) <= MARKS.keys():
            raise sources.SchemaError(
                f"{SOURCE}: {row['feature']}: needs {len(releases)} of {', '.join(MARKS)}"
            )
    versions_of = [it for kind in ("kubernetes", "helm") for it in found[kind]["versions"]]
    for row in (*found["slurm"]["features"], *versions_of):
        missing = [test for test in row["tests"] if not (root / test).exists()]
        if missing or not row["tests"]:
            raise sources.SchemaError(
                f"{SOURCE}: {row.get('feature') or row['version']}: no such test: "
                f"{', '.join(missing) or 'none is named'}"
            )
    return found


def page(root: Path = ROOT) -> str:
    """Return the page of the repository at `root`."""
    found = read(root)
    slurm, kubernetes, helm = found["slurm"], found["kubernetes"], found["helm"]
    others = "; ".join(
        f"the chart {chart} needs {version}" for chart, version in kubernetes["charts"].items()
    )
    return markdown.page(
        str(SOURCE),
        [
            "# Support matrix",
            _HEAD.strip(),
            _features(slurm),
            _UNKNOWN,
            "## Kubernetes",
            f"Needs {kubernetes['oldest']} or newer; {others}.",
            _versions(kubernetes),
            "## Helm",
            f"Needs {helm['oldest']} or newer.",
            _versions(helm),
        ],
    )


def _features(slurm: dict[str, Any]) -> str:
    releases = slurm["releases"]
    names = [
        f"{it['name']} ({it['recorded']})" if "recorded" in it else it["name"] for it in releases
    ]
    lines = [f"| | {' | '.join(names)} | notes | tests |", "|---" * (len(names) + 3) + "|"]
    for row in slurm["features"]:
        marks = [MARKS[mark] for mark in row["marks"]]
        needs = ""
        if "since" in row:
            major, minor, micro = SINCE[row["since"]]
            needs = f"Needs {major:02}.{minor:02}.{micro}. "
        note = f"{needs}{row.get('note', '')}".strip()
        lines.append(
            f"| {row['feature']} | {' | '.join(marks)} | {note} | {_tests(row['tests'])} |"
        )
    return "\n".join(lines)


def _versions(kind: dict[str, Any]) -> str:
    lines = ["| version | how | tests |", "|---|---|---|"]
    lines += [
        f"| {it['version']} | {it['how']} | {_tests(it['tests'])} |" for it in kind["versions"]
    ]
    return "\n".join(lines)


def _tests(paths: list[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)
