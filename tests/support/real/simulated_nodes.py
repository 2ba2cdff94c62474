"""A real slurmctld and slurmrestd without Kubernetes and without any slurmd, whose nodes are records that never boot.

Nodes have State=CLOUD and are powered up by a program that does nothing: slurmctld allocates jobs on them as on nodes
that run, and the jobs stay CONFIGURING. What Slurm starts, and where, shows at once. A `worker` boots one of them.
"""

import contextlib
import json
import secrets
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sidecars.slurm import protocol
from sidecars.slurm.protocol import TOKEN_HEADER, Request
from sidecars.slurm.records import Node, QueuedJob
from sidecars.slurm.rest import Rest
from sidecars.slurm.tokens import sign
from tests.support.real import outside, ports

T = TypeVar("T")

ADDRESS, FIRST_PORT = "127.0.0.1", ports.SIMULATED
WITHIN = 60.0
SETTLED = 4
"""So many runs of the scheduler without a further job: backfill, whose interval is as long, has run as well."""
CONF = """\
SuspendTime=1000000000
ResumeProgram=/bin/true
SuspendProgram=/bin/true
ResumeTimeout=36000
GresTypes=gpu
SchedulerParameters=bf_interval=1,sched_interval=1,bf_max_job_test=10000,default_queue_depth=10000,sched_min_interval=0,nohold_on_prolog_fail
PriorityType=priority/basic
MaxArraySize=20000
"""


@dataclass(frozen=True)
class Slurmctld:
    """The daemons."""

    key: bytes
    url: str
    rest: Rest
    home: Path

    def call(self, request: Request[T]) -> T:
        """Carry a request."""
        return self.rest.call(request)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """A request of any form; raises AssertionError with Slurm's words if it is refused."""
        request = urllib.request.Request(  # noqa: S310 - an address of this machine
            f"{self.url}/slurm/{protocol.VERSIONS[0]}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={TOKEN_HEADER: sign(self.key, "root", 900, time.time()), "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=WITHIN) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path} {body}: {error.read().decode()[:2000]}") from error

    def submit(self, *components: dict[str, Any]) -> int:
        """A job, or a heterogeneous one; its id."""
        common = {"current_working_directory": "/", "environment": ["PATH=/bin"], "name": "test"}
        jobs = [common | job for job in components]
        kind = {"job": jobs[0]} if len(jobs) == 1 else {"jobs": jobs}
        answer = self.send("POST", "job/submit", {"script": "#!/bin/sh\nexec sleep 600\n", **kind})
        found = answer["job_id"]
        assert isinstance(found, int)
        return found

    def jobs(self) -> tuple[QueuedJob, ...]:
        """All jobs."""
        found = self.call(protocol.get_queue())
        assert found is not None
        return found.jobs

    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        found = self.call(protocol.get_nodes())
        assert found is not None
        return found.nodes

    def until(self, what: str, look: Callable[[], bool]) -> None:
        """Wait until `look` is true."""
        deadline = time.monotonic() + WITHIN
        while not look():
            assert time.monotonic() < deadline, f"waited {WITHIN:g} s for {what}"
            time.sleep(0.1)

    def cycles(self) -> int:
        """How often the main scheduler has run."""
        found = self.send("GET", "diag/")["statistics"]["schedule_cycle_total"]
        assert isinstance(found, int)
        return found

    def settle(self) -> None:
        """Wait until nothing more starts."""
        running, begin = -1, self.cycles()
        while self.cycles() < begin + SETTLED:
            found = sum("RUNNING" in job.states for job in self.jobs())
            if found != running:
                running, begin = found, self.cycles()
            time.sleep(0.1)


@contextlib.contextmanager
def running(home: Path, more: str, gres: str, number: int = 0) -> Iterator[Slurmctld]:
    """The daemons, from the images of the local cluster. Needs root. Daemons with another `number` may run as well."""
    port, rest_port = FIRST_PORT + 2 * number, FIRST_PORT + 2 * number + 1
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    conf = outside.conf(ADDRESS, port)
    for before, after in (("MaxNodeCount=16", "MaxNodeCount=256"), ("CR_Core", "CR_Core_Memory")):
        assert before in conf
        conf = conf.replace(before, after)
    conf = "\n".join(line for line in conf.splitlines() if not line.startswith(("PartitionName", "NodeSet")))
    files = {
        "slurm.conf": f"{conf}\n{CONF}{more}".encode(),
        "cgroup.conf": b"CgroupPlugin=disabled\n",
        "gres.conf": gres.encode(),
        **keys,
    }
    environment = ["SLURM_JWT=daemon", "SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv"]
    rest = ["env", *environment, "SLURMRESTD_JSON=compact", "SLURM_BITSTR_LEN=0", "slurmrestd", "-s", "slurmctld"]
    with (
        outside.daemon(home / "slurmctld", "slurmctld", outside.SLURM, files, ["/usr/sbin/slurmctld", "-D"]),
        outside.daemon(home / "slurmrestd", "slurmrestd", outside.NOBODY, files, [*rest, f"{ADDRESS}:{rest_port}"]),
    ):
        key, url = keys["jwt.key"], f"http://{ADDRESS}:{rest_port}"
        found = Slurmctld(key, url, Rest(url, lambda: sign(key, "root", 900, time.time())), home)

        def answers() -> bool:
            try:
                found.cycles()
            except (OSError, AssertionError, KeyError):
                return False
            return True

        found.until("slurmctld to answer", answers)
        yield found


@contextlib.contextmanager
def worker(slurmctld: Slurmctld, name: str, gpus: int) -> Iterator[None]:
    """A slurmd of a node that Slurm has powered up, with so many GPUs of type h100. Their files are those of others.

    Of several at a time, each record needs a Port of its own.
    """
    there = slurmctld.home / "slurmctld" / "etc"
    conf = (there / "slurm.conf").read_text().replace("SlurmctldParameters=enable_configless\n", "")
    devices = ",".join(["/dev/null", "/dev/zero", "/dev/full", "/dev/random"][:gpus])
    files = {
        "slurm.conf": conf.encode(),
        "cgroup.conf": b"CgroupPlugin=disabled\n",
        "gres.conf": f"Name=gpu Type=h100 File={devices}\n".encode() if gpus else b"",
        "slurm.key": (there / "slurm.key").read_bytes(),
    }
    [node] = [node for node in slurmctld.nodes() if node.name == name]
    items = f"NodeAddr={ADDRESS} Port={node.port} Gres=gpu:h100:{gpus}"
    command = ["/usr/sbin/slurmd", "-D", "-Z", "-N", name, "-b", "--conf", items]
    home = Path(tempfile.mkdtemp(prefix=f"slurmd-{name}-", dir=slurmctld.home))
    with outside.daemon(home, "slurmd", 0, files, command):
        yield
