"""A real slurmctld and slurmrestd without Kubernetes and without any slurmd, whose nodes are
records that never boot.

Nodes have State=CLOUD and are powered up by a program that does nothing: slurmctld allocates jobs
on them as on nodes that run, and the jobs stay CONFIGURING. What Slurm starts, and where, shows at
once. A `worker` boots one of them.
"""

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sidecars.slurm import protocol
from sidecars.slurm.protocol import TOKEN_HEADER, Request
from sidecars.slurm.records import Node, QueuedJob
from sidecars.slurm.rest import Rest
from sidecars.slurm.tokens import sign
from tests.support.real.daemons import ADDRESS, MEMORY, Daemons
from tests.support.real.harness import WILL_COME

T = TypeVar("T")

SETTLED = 4
"""So many runs of the scheduler without a further job: backfill, whose interval is as long, has run
as well.
"""
CONF = f"""\
{MEMORY}MaxNodeCount=256
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
    """slurmctld and slurmrestd."""

    daemons: Daemons
    rest: Rest

    @property
    def key(self) -> bytes:
        """The one that signs tokens."""
        return self.daemons.key

    @property
    def url(self) -> str:
        """Where slurmrestd answers."""
        return self.daemons.url

    def call(self, request: Request[T]) -> T:
        """Carry a request."""
        return self.rest.call(request)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """A request of any form; raises AssertionError with Slurm's words if it is refused."""
        request = urllib.request.Request(  # noqa: S310 - an address of this machine
            f"{self.url}/slurm/{protocol.VERSIONS[0]}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                TOKEN_HEADER: sign(self.key, "root", 900, time.time()),
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=WILL_COME) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(
                f"{method} {path} {body}: {error.read().decode()[:2000]}"
            ) from error

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
        deadline = time.monotonic() + WILL_COME
        while not look():
            assert time.monotonic() < deadline, f"waited {WILL_COME:g} s for {what}"
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
def running(
    home: Path, more: str, gres: str, port: int, files: Mapping[str, bytes] | None = None
) -> Iterator[Slurmctld]:
    """The daemons at this port and the next one, with these lines `more` in slurm.conf and these
    files beside it. Needs root.
    """
    with contextlib.closing(Daemons(home, port, f"{CONF}{more}")) as daemons:
        daemons.files["gres.conf"] = gres.encode()
        daemons.slurmctld(files)
        daemons.slurmrestd("SLURMRESTD_JSON=compact", "SLURM_BITSTR_LEN=0")
        found = Slurmctld(
            daemons, Rest(daemons.url, lambda: sign(daemons.key, "root", 900, time.time()))
        )

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
    """A slurmd of a node that Slurm has powered up, with so many GPUs of type h100. Their files are
    those of others.

    Of several at a time, each record needs a Port of its own.
    """
    devices = ",".join(["/dev/null", "/dev/zero", "/dev/full", "/dev/random"][:gpus])
    gres = f"Name=gpu Type=h100 File={devices}\n" if gpus else ""
    [node] = [node for node in slurmctld.nodes() if node.name == name]
    items = f"NodeAddr={ADDRESS} Port={node.port} Gres=gpu:h100:{gpus}"
    slurmctld.daemons.slurmd(name, "-Z", "-b", "--conf", items, files={"gres.conf": gres.encode()})
    try:
        yield
    finally:
        slurmctld.daemons.forget(name)
