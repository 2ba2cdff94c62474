"""Changing a Controller's configuration on a real cluster, and reading what the running slurmctld
uses.
"""

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.real.harness import WILL_COME, CommandError, Slurm, condition, until

CTLD = "slurm-controller-0"


def controller(slurm: Slurm) -> dict[str, Any]:
    """The Controller."""
    return dict(slurm.kubernetes.get("-n", "slurm", "controllers.slinky.slurm.net", "slurm"))


def patch(slurm: Slurm, **spec: Any) -> None:
    """Change the Controller's spec."""
    text = json.dumps({"spec": spec})
    slurm.kubernetes.kubectl(
        "-n", "slurm", "patch", "controllers.slinky.slurm.net", "slurm", "--type=merge", "-p", text
    )


def setting(slurm: Slurm, key: str) -> str:
    """A value as the running slurmctld has it."""
    lines = slurm.controller("scontrol", "show", "config").splitlines()
    return next(
        (line.partition("=")[2].strip() for line in lines if line.split("=")[0].strip() == key), ""
    )


def until_set(slurm: Slurm, key: str, value: str, seconds: float = WILL_COME) -> None:
    """Wait until the running slurmctld has the value."""
    until(f"{key}={value} to run", lambda: setting(slurm, key) == value, seconds, 0.05)


def accepted(slurm: Slurm) -> dict[str, Any]:
    """The condition ConfigurationAccepted."""
    return condition(controller(slurm), "ConfigurationAccepted")


def until_running(slurm: Slurm, seconds: float = WILL_COME) -> None:
    """Wait until the newest configuration runs: the operator has seen the last change, and
    slurmctld has it.
    """

    def look() -> bool:
        found = controller(slurm)
        return all(
            (it.get("status"), it.get("observedGeneration"))
            == ("True", found["metadata"]["generation"])
            for it in (
                condition(found, kind) for kind in ("ConfigurationAccepted", "ConfigurationRunning")
            )
        )

    until("the configuration to run", look, seconds)


def restarts(slurm: Slurm) -> tuple[str, int]:
    """uid of slurmctld's pod, and how often its slurmctld was restarted."""
    pod = slurm.kubernetes.get("-n", "slurm", "pod", CTLD)
    status = next(it for it in pod["status"]["containerStatuses"] if it["name"] == "slurmctld")
    return pod["metadata"]["uid"], int(status["restartCount"])


def change_timeout(slurm: Slurm, seconds: int) -> float:
    """Have extraConf set SlurmctldTimeout; the seconds until the running slurmctld has it."""
    before = controller(slurm)["spec"].get("extraConf", "")
    rest = re.sub("^SlurmctldTimeout=.*\n?", "", before, flags=re.MULTILINE)
    start = time.monotonic()
    patch(slurm, extraConf=f"{rest}\nSlurmctldTimeout={seconds}\n")
    until_set(slurm, "SlurmctldTimeout", f"{seconds} sec")
    return time.monotonic() - start


def until_saved(slurm: Slurm, job: int) -> None:
    """Wait until slurmctld has saved all jobs that it has now. Changes the comment of one, so that
    it saves again.
    """
    began = int(time.time())
    path = f"/var/spool/slurmctld/{slurm.namespace}_slurm/job_state"

    def saved() -> bool:
        slurm.login("scontrol", "update", f"JobId={job}", f"Comment={time.monotonic()}")
        return int(slurm.controller("stat", "-c", "%Y", path)) > began

    until("slurmctld to have saved its jobs", saved, pause=1)


@contextmanager
def calling(slurm: Slurm) -> Iterator[dict[str, int]]:
    """Run sinfo and srun in turn, all the time, and count the calls and those that failed."""
    counts = {"calls": 0, "failed": 0}
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            for words in (("sinfo", "-h"), ("srun", "-N1", "true")):
                counts["calls"] += 1
                try:
                    slurm.login(*words)
                except (CommandError, subprocess.TimeoutExpired) as error:
                    counts["failed"] += 1
                    print(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join(90)
