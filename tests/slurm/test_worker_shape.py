"""Real slurmctld and slurmd accept what `register` and `node` say about a worker, also when its
host has changed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sidecars.contract import podfiles
from sidecars.register.facts import read_host
from sidecars.register.gpus import Device, Found
from sidecars.register.main import main as register
from sidecars.register.registration import Host
from sidecars.slurm import states
from sidecars.slurm.owners import has_less_than_its_record, why_retained
from sidecars.slurm.records import Node
from tests.support.real import ports, simulated_nodes
from tests.support.real.daemons import ADDRESS
from tests.support.real.simulated_nodes import Slurmctld

NAME = "worker-0"
UID = "uid-of-worker-0"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def slurmctld(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurmctld]:
    """One without nodes."""
    lines = "PartitionName=all Nodes=ALL Default=YES State=UP\n"
    with simulated_nodes.running(
        tmp_path_factory.mktemp("shape"), lines, "", ports.WORKER_SHAPE
    ) as found:
        yield found


class Devices:
    """The vendor of so many GPUs."""

    def __init__(self, count: int) -> None:
        self._found = Found((Device("NVIDIA H100"),) * count, "the test")

    def find(self) -> Found:
        return self._found


@contextmanager
def node_sidecar(slurmctld: Slurmctld, folder: Path) -> Iterator[None]:
    """`node` of the pod, with files that have been lost with the host."""
    (folder / "log").mkdir(parents=True)
    (folder / "jwt.key").write_bytes(slurmctld.key)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "SLURM_NODE_NAME": NAME,
        "POD_UID": UID,
        "SLURMRESTD_URL": slurmctld.url,
        "SLURM_NODE_DIR": str(folder),
        "SLURM_JWT_KEY_FILE": str(folder / "jwt.key"),
        "SLURMD_PORT": str(slurmctld.daemons.port("sackd")),
    }
    with subprocess.Popen([sys.executable, "-m", "sidecars", "node"], env=environment) as process:
        yield
        process.kill()


def start(
    slurmctld: Slurmctld,
    folder: Path,
    gpus: int,
    *items: str,
    host: Host | None = None,
    **variables: str,
) -> str:
    """The pod's containers start: `node`, `register`, and slurmd, with these items. What `node`
    shows of the record.
    """
    with node_sidecar(slurmctld, folder):
        environment = {
            "SLURM_NODE_DIR": str(folder),
            "POD_IP": ADDRESS,
            "POD_UID": UID,
            "KUBE_NODE_NAME": "kube-1",
            "REGISTER_GPUS": "nvidia",
            "REGISTER_GPUS_TYPE": "h100",
            **variables,
        }
        found = host or read_host()
        assert (
            register(
                (), environment=environment, host=lambda: found, vendor=lambda _: Devices(gpus)
            )
            == 0
        )
    conf, extra = ((folder / name).read_text() for name in (podfiles.CONF, podfiles.EXTRA))
    files = ",".join(["/dev/zero", "/dev/full"][:gpus])
    gres = f"Name=gpu Type=h100 File={files}\n".encode()
    options = ("-Z", "--conf", " ".join([conf, *items]), "--extra", extra)
    slurmctld.daemons.slurmd(NAME, *options, files={"gres.conf": gres})
    return (folder / podfiles.RECORD).read_text()


def until_registered(slurmctld: Slurmctld, since: int) -> Node:
    """Wait until slurmd has registered after that time; the record."""

    def found() -> list[Node]:
        return [it for it in slurmctld.nodes() if it.name == NAME and it.slurmd_start_time > since]

    slurmctld.until("slurmd to register", lambda: any("IDLE" in it.states for it in found()))
    return found()[0]


def host_stops(slurmctld: Slurmctld, before: Node) -> None:
    """slurmd is gone. The time of its next start shows that it is another one."""
    slurmctld.daemons.forget(NAME)
    slurmctld.until("the next second", lambda: time.time() >= before.slurmd_start_time + 1)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host, `node` doesn't begin within the seconds for which `register` waits."""
    monkeypatch.setattr("sidecars.register.main.RECORD_WAIT", 60.0)


@pytest.fixture(autouse=True)
def no_node_is_left(slurmctld: Slurmctld) -> Iterator[None]:
    """For the next test."""
    yield
    slurmctld.daemons.forget(NAME)
    slurmctld.send("DELETE", f"node/{NAME}")


def test_a_worker_that_has_lost_a_gpu_with_the_restart_of_its_host_takes_jobs(
    slurmctld: Slurmctld, tmp_path: Path
) -> None:
    start(slurmctld, tmp_path / "before", 2)
    before = until_registered(slurmctld, 0)
    assert before.gres.startswith("gpu:h100:2")
    host_stops(slurmctld, before)
    assert start(slurmctld, tmp_path / "after", 1) == "this pod's, deleted\n"
    after = until_registered(slurmctld, before.slurmd_start_time)
    assert after.gres.startswith("gpu:h100:1")
    assert not states.is_drain(after.states), after


def test_a_worker_that_slurmctld_has_drained_for_its_memory_takes_jobs_after_a_restart(
    slurmctld: Slurmctld, tmp_path: Path
) -> None:
    more = read_host().real_memory + 1000
    start(slurmctld, tmp_path / "before", 1, f"RealMemory={more}")
    before = until_registered(slurmctld, 0)
    assert has_less_than_its_record(before), before
    assert states.is_drain(before.states)
    assert why_retained(before) == ""
    host_stops(slurmctld, before)
    assert start(slurmctld, tmp_path / "after", 1) == "this pod's, deleted\n"
    after = until_registered(slurmctld, before.slurmd_start_time)
    assert after.real_memory == read_host().real_memory
    assert not states.is_drain(after.states), after


def test_a_worker_that_has_come_back_as_it_was_keeps_its_record(
    slurmctld: Slurmctld, tmp_path: Path
) -> None:
    start(slurmctld, tmp_path / "before", 1)
    before = until_registered(slurmctld, 0)
    host_stops(slurmctld, before)
    assert start(slurmctld, tmp_path / "after", 1) == "this pod's\n"
    after = until_registered(slurmctld, before.slurmd_start_time)
    assert (after.real_memory, after.gres) == (before.real_memory, before.gres)
    assert not states.is_drain(after.states), after


def test_slurm_keeps_jobs_off_the_cpus_that_are_not_the_containers_own(
    slurmctld: Slurmctld, tmp_path: Path
) -> None:
    real = read_host()
    cores = range(real.cores)
    exclusive = replace(
        real, order=tuple((core,) for core in cores), allowed=frozenset(cores) - {0}
    )
    own = {"REGISTER_EXCLUSIVE_CPUS": "true", "REGISTER_CPUS": str(real.cores - 1)}
    since = 0
    for pod in ("before", "after"):
        start(slurmctld, tmp_path / pod, 1, host=exclusive, **own)
        found = until_registered(slurmctld, since)
        since = found.slurmd_start_time
        assert not states.is_drain(found.states), found
        assert found.specialized_cores == 1
        shown = slurmctld.daemons.scontrol("show", "node", NAME, check=True).stdout
        assert "CPUSpecList=0 " in shown
        if pod == "before":
            host_stops(slurmctld, found)
