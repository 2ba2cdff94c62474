"""Users that the values declare, in a Slurm cluster with accounting beside the one of the other tests."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.tokens import sign
from tests.e2e.test_accounting import ACCOUNTING
from tests.e2e.test_contract import jwt_key, slurmrestd
from tests.support.real.harness import CHARTS, VALUES, CommandError, Kubernetes, Slurm, condition, until

pytestmark = pytest.mark.timeout(400)

WITHIN = 90.0
"""Seconds in which a change must be effective everywhere."""
ALICE = {"uid": 10001, "groups": ["physics"], "accounts": ["physics"]}
ID = "uid=10001(alice) gid=10001(alice) groups=10001(alice),20001(physics)"
DAEMONS = ("slurmctld", "slurmrestd", "slurmdbd", "login", "slurmd")
SSH = ("ssh", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes")


@pytest.fixture(scope="module")
def peopled(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A cluster whose pods have the mount already, because a group is declared. The operator exists as `slurm` does."""
    found = Slurm(kubernetes, "peopled")
    install(found, {})
    for kind in ("accountings", "controllers", "restapis", "loginsets"):
        name = "slurm-login-slinky" if kind == "loginsets" else "slurm"

        def ready(kind: str = kind, name: str = name) -> bool | None:
            of = kubernetes.get("-n", found.namespace, f"{kind}.slinky.slurm.net", name)
            return condition(of, "Ready").get("status") == "True" or None

        until(f"{kind} {name} to be Ready", ready, 120)
    found.until_idle(1)
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace)
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false")


def install(slurm: Slurm, users: dict[str, Any]) -> None:
    """Install or upgrade the release with these users."""
    values = {
        "users": users,
        "groups": {"physics": {"gid": 20001}},
        "accounting": {"declared": {"accounts": {"physics": {}}}},
        "controller": {"extraConfMap": {"AccountingStorageEnforce": ["associations"]}},
        # sshd shuts out an address after several failed logins, and the test logs in until it works.
        "loginsets": {"slinky": {"extraSshdConfig": "PerSourcePenalties no"}},
        "nodesets": {"slinky": {"replicas": 1}},
        "backup": {"enabled": False},
    }
    slurm.kubernetes.helm(
        *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", slurm.namespace, "--create-namespace"),
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
        words = ("exec", pod["metadata"]["name"], "-c", daemon, "--", "sh", "-c", f"getent passwd {user} || true")
        if slurm.kubernetes.kubectl("-n", slurm.namespace, *words).strip():
            found.add(daemon)
    return found


def ssh(slurm: Slurm, *words: str) -> str | None:
    """Run a command as alice by ssh, from the login node to itself; None while sshd or the command refuses."""
    try:
        return slurm.login(*SSH, "-i", "/root/alice", "alice@127.0.0.1", *words)
    except CommandError:
        return None


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


def test_a_user_is_added_and_removed_everywhere_without_a_restart(peopled: Slurm) -> None:
    before = pods(peopled)
    url, key = slurmrestd(peopled.kubernetes, peopled.namespace), jwt_key(peopled.kubernetes, peopled.namespace)
    peopled.login("sh", "-c", "rm -f /root/alice*; ssh-keygen -q -t ed25519 -N '' -C alice -f /root/alice")
    public = peopled.login("cat", "/root/alice.pub").strip()
    assert known_to(peopled, "alice") == set()
    assert ssh(peopled, "true") is None

    install(peopled, {"alice": ALICE | {"sshKeys": [public]}})
    started = time.monotonic()

    def left() -> float:
        return max(1.0, started + WITHIN - time.monotonic())

    until("a login by key", lambda: ssh(peopled, "id"), left())
    assert ssh(peopled, "id; pwd") == f"{ID}\n/home/alice\n"
    assert ssh(peopled, "stat -c '%a %U' .") == "700 alice\n"
    until("srun to run as the user", lambda: ssh(peopled, "srun --chdir=/tmp id") == f"{ID}\n" or None, left())
    until("all daemons to know the user", lambda: known_to(peopled, "alice") == set(DAEMONS) or None, left())
    number = until(
        "a job through the REST API", lambda: submit(url, sign(key, "alice", 600, time.time())).get("job_id"), left()
    )
    print(f"login, srun, REST and all daemons {time.monotonic() - started:.1f} s after helm upgrade")
    until("this job to end", lambda: peopled.job(number)["JobState"] == "COMPLETED" or None, 60)
    assert peopled.job(number)["UserId"] == "alice(10001)"

    # What is under way in Slurm knows the user by number, so a removal ends nothing there.
    install(peopled, {})
    started = time.monotonic()
    until("the login to be refused", lambda: ssh(peopled, "true") is None or None, left())
    until("no daemon to know the user", lambda: not known_to(peopled, "alice") or None, left())
    until(
        "the REST API to refuse",
        lambda: not submit(url, sign(key, "alice", 600, time.time())).get("job_id") or None,
        left(),
    )
    print(f"removed everywhere {time.monotonic() - started:.1f} s after helm upgrade")
    assert pods(peopled) == before
    peopled.kubernetes.kubectl("-n", peopled.namespace, "delete", "networkpolicy", "contract")
