"""The text of slurm.conf and its sister files: our own lines, then the user's."""

from collections.abc import Sequence

from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, NodeSet

CGROUP_CONF = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"


def slurm_conf(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> str:
    """slurm.conf of the cluster; for an external Controller the few lines that its clients need.

    Raises ResourceError for what can't be put into the file, MissingReferenceError for scripts that aren't there.
    """
    raise NotImplementedError
