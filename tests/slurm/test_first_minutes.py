"""A slurmctld with accounting that is killed before it has saved all of its state, without Kubernetes.

The daemons are those of the images, and what is done to the state is what the sidecar `reconfigure` does.
"""

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sidecars.reconfigure.firststart import GONE, MARK, NEEDED, USAGE, FirstStart
from sidecars.reconfigure.main import answers_at
from tests.support.real import outside, ports
from tests.support.real.harness import until

pytestmark = pytest.mark.timeout(240)

ADDRESS = "127.0.0.1"
SLURMCTLD, SLURMDBD, MARIADB = (ports.FIRST_MINUTES + at for at in range(3))
MARIADB_COMMAND = (
    "mkdir -p /var/lib/mysql /run/mysqld &&"
    " MARIADB_DATABASE=acct MARIADB_USER=slurm MARIADB_PASSWORD_FILE=/etc/slurm/pw"
    f" exec mariadb-entrypoint --user=root --port={MARIADB} --bind-address={ADDRESS}"
)
SLURMDBD_CONF = f"""\
DbdHost={socket.gethostname()}
DbdAddr={ADDRESS}
DbdPort={SLURMDBD}
SlurmUser=slurm
AuthType=auth/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
AuthInfo=use_client_ids
StorageType=accounting_storage/mysql
StorageHost={ADDRESS}
StoragePort={MARIADB}
StorageUser=slurm
StoragePass=pw
StorageLoc=acct
LogFile=/dev/null
PidFile=/run/slurmctld/slurmdbd.pid
"""
ACCOUNTING = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={ADDRESS}
AccountingStoragePort={SLURMDBD}
"""
SLURMCTLD_COMMAND = """\
cd /etc/slurm && mkdir -p state
while true; do
  slurmctld -D & pid=$!
  while kill -0 $pid 2> /dev/null; do
    test -e order && { . ./order > draft 2>&1; rm order; mv draft answer; }
    sleep 0.1
  done
  echo ended >> ends
  until test -e start; do sleep 0.1; done
  rm start
done
"""
"""Starts slurmctld again in the same place when the test asks for it, and runs the test's orders beside it."""


def listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((ADDRESS, port)) == 0


class Slurmctld:
    """The slurmctld in a folder, and its state."""

    def __init__(self, folder: Path) -> None:
        self.etc, self.log = folder / "etc", folder / "log"
        self.state = self.etc / "state"
        self.first_start = FirstStart(self.state, print)

    def ends(self) -> int:
        """How often it has ended."""
        found = self.etc / "ends"
        return found.read_text().count("ended") if found.exists() else 0

    def order(self, text: str) -> str:
        """The output of shell text, in which $pid is slurmctld."""
        (self.etc / "order.draft").write_text(text)
        (self.etc / "order.draft").replace(self.etc / "order")
        until(f"the answer to {text!r}", (self.etc / "answer").exists, 60)
        answer = (self.etc / "answer").read_text()
        (self.etc / "answer").unlink()
        return answer.strip()

    def end(self, signal: str) -> None:
        before = self.ends()
        self.order(f"kill -{signal} $pid")
        until("slurmctld to end", lambda: self.ends() > before, 60)

    def starts(self) -> bool:
        """Start it again; False if it ends."""
        before = self.ends()
        (self.etc / "start").touch()
        until("slurmctld to run or to end", lambda: answers_at(SLURMCTLD) or self.ends() > before, 60)
        return self.ends() == before

    def looked_after(self) -> None:
        """What the sidecar does meanwhile."""
        for now in (0.0, GONE):
            self.first_start.look(now, answers_at(SLURMCTLD), lambda: True)


@pytest.fixture
def slurmctld(tmp_path: Path) -> Iterator[Slurmctld]:
    """One that runs for the first time, with slurmdbd and its database."""
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    conf = outside.conf(ADDRESS, SLURMCTLD).replace("=/state\n", "=/etc/slurm/state\n") + ACCOUNTING
    with ExitStack() as stack:

        def run(image: str, user: int, files: dict[str, bytes], *command: str) -> None:
            stack.enter_context(outside.daemon(tmp_path / image, image, user, files, command))

        run("mariadb", 0, {"pw": b"pw"}, "sh", "-c", MARIADB_COMMAND)
        until("MariaDB to listen", lambda: listens(MARIADB), 120)
        run("slurmdbd", outside.SLURM, {"slurmdbd.conf": SLURMDBD_CONF.encode(), **keys}, "slurmdbd", "-D")
        until("slurmdbd to listen", lambda: listens(SLURMDBD), 60)
        files = {"slurm.conf": conf.encode(), "cgroup.conf": b"CgroupPlugin=disabled\n", **keys}
        found = Slurmctld(tmp_path / "slurmctld")
        run("slurmctld", outside.SLURM, files, "sh", "-c", SLURMCTLD_COMMAND)
        until("slurmctld to run", lambda: answers_at(SLURMCTLD), 60)
        yield found


def test_a_slurmctld_that_is_killed_in_its_first_minutes_starts_again_with_its_id_and_its_jobs(
    slurmctld: Slurmctld,
) -> None:
    (slurmctld.state / MARK).touch()  # `FirstStart.begin` has found an empty folder.
    job = slurmctld.order("sbatch --parsable --hold --chdir=/ --wrap=true")
    assert job.isdigit(), job
    until("the job to be saved", (slurmctld.state / "job_state").exists, 60)
    cluster = (slurmctld.state / "clustername").read_text()
    assert cluster.partition("|")[2].isdigit(), cluster

    slurmctld.end("KILL")
    assert not (slurmctld.state / USAGE).exists()
    assert not slurmctld.starts()
    assert "fatal: No Assoc usage file" in slurmctld.log.read_text(errors="replace")
    for _ in range(2):
        slurmctld.looked_after()
        assert slurmctld.starts()
        assert slurmctld.order("squeue --noheader --format=%A") == job
        assert (slurmctld.state / "clustername").read_text() == cluster
        slurmctld.end("KILL")

    slurmctld.looked_after()
    assert slurmctld.starts()
    slurmctld.end("TERM")
    assert {it.name for it in slurmctld.state.iterdir()} >= NEEDED
    slurmctld.looked_after()
    assert not (slurmctld.state / MARK).exists()
    (slurmctld.state / USAGE).unlink()
    slurmctld.looked_after()
    assert not slurmctld.starts(), "what was lost is still missed"
