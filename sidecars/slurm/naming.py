"""Which node records Slurm's jobs and reservations name.

Without one of the nodes that it names (`--nodelist`), a job can't live: slurmctld ends it with
NODE_FAIL when it next reads its configuration or starts, running or pending, and never requeues it
(slurmctld/read_config.c, _sync_detail_bitmaps). Names in `--exclude` are ignored then. A
reservation loses the node.
"""

from collections.abc import Iterable, Mapping

from sidecars.contract.reservations import is_closing
from sidecars.slurm.job_states import has_ended
from sidecars.slurm.records import Job, Reservation


def named_nodes(jobs: Iterable[Job], reservations: Iterable[Reservation]) -> Mapping[str, str]:
    """Return who names a node, in words such as `job 17`, by node: its first reservation that isn't
    the operator's own way to close it, else its first job that may yet run. Raises Malformed for a
    list of nodes that can't be read.
    """
    found: dict[str, str] = {}
    claims = (it for it in reservations if not is_closing(it.name))
    for reservation in sorted(claims, key=lambda it: it.name):
        for node in reservation.node_names() if reservation.node_list else ():
            found.setdefault(node, f"reservation {reservation.name}")
    naming = [job for job in jobs if job.required_nodes and _may_run(job)]
    for job in sorted(naming, key=lambda it: it.job_id):
        for node in job.required_names():
            found.setdefault(node, f"job {job.job_id}")
    return found


def _may_run(job: Job) -> bool:
    """Return whether the job runs or may run again. One that ends may still be requeued."""
    return not has_ended(job.states) or "COMPLETING" in job.states
