"""Whatever an administrator does to a cluster, and whatever crashes: no job is lost, and no fault
looks like health.

A script of operations in random order, on a cluster of its own with jobs of each kind. SEED selects
the order, and OPERATIONS how many.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import yaml

from tests.support.real.configuration import until_saved
from tests.support.real.harness import CHARTS, VALUES, Kubernetes, Slurm, condition, until
from tests.support.real.kills import OPERATOR, kill

NAMESPACE = "operated"
NEVER = "#!/bin/sh\ntrue\n"
LATER = "--begin=now+10hours"


@dataclass
class Operated:
    """The cluster, its jobs by kind, and what the script has changed in the values."""

    slurm: Slurm
    jobs: dict[str, int] = field(default_factory=dict)
    workers: int = 2
    kill_wait: int = 30
    spare: str = "spare"
    line: str = ""
    """A line of extraConf that slurmctld refuses."""
    partition: bool = True
    mark: str = "0"
    """By it, workers of different revisions differ."""
    gibibytes: int = 4

    def values(self) -> dict[str, Any]:
        """The values of the release."""
        worker = {"oversubscribeNode": True, "partition": {"enabled": self.partition}}
        return {
            "controller": {
                "extraConf": "ProctrackType=proctrack/linuxproc\nKillWait="
                f"{self.kill_wait}\n{self.line}",
                "persistence": {"resources": {"requests": {"storage": f"{self.gibibytes}Gi"}}},
            },
            "nodesets": {
                "slinky": worker
                | {
                    "replicas": self.workers,
                    "slurmd": {"env": [{"name": "MARK", "value": self.mark}]},
                },
                self.spare: worker | {"replicas": 1},
            },
        }

    def install(self) -> None:
        """Install or upgrade the release with these values."""
        release = (
            "upgrade",
            "--install",
            "slurm",
            str(CHARTS / "slurm"),
            "-n",
            NAMESPACE,
            "-f",
            str(VALUES),
            "-f",
            "-",
        )
        self.slurm.kubernetes.helm(*release, stdin=yaml.safe_dump(self.values()))

    def of(self, kind: str, name: str = "slurm") -> dict[str, Any]:
        """A custom resource."""
        return dict(self.slurm.kubernetes.get("-n", NAMESPACE, f"{kind}.slinky.slurm.net", name))

    def runs(self) -> bool:
        """Whether slurmctld has the newest configuration and answers."""
        found = self.of("controllers")
        running = condition(found, "ConfigurationRunning")
        seen = (running.get("status"), running.get("observedGeneration"))
        return seen == ("True", found["metadata"]["generation"]) and bool(self.slurm.nodes())

    def start(self) -> None:
        """A job that runs until it is ended."""
        self.jobs["running"] = self.slurm.submit_until_ended(
            "-p", "all", "-w", "slinky-0", "--no-requeue"
        )
        self.slurm.until_running(self.jobs["running"])
        # slurmctld saves its jobs every few seconds: what a crash takes before is not the product's
        # to keep.
        until_saved(self.slurm, self.jobs["running"])

    def has_completed(self, kind: str) -> bool:
        """Whether the job of that kind has."""
        return self.slurm.states(self.jobs[kind]) == ["COMPLETED"]

    def check(self, after: str) -> None:
        """No job is lost."""
        states = {kind: self.slurm.states(number) for kind, number in self.jobs.items()}
        lost = {kind: found for kind, found in states.items() if set(found) - {expected(kind)}}
        assert not lost, f"after {after}: {lost}"
        assert self.slurm.job(self.jobs["running"])["Restarts"] == "0"


def expected(kind: str) -> str:
    """The state of a job of that kind, all the time."""
    return "RUNNING" if kind == "running" else "PENDING"


def scale(it: Operated, rng: random.Random) -> None:
    it.workers = rng.choice([count for count in (1, 2, 3) if count != it.workers])
    it.install()


def update(it: Operated, rng: random.Random) -> None:
    it.mark = str(rng.random())
    it.install()


def change_configuration(it: Operated, rng: random.Random) -> None:
    it.kill_wait = rng.randint(31, 300)
    it.install()


def refuse_configuration(it: Operated, _: random.Random) -> None:
    it.line = "SelectType=select/nowhere"
    it.install()

    def refused() -> bool:
        return condition(it.of("controllers"), "ConfigurationAccepted").get("status") == "False"

    until("the Controller to say that it refuses the configuration", refused)
    it.check("a refused configuration")
    it.line = ""
    it.install()


def switch_partition(it: Operated, _: random.Random) -> None:
    it.partition = not it.partition
    it.install()


def rename_nodeset(it: Operated, _: random.Random) -> None:
    former, it.spare = it.spare, "other" if it.spare == "spare" else "spare"
    it.install()

    def gone() -> bool:
        return not any(name.startswith(f"slurm-worker-{former}-") for name in it.slurm.pods())

    until(f"the workers of {former} to be gone", gone)


def grow_volume(it: Operated, _: random.Random) -> None:
    it.gibibytes += 1
    it.install()


def kill_slurmctld(it: Operated, _: random.Random) -> None:
    kill(it.slurm.kubernetes, NAMESPACE, "slurmctld")


def kill_slurmrestd(it: Operated, _: random.Random) -> None:
    kill(it.slurm.kubernetes, NAMESPACE, "slurmrestd")


def kill_operator(it: Operated, _: random.Random) -> None:
    kill(it.slurm.kubernetes, *OPERATOR)


def delete_worker(it: Operated, _: random.Random) -> None:
    pod = f"slurm-worker-{it.spare}-0"
    before = it.slurm.pods()[pod]["metadata"]["uid"]
    it.slurm.kubernetes.kubectl("-n", NAMESPACE, "delete", "pod", pod, "--wait=false")
    until(
        "another worker",
        lambda: (
            it.slurm.pods().get(pod, {"metadata": {"uid": before}})["metadata"]["uid"] != before
        ),
    )


def reinstall(it: Operated, _: random.Random) -> None:
    # Workers wait for running jobs.
    it.slurm.end(it.jobs.pop("running"))
    it.slurm.kubernetes.helm("uninstall", "slurm", "-n", NAMESPACE)
    until("all pods to be gone", lambda: not it.slurm.kubernetes.items("-n", NAMESPACE, "pods"))
    it.install()
    until("the worker to be back", lambda: it.runs() and it.slurm.nodes().get("slinky-0") == "idle")
    it.start()


OPERATIONS: tuple[Callable[[Operated, random.Random], None], ...] = (
    scale,
    update,
    change_configuration,
    refuse_configuration,
    switch_partition,
    rename_nodeset,
    grow_volume,
    kill_slurmctld,
    kill_slurmrestd,
    kill_operator,
    delete_worker,
    reinstall,
)


def script(rng: random.Random, count: int) -> Iterator[Callable[[Operated, random.Random], None]]:
    """So many operations: each once, in random order, then again."""
    for _ in range(-(-count // len(OPERATIONS))):
        yield from rng.sample(OPERATIONS, min(count, len(OPERATIONS)))


@pytest.fixture
def operated(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Operated]:
    """A cluster with a running job, and waiting ones: they name nodes, depend, are an array, or
    have a reservation.
    """
    it = Operated(Slurm(kubernetes, NAMESPACE))
    it.install()
    until("Slurm to run", it.runs)
    it.slurm.until_idle(3)
    it.start()
    reservation = (
        "reservationname=course",
        "users=root",
        "nodes=slinky-1",
        "starttime=now+5hours",
        "duration=60",
    )
    it.slurm.login("scontrol", "create", "reservation", *reservation)
    # Short enough to end before the reservation begins.
    submit, queue = it.slurm.submit, ("-p", "all", "--time=5")
    it.jobs["named"] = submit(NEVER, *queue, LATER, "--nodelist=slinky-1")
    it.jobs["of-spare"] = submit(NEVER, *queue, LATER, "--nodelist=spare-0")
    it.jobs["array"] = submit(NEVER, *queue, LATER, "--array=1-3")
    it.jobs["dependent"] = submit(NEVER, *queue, f"--dependency=afterany:{it.jobs['named']}")
    it.jobs["reserved"] = submit(NEVER, *queue, "--reservation=course")
    yield it
    it.slurm.login("scancel", "--user=root")
    kubernetes.helm("uninstall", "slurm", "-n", NAMESPACE)
    until("all pods to be gone", lambda: not kubernetes.items("-n", NAMESPACE, "pods"))
    kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.timeout(5400)
def test_no_operation_in_any_order_loses_a_job(
    operated: Operated, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, count = (
        int(os.environ.get("SEED", "1")),
        int(os.environ.get("OPERATIONS", str(len(OPERATIONS)))),
    )
    rng = random.Random(seed)  # noqa: S311 - guards nothing
    done = []
    for operation in script(rng, count):
        name = operation.__name__.replace("_", " ")
        done.append(name)
        operation(operated, rng)
        until(f"slurmctld to run the newest configuration after {name}", operated.runs)
        operated.check(f"{name}, seed {seed}, after {', '.join(done[:-1])}")
    with capsys.disabled():
        print(f"\nseed {seed}: {', '.join(done)}")
    # What waited can still run.
    operated.spare, operated.workers, operated.partition = "spare", 2, True
    operated.install()
    until(
        "each named node to be up", lambda: {"slinky-1", "spare-0"} <= set(operated.slurm.nodes())
    )
    for kind in ("named", "of-spare"):
        operated.slurm.login("scontrol", "update", f"jobid={operated.jobs[kind]}", "StartTime=now")
    for kind in ("named", "of-spare", "dependent"):
        until(f"the job {kind} to run", partial(operated.has_completed, kind))
