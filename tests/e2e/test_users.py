"""Users that the values declare, and those of a directory, in a Slurm cluster with accounting of
its own.
"""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.tokens import sign
from tests.cluster.control_plane import free_ports
from tests.cluster.local import existing, named_by
from tests.e2e.test_accounting import ACCOUNTING
from tests.e2e.test_guides import on_page
from tests.support.real import directory
from tests.support.real.directory import PASSWORD, Directory
from tests.support.real.harness import (
    CHARTS,
    SSH,
    VALUES,
    CommandError,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
)
from tests.support.real.restapi import jwt_key, slurmrestd

ALICE = {"uid": 10001, "groups": ["physics"], "accounts": ["physics"]}
ID = "uid=10001(alice) gid=10001(alice) groups=10001(alice),20001(physics)"
ADA = "uid=10011(ada) gid=10011(ada) groups=10011(ada),20001(physics)"
DAEMONS = ("slurmctld", "slurmrestd", "slurmdbd", "login", "slurmd")


@dataclass(frozen=True)
class Peopled(Slurm):
    """With home directories."""

    home: Path = Path("/nonexistent")


@pytest.fixture(scope="module")
def peopled(
    kubernetes: Kubernetes, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peopled]:
    """A cluster whose pods have the mount already, because a group is declared. The operator exists
    as `slurm` does.

    Its home directories are on one file system: a folder of this machine, whose files the nodes
    share.
    """
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o755)
    found = Peopled(kubernetes, "peopled", home)
    install(found, {})
    for kind in ("accountings", "controllers", "restapis", "loginsets"):
        name = "slurm-login-slinky" if kind == "loginsets" else "slurm"

        def ready(kind: str = kind, name: str = name) -> bool | None:
            of = kubernetes.get("-n", found.namespace, f"{kind}.slinky.slurm.net", name)
            return condition(of, "Ready").get("status") == "True" or None

        until(f"{kind} {name} to be Ready", ready)
    found.until_idle(1)
    # slurmctld and slurmrestd start again once slurmdbd is ready; with it, slurmrestd serves more
    # than slurmctld's part.
    path = "jsonpath={.spec.template.spec.containers[*].args}"
    args = ("-n", found.namespace, "get", "deployment", "slurm-restapi", "-o", path)
    until(
        "slurmrestd to serve slurmdbd", lambda: "openapi/slurmctld" not in kubernetes.kubectl(*args)
    )
    slurmrestd(kubernetes, found.namespace)
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace)
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false")


def install(
    slurm: Peopled, users: Mapping[str, Any], ldap: Mapping[str, Any] | None = None
) -> None:
    """Install or upgrade the release with these users, and those of this directory."""
    volumes = {"volumes": [{"name": "home", "hostPath": {"path": str(slurm.home)}}]}
    mounts = {"volumeMounts": [{"name": "home", "mountPath": "/home"}]}
    values = {
        "users": users,
        "groups": {"physics": {"gid": 20001}},
        "ldap": ldap or {},
        "accounting": {"declared": {"accounts": {"physics": {}}}},
        "controller": {"extraConfMap": {"AccountingStorageEnforce": ["associations"]}},
        # sshd shuts out an address after several failed logins, and the test logs in until it
        # works.
        "loginsets": {
            "slinky": {
                "extraSshdConfig": "PerSourcePenalties no",
                "login": mounts,
                "podSpec": volumes,
            },
        },
        "nodesets": {
            "slinky": {
                "replicas": 1,
                "ssh": {"enabled": True},
                "slurmd": mounts,
                "podSpec": volumes,
            },
        },
        "backup": {"enabled": False},
    }
    slurm.kubernetes.helm(
        *(
            "upgrade",
            "--install",
            "slurm",
            str(CHARTS / "slurm"),
            "-n",
            slurm.namespace,
            "--create-namespace",
        ),
        *("-f", str(VALUES), "-f", str(ACCOUNTING), "-f", "-"),
        stdin=json.dumps(values),
    )


def pods(slurm: Slurm) -> dict[str, tuple[str, int]]:
    """Uid and number of restarts of each pod of Slurm's daemons, by name."""
    found = slurm.kubernetes.items(
        "-n", slurm.namespace, "pods", "-l", f"app.kubernetes.io/name in ({','.join(DAEMONS)})"
    )
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"]["containerStatuses"]),
        )
        for pod in found
    }


