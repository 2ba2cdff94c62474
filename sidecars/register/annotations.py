"""The topology of the pod, which `register` waits for.

The operator annotates the pod with it when it knows the pod's Kubernetes node, about when the pod's
first container starts. That is too late for the environment, and the downward API's file follows
it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from sidecars.contract import paths
from sidecars.contract.annotations import TOPOLOGY, read
from sidecars.contract.environment import SLINKY_TOPOLOGY

FILE = Path(paths.ANNOTATIONS)

WAIT = 3.0
"""Seconds that slurmd may be delayed for the stamp: an operator that is down must not keep a worker
from starting.
"""
_STEP = 0.02


def with_topology(
    environment: Mapping[str, str],
    file: Path,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Mapping[str, str]:
    """Return the environment with the stamped topology in SLINKY_TOPOLOGY, unchanged for a pod
    without such a file. Wait for the stamp, which may be empty, for a bounded time.
    """
    deadline = clock() + WAIT
    while True:
        try:
            found = read(file.read_text(), TOPOLOGY)
        except FileNotFoundError:
            return environment
        if found is not None:
            return {**environment, SLINKY_TOPOLOGY: found}
        if clock() >= deadline:
            print(
                f"register: no annotation {TOPOLOGY} within {WAIT:g} s; the operator updates "
                "Slurm later",
                flush=True,
            )
            return environment
        sleep(_STEP)
