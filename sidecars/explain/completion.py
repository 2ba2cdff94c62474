"""Names for the completion of `kubectl slurm`: what the API server lists, if it answers at once."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING

from sidecars.contract.text import printable
from sidecars.explain.core import objects
from sidecars.explain.kubectl import Kubectl, KubectlError
from sidecars.explain.reading import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NO_FILES = ":4"
"""The last line for kubectl's completion: the shell adds no names of files (cobra's
ShellCompDirectiveNoFileComp).
"""
MOST_NAMES = 500
_SLURMD = urllib.parse.urlencode({"labelSelector": f"{objects.APP}=slurmd"})
_PATHS = {
    "pod": "/api/v1/namespaces/{}/pods?",
    "node": f"/api/v1/namespaces/{{}}/pods?{_SLURMD}&",
    "nodeset": f"{GROUP}/namespaces/{{}}/nodesets?",
    "config": f"{GROUP}/namespaces/{{}}/controllers?",
}


def names(before: Sequence[str], kubectl: Kubectl | None = None) -> Iterator[str]:
    """Yield the names that may follow the words `explain SUBJECT`, in the namespace of the context.

    Nothing if the API server doesn't answer, and for jobs, which only Slurm knows.
    """
    subject = before[1] if len(before) == 2 and before[0] == "explain" else ""
    if subject not in _PATHS:
        return
    kubectl = kubectl or Kubectl()
    try:
        path = _PATHS[subject].format(kubectl.namespace())
        answer = kubectl.read(f"{path}limit={MOST_NAMES}")
    except KubectlError:
        return
    for it in objects.items(answer, "items"):
        name = objects.label(it, objects.POD_HOSTNAME) if subject == "node" else objects.name(it)
        if name and printable(name) == name:
            yield name
