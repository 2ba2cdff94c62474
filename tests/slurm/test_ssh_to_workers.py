"""A user gets into a worker by ssh while a job of the user runs there, into that job, and not
otherwise. sshd asks declared users for a key and nothing else.

The daemons of the images slurmctld, slurmd and login run outside of the Kubernetes cluster, slurmd
and sshd by the entrypoint of their image, with the value of PrologFlags that the operator writes.
"""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sidecars.contract import paths
from sidecars.policy.users import declared
from sidecars.workloads import slurm_conf_lines, users
from tests.support import builders
from tests.support.real import ports
from tests.support.real.daemons import ADDRESS, ALL, Daemons
from tests.support.real.harness import until, until_equal

PORT = ports.SSH
ALICE, BOB = 10001, 10002
PREPARE = f"""
useradd --uid {ALICE} --create-home alice && useradd --uid {BOB} --create-home bob
for user in alice bob; do
  install -D -o $user -g $user /etc/slurm/key.pub /home/$user/.ssh/authorized_keys
done
# As the kubelet mounts a ConfigMap.
mount -t tmpfs none {paths.USERS} && mkdir {paths.USERS}/1 {paths.USERS}/2
touch {paths.USERS}/1/sshd.conf
ln -s 1 {paths.USERS}/..data && ln -s ..data/sshd.conf {paths.USERS}/sshd.conf
printf '%s\\n' 'Port {PORT + 2}' 'ListenAddress {ADDRESS}' 'UsePAM yes' 'PerSourcePenalties no' \\
  >/etc/ssh/sshd_config && cat /etc/slurm/users.conf >>/etc/ssh/sshd_config
chmod 755 /etc/slurm && chmod 644 /etc/slurm/*.conf
exec slurmd-entrypoint
"""
SSH = (
    *("ssh", "-F", "none", "-i", "/root/key", "-p", str(PORT + 2), "-o", "BatchMode=yes"),
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
)


@dataclass(frozen=True)
class Site:
    """A worker, and a login node."""

    daemons: Daemons

    def run(self, place: str, *words: str, user: int = 0) -> tuple[int, str]:
        """The exit code of a command there, and what it has printed."""
        done = self.daemons.run(place, *words, user=user)
        return done.returncode, done.stdout + done.stderr

    def ssh(self, user: str, command: str) -> tuple[int, str]:
        return self.run("login", *SSH, f"{user}@{ADDRESS}", command)

    def states(self) -> list[str]:
        """Those of all jobs."""
        return self.run("worker", "squeue", "--noheader", "--format=%T")[1].split()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With the flags that NodeSets with ssh get."""
    lists = slurm_conf_lines.lists(
        builders.controller(), [builders.nodeset("slinky", ssh={"enabled": True})]
    )
    node = f"NodeName={socket.gethostname()} NodeAddr={ADDRESS} CPUs=1 RealMemory=100"
    lines = f"{ALL}PrologFlags={lists['PrologFlags']}\n{node}\n"
    with contextlib.closing(Daemons(tmp_path_factory.mktemp("ssh"), PORT, lines)) as daemons:
        daemons.slurmctld()
        daemons.add("login", "login", 0, ["sleep", "infinity"], daemons.files)
        daemons.run(
            "login", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/key", check=True
        )
        key = daemons.run("login", "cat", "/root/key.pub", check=True).stdout.encode()
        lines = users.sshd_config(builders.controller(usersRef={"name": "users", "key": "y"}), "")
        files = {**daemons.files, "key.pub": key, "users.conf": lines.encode()}
        daemons.add("worker", "slurmd", 0, ["sh", "-c", PREPARE], files)
        daemons.until_idle()
        found = Site(daemons)
        until(
            "sshd to answer",
            lambda: "Access denied" in found.ssh("alice", "true")[1] or None,
            seconds=40,
        )
        yield found


def test_a_user_without_a_job_on_the_worker_is_refused_with_the_reason(site: Site) -> None:
    code, text = site.ssh("alice", "id")
    assert code != 0
    assert "Access denied by pam_slurm_adopt: you have no active jobs on this node" in text


def test_a_user_with_a_job_on_the_worker_gets_into_it_and_others_and_later_ones_do_not(
    site: Site,
) -> None:
    code, text = site.run("worker", "sbatch", "--parsable", "--wrap=sleep 900", user=ALICE)
    assert code == 0, text
    until_equal("the job to run", site.states, ["RUNNING"])

    def session() -> str:
        code, found = site.ssh("alice", "id -un; echo job $SLURM_JOB_ID")
        return found if code == 0 else ""

    # A job runs a moment before its worker has the step that sessions get into.
    found = until("alice to be let in", session)
    assert f"alice\njob {text.strip()}\n" in found
    assert "you have no active jobs" in site.ssh("bob", "id")[1]
    site.run("worker", "scancel", "--user=alice")
    until_equal("the job to end", site.states, [])
    assert "you have no active jobs" in site.ssh("alice", "id")[1]


def declare(site: Site, folder: str, *names: str) -> None:
    """Put the file of these users where the kubelet puts a changed ConfigMap."""
    text = json.dumps({"users": {name: {"uid": 2000 + len(name)} for name in names}})
    content = declared.files(declared.parse(text.encode()))["sshd.conf"]
    script = (
        f"printf %s '{content}' >{folder}/sshd.conf && ln -sfn {folder} ..new && mv -T ..new ..data"
    )
    code, output = site.run("worker", "sh", "-c", f"cd {paths.USERS} && {script}")
    assert code == 0, output


def asked(site: Site, user: str) -> str:
    """What sshd of the worker would take from the user."""
    words = ("-o", "PreferredAuthentications=none", f"{user}@{ADDRESS}", "true")
    found = re.search(r"Permission denied \((.*)\)", site.run("login", *SSH, *words)[1])
    return found[1] if found else ""


def test_sshd_asks_declared_users_for_a_key_alone_also_those_that_are_declared_later(
    site: Site,
) -> None:
    others = asked(site, "alice")
    assert "password" in others, "a user of SSSD can have one"
    declare(site, "1", "bob")
    assert asked(site, "bob") == others, "sshd follows a file that is another one"
    declare(site, "2", "bob", "carol")
    until_equal("the new users", lambda: asked(site, "bob"), "publickey")
    assert asked(site, "alice") == others
    declare(site, "1", "alice")
    until_equal("the change", lambda: asked(site, "alice"), "publickey")
    assert asked(site, "bob") == others
