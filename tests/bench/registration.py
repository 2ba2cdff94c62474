"""`python -m tests.bench.registration`: what the registration of many workers at once costs a real
slurmctld.

Each worker is a slurmd of its own, which fetches its configuration and registers as the pods of a
NodeSet do, from the images of the local cluster; needs root, as that does. All start at once. Then
slurmctld ends as its pod does, and starts again: it has saved their records, and asks each to
register. A slurmctld that is killed would not: it loses the nodes that it has not saved, as with
the start of a job, and no slurmd registers again
automatically.

Not a part of `make bench`, because it takes minutes and gigabytes. Results also go to
build/bench/registration.json.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

from tests.bench.figures import Figure, figure, show
from tests.bench.slurmctld import Process
from tests.support.real.daemons import ADDRESS, ALL, Daemons

PORT, FIRST = 7819, 20_000
"""That of slurmctld, and that of the first slurmd."""
MOST_SECONDS = 900.0
LINES = (
    f"{ALL}MaxNodeCount=8192\nSlurmctldParameters=enable_configless\n"
    "SlurmdTimeout=300\nTreeWidth=65533\nSlurmdPidFile=/run/slurm/slurmd.pid\nSlurmdSyslogDebug=quiet\nSlurmdDebug=quiet\n"
)
_SLURMDS = """\
mkdir -p /storm /run/slurm
rm -f /etc/slurm/slurm.conf
for at in $(seq 0 {last}); do
  mkdir -p /storm/$at
  unshare --mount sh -c "mkdir -p /run/slurm /var/spool/slurmd
    mount -t tmpfs -o size=1m tmpfs /run/slurm
    mount --bind /storm/$at /var/spool/slurmd
    exec /usr/sbin/slurmd -D -Z -N storm-$at --conf-server={server} \\
      --conf='NodeAddr={address} Port=$(({first} + at)) CPUs=1 RealMemory=100 Feature=storm'" \\
    >/dev/null 2>&1 &
done
wait
"""


class Storm:
    """slurmctld, and as many slurmds as are started, in the namespaces of one process."""

    def __init__(self, home: Path, count: int) -> None:
        """Starts none."""
        self.count = count
        self.daemons = Daemons(home, PORT, LINES)

    def registered(self) -> int:
        """How many nodes are idle. 0 while slurmctld doesn't answer."""
        words = ("sinfo", "--noheader", "--states=idle", "--responding", "--format=%D")
        done = self.daemons.run("slurmctld", *words)
        return sum(map(int, done.stdout.split())) if done.returncode == 0 else 0

    def back(self) -> int:
        """How many nodes have registered with the slurmctld that runs. 0 while it doesn't answer.
        Of others it doesn't know when their slurmd started.
        """
        done = self.daemons.scontrol("-o", "show", "nodes")
        return 0 if done.returncode else done.stdout.count(" SlurmdStartTime=2")

    def slurmds(self) -> None:
        """Start all of them."""
        script = _SLURMDS.format(
            last=self.count - 1, server=f"{ADDRESS}:{PORT}", address=ADDRESS, first=FIRST
        )
        self.daemons.add("slurmds", "slurmd", 0, ["sh", "-euc", script], self.daemons.files)

    def slurmctld(self) -> Process:
        """slurmctld, which runs."""
        process = self.daemons._all["slurmctld"].process
        assert process is not None
        return Process(process.pid)

    @contextmanager
    def asked(self, answers: list[float]) -> Iterator[None]:
        """Ask slurmctld for its queue again and again during the block, and note how long each
        answer takes.
        """
        ended = Event()

        def ask() -> None:
            while not ended.wait(0.2):
                start = time.monotonic()
                if self.daemons.run("slurmctld", "squeue", "--noheader").returncode == 0:
                    answers.append(time.monotonic() - start)

        thread = Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def measure(self) -> list[Figure]:
        """From the start of the first slurmd until all are registered."""
        start, before = time.monotonic(), self.slurmctld().cpu()
        self.slurmds()
        return self._until(self.registered, "all registered", start, before)

    def measure_again(self) -> list[Figure]:
        """From the start of a slurmctld that was ended until all are registered with it."""
        self.daemons.end("slurmctld")
        start = time.monotonic()
        self.daemons.start("slurmctld")
        return self._until(self.back, "all registered after a restart of slurmctld", start, 0.0)

    def _until(
        self, count: Callable[[], int], what: str, start: float, before: float
    ) -> list[Figure]:
        """Wait until the count is that of the workers. `start`, and the CPU of slurmctld `before`:
        from when on.
        """
        answers: list[float] = []
        process = self.slurmctld()
        with self.asked(answers):
            while (found := count()) < self.count:
                if time.monotonic() - start > MOST_SECONDS:
                    raise RuntimeError(f"{found} of {self.count}: {what}")
                time.sleep(0.5)
            took = time.monotonic() - start
        cpu, named = process.cpu() - before, f"{self.count} workers: {what}"
        return [
            figure(named, took, "s"),
            figure(f"{named}, CPU of slurmctld", cpu, "s"),
            figure(f"{named}, squeue meanwhile, median", statistics.median(answers or [0.0]), "s"),
            figure(f"{named}, squeue, slowest", max(answers, default=0.0), "s"),
            figure(f"{named}, peak RSS of slurmctld", process.peak(), "MiB"),
        ]


def bench(count: int) -> list[Figure]:
    """Start Slurm, measure, end it."""
    with tempfile.TemporaryDirectory() as home:
        storm = Storm(Path(home), count)
        with closing(storm.daemons):
            storm.daemons.slurmctld()
            return [*storm.measure(), *storm.measure_again()]


def main() -> int:
    """Measure, print a table and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.registration", description=__doc__)
    parser.add_argument("--workers", type=int, default=1_000)
    figures = bench(parser.parse_args().workers)
    show(figures, "registration")
    return 0


if __name__ == "__main__":
    sys.exit(main())