def known_to(slurm: Slurm, user: str) -> set[str]:
    """The daemons in whose containers the user exists."""
    found = set()
    for daemon in DAEMONS:
        selector = ("-l", f"app.kubernetes.io/name={daemon}")
        [pod] = slurm.kubernetes.items("-n", slurm.namespace, "pods", *selector)
        words = (
            "exec",
            pod["metadata"]["name"],
            "-c",
            daemon,
            "--",
            "sh",
            "-c",
            f"getent passwd {user} || true",
        )
        if slurm.kubernetes.kubectl("-n", slurm.namespace, *words).strip():
            found.add(daemon)
    return found


def ssh(slurm: Slurm, *words: str, user: str = "alice", host: str = "127.0.0.1") -> str | None:
    """Run a command by ssh, from the login node to itself or to a worker; None while sshd or the
    command refuses.
    """
    try:
        return slurm.login(*SSH, "-i", f"/root/{user}", f"{user}@{host}", *words)
    except CommandError:
        return None


def new_key(slurm: Slurm, user: str) -> str:
    """Make a key for this user in the login pod; the public part."""
    slurm.login(
        "sh", "-c", f"rm -f /root/{user}*; ssh-keygen -q -t ed25519 -N '' -C {user} -f /root/{user}"
    )
    return slurm.login("cat", f"/root/{user}.pub").strip()


def submit(url: str, token: str) -> dict[str, Any]:
    """Submit a job through the REST API with this token; the answer, that of an error as well."""
    job = {
        "job": {
            "script": "#!/bin/sh\nid -un\n",
            "name": "rest",
            "account": "physics",
            "current_working_directory": "/tmp",  # noqa: S108
            "environment": ["PATH=/usr/bin:/bin"],
        },
    }
    request = urllib.request.Request(  # noqa: S310 - http
        f"{url}/slurm/{protocol.VERSIONS[0]}/job/submit",
        json.dumps(job).encode(),
        {"Content-Type": "application/json", "X-SLURM-USER-TOKEN": token},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - http
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.loads(error.read() or b"{}"))


def test_a_user_is_added_and_removed_everywhere_without_a_restart(peopled: Peopled) -> None:
    before = pods(peopled)
    url, key = (
        slurmrestd(peopled.kubernetes, peopled.namespace),
        jwt_key(peopled.kubernetes, peopled.namespace),
    )
    public = new_key(peopled, "alice")
    assert known_to(peopled, "alice") == set()
    assert ssh(peopled, "true") is None

    install(peopled, {"alice": ALICE | {"sshKeys": [public]}})
    started = time.monotonic()

    until("a login by key", lambda: ssh(peopled, "id"))
    assert ssh(peopled, "id; pwd") == f"{ID}\n/home/alice\n"
    assert ssh(peopled, "stat -c '%a %U' .") == "700 alice\n"
    until_equal("srun to run as the user", lambda: ssh(peopled, "srun --chdir=/tmp id"), f"{ID}\n")
    until_equal("all daemons to know the user", lambda: known_to(peopled, "alice"), set(DAEMONS))
    number = until(
        "a job through the REST API",
        lambda: submit(url, sign(key, "alice", 600, time.time())).get("job_id"),
    )
    print(
        f"login, srun, REST and all daemons {time.monotonic() - started:.1f} s after helm upgrade"
    )
    until_equal("this job to end", lambda: peopled.job(number)["JobState"], "COMPLETED")
    assert peopled.job(number)["UserId"] == "alice(10001)"

    # What is under way in Slurm knows the user by number, so a removal ends nothing there.
    install(peopled, {})
    started = time.monotonic()
    until("the login to be refused", lambda: ssh(peopled, "true") is None or None)
    until("no daemon to know the user", lambda: not known_to(peopled, "alice") or None)
    until(
        "the REST API to refuse",
        lambda: not submit(url, sign(key, "alice", 600, time.time())).get("job_id") or None,
    )
    print(f"removed everywhere {time.monotonic() - started:.1f} s after helm upgrade")
    assert pods(peopled) == before


def directory_read(slurm: Slurm) -> bool:
    """Whether the last look at the directory succeeded, as Kubernetes shows it."""
    found = slurm.kubernetes.get("-n", slurm.namespace, "deployment", "slurm-ldap")
    return bool(found["status"].get("readyReplicas"))


