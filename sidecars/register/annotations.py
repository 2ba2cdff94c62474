"""The pod's annotations, which follow the API server while the pod runs: where the operator says the topology.

The operator stamps it on the pod once it knows the Kubernetes node, about when the pod's first container starts. The
downward API's file holds a line `NAME="VALUE"` for each, the value quoted as in Go
(https://kubernetes.io/docs/concepts/workloads/pods/downward-api/).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

FILE = Path("/etc/podinfo/annotations")
TOPOLOGY = "topology.slinky.slurm.net/spec"
VARIABLE = "SLINKY_TOPOLOGY"

WAIT = 3.0
"""Seconds that slurmd may be held up for the stamp: an operator that is down must not keep a worker from starting."""
_STEP = 0.02


def with_topology(
    environment: Mapping[str, str], file: Path, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Mapping[str, str]:
    """The environment with the stamped topology in SLINKY_TOPOLOGY; unchanged for a pod without such a file.

    Waits for the stamp, which may be empty, for a bounded time.
    """
    deadline = clock() + WAIT
    while True:
        try:
            found = topology(file.read_text())
        except FileNotFoundError:
            return environment
        if found is not None:
            return {**environment, VARIABLE: found}
        if clock() >= deadline:
            print(f"register: no annotation {TOPOLOGY} within {WAIT:g} s; the operator tells Slurm later", flush=True)
            return environment
        sleep(_STEP)


def topology(text: str) -> str | None:
    """The stamped topology in the text of the file; None while there is none."""
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and name == TOPOLOGY:
            try:
                return str(json.loads(value))
            except ValueError:
                # Quoted in a way that only Go knows: nothing that a topology could hold.
                return value.strip('"')
    return None
