"""Debian's Prometheus as a process of this host, with imported series: what it answers to the
queries of dashboards.

`python -m tests.charts.answered` writes its answers about a busy day to schemas/dashboard_samples,
from which `make generate` draws the pictures in docs/images.
"""

import json
import math
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas import dashboard_pictures, dashboards
from tests.charts import busy_day
from tests.cluster import debian
from tests.cluster.control_plane import free_ports
from tests.cluster.errors import ClusterError

SECONDS = 300.0
_VARIABLES: Mapping[str, str] = {"$slurm_cluster": "slurm", "$namespace": "slurm"}


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API. Raises ClusterError with its error."""
        request = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - this host
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ClusterError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str, at: float) -> list[dict[str, Any]]:
        """The series of an expression at a time."""
        found: list[dict[str, Any]] = self.get("query", query=expression, time=f"{at}")["result"]
        return found

    def range(self, expression: str, points: Sequence[int]) -> list[dict[str, Any]]:
        """The series of an expression at each of these times, which are equally far apart."""
        step = points[1] - points[0]
        times = {"start": f"{points[0]}", "end": f"{points[-1]}", "step": f"{step}"}
        found: list[dict[str, Any]] = self.get("query_range", query=expression, **times)["result"]
        return found


@contextmanager
def running(text: str) -> Iterator[Prometheus]:
    """One that has the series of a text in OpenMetrics' format."""
    program, tool = (debian.program(it, "prometheus") for it in ("prometheus", "promtool"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "series.txt").write_text(text, encoding="utf-8")
        (folder / "prometheus.yml").write_text("{}\n")
        words: list[str | Path] = [
            tool,
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "series.txt",
            "data",
        ]
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        if done.returncode:
            raise ClusterError(done.stderr)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        command: list[str | Path] = [
            *(program, "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
            *("--storage.tsdb.retention.time=100y", f"--web.listen-address={address}"),
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _until_ready(f"http://{address}/-/ready", process, folder / "log")
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()
            process.wait()


def _until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - this host
                return
        except OSError:
            time.sleep(0.05)
    raise ClusterError(f"Prometheus is not ready: {log.read_text()}")


def expression(query: str) -> str:
    """A query of a dashboard with what Grafana's variables stand for."""
    for variable, value in _VARIABLES.items():
        query = query.replace(variable, value)
    return query


def unanswered() -> list[str]:
    """The queries of the dashboards of a busy day that have no number, neither while nodes boot nor
    while some are away.
    """
    points = [next(it for it in busy_day.POINTS if shows(it)) for shows in busy_day.EVENTS]
    with running(busy_day.text(points)) as prometheus:
        return [
            f"dashboard {name}: no answer to {query}"
            for name in dashboards.BUSY
            for query in dashboards.queries(name)
            if not any(
                not math.isnan(float(it["value"][1]))
                for at in points
                for it in prometheus.query(expression(query), at)
            )
        ]


def recorded(series: Sequence[Mapping[str, Any]], points: Sequence[float]) -> list[dict[str, Any]]:
    """The series of an answer as the pictures need them: a value for each point, None where
    Prometheus has none.
    """
    step = points[1] - points[0]
    found = []
    for it in series:
        values: list[float | None] = [None] * len(points)
        for at, value in it["values"]:
            if not math.isnan(float(value)):
                values[round((at - points[0]) / step)] = float(f"{float(value):.3g}")
        labels = {name: text for name, text in it["metric"].items() if name != "__name__"}
        found.append({"labels": labels, "values": values})
    return found


def main() -> None:
    """Record the busy day."""
    points = busy_day.POINTS
    with running(busy_day.text()) as prometheus:
        for name in dashboards.BUSY:
            expressions = iter(dashboards.queries(name))
            panels = {
                panel.title: [
                    recorded(prometheus.range(expression(next(expressions)), points), points)
                    for _ in panel.queries
                ]
                for panel in dashboards.DASHBOARDS[name].panels
            }
            dashboard_pictures.write(name, {"step": busy_day.STEP, "panels": panels})


if __name__ == "__main__":
    main()
