"""Another slurm.key on real Slurm: refused when it is swapped at once, brought in step by step with
jobs running on.
"""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.real.harness import UNTIL_ENDED, Slurm, condition, until, watched

CTLD = "slurm-controller-0"
NEW = bytes(range(1, 201))
LITTLE = "--mem=16M"
"""A job that asks for no memory gets all of its node's."""


def slurm_key(slurm: Slurm) -> dict[str, Any]:
    """The condition SlurmKey."""
    found = slurm.kubernetes.get("-n", "slurm", "controllers.slinky.slurm.net", "slurm")
    return condition(found, "SlurmKey")


def until_reports(slurm: Slurm, reason: str, words: str) -> None:
    """Wait until the condition SlurmKey has this reason and these words."""

    def look() -> bool:
        found = slurm_key(slurm)
        return found.get("reason") == reason and words in found.get("message", "")

    until(f"the condition SlurmKey to say {reason} {words}", look)


@contextmanager
def message(slurm: Slurm) -> Iterator[Callable[[], list[str]]]:
    """Reason and message of the condition SlurmKey, and each that follows: a watch misses none
    between two looks.
    """
    # Without `range`: kubectl would print the first object of a watch only.
    found = '.status.conditions[?(@.type=="SlurmKey")]'
    text = f'jsonpath={{{found}.reason}} {{{found}.message}}{{"\\n"}}'
    with watched(
        slurm.kubernetes, "-n", "slurm", "controllers.slinky.slurm.net", "slurm", "-o", text
    ) as path:
        yield lambda: path.read_text(encoding="utf-8").splitlines()


def patch(slurm: Slurm, **changes: Any) -> None:
    """Change the Controller."""
    words = (
        "-n",
        "slurm",
        "patch",
        "controllers.slinky.slurm.net",
        "slurm",
        "--type=merge",
        "-p",
        json.dumps(changes),
    )
    slurm.kubernetes.kubectl(*words)


def keys_of_daemons(slurm: Slurm) -> list[bytes]:
    """The keys that daemons are given."""
    secret = slurm.kubernetes.get("-n", "slurm", "secret", "slurm-auth-slurm-jwks")
    entries = json.loads(base64.b64decode(secret["data"]["slurm.jwks"]))["keys"]
    return [base64.b64decode(entry["k"]) for entry in entries]


def lives(slurm: Slurm) -> dict[str, Any]:
    """uid and restarts of the containers of slurmctld, of the workers and of the login node."""
    pods = slurm.kubernetes.items(
        "-n", "slurm", "pods", "-l", "app.kubernetes.io/name in (slurmctld,slurmd,login)"
    )
    return {
        pod["metadata"]["uid"]: sorted(
            (it["name"], it["restartCount"]) for it in pod["status"]["containerStatuses"]
        )
        for pod in pods
    }


def test_a_key_is_rotated_with_jobs_running_through_and_a_bare_swap_is_refused(
    slurm: Slurm,
) -> None:
    k8s = slurm.kubernetes
    slurm.until_idle(2)
    until_reports(slurm, "InUse", "'slurm-auth-slurm'")
    before = lives(slurm)
    patch(slurm, metadata={"annotations": {"slinky.slurm.net/keys-settle-seconds": "6"}})
    whole = slurm.submit(f"{UNTIL_ENDED}srun --overlap hostname\n", LITTLE)
    slurm.until_running(whole)

    # Swapped at once: deleted and created again, since it is immutable.
    secret = k8s.get("-n", "slurm", "secret", "slurm-auth-slurm")
    old = base64.b64decode(secret["data"]["slurm.key"])
    secret["data"]["slurm.key"] = base64.b64encode(NEW).decode()
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        secret["metadata"].pop(field, None)
    k8s.kubectl("-n", "slurm", "delete", "secret", "slurm-auth-slurm")
    k8s.kubectl("create", "-f", "-", stdin=json.dumps(secret))
    until_reports(slurm, "Swapped", "nextSlurmKeyRef")
    assert keys_of_daemons(slurm) == [old]

    # As it is meant.
    following = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "next", "namespace": "slurm"},
        "data": {"slurm.key": base64.b64encode(NEW).decode()},
    }
    k8s.kubectl("create", "-f", "-", stdin=json.dumps(following))
    with message(slurm) as lines:
        patch(slurm, spec={"nextSlurmKeyRef": {"name": "next", "key": "slurm.key"}})
        for reason in ("Adding", "Switching", "Removing"):

            def begun(reason: str = reason) -> bool:
                return any(line.startswith(f"{reason} ") and "'next'" in line for line in lines())

            until(f"the condition SlurmKey to have the reason {reason}", begun)
            assert slurm.login("srun", "--immediate=20", LITTLE, "hostname").strip()
        until_reports(slurm, "InUse", "'next'")
    assert keys_of_daemons(slurm) == [NEW]
    assert slurm.login("srun", "--immediate=20", LITTLE, "-N2", "hostname").split()
    slurm.end(whole)
    assert lives(slurm) == before

    # The first Secret has the new key by now, so that the other is not needed.
    patch(slurm, spec={"nextSlurmKeyRef": None})
    until_reports(slurm, "InUse", "'slurm-auth-slurm'")
    k8s.kubectl("-n", "slurm", "delete", "secret", "next")
    slurm.until_idle(2)
