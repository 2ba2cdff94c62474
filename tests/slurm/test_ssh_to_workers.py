"""A user gets into a worker by ssh while a job of the user runs there, into that job, and not otherwise.

The daemons of the images slurmctld, slurmd and login run outside of the Kubernetes cluster, slurmd and sshd by the
entrypoint of their image, with the value of PrologFlags that the operator writes.
"""

import contextlib
import secrets
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidecars.workloads import slurm_conf_lines
from tests.support import builders
from tests.support.real import outside, ports
from tests.support.real.harness import until, until_equal

PORT = ports.SSH
ADDRESS = "127.0.0.1"
ALICE, BOB = "10001", "10002"
PREPARE = f"""
useradd --uid {ALICE} --create-home alice && useradd --uid {BOB} --create-home bob
for user in alice bob; do install -D -o $user -g $user /etc/slurm/key.pub /home/$user/.ssh/authorized_keys; done
printf '%s\\n' 'Port {PORT + 2}' 'ListenAddress {ADDRESS}' 'UsePAM yes' 'PerSourcePenalties no' >/etc/ssh/sshd_config
chmod 755 /etc/slurm && chmod 644 /etc/slurm/*.conf
exec slurmd-entrypoint
"""
SSH = (
    *("ssh", "-F", "none", "-i", "/root/key", "-p", str(PORT + 2), "-o", "BatchMode=yes"),
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
)


@dataclass(frozen=True)
class Machine:
    """The processes of one image."""

    process: subprocess.Popen[bytes]

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command there; its exit code and what it printed."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children:
            return 1, "it starts"
        enter = ("nsenter", "--target", children[0], "--mount", "--pid")
        done = subprocess.run([*enter, *words], capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr


@dataclass(frozen=True)
class Site:
    """A worker, and a login node."""

    worker: Machine
    login: Machine

    def ssh(self, user: str, command: str) -> tuple[int, str]:
        return self.login.run(*SSH, f"{user}@{ADDRESS}", command)

    def states(self) -> list[str]:
        """Those of all jobs."""
        return self.worker.run("squeue", "--noheader", "--format=%T")[1].split()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With the flags that NodeSets with ssh get."""
    home = tmp_path_factory.mktemp("ssh")
    lists = slurm_conf_lines.lists(builders.controller(), [builders.nodeset("slinky", ssh={"enabled": True})])
    name = socket.gethostname()
    conf = outside.conf(ADDRESS, PORT).replace("SlurmdPort=6818", f"SlurmdPort={PORT + 1}")
    conf += f"PrologFlags={lists['PrologFlags']}\nNodeName={name} NodeAddr={ADDRESS} CPUs=1 RealMemory=100\n"
    files = {
        "slurm.conf": conf.encode(),
        "cgroup.conf": b"CgroupPlugin=disabled\n",
        "slurm.key": secrets.token_bytes(1024),
        "jwt.key": secrets.token_bytes(32),
    }
    with contextlib.ExitStack() as stack:

        def started(image: str, user: int, *command: str) -> Machine:
            process = stack.enter_context(outside.daemon(home / image, image, user, files, command))
            return Machine(process)

        started("slurmctld", outside.SLURM, "/usr/sbin/slurmctld", "-D")
        login = started("login", 0, "sleep", "infinity")
        until_equal("a process of the login image", lambda: login.run("true")[0], 0, 60)
        assert login.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/key") == (0, "")
        files["key.pub"] = login.run("cat", "/root/key.pub")[1].encode()
        found = Site(started("slurmd", 0, "sh", "-c", PREPARE), login)
        until("the worker to be idle", lambda: "idle" in found.worker.run("sinfo", "-h", "-o", "%T")[1] or None, 60)
        until("sshd to answer", lambda: "Access denied" in found.ssh("alice", "true")[1] or None, 60)
        yield found


def test_a_user_without_a_job_on_the_worker_is_refused_with_the_reason(site: Site) -> None:
    code, text = site.ssh("alice", "id")
    assert code != 0
    assert "Access denied by pam_slurm_adopt: you have no active jobs on this node" in text


def test_a_user_with_a_job_on_the_worker_gets_into_it_and_others_and_later_ones_do_not(site: Site) -> None:
    as_alice = ("setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups")
    code, text = site.worker.run(*as_alice, "sbatch", "--parsable", "--chdir=/tmp", "--wrap=sleep 300")
    assert code == 0, text
    until_equal("the job to run", site.states, ["RUNNING"], 60)

    def session() -> str:
        code, found = site.ssh("alice", "id -un; echo job $SLURM_JOB_ID")
        return found if code == 0 else ""

    # A job runs a moment before its worker has the step that sessions get into.
    found = until("alice to be let in", session, 60)
    assert f"alice\njob {text.strip()}\n" in found
    assert "you have no active jobs" in site.ssh("bob", "id")[1]
    site.worker.run("scancel", "--user=alice")
    until_equal("the job to end", site.states, [], 60)
    assert "you have no active jobs" in site.ssh("alice", "id")[1]
