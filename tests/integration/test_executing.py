"""Where end-to-end tests run commands in containers: pods of a real API server, and a kubectl that
runs them here.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support.real.harness import CommandError, Kubernetes

NAMESPACE = "executing"
KUBECTL = """#!/bin/sh
# `kubectl exec`: notes its arguments, and runs here what is to run in the pod, as the pod's name.
echo "$*" >>"$0.calls"
for word; do
  case $word in login-*) export POD=$word;; --) shift; exec "$@";; esac
  shift
done
"""


@pytest.fixture
def kubernetes(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Kubernetes]:
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    real = Kubernetes(control_plane.kubeconfig, tool("kubectl"), tool("helm"))
    if not real.items("namespaces", "-l", f"kubernetes.io/metadata.name={NAMESPACE}"):
        real.kubectl("create", "namespace", NAMESPACE)
        real.kubectl("-n", NAMESPACE, "create", "serviceaccount", "default")
        real.kubectl("-n", NAMESPACE, "create", "deployment", "login", "--image=login")
    for pod in real.items("-n", NAMESPACE, "pods"):
        remove(real, pod["metadata"]["name"])
    with closing(Kubernetes(control_plane.kubeconfig, program, tool("helm"))) as found:
        yield found


def run(kubernetes: Kubernetes) -> str:
    """In which pod a command of the Deployment runs."""
    return kubernetes.execute(NAMESPACE, "deploy/login", "login", "printenv", "POD").strip()


def calls(kubernetes: Kubernetes) -> list[str]:
    """The arguments of each `kubectl exec`."""
    return Path(f"{kubernetes.kubectl_path}.calls").read_text().splitlines()


def pod(kubernetes: Kubernetes, name: str, *, finalizers: tuple[str, ...] = ()) -> None:
    """A pod of the Deployment that runs and is ready, as a kubelet reports it."""
    real = Kubernetes(kubernetes.kubeconfig, tool("kubectl"), tool("helm"))
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "login"}, "finalizers": list(finalizers)},
        "spec": {"containers": [{"name": "login", "image": "login"}]},
    }
    real.kubectl("-n", NAMESPACE, "create", "-f", "-", stdin=json.dumps(manifest))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    patch = (
        "patch",
        "pod",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps({"status": status}),
    )
    real.kubectl("-n", NAMESPACE, *patch)


def remove(kubernetes: Kubernetes, name: str) -> None:
    """Delete a pod; it is gone afterwards."""
    real = Kubernetes(kubernetes.kubeconfig, tool("kubectl"), tool("helm"))
    real.kubectl(
        "-n",
        NAMESPACE,
        "patch",
        "pod",
        name,
        "--type=merge",
        "-p",
        '{"metadata":{"finalizers":null}}',
    )
    real.kubectl(
        "-n", NAMESPACE, "delete", "pod", name, "--force", "--grace-period=0", "--ignore-not-found"
    )


def test_commands_in_one_pod_share_one_exec_with_their_input_and_their_errors(
    kubernetes: Kubernetes,
) -> None:
    pod(kubernetes, "login-1")
    assert [run(kubernetes) for _ in range(3)] == ["login-1"] * 3
    assert (
        kubernetes.execute(NAMESPACE, "deploy/login", "login", "cat", stdin="two\nlines")
        == "two\nlines"
    )
    with pytest.raises(CommandError, match=r"^sh -c .*: rc 7\nout\nerror\n$"):
        kubernetes.execute(
            NAMESPACE, "deploy/login", "login", "sh", "-c", "echo out; echo error >&2; exit 7"
        )
    assert calls(kubernetes) == [f"exec -i -n {NAMESPACE} login-1 -c login -- sh"]


def test_no_command_runs_in_the_predecessor_of_a_pod_nor_in_a_login_pod_that_is_about_to_end(
    kubernetes: Kubernetes,
) -> None:
    pod(kubernetes, "login-1", finalizers=("example.com/stay",))
    assert run(kubernetes) == "login-1"
    kubernetes_ = Kubernetes(kubernetes.kubeconfig, tool("kubectl"), tool("helm"))
    kubernetes_.kubectl("-n", NAMESPACE, "delete", "pod", "login-1", "--wait=false")
    pod(kubernetes, "login-2")
    assert run(kubernetes) == "login-2"
    remove(kubernetes, "login-1")
    remove(kubernetes, "login-2")
    pod(kubernetes, "login-2")
    assert run(kubernetes) == "login-2"
    assert [call.split()[4] for call in calls(kubernetes)] == ["login-1", "login-2", "login-2"]


def test_a_command_whose_shell_ends_under_it_is_repeated_only_if_it_is_repeatable(
    kubernetes: Kubernetes, tmp_path: Path
) -> None:
    pod(kubernetes, "login-1")
    words = ("sh", "-c", 'echo once >>"$0"; kill -9 $PPID', str(tmp_path / "runs"))
    with pytest.raises(CommandError, match="it is unknown whether the command has run"):
        kubernetes.execute(NAMESPACE, "login-1", "login", *words)
    assert (tmp_path / "runs").read_text() == "once\n"
    with pytest.raises(CommandError, match="it is unknown whether the command has run"):
        kubernetes.execute(NAMESPACE, "login-1", "login", *words, repeatable=True)
    assert (tmp_path / "runs").read_text() == "once\n" * 3
    assert run(kubernetes) == "login-1"


def test_without_a_running_pod_the_command_is_left_to_kubectl_which_waits_for_one(
    kubernetes: Kubernetes,
) -> None:
    kubernetes.execute(NAMESPACE, "deploy/login", "login", "true")
    assert calls(kubernetes) == [f"exec -n {NAMESPACE} deploy/login -c login -- true"]
    with pytest.raises(CommandError, match="NotFound"):
        kubernetes.execute(NAMESPACE, "login-9", "login", "true")
