"""A slurmctld with accounting that is killed before it has saved all of its state, without
Kubernetes.

The daemons are those of the images, and what is done to the state is what the sidecar `reconfigure`
does.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sidecars.reconfigure.firststart import GONE, MARK, NEEDED, USAGE, FirstStart
from sidecars.reconfigure.main import answers_at
from tests.cluster.waiting import until
from tests.support.real import daemons, ports
from tests.support.real.daemons import ALL, Daemons
from tests.support.real.harness import WILL_COME
from tests.support.real.outside import SLURM

PORT = ports.FIRST_MINUTES


class Slurmctld:
    """The slurmctld of these daemons, and its state."""

    def __init__(self, found: Daemons) -> None:
        """It has not run yet."""
        self._daemons = found
        self.state = found.home / "slurmctld" / "upper" / "state"
        self.state.mkdir(parents=True)
        self.first_start = FirstStart(self.state, print)
        self.first_start.begin()

    def run(self, *words: str) -> str:
        """The output of a command in its place."""
        return self._daemons.run("slurmctld", *words, user=SLURM, check=True).stdout.strip()

    def kill(self) -> None:
        self._daemons.kill("slurmctld")

    def end(self) -> None:
        self._daemons.end("slurmctld")

    def log(self) -> str:
        return self._daemons.log("slurmctld")

    def starts(self) -> bool:
        """Start it again; False if it ends."""
        self._daemons.start("slurmctld")
        until(
            lambda: self._answers() or not self._runs(),
            "slurmctld to run or to end",
            WILL_COME,
            self.log,
        )
        if runs := self._runs():
            return runs
        self.kill()
        return False

    def looked_after(self) -> None:
        """What the sidecar does meanwhile."""
        for now in (0.0, GONE):
            self.first_start.look(now, answers_at(PORT), lambda: True)

    def _answers(self) -> bool:
        return bool(answers_at(PORT))

    def _runs(self) -> bool:
        return self._daemons.runs("slurmctld")


@pytest.fixture
def slurmctld(tmp_path: Path) -> Iterator[Slurmctld]:
    """One that runs for the first time, with slurmdbd and its database."""
    with closing(Daemons(tmp_path, PORT, f"{ALL}{daemons.accounting(PORT)}")) as found:
        found.slurmdbd()
        slurmctld = Slurmctld(found)
        found.slurmctld()
        until(lambda: bool(answers_at(PORT)), "slurmctld to run", WILL_COME, found.log)
        yield slurmctld


def test_a_slurmctld_that_is_killed_in_its_first_minutes_starts_again_with_its_id_and_its_jobs(
    slurmctld: Slurmctld,
) -> None:
    job = slurmctld.run("sbatch", "--parsable", "--hold", "--wrap=true")
    assert job.isdigit(), job
    until((slurmctld.state / "job_state").exists, "the job to be saved", WILL_COME)
    cluster = (slurmctld.state / "clustername").read_text()
    assert cluster.partition("|")[2].isdigit(), cluster

    slurmctld.kill()
    assert not (slurmctld.state / USAGE).exists()
    assert not slurmctld.starts()
    assert "fatal: No Assoc usage file" in slurmctld.log()
    for _ in range(2):
        slurmctld.looked_after()
        assert slurmctld.starts()
        assert slurmctld.run("squeue", "--noheader", "--format=%A") == job
        assert (slurmctld.state / "clustername").read_text() == cluster
        slurmctld.kill()

    slurmctld.looked_after()
    assert slurmctld.starts()
    slurmctld.end()
    assert {it.name for it in slurmctld.state.iterdir()} >= NEEDED
    slurmctld.looked_after()
    assert not (slurmctld.state / MARK).exists()
    (slurmctld.state / USAGE).unlink()
    slurmctld.looked_after()
    assert not slurmctld.starts(), "what was lost is still missed"
