"""Runs of checks on a real slurmctld with a few slurmds, outside of the Kubernetes cluster."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidecars.checks.run import CheckError, Run
from sidecars.checks.slurm import Slurm
from sidecars.policy.checks.declared import Check, Strategy
from sidecars.policy.checks.measures import Limit, quantity
from sidecars.policy.checks.results import Kind, Verdict
from sidecars.slurm import protocol
from tests.support.real import plain, ports
from tests.support.real.daemons import Daemons
from tests.support.real.harness import WILL_COME
from tests.support.real.plain import (
    longest_wait,
    read_nodes,
    seconds_to_start,
    until_idle,
    until_jobs,
)

PORT = ports.CHECK_JOBS
MOST_SECONDS = 30
"""That a user's job may wait for the nodes of a check, which would have them for minutes."""
USER = "daemon"
MARKED = """#!/bin/sh
[ "$SLURMD_NODENAME" != "$FAULTY" ] || { echo the marker exists; exit 1; }
echo measure room 5GiB
"""
CHECK = Check(
    "marker",
    MARKED,
    timeout=30,
    window=90,
    limits={"room": Limit(least=quantity("1GiB"))},
    env={"FAULTY": ""},
)
OWN = "slurm-node: check: marker: the marker exists"
FIXTURES = Path(__file__).parents[1] / "fixtures"
SCRIPTS = Path(__file__).parents[2] / "charts" / "slurm" / "files" / "checks"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """slurmctld, slurmrestd and two slurmds."""
    lines = "PartitionName=all Nodes=ALL Default=YES\nPartitionName=other Nodes=c1\n"
    with plain.running(tmp_path_factory.mktemp("checks"), PORT, ("c1", "c2"), lines) as found:
        yield found


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Four slurmds in two partitions that share none."""
    lines = "PartitionName=cpu Nodes=p1\nPartitionName=gpu Nodes=p[2-4]\n"
    with plain.running(
        tmp_path_factory.mktemp("parted"), ports.CHECK_PAIRS, ("p1", "p2", "p3", "p4"), lines
    ) as found:
        yield found


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Two slurmds with two GPUs each, of which only nvidia-smi and Slurm know."""
    files = {
        "gres.conf": b"Name=gpu File=/run/gpu[0-1]\n",
        "gpus.txt": (FIXTURES / "gpu/nvidia-smi/mixed.txt").read_bytes(),
        "nvidia-smi": b"#!/bin/sh\nexec cat /etc/slurm/gpus.txt\n",
    }
    prepare = (
        "for number in 0 1; do mknod -m 666 /run/gpu$number c 1 3; done; "
        "chmod 644 /etc/slurm/gpus.txt; install -m 755 /etc/slurm/nvidia-smi /usr/bin"
    )
    lines = "PartitionName=all Nodes=ALL Default=YES\nGresTypes=gpu\n"
    home = tmp_path_factory.mktemp("equipped")
    options = {"node_options": "Gres=gpu:2", "prepare": prepare}
    with plain.running(
        home, ports.CHECK_EQUIPPED, ("e1", "e2"), lines, files=files, **options
    ) as found:
        yield found


@contextlib.asynccontextmanager
async def a_run(cluster: Daemons, check: Check) -> AsyncIterator[Run]:
    async with cluster.client() as admin, cluster.client(USER) as submitter:
        yield Run(check, Slurm(check, admin, submitter, USER, now=time.time), clock=time.monotonic)


async def run(cluster: Daemons, check: Check) -> dict[str, Verdict]:
    await until_idle_or_drained(cluster)
    async with a_run(cluster, check) as found:
        return await found.run()


async def until_idle_or_drained(cluster: Daemons) -> None:
    end = time.monotonic() + WILL_COME
    while any(
        node.states & {"COMPLETING", "ALLOCATED", "MIXED", "NOT_RESPONDING"}
        for node in (await read_nodes(cluster)).values()
    ):
        assert time.monotonic() < end, await read_nodes(cluster)
        await asyncio.sleep(0.2)


async def write(cluster: Daemons, name: str, state: str, reason: str | None = None) -> None:
    async with cluster.client() as client:
        await client.call(protocol.update_nodes([name], state=[state], reason=reason))


