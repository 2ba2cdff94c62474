"""A dashboard as a picture for the documentation: every panel with the answers of Prometheus to its
queries.

The answers are recorded by tests/e2e/test_prometheus.py from a real Slurm, in
schemas/dashboard_samples/NAME.json.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from schemas.grafana import Dashboard, Panel

FOLDER = Path(__file__).parent / "dashboard_samples"
COLUMN, ROW, GAP, HEAD = 40, 24, 8, 44
"""Pixels of a column and a row of Grafana's grid, between panels, and above the first."""
COLORS = ("#0969da", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#cf222e", "#0a7d91", "#57606a")
MOST_NAMES, MOST_ROWS = 6, 6
"""Series in a legend, and rows of a table."""
_SCALES = {
    "bytes": ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB")),
    "s": ((86400, " d"), (3600, " h"), (60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "watt": ((1e6, " MW"), (1e3, " kW"), (1, " W")),
    "celsius": ((1, " °C"),),
    "short": ((1e6, " M"), (1e3, " k")),
}
_STYLE = """
    .panel { fill: #ffffff; stroke: #d0d7de; stroke-width: 1.5 }
    .name { font-weight: 600 }
    .small { font-size: 11px; fill: #424a53 }
    .value { font-size: 26px; font-weight: 600; fill: #0969da }
    .grid { stroke: #d8dee4; stroke-width: 1 }
    .line { fill: none; stroke-width: 1.5; stroke-linejoin: round }
    .end { text-anchor: end }
    .middle { text-anchor: middle }
"""


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    name: str
    labels: dict[str, str]
    values: Sequence[float | None]
    """One for each step; None where Prometheus has none."""


def picture(name: str, dashboard: Dashboard) -> str:
    """Return the picture, as SVG."""
    samples = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return svg(dashboard, samples["panels"], samples["step"])


def write(name: str, samples: dict[str, Any]) -> None:
    """Keep recorded answers: each series in a line of its own."""
    FOLDER.mkdir(exist_ok=True)
    lines = json.dumps(samples).replace('{"labels"', '\n{"labels"')
    (FOLDER / f"{name}.json").write_text(f"{lines}\n", encoding="utf-8")


def svg(dashboard: Dashboard, answers: dict[str, Any], step: float) -> str:
    """Return the picture. `answers`: by the title of a panel, for each of its queries the series
    with `labels` and `values`.

    `step`: seconds between two values.
    """
    body, x, y, height = [], 0, 0, 0
    for panel in dashboard.panels:
        if x + panel.width > 24:
            x, y, height = 0, y + height, 0
        series = [
            Series(_legend(legend, it["labels"]), it["labels"], it["values"])
            for (_, legend), found in zip(panel.queries, answers[panel.title], strict=True)
            for it in found
        ]
        body.append(_panel(panel, series, x * COLUMN + GAP / 2, HEAD + y * ROW, step))
        x, height = x + panel.width, max(height, panel.height)
    bottom = HEAD + (y + height) * ROW + GAP
    description = f"Panels: {', '.join(panel.title for panel in dashboard.panels)}."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * COLUMN} {bottom}" role="img" '
        'aria-labelledby="title desc" font-family="system-ui, -apple-system, \'Segoe UI\', '
        "Roboto, Helvetica, Arial, "
        'sans-serif" font-size="13" fill="#1f2328">\n'
        f'  <title id="title">Dashboard {escape(dashboard.title)}</title>\n'
        f'  <desc id="desc">{escape(description)}</desc>\n'
        f"  <style>{_STYLE}  </style>\n"
        f'  <rect x="0.75" y="0.75" width="{24 * COLUMN - 1.5}" height="{bottom - 1.5}" rx="12" '
        'fill="#f6f8fa" stroke="#d0d7de" stroke-width="1.5"/>\n'
        f'  <text x="16" y="28" class="name" font-size="16">{escape(dashboard.title)}</text>\n'
        + "".join(body)
        + "</svg>\n"
    )


def shown(value: float, unit: str) -> str:
    """Return a value with its unit, as short as Grafana's."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    for least, name in _SCALES.get(unit, _SCALES["short"]):
        if abs(value) >= least:
            return f"{_short(value / least)}{name}"
    return f"{_short(value)}{' req/s' if unit == 'reqps' else ''}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _legend(template: str, labels: dict[str, str]) -> str:
    for name, text in labels.items():
        template = template.replace(f"{{{{{name}}}}}", text)
    return template


def _panel(panel: Panel, series: list[Series], left: float, top: float, step: float) -> str:
    width, height = panel.width * COLUMN - GAP, panel.height * ROW - GAP
    draw = {"stat": _stat, "table": _table, "timeseries": _graph}[panel.kind]
    title = "".join(
        f'    <text class="name" x="10" y="{20 + 16 * number}">{escape(line)}</text>\n'
        for number, line in enumerate(wrap(panel.title, int(width / 8)))
    )
    return (
        f'  <g transform="translate({left:g} {top:g})">\n'
        f'    <rect class="panel" width="{width}" height="{height}" rx="6"/>\n'
        f"{title}{draw(panel, series, width, height, step)}  </g>\n"
    )


def _stat(panel: Panel, series: list[Series], width: float, height: float, _: float) -> str:
    last = [value for it in series for value in it.values[-1:] if value is not None]
    text = shown(last[0], panel.unit) if last else "No data"
    return (
        f'    <text class="value middle" x="{width / 2:g}" '
        f'y="{height - 22:g}">{escape(text)}</text>\n'
    )


def _table(panel: Panel, series: list[Series], width: float, _: float, __: float) -> str:
    rows = [it for it in series if it.values[-1] is not None]
    names = sorted({name for it in rows for name in it.labels})
    column = (width - 20) / (len(names) + 1)
    lines = [[*names, "Value"]]
    lines += [
        [*(it.labels.get(name, "") for name in names), shown(it.values[-1] or 0.0, panel.unit)]
        for it in rows
    ]
    cells = []
    for number, line in enumerate(lines[: MOST_ROWS + 1]):
        style = "name" if number == 0 else "small"
        for place, text in enumerate(line):
            cut = text if len(text) * 6 < column else f"{text[: int(column / 6) - 1]}…"
            x, y = 10 + place * column, 44 + number * 20
            cells.append(f'    <text class="{style}" x="{x:g}" y="{y}">{escape(cut)}</text>\n')
    return "".join(cells)


def _graph(panel: Panel, series: list[Series], width: float, height: float, step: float) -> str:
    left, right, top, bottom = 76.0, width - 12, 32.0, height - 42
    lines = _stacked(series) if panel.stacked else [list(it.values) for it in series]
    highest = (
        max((value for line in lines for value in line if value is not None), default=0.0) or 1.0
    )
    count = max((len(line) for line in lines), default=2)

    def at(place: int, value: float) -> str:
        return (
            f"{left + (right - left) * place / max(count - 1, 1):.1f} "
            f"{bottom - (bottom - top) * value / highest:.1f}"
        )

    found = []
    for part in range(4):
        y = bottom - (bottom - top) * part / 3
        found.append(f'    <path class="grid" d="M{left:g} {y:.1f}H{right:g}"/>\n')
        label = escape(shown(highest * part / 3, panel.unit))
        found.append(
            f'    <text class="small end" x="{left - 6:g}" y="{y + 4:.1f}">{label}</text>\n'
        )
    for place, style, words in (
        (left, "small", f"{shown((count - 1) * step, 's')} ago"),
        (right, "small end", "now"),
    ):
        found.append(
            f'    <text class="{style}" x="{place:g}" y="{bottom + 14:g}">{words}</text>\n'
        )
    below = [0.0] * count
    for number, line in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        if panel.stacked:
            edge = [at(place, value or 0.0) for place, value in enumerate(line)]
            base = [at(place, value) for place, value in reversed(list(enumerate(below)))]
            found.append(
                f'    <path fill="{color}" fill-opacity="0.3" d="M{"L".join(edge + base)}Z"/>\n'
            )
            below = [value or 0.0 for value in line]
        found += [
            (
                f'    <path class="line" stroke="{color}" '
                f'd="M{"L".join(at(place, value) for place, value in run)}"/>\n'
            )
            for run in _runs(line)
        ]
    return "".join(found) + _names(series, width, height)


def _names(series: list[Series], width: float, height: float) -> str:
    """Return the legend, below the axis."""
    found, x = [], 12.0
    for number, it in enumerate(series):
        text, left = it.name, len(series) - number
        # Capitals are wider.
        wide = sum(8.5 if letter.isupper() else 6.5 for letter in text)
        if number == MOST_NAMES or x + wide + 90 > width:
            found.append(
                f'    <text class="small" x="{x:g}" y="{height - 11:g}">+{left} more</text>\n'
            )
            break
        color = COLORS[number % len(COLORS)]
        found.append(
            f'    <rect x="{x:g}" y="{height - 17:g}" width="10" height="4" fill="{color}"/>\n'
        )
        found.append(
            f'    <text class="small" x="{x + 14:g}" y="{height - 11:g}">{escape(text)}</text>\n'
        )
        x += 26 + wide
    return "".join(found)


def _stacked(series: list[Series]) -> list[list[float | None]]:
    """Return each line on top of those before it."""
    found: list[list[float | None]] = []
    total = [0.0] * max((len(it.values) for it in series), default=0)
    for it in series:
        total = [below + (value or 0.0) for below, value in zip(total, it.values, strict=True)]
        found.append(list(total))
    return found


def _runs(line: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Return the parts of a line between its gaps, each value with its place."""
    found: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(line):
        if value is not None:
            found[-1].append((place, value))
        elif found[-1]:
            found.append([])
    return [run for run in found if run]
