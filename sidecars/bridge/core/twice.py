"""Cores that two could use: nodes that Slurm has given twice, and pods for which their job has no
place. Pure.
"""

from collections import Counter, defaultdict

from sidecars.bridge.core.records import Phase, View
from sidecars.contract import queued


def given_twice(view: View) -> dict[str, str]:
    """Return the Kubernetes nodes of which running jobs have more CPUs than their record has, each
    with words about the jobs.

    Slurm gives the cores of a suspended job to others, and resumes it even so.
    """
    having: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for job in view.jobs.values():
        for it in job.components:
            for node, cpus in it.cpus if it.phase in (Phase.RUNNING, Phase.STARTING) else ():
                having[node][it.job_id] = cpus
    return {
        node: queued.TOO_MANY_CPUS.write(jobs=", ".join(map(str, sorted(jobs))))
        + ", as after the resumption of a suspended job: cancel one of them"
        for node, jobs in having.items()
        if node in view.cpus and sum(jobs.values()) > view.cpus[node]
    }


def without_place(view: View) -> set[str]:
    """Return the uids of the pods on a node where their job has fewer places than it has pods.

    slurmctld that was killed may have forgotten the start of a job, and have started it again on
    other nodes, or with fewer places on the same ones. Which of the job's pods on the node are
    named is then arbitrary.
    """
    free = Counter(
        {
            (job_id, node): count
            for job_id, (_, it) in view.components.items()
            for node, count in it.slots
        }
    )
    found = set()
    for pod in view.pods:
        if pod.present and pod.node and pod.job is not None:
            free[pod.job, pod.node] -= 1
            if free[pod.job, pod.node] < 0:
                found.add(pod.uid)
    return found
