"""From the charts and images of a former commit to the present ones and back, while jobs run and
wait.

Of the former commit everything is its own: charts, values, and images, which its own tools build.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import cache
from tests.cluster.commands import run
from tests.cluster.install import unready
from tests.cluster.local import existing, named_by
from tests.support.real.harness import (
    CHARTS,
    NODESET,
    REPOSITORY,
    Kubernetes,
    Slurm,
    until,
    until_equal,
)

FORMER = "e2db4620d87e6f779200851fef1f732600651582"
BUILD = """
import sys
from pathlib import Path
from tests.cluster.images import build_images
print(build_images(Path(sys.argv[1]), lambda text: print(text, file=sys.stderr)))
"""
OPERATOR, SLURM = "slinky", "slurm"
KINDS = ("controllers", "restapis", "loginsets", "nodesets")
COUNT = 2
"""Workers of the values."""


@dataclass(frozen=True)
class Release:
    """Charts of one commit, and the values with which they are installed."""

    charts: Path
    values: Path

    def install(self, kubernetes: Kubernetes) -> None:
        """Install or upgrade all charts, in the order that docs/upgrades.md has."""
        for name, namespace, words in (
            ("slurm-operator-crds", OPERATOR, ("--wait",)),
            ("slurm-operator", OPERATOR, ("--wait", "--set", f"operator.namespaces={{{SLURM}}}")),
            ("slurm", SLURM, ("-f", str(self.values))),
        ):
            where = ("-n", namespace, "--create-namespace", "--timeout", "5m")
            chart = str(self.charts / name)
            kubernetes.helm("upgrade", "--install", name, chart, *where, *words, timeout=400)


def _check_out(folder: Path) -> None:
    """Raises CalledProcessError where the clone lacks the commit: `git fetch --unshallow`."""
    command = ["git", "-C", str(REPOSITORY), "archive", FORMER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    if archive.returncode:
        raise subprocess.CalledProcessError(archive.returncode, command)


@pytest.fixture(scope="module")
def former(kubernetes: Kubernetes) -> Release:
    """The former commit, whose images all nodes have."""
    own = cache.root() / "former"
    own.mkdir(parents=True, exist_ok=True)
    tree = cache.entry(own / FORMER, _check_out)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, own],
        cwd=tree,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    archive = Path(done.stdout.strip())
    for node in existing(named_by(str(kubernetes.kubeconfig)) or "").nodes:
        run([*node.ctr(), "images", "import", "--snapshotter=overlayfs", archive], seconds=600)
    return Release(tree / "charts", tree / "charts" / "slurm" / "ci" / "local-values.yaml")


def until_ready(slurm: Slurm, *kinds: str) -> None:
    """Wait until the resources of these kinds are Ready as they are described."""

    def ready() -> bool:
        found = [
            item
            for kind in kinds
            for item in slurm.kubernetes.items("-n", slurm.namespace, f"{kind}.slinky.slurm.net")
        ]
        return len(found) == len(kinds) and all(unready(item) is None for item in found)

    until(f"{', '.join(kinds)} to be Ready", ready, 600)


def workers(slurm: Slurm) -> dict[str, str]:
    """The uid of each worker pod that isn't about to end, by name."""
    return {
        name: pod["metadata"]["uid"]
        for name, pod in slurm.pods().items()
        if "deletionTimestamp" not in pod["metadata"]
    }


def change(slurm: Slurm, to: Release) -> None:
    """Install `to` while jobs run and wait, and see each of them end as it should.

    Workers are replaced once their jobs have ended: what waited for them runs on their successors.
    """
    slurm.until_idle(COUNT)
    before = workers(slurm)
    running = [slurm.submit_until_ended("-w", f"slinky-{number}") for number in range(COUNT)]
    slurm.until_running(*running)
    started = [slurm.job(job)["StartTime"] for job in running]
    named = slurm.submit("#!/bin/sh\nhostname\n", "--exclusive", "-w", "slinky-1")
    array = slurm.submit("#!/bin/sh\nhostname\n", "--exclusive", "--array=0-3")
    dependent = slurm.submit("#!/bin/sh\nhostname\n", f"--dependency=afterok:{running[0]}")

    to.install(slurm.kubernetes)
    until_ready(slurm, "controllers", "restapis")
    now = [slurm.job(job) for job in running]
    assert [(job["JobState"], job["Restarts"], job["StartTime"]) for job in now] == [
        ("RUNNING", "0", start) for start in started
    ]
    for job in running:
        slurm.end(job)
    until(
        "the jobs that have waited to complete",
        lambda: set(slurm.states(named, array, dependent)) == {"COMPLETED"},
        900,
    )
    assert len(slurm.states(named, array, dependent)) == 6
    until_ready(slurm, *KINDS)
    slurm.until_idle(COUNT)
    assert set(workers(slurm)) == set(before)


@pytest.mark.timeout(3600)
def test_an_upgrade_from_a_former_commit_and_back_loses_no_job(
    kubernetes: Kubernetes, former: Release
) -> None:
    present = Release(CHARTS, former.values)
    former.install(kubernetes)
    slurm = Slurm(kubernetes, SLURM)
    until_ready(slurm, *KINDS)
    change(slurm, to=present)
    change(slurm, to=former)
    until_equal(
        "the NodeSet to have its workers",
        lambda: kubernetes.get("-n", SLURM, "nodesets.slinky.slurm.net", NODESET)["status"][
            "readyReplicas"
        ],
        COUNT,
    )
