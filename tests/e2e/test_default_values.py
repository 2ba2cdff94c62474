"""A Slurm cluster of its own with the chart's default values: what the other tests set is a fact of the local cluster.

Set here are only two workers, a login pod, and what hosts without cgroup v2 need (https://slurm.schedmd.com/cgroups.html).
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.real.harness import CHARTS, NODESET, VALUES, Kubernetes, Slurm, condition, until, until_equal
from tests.support.real.kills import processes

pytestmark = pytest.mark.timeout(300)

KIND = "nodesets.slinky.slurm.net"


def values() -> dict[str, Any]:
    """A user's values, and of the local cluster's those that are facts of its hosts."""
    local = yaml.safe_load(VALUES.read_text())
    return {
        "controller": {"extraConfMap": {"ProctrackType": local["controller"]["extraConfMap"]["ProctrackType"]}},
        "configFiles": local["configFiles"],
        "loginsets": {"slinky": {}},
        "nodesets": {"slinky": {"replicas": 2}},
        "partitions": {"all": {"enabled": True}},
    }


@pytest.fixture(scope="module")
def defaults(kubernetes: Kubernetes, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster. The operator is there, because `slurm` is, and its chart has created the namespace."""
    found = Slurm(kubernetes, "defaults")
    install = ("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", found.namespace)
    file = tmp_path_factory.mktemp("defaults") / "values.yaml"
    file.write_text(yaml.safe_dump(values()))
    kubernetes.helm(*install, "-f", str(file))
    found.until_idle(2)
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace, "--ignore-not-found")
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false", "--ignore-not-found")


def change(slurm: Slurm, **spec: Any) -> None:
    """Patch the spec of the NodeSet."""
    patch = json.dumps({"spec": spec})
    slurm.kubernetes.kubectl("-n", slurm.namespace, "patch", KIND, NODESET, "--type=merge", f"--patch={patch}")


def uids(slurm: Slurm) -> set[str]:
    return {pod["metadata"]["uid"] for pod in slurm.pods().values()}


def until_state(slurm: Slurm, number: int, state: str) -> None:
    until_equal(f"job {number} to be {state}", lambda: slurm.job(number)["JobState"], state, 60)


def test_a_job_runs_on_all_workers_and_everything_is_ready(defaults: Slurm) -> None:
    assert sorted(defaults.login("srun", "-N2", "hostname").split()) == ["slinky-0", "slinky-1"]
    for kind in ("controllers", "restapis", "loginsets", "nodesets"):

        def ready(kind: str = kind) -> bool:
            found = defaults.kubernetes.items("-n", defaults.namespace, f"{kind}.slinky.slurm.net")
            return bool(found) and all(condition(item, "Ready").get("status") == "True" for item in found)

        until(f"{kind} to be Ready", ready, 60)


def test_a_rolling_update_waits_for_the_job_and_all_nodes_are_idle_afterwards(defaults: Slurm) -> None:
    before = uids(defaults)
    number = defaults.submit("#!/bin/sh\nsleep 15\n", "-w", "slinky-1", "--no-requeue")
    until_state(defaults, number, "RUNNING")
    change(defaults, slurmd={"env": [{"name": "E2E_MARK", "value": "update"}]})
    until("both workers to be replaced", lambda: len(uids(defaults)) == 2 and before.isdisjoint(uids(defaults)), 120)
    defaults.until_idle(2)
    assert defaults.job(number)["JobState"] == "COMPLETED"


def test_a_scale_in_waits_for_the_job_and_no_record_stays(defaults: Slurm) -> None:
    number = defaults.submit("#!/bin/sh\nsleep 10\n", "-w", "slinky-1", "--no-requeue")
    until_state(defaults, number, "RUNNING")
    change(defaults, replicas=0)
    until("all workers to be deleted", lambda: not defaults.pods(), 60)
    assert defaults.job(number)["JobState"] == "COMPLETED"
    until("all records to be deleted", lambda: not defaults.nodes(), 60)
    change(defaults, replicas=1)
    defaults.until_idle(1)


def running(pod_uid: str, command: str) -> int:
    """The process with this command line in the containers of a pod; 0 while none runs."""
    for pid in processes(pod_uid):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip() == command:
                return pid
    return 0


def started(pid: int) -> float:
    """When a process started, in seconds of the clock CLOCK_BOOTTIME."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def test_a_namespace_that_is_deleted_ends_no_job_and_nothing_of_it_remains(defaults: Slurm) -> None:
    kubernetes = defaults.kubernetes
    # Kubernetes looks at a namespace again when half of the longest grace period of its pods is over.
    change(defaults, replicas=1, template={"spec": {"terminationGracePeriodSeconds": 60}})

    def short() -> bool:
        return [pod["spec"]["terminationGracePeriodSeconds"] for pod in defaults.pods().values()] == [60]

    until("the worker to have the short grace period", short, 60)
    defaults.until_idle(1)
    [worker] = uids(defaults)
    number = defaults.submit("#!/bin/sh\nsleep 20.5\n", "-w", "slinky-0")
    until_state(defaults, number, "RUNNING")
    began = started(until("the job's process", lambda: running(worker, "sleep 20.5"), 20))
    kubernetes.kubectl("delete", "namespace", defaults.namespace, "--wait=false")
    until("the job to end", lambda: not running(worker, "sleep 20.5"), 60)
    assert time.clock_gettime(time.CLOCK_BOOTTIME) - began > 20

    def gone() -> bool:
        return defaults.namespace not in {item["metadata"]["name"] for item in kubernetes.items("namespaces")}

    until("the namespace to be gone", gone, 180)