@pytest.fixture
def slapd(peopled: Peopled, tmp_path: Path) -> Iterator[Directory]:
    """A directory on this machine, whose password and CA the namespace has."""
    kubernetes = peopled.kubernetes
    address = str(existing(named_by(str(kubernetes.kubeconfig)) or "").plan.host_address)
    with directory.running(tmp_path / "slapd", address, free_ports(1)[0]) as found:
        for name, key, content in (
            ("ldap", "password", PASSWORD),
            ("ldap-ca", "ca.crt", found.ca.read_text()),
        ):
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": peopled.namespace},
                "data": {key: base64.b64encode(content.encode()).decode()},
            }
            kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(secret))
        yield found


def test_users_of_a_directory_exist_everywhere_and_stay_while_it_is_down(
    peopled: Peopled, slapd: Directory
) -> None:
    before = pods(peopled)
    url, key = (
        slurmrestd(peopled.kubernetes, peopled.namespace),
        jwt_key(peopled.kubernetes, peopled.namespace),
    )
    account = {"accounts": ["physics"]}
    slapd.add(
        directory.user("ada", 10011, keys=[new_key(peopled, "ada")]),
        directory.group("physics", 20001, ["ada"]),
        directory.user("thief", 10013),
    )
    [recipe] = on_page("users.md", "caSecretRef").documents
    ldap = recipe["ldap"] | {"uri": slapd.uri, "intervalSeconds": 10}
    declared = {"carol": {"uid": 10013}, "ada": account, "grace": account}
    install(peopled, declared, ldap)
    started = time.monotonic()

    def rest(user: str) -> int | None:
        return submit(url, sign(key, user, 600, time.time())).get("job_id")

    until("a login by a key of the directory", lambda: ssh(peopled, "id", user="ada"))
    assert ssh(peopled, "id; pwd", user="ada") == f"{ADA}\n/home/ada\n"
    until_equal("srun", lambda: ssh(peopled, "srun id", user="ada"), f"{ADA}\n")
    until_equal("all daemons to know the user", lambda: known_to(peopled, "ada"), set(DAEMONS))
    number = until("a job through the REST API", lambda: rest("ada"))
    print(f"the directory's user everywhere {time.monotonic() - started:.1f} s after helm upgrade")
    until_equal("this job to end", lambda: peopled.job(number)["JobState"], "COMPLETED")
    assert peopled.job(number)["UserId"] == "ada(10011)"
    assert known_to(peopled, "carol") == set(DAEMONS)
    assert known_to(peopled, "thief") == set()
    logs = peopled.kubernetes.kubectl("-n", peopled.namespace, "logs", "deploy/slurm-ldap")
    assert "the declared user `carol` has the uid 10013" in logs
    assert PASSWORD not in logs

    # Into a worker with a job of the user alone, and with it into the job.
    [worker] = peopled.nodes()
    assert ssh(peopled, "true", user="ada", host=worker) is None
    job = int((ssh(peopled, "sbatch --parsable --wrap 'sleep 600'", user="ada") or "0").strip())
    until_equal("the job to run", lambda: peopled.job(job)["JobState"], "RUNNING")
    inside = until(
        "ssh into the worker",
        lambda: ssh(peopled, "echo $SLURM_JOB_ID; pwd", user="ada", host=worker),
    )
    assert inside == f"{job}\n/home/ada\n"

    # A directory that is down takes nobody away.
    slapd.stop()
    until("the directory to be missed", lambda: not directory_read(peopled) or None)
    assert ssh(peopled, f"srun --jobid={job} --overlap id", user="ada") == f"{ADA}\n"
    assert ssh(peopled, "true", user="ada", host=worker) is not None
    assert known_to(peopled, "ada") == set(DAEMONS)
    assert peopled.job(job)["JobState"] == "RUNNING"

    slapd.start()
    slapd.add(directory.user("grace", 10012, keys=[new_key(peopled, "grace")]))
    started = time.monotonic()
    until("a login of the new user", lambda: ssh(peopled, "id", user="grace"))
    until_equal(
        "all daemons to know the new user", lambda: known_to(peopled, "grace"), set(DAEMONS)
    )
    assert ssh(peopled, "true", user="grace", host=worker) is None
    peopled.login("scancel", "--user=ada")
    until_equal(
        "srun of the new user", lambda: ssh(peopled, "srun id -un", user="grace"), "grace\n"
    )
    until("a job of the new user through the REST API", lambda: rest("grace"))
    print(f"the new user everywhere {time.monotonic() - started:.1f} s after the directory had it")
    until(
        "ssh to be refused again",
        lambda: ssh(peopled, "true", user="ada", host=worker) is None or None,
    )
    assert pods(peopled) == before