def kinds(verdicts: dict[str, Verdict]) -> dict[str, Kind]:
    return {name: it.kind for name, it in verdicts.items()}


async def test_a_failing_check_drains_its_node_alone_and_a_passing_one_lifts_that_drain_alone(
    cluster: Daemons,
) -> None:
    failing = replace(CHECK, env={"FAULTY": "c1"})
    verdicts = await run(cluster, failing)
    assert kinds(verdicts) == {"c1": Kind.FAILED, "c2": Kind.PASSED}, verdicts
    assert verdicts["c2"].measured == {"room": "5GiB"}
    found = await read_nodes(cluster)
    assert found["c1"].reason == OWN
    assert "DRAIN" in found["c1"].states
    assert "DRAIN" not in found["c2"].states
    await write(cluster, "c2", "DRAIN", "of an administrator")
    # It still fails: the drain stays, and no reservation is left.
    assert kinds(await run(cluster, failing)) == {"c1": Kind.FAILED}
    assert (await read_nodes(cluster))["c1"].reason == OWN
    assert kinds(await run(cluster, CHECK)) == {"c1": Kind.PASSED}
    found = await read_nodes(cluster)
    assert not found["c1"].states & {"DRAIN", "RESERVED"}
    assert found["c2"].reason == "of an administrator"
    async with cluster.client() as client:
        assert await client.call(protocol.get_reservations()) == ()
    await write(cluster, "c2", "UNDRAIN")
    await until_idle(cluster)


async def test_a_drained_node_that_is_reserved_for_later_stays_drained_and_others_are_tested(
    cluster: Daemons,
) -> None:
    await write(cluster, "c1", "DRAIN", OWN)
    async with cluster.client() as client:
        later = protocol.save_reservation(
            "later",
            start_time=int(time.time()) + 30 * 86400,
            minutes=60,
            nodes=["c1"],
            users=["root"],
        )
        await client.call(later)
        verdicts = await run(cluster, CHECK)
        assert [it.name for it in await client.call(protocol.get_reservations())] == ["later"]
        await client.call(protocol.delete_reservation("later"))
    assert kinds(verdicts) == {"c1": Kind.INTERRUPTED, "c2": Kind.PASSED}, verdicts
    found = (await read_nodes(cluster))["c1"]
    assert "DRAIN" in found.states
    assert found.reason == OWN
    await write(cluster, "c1", "UNDRAIN")
    await until_idle(cluster)


async def test_a_check_that_hangs_is_ended_and_its_nodes_are_idle_again(cluster: Daemons) -> None:
    hangs = Check(
        "hangs", "#!/bin/sh\ntrap '' TERM\nsleep 300\nsleep 300\n", timeout=2, drain=False
    )
    verdicts = await run(cluster, hangs)
    assert kinds(verdicts) == {"c1": Kind.HUNG, "c2": Kind.HUNG}, verdicts
    await until_idle(cluster)


@pytest.mark.parametrize("array", ["", "0-1"])
async def test_a_check_gives_way_to_a_users_job_within_seconds(
    array: str, cluster: Daemons
) -> None:
    slow = Check("slow", "#!/bin/sh\nsleep 900\n", timeout=600, window=600, drain=False)
    await until_idle(cluster)
    async with a_run(cluster, slow) as check:
        task = asyncio.create_task(check.run())
        await until_jobs(cluster, "check-slow", "RUNNING", 2)
        waited = await seconds_to_start(cluster, ("c1", "c2"), array=array)
        print(
            f"a user's job (array: {array or 'none'}) that needs all nodes of a check started "
            f"after {waited:.2f} s"
        )
        check.stop()
        verdicts = await task
    assert set(kinds(verdicts).values()) == {Kind.INTERRUPTED}
    assert await longest_wait(cluster) < MOST_SECONDS
    await until_idle(cluster)


