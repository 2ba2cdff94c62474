"""build/times.json: how long each test, file, stage and lane took, and `make times`, which prints
it.

Each process that runs tests appends records to a file of its own, its part. `merge` puts the parts
together. All durations are seconds. CPU seconds of a test contain those of its process, of the
processes that it waited for and, in an end-to-end test, of the local cluster.
"""

import contextlib
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.cluster import cache

ROOT = Path(__file__).parents[2]
FILE = ROOT / "build" / "times.json"
PARTS = ROOT / "build" / "times"
TOP = 40


@dataclass(frozen=True)
class Begun:
    """The first record of a part. `at`: seconds since 1970."""

    stage: str
    lane: int | None
    at: float


@dataclass(frozen=True)
class Test:
    """A test that has ended. `outcome`: passed, failed or skipped."""

    test: str
    outcome: str
    wall: float
    cpu: float


@dataclass(frozen=True)
class Session:
    """The end of pytest: CPU seconds of all its tests and of pytest, but for its workers."""

    session_cpu: float


@dataclass(frozen=True)
class Ended:
    """The last record of a part: the stage's process has ended. `exit` is negative for a signal."""

    wall: float
    cpu: float
    exit: int


Record = Begun | Test | Session | Ended


@dataclass
class Part:
    """What a part reports. `ended` is None if the run was cut off."""

    begun: Begun
    tests: list[Test] = field(default_factory=list)
    session: Session | None = None
    ended: Ended | None = None

    def counted(self, outcome: str) -> int:
        """How many tests have that outcome."""
        return sum(test.outcome == outcome for test in self.tests)

    @property
    def cpu(self) -> float:
        """CPU seconds, with those of a cluster."""
        own = sum(test.cpu for test in self.tests)
        return max(
            own,
            self.session.session_cpu if self.session else 0.0,
            self.ended.cpu if self.ended else 0.0,
        )

    @property
    def wall(self) -> float:
        """Until it ended or was cut off: then the sum of its tests."""
        return self.ended.wall if self.ended else sum(test.wall for test in self.tests)


def append(part: Path, record: Record) -> None:
    """Add a record to a part."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": type(record).__name__, **asdict(record)}) + "\n")


def read(part: Path) -> Part:
    """A part. A last line that was cut off is left out."""
    kinds = {kind.__name__: kind for kind in (Begun, Test, Session, Ended)}
    found = Part(Begun(part.stem, None, part.stat().st_mtime))
    for line in part.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            fields = json.loads(line)
            match kinds[fields.pop("kind")](**fields):
                case Begun() as begun:
                    found.begun = begun
                case Test() as test:
                    found.tests.append(test)
                case Session() as session:
                    found.session = session
                case Ended() as ended:
                    found.ended = ended
    return found


def merge(parts: Iterable[Part], wall: float) -> dict[str, Any]:
    """The content of times.json. `wall`: seconds of the whole run."""
    parts = list(parts)
    stages, files, tests = [], [], []
    for part in parts:
        which = {"stage": part.begun.stage, "lane": part.begun.lane}
        stages.append(
            {
                **which,
                "tests": len(part.tests),
                "passed": part.counted("passed"),
                "failed": part.counted("failed"),
                "wall": round(part.wall, 1),
                "cpu": round(part.cpu, 1),
                "exit": part.ended.exit if part.ended else None,
            }
        )
        of_files: dict[str, list[Test]] = defaultdict(list)
        for test in part.tests:
            of_files[test.test.partition("::")[0]].append(test)
            tests.append({**which, **asdict(test)})
        for file, those in of_files.items():
            wall_of_file, cpu = sum(test.wall for test in those), sum(test.cpu for test in those)
            files.append(
                {
                    **which,
                    "file": file,
                    "tests": len(those),
                    "wall": round(wall_of_file, 1),
                    "cpu": round(cpu, 1),
                }
            )
    return {
        "commit": _commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": len(os.sched_getaffinity(0)),
        "wall": round(wall, 1),
        "cpu": round(sum(part.cpu for part in parts), 1),
        "stages": stages,
        "files": sorted(files, key=_cost, reverse=True),
        "tests": sorted(tests, key=_cost, reverse=True),
    }


def _cost(entry: dict[str, Any]) -> float:
    wall: float = entry["wall"]
    return wall


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    with contextlib.suppress(OSError):
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def write(parts: Iterable[Part], wall: float, file: Path) -> None:
    """Write times.json in one step."""
    content = merge(parts, wall)
    lists = {name: value for name, value in content.items() if isinstance(value, list)}
    head = [
        f" {json.dumps(name)}: {json.dumps(value)}"
        for name, value in content.items()
        if name not in lists
    ]
    # A line for each entry: it can be searched and compared.
    rows = [
        f" {json.dumps(name)}: [\n"
        + ",\n".join(f"  {json.dumps(entry)}" for entry in value)
        + "\n ]"
        for name, value in lists.items()
    ]
    cache.write(file, "{\n" + ",\n".join([*head, *rows]) + "\n}\n")


def report(content: dict[str, Any]) -> str:
    """For people: the tests that took the longest, then the totals of stages and lanes."""
    lines = [f"{'wall s':>8} {'CPU s':>8}  test"]
    lines += [
        f"{test['wall']:8.1f} {test['cpu']:8.1f}  {test['test']}" for test in content["tests"][:TOP]
    ]
    lines += ["", f"{'wall s':>8} {'CPU s':>8} {'tests':>6}  stage"]
    for stage in content["stages"]:
        name = stage["stage"] + (f" lane {stage['lane']}" if stage["lane"] else "")
        end = (
            ""
            if stage["exit"] == 0
            else "  (cut off)"
            if stage["exit"] is None
            else f"  (exit code {stage['exit']})"
        )
        lines.append(f"{stage['wall']:8.1f} {stage['cpu']:8.1f} {stage['tests']:6}  {name}{end}")
    lines.append(
        f"{content['wall']:8.1f} {content['cpu']:8.1f} "
        f"{sum(s['tests'] for s in content['stages']):6}  in all"
    )
    lines += ["", f"commit {content['commit']}, {content['at']}, {content['cpus']} CPUs"]
    return "\n".join(lines)


def latest() -> dict[str, Any] | None:
    """The record of the latest run, also of one that runs or was killed. None: no run has left
    one.
    """
    parts = sorted(PARTS.glob("*.jsonl"))
    newest = max((path.stat().st_mtime for path in parts), default=0.0)
    if parts and (not FILE.exists() or FILE.stat().st_mtime < newest):
        found = [read(path) for path in parts]
        write(found, max(0.0, newest - min(part.begun.at for part in found)), FILE)
    if not FILE.exists():
        return None
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content
