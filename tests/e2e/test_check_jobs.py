"""Runs of checks on a real slurmctld with two slurmds, outside of the Kubernetes cluster."""

import asyncio
import contextlib
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sidecars.checks.run import CheckError, Run
from sidecars.checks.slurm import Slurm
from sidecars.policy.checks.declared import Check, Strategy
from sidecars.policy.checks.measures import Limit, quantity
from sidecars.policy.checks.outcome import Kind
from sidecars.policy.checks.plan import Verdict
from sidecars.slurm import protocol
from sidecars.slurm.checks import CheckRequest
from sidecars.slurm.client import Client
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.records import Node
from sidecars.slurm.tokens import TokenSource
from tests.support.real import outside, ports

pytestmark = pytest.mark.timeout(240)

ADDRESS, PORT = "127.0.0.1", ports.CHECK_JOBS
NAMES = ("c1", "c2")
USER, OTHER = "daemon", "games"
MARKED = """#!/bin/sh
[ "$SLURMD_NODENAME" != "$FAULTY" ] || { echo the marker is there; exit 1; }
echo measure room 5GiB
"""
CHECK = Check(
    "marker", MARKED, timeout=30, window=90, limits={"room": Limit(least=quantity("1GiB"))}, env={"FAULTY": ""}
)
OWN = "slurm-node: check: marker: the marker is there"
SCRIPTS = Path(__file__).parents[2] / "charts" / "slurm" / "files" / "checks"


