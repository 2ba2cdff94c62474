"""The nodes whose cores Slurm has given to two jobs. Pure."""

from collections import defaultdict

from sidecars.policy.bridge.records import Phase, View


def given_twice(view: View) -> dict[str, str]:
    """The Kubernetes nodes of which running jobs have more CPUs than their record has, each with words about the jobs.

    Slurm gives the cores of a suspended job to others, and resumes it even so.
    """
    having: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for job in view.jobs.values():
        for it in job.components:
            for node, cpus in it.cpus if it.phase in (Phase.RUNNING, Phase.STARTING) else ():
                having[node][it.job_id] = cpus
    return {
        node: f"jobs {', '.join(map(str, sorted(jobs)))} have more CPUs than it has, as after the resumption of a "
        "suspended job: cancel one of them"
        for node, jobs in having.items()
        if node in view.cpus and sum(jobs.values()) > view.cpus[node]
    }
