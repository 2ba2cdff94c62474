"""Workers and login nodes of the cluster that join a slurmctld outside of it."""

import base64
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.local import existing, named_by
from tests.support.real import outside
from tests.support.real.harness import (
    CHARTS,
    VALUES,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
)

NAMESPACE = "hybrid"


@pytest.fixture
def hybrid(kubernetes: Kubernetes, slurm: Slurm, tmp_path: Path) -> Iterator[Kubernetes]:
    """Release `hybrid` with workers, a login node and slurmrestd, and no slurmctld of its own."""
    assert slurm.kubernetes is kubernetes, "the operator exists"
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    address = str(existing(named_by(str(kubernetes.kubeconfig)) or "").plan.host_address)
    for name, key in keys.items():
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name.replace(".", "-"), "namespace": NAMESPACE},
            "data": {name: base64.b64encode(key).decode()},
        }
        kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    with outside.slurmctld(tmp_path, address, keys):
        settings = {
            "controller.external": "true",
            "controller.externalConfig.host": address,
            "controller.externalConfig.port": str(outside.PORT),
            "clusterName": "outside",
            "slurmKey.create": "false",
            "slurmKey.secretRef.name": "slurm-key",
            "slurmKey.secretRef.key": "slurm.key",
            "jwtKey.create": "false",
            "jwtKey.secretRef.name": "jwt-key",
            "jwtKey.secretRef.key": "jwt.key",
            "networkPolicy.externalFrom[0].ipBlock.cidr": f"{address}/32",
            "nodesets.slinky.replicas": "1",
            "nodesets.slinky.oversubscribeNode": "true",
            "nodesets.slinky.slurmd.resources.requests.cpu": "20m",
        }
        chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        kubernetes.helm(
            "install", "hybrid", str(CHARTS / "slurm"), "-n", NAMESPACE, "-f", str(VALUES), *chosen
        )
        try:
            yield kubernetes
        finally:
            kubernetes.helm("uninstall", "hybrid", "-n", NAMESPACE)
            until(
                "the workers of the outside slurmctld to be gone",
                lambda: not kubernetes.items("-n", NAMESPACE, "nodesets.slinky.slurm.net"),
            )
            kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def login(kubernetes: Kubernetes, *words: str) -> str:
    """Run a command in the login pod that joined."""
    return kubernetes.kubectl(
        "-n", NAMESPACE, "exec", "deploy/hybrid-slurm-login-slinky", "-c", "login", "--", *words
    )


def reported(kubernetes: Kubernetes, kind: str) -> dict[str, Any]:
    """A condition of the Controller."""
    return condition(
        kubernetes.get("-n", NAMESPACE, "controllers.slinky.slurm.net", "hybrid-slurm"), kind
    )


def test_workers_and_login_join_a_slurmctld_outside_and_run_its_jobs(hybrid: Kubernetes) -> None:
    until(
        "the worker to be idle", lambda: "idle" in login(hybrid, "sinfo", "-h", "-N", "-o", "%N %T")
    )
    assert login(hybrid, "srun", "hostname") == "slinky-0\n"
    until_equal(
        "the Controller to be reported", lambda: reported(hybrid, "Ready").get("reason"), "External"
    )
    until_equal(
        "the operator to see the Slurm cluster",
        lambda: reported(hybrid, "SlurmReachable").get("status"),
        "True",
    )
    assert not hybrid.items("-n", NAMESPACE, "statefulsets")
    hybrid.kubectl(
        "-n",
        NAMESPACE,
        "scale",
        "nodesets.slinky.slurm.net",
        "hybrid-slurm-worker-slinky",
        "--replicas=0",
    )
    until(
        "the record to leave the slurmctld outside",
        lambda: not login(hybrid, "sinfo", "-h", "-N").strip(),
    )
