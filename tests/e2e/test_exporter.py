"""The chart slurm-exporter: its figures are those of sinfo and squeue, and only Prometheus reads
them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.real.foreign import NAMESPACE, Foreign, address, foreign_pod
from tests.support.real.harness import CHARTS, Slurm, until, until_equal

_READ = (
    "import sys, urllib.request as it; print(it.urlopen(sys.argv[1], timeout=5).read().decode())"
)


@dataclass(frozen=True)
class Prometheus:
    """A pod with Prometheus' label in another namespace."""

    foreign: Foreign
    exporter: str
    """The address of the exporter's pod."""

    def read(self) -> dict[str, float]:
        """The value of each series that the exporter serves, by its name and labels."""
        url = f"http://{self.exporter}:8080/metrics"
        text = self.foreign.kubernetes.execute(
            NAMESPACE, "tenant", "", "python3", "-c", _READ, url, repeatable=True
        )
        return {
            series: float(value)
            for series, value in re.findall(
                r"^(slurm_\S+(?: ?[^}\n]*})?) (\S+)$", text, re.MULTILINE
            )
        }

    def by_state(self, name: str) -> dict[str, float]:
        """The values of a metric by its label `state`, without zeros."""
        found = {}
        for series, value in self.read().items():
            if (match := re.fullmatch(rf'{name}{{state="(\w+)"}}', series)) and value:
                found[match[1]] = value
        return found


@pytest.fixture(scope="module")
def prometheus(slurm: Slurm) -> Iterator[Prometheus]:
    """The exporter installed beside the cluster, and who may read it."""
    kubernetes = slurm.kubernetes
    words = ("slurm-exporter", str(CHARTS / "slurm-exporter"), "-n", slurm.namespace)
    kubernetes.helm("install", *words, "--set=exporter.cacheFrequency=1s", "--wait", "--timeout=2m")
    try:
        with foreign_pod(kubernetes) as foreign:
            yield Prometheus(foreign, address(kubernetes, slurm.namespace, "slurm-exporter"))
    finally:
        kubernetes.helm("uninstall", "slurm-exporter", "-n", slurm.namespace)


def test_only_prometheus_reads_the_metrics_and_slurm_answers_a_user_without_rights(
    slurm: Slurm, prometheus: Prometheus
) -> None:
    assert not prometheus.foreign.connects(prometheus.exporter, 8080)
    label = ("label", "pod", "tenant", "app.kubernetes.io/name=prometheus", "--overwrite")
    slurm.kubernetes.kubectl("-n", NAMESPACE, *label)
    until(
        "Prometheus to be admitted", lambda: prometheus.foreign.connects(prometheus.exporter, 8080)
    )

    def fresh() -> bool:
        shown = prometheus.read()
        stale = {
            value for series, value in shown.items() if series.startswith("slurm_exporter_stale")
        }
        return shown.get("slurm_exporter_up") == 1 and stale == {0}

    until("all sources to be read, and none to be out of date", fresh)


def test_the_figures_are_those_of_sinfo_and_squeue(slurm: Slurm, prometheus: Prometheus) -> None:
    slurm.until_idle(2)
    slurm.submit("#!/bin/sh\nsleep 600\n", "-N1", "--exclusive")
    slurm.submit("#!/bin/sh\nsleep 600\n", "--array=1-3", "--hold")
    try:

        def of_slurm() -> tuple[Counter[str], Counter[str]]:
            nodes = Counter(slurm.nodes().values())
            return nodes, Counter(slurm.login("squeue", "-h", "-r", "-o", "%T").lower().split())

        until_equal("a job to run", lambda: of_slurm()[1], Counter(running=1, pending=3))

        def agree() -> bool:
            nodes, jobs = of_slurm()
            shown = prometheus.by_state("slurm_jobs")
            return (
                prometheus.by_state("slurm_nodes") == nodes
                and {state: shown.get(state) for state in jobs} == jobs
            )

        until("the exporter to agree with sinfo and squeue", agree)
        until_equal("the held jobs", lambda: prometheus.read().get("slurm_jobs_held"), 3)
        # By node, because a node may be in several partitions.
        lines = set(slurm.login("sinfo", "-h", "-N", "-o", "%N %C").strip().splitlines())
        cpus = [
            sum(float(line.split()[1].split("/")[place]) for line in lines) for place in range(3)
        ]

        def shown() -> list[float]:
            found = prometheus.by_state("slurm_cpus")
            return [found.get(state, 0) for state in ("allocated", "idle", "other")]

        until_equal("the CPUs", shown, cpus)
    finally:
        slurm.login("scancel", "--user=root")
        slurm.until_idle(2)
