"""Ends what runs in a pod without a warning, as a crash or a full memory does; and stops the
operator.
"""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.real.harness import Kubernetes, condition, until

SLURMCTLD, SLURMRESTD = ("slurm", "slurmctld"), ("slurm", "slurmrestd")
OPERATOR = ("slinky", "slurm-operator")
"""Namespaces, and the label app.kubernetes.io/name of their pods."""


def processes(pod_uid: str) -> list[int]:
    """Processes on this machine that run in the containers of that pod."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            groups = (folder / "cgroup").read_text()
        except OSError:
            continue
        if re.search(rf"pod{pod_uid}", groups.replace("_", "-")):
            found.append(int(folder.name))
    return found


def kill_processes(pod_uid: str) -> None:
    """End them all without a warning; some end automatically when others do."""
    for pid in processes(pod_uid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def stop_operator(kubernetes: Kubernetes) -> None:
    """Scale the operator to zero; returns when it is gone, because one that is ending may still
    write.
    """
    namespace, name = OPERATOR
    kubernetes.kubectl("-n", namespace, "scale", "deployment", name, "--replicas=0")
    chosen = ("-n", namespace, "pods", "-l", f"app.kubernetes.io/name={name}")
    until("the operator to be gone", lambda: not kubernetes.items(*chosen))


def kill(kubernetes: Kubernetes, namespace: str, name: str) -> None:
    """Kill the processes of the only pod, and wait for its successor."""
    chosen = ("-n", namespace, "pods", "-l", f"app.kubernetes.io/name={name}")

    def only() -> dict[str, Any] | None:
        found = kubernetes.items(*chosen)
        return found[0] if len(found) == 1 else None

    # Its predecessor may still be ending.
    pod = until(f"one pod of {name}", only)
    uid = pod["metadata"]["uid"]
    kill_processes(uid)
    # A kubelet waits longer before each start of the same container.
    kubernetes.kubectl(
        "-n", namespace, "delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0"
    )

    def replaced() -> bool:
        found = [it for it in kubernetes.items(*chosen) if it["metadata"]["uid"] != uid]
        return len(found) == 1 and condition(found[0], "Ready").get("status") == "True"

    until(f"another pod of {name}", replaced)
