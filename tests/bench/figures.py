"""The figures of a benchmark as values, as a table and as a JSON file. Measures nothing."""

import json
import os
import platform
import statistics
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "bench"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `ratio` is to the same measure of `against`, in the same run; `ok` is None
    without a target.
    """

    figure: str
    value: float
    unit: str
    target: str = ""
    ratio: float | None = None
    against: str = ""
    ok: bool | None = None


Bench = Callable[[], list[Figure]]


def figure(
    name: str,
    value: float,
    unit: str,
    *,
    against: tuple[str, float] | None = None,
    most: float | None = None,
    most_times: float | None = None,
    least_times: float | None = None,
) -> Figure:
    """A figure beside a ceiling or peer (its name and value).

    The target: at most `most`, at most `most_times` the ceiling, or at least `least_times` of it.
    Raises ValueError for a multiple of nothing.
    """
    times = most_times if most_times is not None else least_times
    if times is not None and against is None:
        raise ValueError(f"{name}: a target of {times:g} times needs something to compare with")
    ratio = value / against[1] if against else None
    target, ok = "", None
    if most is not None:
        target, ok = f"≤ {most:g} {unit}", value <= most
    elif most_times is not None and ratio is not None:
        target, ok = f"≤ {most_times:g} x", ratio <= most_times
    elif least_times is not None and ratio is not None:
        target, ok = f"≥ {least_times:g} x", ratio >= least_times
    return Figure(
        name,
        rounded(value),
        unit,
        target,
        ratio=None if ratio is None else rounded(ratio),
        against=f"{against[0]}: {rounded(against[1]):g} {unit}" if against else "",
        ok=ok,
    )


def table(figures: Sequence[Figure]) -> str:
    """The figures as a table for people; a figure that misses its target is marked MISSED."""
    verdict = {True: "ok", False: "MISSED", None: ""}
    rows = [("figure", "value", "target", "", "ratio", "against")]
    rows += [
        (
            f.figure,
            f"{f.value:g} {f.unit}",
            f.target,
            verdict[f.ok],
            "" if f.ratio is None else f"{f.ratio:g} x",
            f.against,
        )
        for f in figures
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def show(figures: Sequence[Figure], name: str, folder: Path = FOLDER) -> None:
    """Write the figures of a bench to `folder`/NAME.json, and print their table."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(f) for f in figures], indent=2, ensure_ascii=False)
    (folder / f"{name}.json").write_text(f"{text}\n")
    print(table(figures), flush=True)


def run(names: Sequence[str], benches: Mapping[str, Bench], folder: Path) -> int:
    """Run these benches (all when none is named): a table to stdout and `folder`/NAME.json for
    each.

    Returns 0, 1 when one of them could not measure (it then has no file), 2 for an unknown name.
    """
    unknown = [name for name in names if name not in benches]
    if unknown:
        print(
            f"bench: no benchmark {unknown[0]!r}; the names are {', '.join(sorted(benches))}",
            file=sys.stderr,
        )
        return 2
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    print(
        f"Python {platform.python_version()}, {cpus} CPUs, load {load:.1f} before the start",
        flush=True,
    )
    if load >= cpus:
        print("bench: this machine is busy; wall times will be too long", file=sys.stderr)
    status = 0
    for name in names or sorted(benches):
        (folder / f"{name}.json").unlink(missing_ok=True)
        print(f"\n{name}", flush=True)
        try:
            found = benches[name]()
        except Exception:  # noqa: BLE001 - whatever it is, the other benchmarks still run
            traceback.print_exc()
            print(f"bench: {name} could not measure", file=sys.stderr)
            status = 1
            continue
        show(found, name, folder)
    return status


def median(measure: Callable[[], float], times: int) -> float:
    """The median of so many measurements, after one that doesn't count."""
    measure()
    return statistics.median(measure() for _ in range(times))


def rounded(value: float) -> float:
    """Three digits; more would be noise."""
    return float(f"{value:.3g}")