@dataclass(frozen=True)
class Cluster:
    """The daemons."""

    url: str
    key: bytes
    home: Path
    """Of their logs."""

    controller: int
    """A process in the files of slurmctld."""

    def scontrol(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `scontrol` as SlurmUser."""
        inside = ["nsenter", f"--target={self.controller}", "--mount", "--root", "--wd"]
        user = ["setpriv", f"--reuid={outside.SLURM}", f"--regid={outside.SLURM}", "--clear-groups"]
        return subprocess.run([*inside, *user, "scontrol", *words], capture_output=True, text=True, check=False)

    def client(self, user: str = "slurm") -> Client:
        return Client(self.url, TokenSource(lambda: self.key, clock=time.time, username=user))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """slurmctld, slurmrestd and two slurmds."""
    home = tmp_path_factory.mktemp("checks")
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    lines = (
        f"NodeName={NAMES[0]} NodeAddr={ADDRESS} NodeHostname={NAMES[0]} Port={PORT + 2} CPUs=2 RealMemory=200\n"
        f"NodeName={NAMES[1]} NodeAddr={ADDRESS} NodeHostname={NAMES[1]} Port={PORT + 3} CPUs=2 RealMemory=200\n"
        "PartitionName=other Nodes=c1\nSlurmdParameters=config_overrides\n"
    )
    conf = outside.conf(ADDRESS, PORT).replace("CR_Core", "CR_Core_Memory") + lines
    files = {"slurm.conf": conf.encode(), "cgroup.conf": b"CgroupPlugin=disabled\n", **keys}
    environment = ["SLURM_JWT=daemon", "SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv"]
    rest = ["env", *environment, "slurmrestd", "-s", "slurmctld", f"{ADDRESS}:{PORT + 1}"]
    with ExitStack() as stack:
        parent = stack.enter_context(
            outside.daemon(home / "slurmctld", "slurmctld", outside.SLURM, files, ["/usr/sbin/slurmctld", "-D"])
        )
        stack.enter_context(outside.daemon(home / "slurmrestd", "slurmrestd", outside.NOBODY, files, rest))
        for name in NAMES:
            # A batch job's user reads slurm.conf.
            command = ["sh", "-c", f"chmod 755 /etc/slurm; chmod 644 /etc/slurm/*.conf; exec slurmd -D -N {name}"]
            stack.enter_context(outside.daemon(home / name, "slurmd", 0, files, command))
        found = Cluster(f"http://{ADDRESS}:{PORT + 1}", keys["jwt.key"], home, 0)
        asyncio.run(until_idle(found))
        yield replace(found, controller=daemon_of(parent.pid))


def daemon_of(pid: int) -> int:
    """The last of the only children."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


async def nodes(cluster: Cluster) -> dict[str, Node]:
    async with cluster.client() as client:
        found = await client.call(protocol.get_nodes())
    assert found is not None
    return {node.name: node for node in found.nodes}


async def until_idle(cluster: Cluster) -> None:
    end = time.monotonic() + 90
    found: dict[str, Node] = {}
    while time.monotonic() < end:
        with contextlib.suppress(SlurmError):
            found = await nodes(cluster)
            if found and all(node.states == {"IDLE"} for node in found.values()):
                return
        await asyncio.sleep(0.25)
    logs = "\n".join((cluster.home / name / "log").read_text()[-1500:] for name in ("slurmctld", *NAMES))
    raise AssertionError(f"the nodes are not idle: {found}\n{logs}")


@contextlib.asynccontextmanager
async def a_run(cluster: Cluster, check: Check) -> AsyncIterator[Run]:
    async with cluster.client() as admin, cluster.client(USER) as submitter:
        yield Run(check, Slurm(check, admin, submitter, USER, now=time.time), clock=time.monotonic)


async def run(cluster: Cluster, check: Check) -> dict[str, Verdict]:
    await until_idle_or_drained(cluster)
    async with a_run(cluster, check) as found:
        return await found.run()


async def until_idle_or_drained(cluster: Cluster) -> None:
    end = time.monotonic() + 60
    while any(
        node.states & {"COMPLETING", "ALLOCATED", "MIXED", "NOT_RESPONDING"} for node in (await nodes(cluster)).values()
    ):
        assert time.monotonic() < end, await nodes(cluster)
        await asyncio.sleep(0.2)


async def write(cluster: Cluster, name: str, state: str, reason: str | None = None) -> None:
    async with cluster.client() as client:
        await client.call(protocol.update_nodes([name], state=[state], reason=reason))


def kinds(verdicts: dict[str, Verdict]) -> dict[str, Kind]:
    return {name: it.kind for name, it in verdicts.items()}


async def test_a_failing_check_drains_its_node_alone_and_a_passing_one_lifts_that_drain_alone(cluster: Cluster) -> None:
    failing = replace(CHECK, env={"FAULTY": "c1"})
    verdicts = await run(cluster, failing)
    assert kinds(verdicts) == {"c1": Kind.FAILED, "c2": Kind.PASSED}, verdicts
    assert verdicts["c2"].measured == {"room": "5GiB"}
    found = await nodes(cluster)
    assert found["c1"].reason == OWN
    assert "DRAIN" in found["c1"].states
    assert "DRAIN" not in found["c2"].states
    await write(cluster, "c2", "DRAIN", "of an administrator")
    # It still fails: the drain stays, and no reservation is left.
    assert kinds(await run(cluster, failing)) == {"c1": Kind.FAILED}
    assert (await nodes(cluster))["c1"].reason == OWN
    assert kinds(await run(cluster, CHECK)) == {"c1": Kind.PASSED}
    found = await nodes(cluster)
    assert not found["c1"].states & {"DRAIN", "RESERVED"}
    assert found["c2"].reason == "of an administrator"
    async with cluster.client() as client:
        assert await client.call(protocol.get_reservations()) == ()
    await write(cluster, "c2", "UNDRAIN")
    await until_idle(cluster)


async def test_a_drained_node_that_someone_has_reserved_for_later_stays_drained_and_others_are_tested(
    cluster: Cluster,
) -> None:
    await write(cluster, "c1", "DRAIN", OWN)
    async with cluster.client() as client:
        later = protocol.save_reservation(
            "later", start_time=int(time.time()) + 30 * 86400, minutes=60, nodes=["c1"], users=["root"]
        )
        await client.call(later)
        verdicts = await run(cluster, CHECK)
        assert [it.name for it in await client.call(protocol.get_reservations())] == ["later"]
        await client.call(protocol.delete_reservation("later"))
    assert kinds(verdicts) == {"c1": Kind.INTERRUPTED, "c2": Kind.PASSED}, verdicts
    found = (await nodes(cluster))["c1"]
    assert "DRAIN" in found.states
    assert found.reason == OWN
    await write(cluster, "c1", "UNDRAIN")
    await until_idle(cluster)


async def test_a_check_that_hangs_is_ended_and_its_nodes_are_idle_again(cluster: Cluster) -> None:
    hangs = Check("hangs", "#!/bin/sh\ntrap '' TERM\nsleep 300\nsleep 300\n", timeout=2, drain=False)
    verdicts = await run(cluster, hangs)
    assert kinds(verdicts) == {"c1": Kind.HUNG, "c2": Kind.HUNG}, verdicts
    await until_idle(cluster)


@pytest.mark.parametrize("array", ["", "0-1"])
async def test_a_check_gives_way_to_a_users_job_within_seconds(array: str, cluster: Cluster) -> None:
    slow = Check("slow", "#!/bin/sh\nsleep 300\n", timeout=60, window=60, drain=False)
    await until_idle(cluster)
    async with a_run(cluster, slow) as check, cluster.client() as admin, cluster.client(OTHER) as user:
        task = asyncio.create_task(check.run())
        await until_state(cluster, "check-slow", "RUNNING", 2)
        request = CheckRequest("of-a-user", "#!/bin/sh\nexit 0\n", NAMES, "all", 5, int(time.time()) + 600)
        began = time.monotonic()
        submitted = protocol.submit_check(request)
        assert submitted.body is not None
        body = {"job": {**submitted.body["job"], **({"array": array} if array else {})}}
        number = await user.call(replace(submitted, body=body))
        waited = 0.0
        while True:
            job = await admin.call(protocol.get_waiting_job(number))
            if not job.waits or (array and number not in await admin.call(protocol.get_waiting_ids())):
                waited = time.monotonic() - began
                break
            assert time.monotonic() - began < 45, job
            await asyncio.sleep(0.05)
        print(f"a user's job (array: {array or 'none'}) that needs all nodes of a check started after {waited:.2f} s")
        check.stop()
        verdicts = await task
    assert set(kinds(verdicts).values()) == {Kind.INTERRUPTED}
    await until_idle(cluster)


async def test_not_even_an_administrator_can_requeue_a_check(cluster: Cluster) -> None:
    slow = Check("requeued", "#!/bin/sh\nsleep 12\n", timeout=60, window=60, drain=False)
    await until_idle(cluster)
    async with a_run(cluster, slow) as check:
        task = asyncio.create_task(check.run())
        await until_state(cluster, "check-requeued", "RUNNING", 2)
        async with cluster.client() as client:
            jobs = await client.call(protocol.get_jobs())
        assert jobs is not None
        for job in jobs.jobs:
            if job.name == "check-requeued":
                done = cluster.scontrol("requeue", str(job.job_id))
                assert "disabled" in done.stderr, done
        assert set(kinds(await task).values()) == {Kind.PASSED}
    await until_idle(cluster)


async def until_state(cluster: Cluster, name: str, state: str, count: int) -> None:
    end = time.monotonic() + 60
    async with cluster.client() as client:
        while True:
            jobs = await client.call(protocol.get_jobs())
            assert jobs is not None
            if sum(it.name == name and state in it.states for it in jobs.jobs) == count:
                return
            assert time.monotonic() < end, jobs
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("name", ["disk", "filesystem", "memory"])
async def test_a_script_of_the_chart_passes_on_sound_nodes(name: str, cluster: Cluster) -> None:
    verdicts = await run(cluster, Check(name, (SCRIPTS / f"{name}.sh").read_text(), timeout=60, drain=False, at_once=1))
    assert kinds(verdicts) == {"c1": Kind.PASSED, "c2": Kind.PASSED}, verdicts
    assert all(it.measured for it in verdicts.values())


@pytest.mark.parametrize("name", ["gpu", "allreduce", "container"])
async def test_a_script_for_what_the_nodes_lack_is_skipped(name: str, cluster: Cluster) -> None:
    verdicts = await run(cluster, Check(name, (SCRIPTS / f"{name}.sh").read_text()))
    assert kinds(verdicts) == {"c1": Kind.SKIPPED, "c2": Kind.SKIPPED}, verdicts


async def test_two_nodes_measure_the_network_between_them(cluster: Cluster) -> None:
    script = (SCRIPTS / "network.sh").read_text()
    check = Check("network", script, Strategy.PAIRS, drain=False, env={"CHECK_SECONDS": "1"})
    check = replace(check, limits={"bandwidth": Limit(least=quantity("1Mbit/s"))})
    verdicts = await run(cluster, check)
    assert kinds(verdicts) == {"c1": Kind.PASSED, "c2": Kind.PASSED}, verdicts


async def test_an_unknown_partition_is_named_before_any_job_is_submitted(cluster: Cluster) -> None:
    with pytest.raises(CheckError, match="'nowhere' of check marker is unknown to Slurm, which has all, other"):
        await run(cluster, replace(CHECK, partition="nowhere"))
