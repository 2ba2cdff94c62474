"""slurmctld, slurmrestd and slurmds as plain processes of this host: the cheapest real Slurm that runs jobs."""

import asyncio
import contextlib
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sidecars.slurm import protocol
from sidecars.slurm.checks import CheckRequest
from sidecars.slurm.client import Client
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.records import Node
from sidecars.slurm.tokens import TokenSource
from tests.support.real import outside

ADDRESS = "127.0.0.1"
GAMES = 5
"""The user `games` of the images."""
MOST_SECONDS = 10.0
"""In which a user's job for idle nodes, or for nodes of checks, must have started on a busy host."""
NODE = f"CPUs=2 RealMemory=200 NodeAddr={ADDRESS}"


@dataclass(frozen=True)
class Cluster:
    """The daemons."""

    url: str
    key: bytes
    home: Path
    """Of their logs."""

    processes: Mapping[str, int]
    """A process in the files of slurmctld, and of each node."""

    def run(self, place: str, user: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the files of slurmctld or of a node."""
        inside = ["nsenter", f"--target={self.processes[place]}", "--mount", "--root", "--wd"]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return subprocess.run([*inside, *become, *words], capture_output=True, text=True, check=False, timeout=60)

    def scontrol(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `scontrol` as SlurmUser."""
        return self.run("slurmctld", outside.SLURM, "scontrol", *words)

    def client(self, user: str = "slurm") -> Client:
        """A client of slurmrestd with tokens of this user."""
        return Client(self.url, TokenSource(lambda: self.key, clock=time.time, username=user))


@contextmanager
def running(
    home: Path,
    port: int,
    nodes: Sequence[str],
    lines: str,
    *,
    node_options: str = "",
    files: Mapping[str, bytes] | None = None,
    prepare: str = "true",
) -> Iterator[Cluster]:
    """The daemons from `port` on, with these nodes idle, until the end of the block.

    `lines` are those of slurm.conf with the partitions and more. slurmd gets these `files` in /etc/slurm, and runs the
    shell command `prepare` before it starts.
    """
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    declared = "".join(
        f"NodeName={name} NodeHostname={name} Port={port + 2 + number} {NODE} {node_options}\n"
        for number, name in enumerate(nodes)
    )
    base = outside.conf(ADDRESS, port).replace("CR_Core", "CR_Core_Memory")
    base = "".join(line for line in base.splitlines(keepends=True) if not line.startswith("PartitionName="))
    conf = f"{base}SlurmdParameters=config_overrides\n{declared}{lines}"
    common = {"slurm.conf": conf.encode(), "cgroup.conf": b"CgroupPlugin=disabled\n", **keys}
    environment = ["SLURM_JWT=daemon", "SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv"]
    rest = ["env", *environment, "slurmrestd", "-s", "slurmctld", f"{ADDRESS}:{port + 1}"]
    with ExitStack() as stack:
        parents = {
            "slurmctld": stack.enter_context(
                outside.daemon(home / "slurmctld", "slurmctld", outside.SLURM, common, ["/usr/sbin/slurmctld", "-D"])
            )
        }
        stack.enter_context(outside.daemon(home / "slurmrestd", "slurmrestd", outside.NOBODY, common, rest))
        for name in nodes:
            # A batch job's user reads slurm.conf.
            start = f"chmod 755 /etc/slurm; chmod 644 /etc/slurm/*.conf; {prepare}; exec slurmd -D -N {name}"
            own = {**common, **(files or {})}
            parents[name] = stack.enter_context(outside.daemon(home / name, "slurmd", 0, own, ["sh", "-c", start]))
        found = Cluster(f"http://{ADDRESS}:{port + 1}", keys["jwt.key"], home, {})
        asyncio.run(until_idle(found))
        yield replace(found, processes={name: _last_child(parent.pid) for name, parent in parents.items()})


def _last_child(pid: int) -> int:
    while children := outside.children(pid):
        pid = children[0]
    return pid


async def read_nodes(cluster: Cluster) -> dict[str, Node]:
    """The nodes by name."""
    async with cluster.client() as client:
        found = await client.call(protocol.get_nodes())
    assert found is not None
    return {node.name: node for node in found.nodes}


async def until_idle(cluster: Cluster) -> None:
    """Wait until all nodes are idle, and neither drained nor reserved."""
    end = time.monotonic() + 90
    found: dict[str, Node] = {}
    while time.monotonic() < end:
        with contextlib.suppress(SlurmError):
            found = await read_nodes(cluster)
            if found and all(node.states == {"IDLE"} for node in found.values()):
                return
        await asyncio.sleep(0.25)
    logs = "\n".join((cluster.home / name / "log").read_text()[-1500:] for name in ("slurmctld", *found))
    raise AssertionError(f"the nodes are not idle: {found}\n{logs}")


async def seconds_to_start(cluster: Cluster, nodes: Sequence[str], user: str = "games", array: str = "") -> float:
    """Seconds from the submission of a user's job for these nodes of partition `all` until it starts.

    Of an array, until the last task starts. Raises AssertionError after `MOST_SECONDS`.
    """
    request = CheckRequest("of-a-user", "#!/bin/sh\nexit 0\n", tuple(nodes), "all", 5, int(time.time()) + 600)
    submitted = protocol.submit_check(request)
    assert submitted.body is not None
    job = {**submitted.body["job"], **({"array": array} if array else {})}
    async with cluster.client() as admin, cluster.client(user) as submitter:
        began = time.monotonic()
        number = await submitter.call(replace(submitted, body={"job": job}))
        while True:
            found = await admin.call(protocol.get_waiting_job(number))
            if not found.waits or (array and number not in await admin.call(protocol.get_waiting_ids())):
                return time.monotonic() - began
            assert time.monotonic() - began < MOST_SECONDS, found
            await asyncio.sleep(0.02)


async def seconds_of_srun(cluster: Cluster, nodes: Sequence[str]) -> float:
    """Seconds that a user's `srun true` on all these nodes takes. Raises AssertionError if it fails."""
    words = ("srun", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--exclusive", "--chdir=/", "true")
    began = time.monotonic()
    done = await asyncio.to_thread(cluster.run, nodes[0], GAMES, *words)
    assert done.returncode == 0, done
    return time.monotonic() - began


async def until_jobs(cluster: Cluster, name: str, state: str, count: int) -> None:
    """Wait until so many jobs of this name are in the state."""
    end = time.monotonic() + 60
    async with cluster.client() as client:
        while True:
            jobs = await client.call(protocol.get_jobs())
            assert jobs is not None
            if sum(it.name == name and state in it.states for it in jobs.jobs) == count:
                return
            assert time.monotonic() < end, jobs
            await asyncio.sleep(0.1)
