"""Which node records Slurm's jobs and reservations name.

Without one of the nodes that it names (`--nodelist`), a job can't live: slurmctld ends it with
NODE_FAIL when it next reads its configuration or starts, running or pending, and never requeues it
(slurmctld/read_config.c, _sync_detail_bitmaps). The same is true of a switch or block that it names
(`switch{r1}`), which is gone with its last node. Names in `--exclude` are ignored then. A
reservation loses the node.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from sidecars.contract.reservations import is_closing
from sidecars.slurm.errors import Malformed
from sidecars.slurm.job_states import has_ended
from sidecars.slurm.records import Job, Node, Reservation

_UNFIT = re.compile(r"[^\w.@+ -]+")

_LONGEST_NAME = 100
"""Characters of a reservation's name that a reason shows."""


class NamedNodes(Mapping[str, str]):
    """Who names a node, in words such as `job 17`, by node.

    With `every`, that one may name every node, because its list can't be read; only those of
    `found` are listed then.
    """

    def __init__(self, found: Mapping[str, str], every: str = "") -> None:
        self._found = found
        self.every = every

    def __getitem__(self, node: str) -> str:
        by = self._found.get(node, self.every)
        if not by:
            raise KeyError(node)
        return by

    def __contains__(self, node: object) -> bool:
        return bool(self.every) or node in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def named_nodes(
    jobs: Iterable[Job], reservations: Iterable[Reservation], nodes: Iterable[Node] = ()
) -> NamedNodes:
    """Return who names a node, in words such as `job 17`, by node: its first reservation that isn't
    the operator's own way to close it, else its first job that may yet run. Raises Malformed for a
    reservation whose list of nodes can't be read.

    A job that names a switch or a block names those of `nodes` that belong to it: each may be the
    last one there. The list of a job is what its user has written. One that can't be read may name
    any node, and hides no other job.
    """
    found: dict[str, str] = {}
    every = ""
    claims = (it for it in reservations if not is_closing(it.name))
    for reservation in sorted(claims, key=lambda it: it.name):
        for node in reservation.node_names() if reservation.node_list else ():
            found.setdefault(node, f"reservation {_shown(reservation.name)}")
    naming = [job for job in jobs if job.required_nodes and _may_run(job)]
    units: defaultdict[str, list[str]] | None = None
    for job in sorted(naming, key=lambda it: it.job_id):
        try:
            names, wanted = job.required_names(), job.required_units()
        except Malformed:
            every = every or f"job {job.job_id}"
            continue
        if wanted:
            units = _by_unit(nodes) if units is None else units
            names += [name for unit in wanted for name in units.get(unit, ())]
        for name in names:
            found.setdefault(name, f"job {job.job_id}")
    return NamedNodes(found, every)


def _by_unit(nodes: Iterable[Node]) -> defaultdict[str, list[str]]:
    """Return the nodes by each switch and block of their record, such as
    `fabric:spine:leaf,nvlink:b1` (topology, and its units from the top).
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for topology in node.topology.split(","):
            for unit in topology.split(":")[1:]:
                found[unit].append(node.name)
    return found


def _shown(name: str) -> str:
    """Return a reservation's name, which may have any characters, as a reason of a node shows it:
    so that the reason is read back as it was written.
    """
    return _UNFIT.sub("?", name)[:_LONGEST_NAME].strip()


def _may_run(job: Job) -> bool:
    """Return whether the job runs or may run again. One that ends may still be requeued."""
    return not has_ended(job.states) or "COMPLETING" in job.states
