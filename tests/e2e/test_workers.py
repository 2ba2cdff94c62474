"""The life of a worker pod when things go wrong around it: killed, replaced, drained by hand,
without its slurmctld.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_states import until_state
from tests.support.real.clocks import followed, logged, times
from tests.support.real.configuration import controller, patch, until_set
from tests.support.real.harness import Slurm, condition, until, until_equal
from tests.support.real.kills import kill_processes, processes

OUTAGE = 30.0
"""Seconds."""
POD = "slurm-worker-slinky-1"
CTLD = "slurm-controller-0"


def uid(slurm: Slurm, pod: str = POD) -> str:
    return str(slurm.pods()[pod]["metadata"]["uid"])


def record(slurm: Slurm, node: str = "slinky-1") -> dict[str, Any]:
    """The node as `scontrol show node --json` has it; {} without one."""
    found: list[dict[str, Any]] = json.loads(
        slurm.login("scontrol", "show", "node", node, "--json")
    )["nodes"]
    return found[0] if found else {}


def until_replaced(slurm: Slurm, before: str) -> str:
    """Wait for a successor of slinky-1's pod to be registered; its uid."""

    def look() -> str | None:
        pod = slurm.pods().get(POD)
        if pod is None or pod["metadata"]["uid"] == before:
            return None
        name = str(pod["metadata"]["uid"])
        return (
            name
            if name in record(slurm).get("extra", "") and slurm.nodes()["slinky-1"] != "down"
            else None
        )

    return until("a successor to have registered", look)


def lives(slurm: Slurm) -> dict[str, tuple[str, int]]:
    """Of each worker, its slurmd container and how often it was started again."""
    return {
        name: (it["containerID"], it["restartCount"])
        for name, pod in slurm.pods().items()
        for it in pod["status"]["containerStatuses"]
        if it["name"] == "slurmd"
    }


def test_half_a_minute_without_slurmctld_restarts_no_slurmd_and_loses_no_job(slurm: Slurm) -> None:
    k8s = slurm.kubernetes
    long = slurm.submit_until_ended("-w", "slinky-0", "--exclusive", "--no-requeue")
    short = slurm.submit_until_ended("-w", "slinky-1", "--exclusive", "--no-requeue")
    slurm.until_running(long, short)
    before = lives(slurm)
    # Its successor finds no place.
    k8s.kubectl("taint", "nodes", "--all", "e2e-outage=:NoSchedule")
    try:
        k8s.kubectl("-n", "slurm", "delete", "pod", CTLD)
        until(
            "slurmctld to be gone",
            lambda: not slurm.kubernetes.get("-n", "slurm", "pod", CTLD)["spec"].get("nodeName"),
        )
        slurm.worker(POD, "touch", f"/tmp/end-{short}")  # noqa: S108 - in the worker
        end = time.monotonic() + OUTAGE
        until(
            "the outage to be over",
            lambda: lives(slurm) != before or time.monotonic() >= end,
            pause=2,
        )
        assert lives(slurm) == before
        assert {
            it["type"]: it["status"]
            for it in k8s.get("-n", "slurm", "pod", CTLD)["status"]["conditions"]
        }["PodScheduled"] == "False"
    finally:
        k8s.kubectl("taint", "nodes", "--all", "e2e-outage-")
    until_state(slurm, short, "COMPLETED")
    slurm.end(long)
    for number in (short, long):
        assert (slurm.job(number)["ExitCode"], slurm.job(number)["Restarts"]) == ("0:0", "0")
    slurm.until_idle(2)
    assert lives(slurm) == before


def slurmd_process(slurm: Slurm, pod: str = POD) -> int:
    """The process of slurmd, which is the first of those of its name; 0 while none runs."""
    return min((pid for pid in processes(uid(slurm, pod)) if _command(pid) == "slurmd"), default=0)