async def test_not_even_an_administrator_can_requeue_a_check(cluster: Daemons) -> None:
    ended = "#!/bin/sh\nuntil [ -e /tmp/requeued-may-end ]; do sleep 0.2; done\n"
    slow = Check("requeued", ended, timeout=600, window=600, drain=False)
    await until_idle(cluster)
    async with a_run(cluster, slow) as check:
        task = asyncio.create_task(check.run())
        await until_jobs(cluster, "check-requeued", "RUNNING", 2)
        async with cluster.client() as client:
            jobs = await client.call(protocol.get_jobs())
        assert jobs is not None
        for job in jobs.jobs:
            if job.name == "check-requeued":
                done = cluster.scontrol("requeue", str(job.job_id))
                assert "disabled" in done.stderr, done
        for name in ("c1", "c2"):
            await asyncio.to_thread(cluster.run, name, "touch", "requeued-may-end", check=True)
        assert set(kinds(await task).values()) == {Kind.PASSED}
    await until_idle(cluster)


@pytest.mark.parametrize("name", ["disk", "filesystem", "memory"])
async def test_a_script_of_the_chart_passes_on_sound_nodes(name: str, cluster: Daemons) -> None:
    verdicts = await run(
        cluster,
        Check(name, (SCRIPTS / f"{name}.sh").read_text(), timeout=60, drain=False, at_once=1),
    )
    assert kinds(verdicts) == {"c1": Kind.PASSED, "c2": Kind.PASSED}, verdicts
    assert all(it.measured for it in verdicts.values())


@pytest.mark.parametrize("name", ["gpu", "allreduce", "container"])
async def test_a_script_for_what_the_nodes_lack_is_skipped(name: str, cluster: Daemons) -> None:
    verdicts = await run(cluster, Check(name, (SCRIPTS / f"{name}.sh").read_text()))
    assert kinds(verdicts) == {"c1": Kind.SKIPPED, "c2": Kind.SKIPPED}, verdicts


async def test_the_script_for_gpus_passes_on_nodes_whose_gpus_all_answer(equipped: Daemons) -> None:
    verdicts = await run(equipped, Check("gpu", (SCRIPTS / "gpu.sh").read_text(), gpus=True))
    want = Verdict(Kind.PASSED, "2 GPUs answer", {})
    assert verdicts == {"e1": want, "e2": want}


async def test_two_nodes_measure_the_network_between_them(cluster: Daemons) -> None:
    script = (SCRIPTS / "network.sh").read_text()
    check = Check("network", script, Strategy.PAIRS, drain=False, env={"CHECK_SECONDS": "1"})
    check = replace(check, limits={"bandwidth": Limit(least=quantity("1Mbit/s"))})
    verdicts = await run(cluster, check)
    assert kinds(verdicts) == {"c1": Kind.PASSED, "c2": Kind.PASSED}, verdicts


async def test_an_unknown_partition_is_named_before_any_job_is_submitted(cluster: Daemons) -> None:
    with pytest.raises(
        CheckError, match="'nowhere' of check marker is unknown to Slurm, which has all, other"
    ):
        await run(cluster, replace(CHECK, partition="nowhere"))


async def test_the_faulty_node_of_one_of_two_partitions_is_named_and_drained(
    parted: Daemons,
) -> None:
    """p2 to p4 share a partition. p1 is in another one, alone."""
    script = """#!/bin/sh
srun sh -c '[ "$SLURMD_NODENAME" != "$FAULTY" ]' 2>/dev/null && exit
echo the marker exists
exit 1
"""
    check = Check("pairs", script, Strategy.PAIRS, timeout=30, window=120, env={"FAULTY": "p4"})
    verdicts = await run(parted, check)
    alone = "it shares no partition in which the check may run with another node in service"
    assert {
        name: (it.kind, it.text) for name, it in verdicts.items() if it.kind is not Kind.PASSED
    } == {
        "p1": (Kind.SKIPPED, alone),
        "p4": (Kind.FAILED, verdicts["p4"].text),
    }, verdicts
    assert verdicts["p4"].text.endswith(": the marker exists"), verdicts
    found = await read_nodes(parted)
    assert {name for name, it in found.items() if "DRAIN" in it.states} == {"p4"}
    assert found["p4"].reason == f"slurm-node: check: pairs: {verdicts['p4'].text}"
    # The node has been repaired. It is tested again with nodes of its partition.
    verdicts = await run(parted, replace(check, env={"FAULTY": ""}))
    assert {name: it.kind for name, it in verdicts.items() if it.kind is not Kind.PASSED} == {
        "p1": Kind.SKIPPED
    }
    assert not any("DRAIN" in it.states for it in (await read_nodes(parted)).values())
