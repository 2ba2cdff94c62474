"""A worker and a login host outside of Kubernetes join a cluster of the chart with nothing but its
slurm.key, work, and leave. The commands are those of docs/hybrid.md.
"""

from collections.abc import Iterator

import pytest

from tests.support.real import as_processes, ports, rendered
from tests.support.real.as_processes import LOGIN, SLURMCTLD, Daemons
from tests.support.real.harness import VALUES, CommandError, until

pytestmark = pytest.mark.timeout(600)

WORKER, HOST = "outside-0", "outside-login"
MORE = {
    "controller": {
        "extraConf": "NodeSet=outside Feature=outside\n"
        "PartitionName=outside Nodes=outside State=UP\n"
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
    },
    "nodesets": {"slinky": {"replicas": 1, "oversubscribeNode": True}},
}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """The cluster with one worker and its login node."""
    release = rendered.release("outside", ports.OUTSIDE, [VALUES], MORE)
    folder = tmp_path_factory.mktemp("outside")
    with as_processes.running(folder, release, others=(WORKER, HOST)) as found:
        yield found


def join(slurm: Daemons) -> None:
    """Start both hosts. Returns when the worker is idle, seen from the login host."""
    release = slurm.release
    [port, *_] = release.ports.others
    conf = f"Features=outside NodeAddr={rendered.ADDRESS} Port={port}"
    slurm.begin(WORKER, as_processes.outside_worker(release, conf))
    slurm.begin(HOST, as_processes.login_host(release))
    until("the worker to be idle", lambda: states(slurm, HOST) == {WORKER: "idle"})


def states(slurm: Daemons, place: str) -> dict[str, str]:
    """The nodes of the partition `outside`, as a host sees them; {} while it has no answer."""
    try:
        lines = slurm.output(place, "sinfo", "-h", "-N", "-p", "outside", "-o", "%N %T")
    except CommandError:
        return {}
    return dict(line.split() for line in lines.splitlines())


def leave(slurm: Daemons) -> None:
    """Drain the worker, end both hosts, and delete the worker's record, as the page describes."""
    slurm.login("scontrol", "update", f"nodename={WORKER}", "state=drain", "reason=shutdown")
    until("its jobs to end", lambda: states(slurm, LOGIN) == {WORKER: "drained"})
    slurm.ask_to_end(WORKER)
    slurm.ask_to_end(HOST)
    slurm.login("scontrol", "delete", f"nodename={WORKER}")


def test_a_slurmd_and_a_sackd_with_the_key_alone_join_work_leave_and_come_back(
    slurm: Daemons,
) -> None:
    join(slurm)
    # Each side starts jobs on the other one.
    assert slurm.output(HOST, "srun", "-p", "outside", "hostname") == f"{WORKER}\n"
    assert slurm.output(HOST, "srun", "-p", "slinky", "hostname") == "slinky-0\n"
    assert slurm.login("srun", "-p", "outside", "hostname") == f"{WORKER}\n"
    both = slurm.output(HOST, "srun", "-p", "all", "-N2", "hostname")
    assert set(both.split()) == {WORKER, "slinky-0"}
    # A reconfigure ends neither of them.
    slurm.output(SLURMCTLD, "scontrol", "reconfigure")
    until("the worker to be idle", lambda: states(slurm, HOST) == {WORKER: "idle"})
    assert slurm.output(HOST, "srun", "-p", "outside", "hostname") == f"{WORKER}\n"

    leave(slurm)
    assert slurm.login("sinfo", "-h", "-N", "-p", "outside", "-o", "%N") == ""
    # Nothing of those that left delays the others.
    slurm.output(SLURMCTLD, "scontrol", "reconfigure")
    until("slurmctld to answer", lambda: slurm.login("srun", "-p", "slinky", "hostname") != "")

    join(slurm)
    assert slurm.output(HOST, "srun", "-p", "outside", "hostname") == f"{WORKER}\n"