def test_a_slurmd_that_hangs_is_restarted_after_more_than_a_minute_and_no_job_is_lost(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    number = slurm.submit_until_ended("-w", "slinky-1", "--exclusive", "--no-requeue")
    until_state(slurm, number, "RUNNING")
    # A slurmd that has never answered is still starting. It is asked every 10 s.
    until("slurmd to have been asked", lambda: slurm.job(number)["RunTime"] > "00:00:15")
    before, hanging = lives(slurm), slurmd_process(slurm)
    os.kill(hanging, signal.SIGSTOP)
    since = time.time()
    until(
        "another slurmd to run",
        lambda: _command(hanging) != "slurmd" and slurmd_process(slurm),
        pause=1,
    )
    # By the clocks of the container's log and of this host.
    took = logged(slurm, POD, "slurmd", "slurmd didn't answer") - since
    assert took > 60
    slurm.end(number)
    assert (slurm.job(number)["ExitCode"], slurm.job(number)["Restarts"]) == ("0:0", "0")
    slurm.until_idle(2)
    assert lives(slurm) == before
    with capsys.disabled():
        print(f"\nslurmd hangs -> it is restarted: {took:.0f} s")


@pytest.fixture
def short_kill_wait(slurm: Slurm) -> Iterator[None]:
    """Slurm kills a job that ignores TERM after 5 seconds. By default, that takes minutes if slurmd
    is restarted.
    """
    before = controller(slurm)["spec"].get("extraConf", "")
    patch(slurm, extraConf=f"{before}\nKillWait=5\n")
    until_set(slurm, "KillWait", "5 sec")
    yield
    patch(slurm, extraConf=before)
    until_set(slurm, "KillWait", "30 sec")


@pytest.mark.usefixtures("short_kill_wait")
def test_a_slurmd_that_is_stopped_while_it_ends_a_job_ends_within_seconds(slurm: Slurm) -> None:
    # slurmd waits for a job that it ends, and the job's slurmstepd needs slurmd for the credential
    # of its last message.
    script = """#!/bin/sh
      trap 'touch /run/ending' TERM
      touch /run/running
      while true; do sleep 1; done
    """
    number = slurm.submit(script, "-w", "slinky-1", "--exclusive", "--no-requeue")

    def until_written(path: str) -> None:
        until(f"{path} in the worker", lambda: slurm.worker(POD, "ls", path))

    until_written("/run/running")
    before, pod = lives(slurm)[POD], uid(slurm)
    slurm.login("scancel", str(number))
    until_written("/run/ending")
    slurm.worker(POD, "kill", "-TERM", "1")
    until("slurmd's container to be started again", lambda: lives(slurm)[POD] != before)
    until_state(slurm, number, "CANCELLED")
    slurm.until_idle(2)
    assert uid(slurm) == pod


def test_an_administrators_drain_survives_the_replacement_of_the_pod(slurm: Slurm) -> None:
    before = uid(slurm)
    slurm.login(
        "scontrol", "update", "NodeName=slinky-1", "State=DRAIN", "Reason=disk 3 is being replaced"
    )
    slurm.kubernetes.kubectl("-n", "slurm", "delete", "pod", POD, "--wait=false")
    until_replaced(slurm, before)
    until_equal("it to be drained still", lambda: slurm.nodes()["slinky-1"], "drained")
    assert record(slurm)["reason"] == "disk 3 is being replaced"
    # The record was set DOWN when its pod ended: only RESUME ends both.
    slurm.login("scontrol", "update", "NodeName=slinky-1", "State=RESUME")
    slurm.until_idle(2)


def test_a_late_predecessor_never_deletes_its_successors_record(slurm: Slurm) -> None:
    before = uid(slurm)
    slurm.kubernetes.kubectl("-n", "slurm", "delete", "pod", POD, "--wait=false")
    after = until_replaced(slurm, before)
    slurm.until_idle(2)
    # What is left of the pod before: its `node`, which has seen its slurmd off and now gets its
    # TERM. As root wrote it in its hook.
    slurm.worker(
        POD,
        "sh",
        "-c",
        "cd /run/slurm-node/hook && mkdir -p late/hook && chmod 777 late && echo 1.1 0 > "
        "late/hook/stop",
    )
    script = f"""
      cd /run/slurm-node/hook/late
      export POD_UID={before} SLURM_NODE_DIR=$PWD SLURMD_PORT=1
      timeout -s TERM 4 slurm-sidecars node || test $? = 124
    """
    message = slurm.kubernetes.kubectl(
        "-n", "slurm", "exec", POD, "-c", "node", "--", "sh", "-c", script
    )
    slurm.worker(POD, "rm", "-r", "/run/slurm-node/hook/late")
    assert (
        message.splitlines()[-1]
        == "node: the record of this name belongs to another pod and is retained"
    )
    assert slurm.nodes()["slinky-1"] == "idle"
    assert after in record(slurm)["extra"]
    assert slurm.login("srun", "-w", "slinky-1", "hostname").strip() == "slinky-1"


def test_a_pod_that_is_killed_leaves_a_record_that_the_operator_prunes(slurm: Slurm) -> None:
    # On both, for a busy worker is deleted last. They name no node: that would keep its record.
    jobs = [slurm.submit_until_ended("--exclusive") for _ in ("slinky-0", "slinky-1")]
    for number in jobs:
        until_state(slurm, number, "RUNNING")
    gone = uid(slurm)
    # No successor of its name may appear.
    slurm.scale(1)
    try:
        until_equal("the node to drain", lambda: slurm.nodes()["slinky-1"], "draining")
        kill_processes(gone)
        slurm.kubernetes.kubectl("-n", "slurm", "delete", "pod", POD, "--force", "--grace-period=0")
        assert gone in record(slurm)["extra"]
        until_equal("the record to be gone", lambda: set(slurm.nodes()), {"slinky-0"})
    finally:
        slurm.login("scancel", *map(str, jobs))
        slurm.scale(2)
        slurm.until_idle(2)


def test_the_record_is_gone_within_three_seconds_of_slurmds_end(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = "slurm-worker-slinky-2"
    slurm.scale(3)
    slurm.until_idle(3)
    # Slurm has the node sooner than the API server the containers.
    until(
        "its pod to be Ready", lambda: condition(slurm.pods()[pod], "Ready").get("status") == "True"
    )
    with followed(slurm, pod) as log:
        slurm.scale(2)
        until_equal("its record to be gone", lambda: set(slurm.nodes()), {"slinky-0", "slinky-1"})
        until("its pod to be gone", lambda: pod not in slurm.pods())
        # By the clocks of the logs.
        lines = log.read_text()
        took = max(times(lines, "node: deleted the record")) - min(
            times(lines, "Slurmd shutdown completing")
        )
    with capsys.disabled():
        print(f"\nslurmd ended -> its record is gone: {took:.2f} s")
    assert took < 3
    slurm.until_idle(2)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
