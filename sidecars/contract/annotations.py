"""Annotations and labels of worker pods that a container of the pod reads.

Annotations arrive by a file of the downward API: a line `KEY="VALUE"` for each, with the value
quoted as in Go (https://kubernetes.io/docs/concepts/workloads/pods/downward-api/). Labels arrive by
the environment.
"""

import json
from typing import Final

TOPOLOGY: Final = "topology.slinky.slurm.net/spec"
"""Annotation of a Kubernetes node and of a worker pod: the value of slurmd's Topology item.

The operator writes the pod's when it knows the pod's Kubernetes node. `register` waits for it.
"""

POD_HOSTNAME: Final = "nodeset.slinky.slurm.net/pod-hostname"
"""Label of a worker pod: the name of its Slurm node. `node` gets it as SLURM_NODE_NAME."""


def read(text: str, key: str) -> str | None:
    """Return the value of an annotation in the text of the file, or None without that
    annotation.
    """
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and name == key:
            try:
                return str(json.loads(value))
            except (ValueError, RecursionError):
                # Quoted in a way that only Go knows. A topology needs no such character.
                return value.strip('"')
    return None
