"""Which slurmds are in service, and which run. The listing is one of Slurm 26.05.5, shortened."""

import socket

import pytest

from sidecars.reconfigure import slurmds
from sidecars.reconfigure.slurmds import Slurmd

LISTING = """\
NodeName=w-0 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=w-0 Port=7001 Version=26.05.5 \
State=IDLE+DYNAMIC_NORM \
BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-02T00:00:00 Comment=State=DOWN
NodeName=w-1 Arch=x86_64 NodeAddr=10.0.0.2 NodeHostName=w-1 State=MIXED*+DYNAMIC_NORM \
SlurmdStartTime=None
"""
FILES = {"slurm.conf": b"ClusterName=lab\n"}


def test_the_slurmds_of_a_listing_have_their_address_port_and_start() -> None:
    assert slurmds.in_service(LISTING, FILES) == (
        Slurmd("w-0", "10.0.0.1", 7001, "2026-01-02T00:00:00"),
        Slurmd("w-1", "10.0.0.2", 6818, "None"),
    )
    assert slurmds.in_service(LISTING, {"slurm.conf": b"SlurmdPort=9000\n"})[1].port == 9000
    assert slurmds.in_service("slurm_load_node error\n", FILES) == ()


@pytest.mark.parametrize(
    "state",
    [
        "IDLE+DRAIN",
        "DOWN*",
        "MIXED+DRAIN+DYNAMIC_NORM",
        "IDLE+CLOUD+POWERED_DOWN",
        "IDLE+POWERING_UP",
        "FUTURE",
        "IDLE+FAIL",
    ],
)
def test_a_node_that_gets_no_jobs_is_not_in_service(state: str) -> None:
    assert slurmds.in_service(f"NodeName=a NodeAddr=10.0.0.1 State={state} Port=1\n", FILES) == ()


@pytest.mark.parametrize(
    "state", ["IDLE", "ALLOCATED", "MIXED+CLOUD", "IDLE*", "ALLOCATED+COMPLETING", "IDLE+PLANNED"]
)
def test_a_node_that_may_get_jobs_is_in_service(state: str) -> None:
    assert (
        len(slurmds.in_service(f"NodeName=a NodeAddr=10.0.0.1 State={state} Port=1\n", FILES)) == 1
    )


def test_of_a_large_cluster_some_of_each_part_are_watched() -> None:
    many = tuple(Slurmd(f"w-{number}", "", 1, "") for number in range(1000))
    some = slurmds.spread(many, 200)
    assert (len(some), some[0].name, some[1].name, some[-1].name) == (200, "w-0", "w-5", "w-995")
    assert slurmds.spread(many[:3], 200) == many[:3]


def test_a_port_at_which_nothing_listens_differs_from_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slurmds, "SECONDS", 0.2)
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))
        places = {"silent": silent.getsockname()[1], "closed": closed.getsockname()[1]}
        asked = [Slurmd(name, "127.0.0.1", port, "") for name, port in places.items()]
        assert slurmds.listening([*asked, Slurmd("unknown", "no-such-host.invalid", 1, "")]) == {
            "closed": False
        }


def test_only_those_that_answer_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecars.slurm.health.answers", lambda host, *_: host == "10.0.0.2")
    assert [it.name for it in slurmds.running(LISTING, FILES)] == ["w-1"]
