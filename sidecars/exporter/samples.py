"""Samples as lines of an exposition. Text and OpenMetrics have the same lines, and differ in what
is between them.

Written by hand because prometheus_client takes 37 times as long for tens of thousands of series.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from sidecars.exporter.compatible import BY_NAME
from sidecars.exporter.metrics import Metric


class Samples:
    """The samples of one source. Those of metrics that aren't served are ignored, so that nobody
    else has to check.

    A second sample with the same labels replaces the first: Prometheus would refuse the whole
    answer.
    """

    def __init__(self, served: Iterable[Metric]) -> None:
        self._lines: dict[str, dict[str, str]] = {metric.name: {} for metric in served}
        self.unreadable = 0
        """Values that were not as Slurm documents them."""

    def serves(self, metric: Metric) -> bool:
        """Return whether samples of the metric are served."""
        return metric.name in self._lines

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a sample. `labels` are the values in the order of the metric's labels."""
        lines = self._lines.get(metric.name)
        if lines is not None:
            names = metric.labels
            if len(labels) != len(names):
                raise ValueError(f"{metric.name} has the labels {names}, not {len(labels)} of them")
            pairs = ",".join(
                [f'{name}="{escaped(text)}"' for name, text in zip(names, labels, strict=True)]
            )
            lines[pairs] = repr(value)

    def add_named(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of the metric with this name, without the prefix `slurm_`."""
        self.add(BY_NAME[f"slurm_{name}"], value, *labels)

    def blocks(self) -> dict[str, bytes]:
        """Return the lines of each metric by its name, encoded, for `page`. Metrics without any are
        missing.
        """
        return {name: _block(name, lines) for name, lines in self._lines.items() if lines}


def _block(name: str, lines: Mapping[str, str]) -> bytes:
    text = [
        f"{name}{{{pairs}}} {value}\n" if pairs else f"{name} {value}\n"
        for pairs, value in lines.items()
    ]
    return "".join(text).encode(errors="replace")


def page(blocks: Iterable[Mapping[str, bytes]], *, openmetrics: bool) -> bytes:
    """Return the exposition of these blocks, with type and help of each metric."""
    parts: list[bytes] = []
    for source in blocks:
        for name, lines in source.items():
            parts += (_head(name, openmetrics), lines)
    if openmetrics:
        parts.append(b"# EOF\n")
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _head(name: str, openmetrics: bool) -> bytes:
    metric = BY_NAME[name]
    family, unit = name, ""
    if openmetrics and metric.kind == "counter":
        family = name.removesuffix("_total")
    if openmetrics and metric.unit and family.endswith(f"_{metric.unit}"):
        unit = f"# UNIT {family} {metric.unit}\n"
    text = metric.help.replace("\\", r"\\").replace('"', r"\"" if openmetrics else '"')
    return f"# HELP {family} {text}\n# TYPE {family} {metric.kind}\n{unit}".encode()


@lru_cache(maxsize=65_536)
def escaped(value: str) -> str:
    """Escape a label's value between its quotes: any text, on one line."""
    if value.isalnum():
        return value
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
