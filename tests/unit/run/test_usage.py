"""The CPU time of a local cluster, read from its control groups."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import cgroups
from tests.run.usage import ClusterCpu, Meter, stat

GROUP = "slurm-charts-lane"
BURN = (
    "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\nsys.stdin.read()"
)


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cluster's group in a hierarchy of cgroup v2."""
    monkeypatch.setattr(cgroups, "found", lambda: cgroups.Hierarchies((), tmp_path))
    (tmp_path / GROUP / "daemons").mkdir(parents=True)
    return tmp_path / GROUP


def used(group: Path, seconds: float, daemons: str = "") -> None:
    (group / "cpu.stat").write_text(f"usage_usec {seconds * 1e6:.0f}\nuser_usec 0\n")
    (group / "daemons" / "cgroup.procs").write_text(daemons)


def test_a_cluster_uses_what_its_counter_adds_also_after_it_was_created_again(
    unified: Path,
) -> None:
    used(unified, 100)
    cluster = ClusterCpu("lane")
    start = cluster.seconds()
    used(unified, 103)
    assert cluster.seconds() - start == pytest.approx(3)
    (unified / "cpu.stat").unlink()
    assert cluster.seconds() - start == pytest.approx(3)
    used(unified, 2)
    assert cluster.seconds() - start == pytest.approx(5)


def test_a_daemon_that_this_process_has_waited_for_is_not_counted_twice(unified: Path) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert daemon.stdout
    daemon.stdout.readline()
    used(unified, 10, f"{daemon.pid}\n")
    cluster = ClusterCpu("lane")
    start = cluster.seconds()
    daemon.communicate()
    used(unified, 10)
    assert cluster.seconds() - start < -0.25


def test_a_daemon_that_has_ended_is_counted_until_this_process_has_waited_for_it(
    unified: Path,
) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert daemon.stdin
    assert daemon.stdout
    daemon.stdout.readline()
    used(unified, 10, f"{daemon.pid}\n")
    cluster = ClusterCpu("lane")
    start = cluster.seconds()
    daemon.stdin.close()
    os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)
    used(unified, 10)
    assert cluster.seconds() == start
    daemon.stdout.close()
    daemon.wait()
    assert cluster.seconds() - start < -0.25


def test_with_cgroup_v1_alone_pods_and_daemons_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounting, pids = tmp_path / "cpuacct", tmp_path / "pids"
    monkeypatch.setattr(cgroups, "found", lambda: cgroups.Hierarchies((accounting, pids), None))
    (accounting / GROUP).mkdir(parents=True)
    (pids / GROUP / "daemons").mkdir(parents=True)
    (pids / GROUP / "daemons" / "cgroup.procs").write_text("")
    (accounting / GROUP / "cpuacct.usage").write_text("2000000000\n")
    cluster = ClusterCpu("lane")
    start = cluster.seconds()
    (accounting / GROUP / "cpuacct.usage").write_text("3000000000\n")
    (pids / GROUP / "daemons" / "cgroup.procs").write_text(f"{os.getpid()}\n")
    own = stat(os.getpid())
    assert own is not None
    assert cluster.seconds() - start >= 1 + own[2]


def test_a_meter_adds_the_clusters_that_it_follows_to_this_process(unified: Path) -> None:
    used(unified, 0)
    meter = Meter()
    alone = meter.seconds()
    meter.follow("lane")
    used(unified, 50)
    assert alone + 50 <= meter.seconds() < alone + 55
