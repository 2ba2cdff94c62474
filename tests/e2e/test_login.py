"""Login nodes that change while people are logged in."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.real.clocks import changed, logged
from tests.support.real.harness import (
    SSH,
    CommandError,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
)

LOGIN = "slurm-login-slinky"
PROMISE = 30
"""Seconds that a change may take. A kubelet alone takes a minute or more."""


@pytest.fixture
def loginset(slurm: Slurm) -> Iterator[Slurm]:
    """The cluster, with the LoginSet as it was afterwards."""
    yield slurm
    change(slurm, rootSshAuthorizedKeys=None, extraSshdConfig=None, replicas=1)
    until_equal("the login node to be back", lambda: slurm.login("true"), "")


def change(slurm: Slurm, **spec: Any) -> None:
    """Change the LoginSet."""
    slurm.kubernetes.kubectl(
        *("-n", slurm.namespace, "patch", "loginsets.slinky.slurm.net", LOGIN, "--type=merge"),
        *("-p", json.dumps({"spec": spec})),
    )


def new_key(slurm: Slurm, name: str) -> str:
    """Make a key pair in the login pod; its public key."""
    slurm.login(
        "sh", "-c", f"rm -f /root/{name}*; ssh-keygen -q -t ed25519 -N '' -C {name} -f /root/{name}"
    )
    return slurm.login("cat", f"/root/{name}.pub").strip()


def ssh(slurm: Slurm, key: str, *words: str) -> str:
    """Log in by ssh, from the login node to itself; what came out and what ssh printed."""
    return slurm.login(
        "sh", "-c", '"$@" 2>&1', "sh", *SSH, "-i", f"/root/{key}", "root@127.0.0.1", *words
    )


def since_change(slurm: Slurm, when: float) -> float:
    """Seconds from the last change of the LoginSet until then."""
    return when - changed(slurm, "loginsets.slinky.slurm.net", LOGIN)


def written(slurm: Slurm) -> float:
    """Seconds from the last change of the LoginSet until the kubelet wrote it into the pod, by
    their clocks.
    """
    return since_change(slurm, float(slurm.login("stat", "-c", "%.3Y", "/etc/slurm-login/..data")))


def pods(kubernetes: Kubernetes) -> list[dict[str, Any]]:
    """The login pods that stay."""
    found = kubernetes.items("-n", "slurm", "pods", "-l", f"app.kubernetes.io/instance={LOGIN}")
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def test_keys_and_settings_change_while_a_login_stays_open(loginset: Slurm) -> None:
    [before] = pods(loginset.kubernetes)
    first, second = new_key(loginset, "first"), new_key(loginset, "second")
    change(loginset, rootSshAuthorizedKeys=first)
    until(
        "the first key to be taken",
        lambda: "in" in ssh(loginset, "first", "echo", "in").split() or None,
    )
    assert written(loginset) < PROMISE
    words = [
        str(loginset.kubernetes.kubectl_path),
        "-n",
        loginset.namespace,
        "exec",
        "-i",
        f"deploy/{LOGIN}",
        "-c",
        "login",
    ]
    session = subprocess.Popen(
        [
            *words,
            "--",
            *SSH,
            "-i",
            "/root/first",
            "root@127.0.0.1",
            "echo open; read -r line; echo got $line",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"KUBECONFIG": str(loginset.kubernetes.kubeconfig), "HOME": "/nonexistent"},
    )
    assert session.stdout is not None
    assert session.stdout.readline() == "open\n"
    change(
        loginset,
        rootSshAuthorizedKeys=f"{first}\n{second}",
        extraSshdConfig="Banner /etc/debian_version",
    )
    banner = loginset.login("cat", "/etc/debian_version").strip()
    until(
        "the second key and the banner", lambda: banner in ssh(loginset, "second", "true") or None
    )
    assert (
        since_change(loginset, logged(loginset, f"deploy/{LOGIN}", "login", "sshd: takes its new"))
        < PROMISE
    )
    change(loginset, rootSshAuthorizedKeys=second)

    def refused() -> bool | None:
        try:
            ssh(loginset, "first", "true")
        except CommandError as error:
            return "Permission denied" in str(error) or None
        return None

    until("the first key to be refused", refused)
    assert written(loginset) < PROMISE
    out, _ = session.communicate("a word\n", timeout=60)
    assert out == "got a word\n"
    [after] = pods(loginset.kubernetes)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_setting_that_sshd_would_refuse_changes_nothing_and_is_logged(loginset: Slurm) -> None:
    change(
        loginset,
        rootSshAuthorizedKeys=new_key(loginset, "only"),
        extraSshdConfig="NoSuchSetting yes",
    )

    refusal = "sshd: keeps its configuration, the new one is wrong"
    refused = until(
        "the log to say so", lambda: logged(loginset, f"deploy/{LOGIN}", "login", refusal)
    )
    assert since_change(loginset, refused) < PROMISE
    # The change before may have sshd listen again at this moment.
    until(
        "the new key to be taken",
        lambda: "in" in ssh(loginset, "only", "echo", "in").split() or None,
    )
    assert written(loginset) < PROMISE


def test_scaled_to_zero_and_back_a_login_node_is_the_same_to_ssh(loginset: Slurm) -> None:
    identity = loginset.login("cat", "/etc/ssh/ssh_host_ed25519_key.pub")
    kubectl = loginset.kubernetes.kubectl
    scale = ("-n", loginset.namespace, "scale", "loginsets.slinky.slurm.net", LOGIN)
    kubectl(*scale, "--replicas=0")

    def reason() -> str:
        return str(
            condition(
                loginset.kubernetes.get("-n", "slurm", "loginsets.slinky.slurm.net", LOGIN), "Ready"
            )["reason"]
        )

    until(
        "no pods, and a LoginSet that reports it",
        lambda: (not pods(loginset.kubernetes) and reason() == "ScaledToZero") or None,
    )
    kubectl(*scale, "--replicas=1")
    until_equal("the LoginSet to be Ready", reason, "Ready")
    assert loginset.login("cat", "/etc/ssh/ssh_host_ed25519_key.pub") == identity
