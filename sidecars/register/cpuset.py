"""The CPUs that the kubelet's static CPU manager has given to a worker: pure functions.

In a pod of the class Guaranteed, it gives a container that requests whole CPUs some of its own.
slurmd and its jobs are in the pod's cgroup, which has all CPUs of the host, so nothing but Slurm
keeps the jobs on those CPUs. slurmd counts all CPUs of the host; the others must be in CpuSpecList.
Where a container has fewer CPUs than its limit, as on a host that gives pods a part of its CPUs,
its jobs can't use more either.

`register` requests as much as slurmd, and the kubelet gives the CPUs of an init container to the
main container. So it sees slurmd's.
"""

from collections.abc import Collection, Sequence
from decimal import Decimal


def own_cores(
    limit: Decimal, allowed: Collection[int], cores: Sequence[Collection[int]]
) -> list[int]:
    """Return the indices of the cores whose CPUs the container has instead of any of its `limit`,
    [] where any will do.

    `allowed`: the CPUs that the container may use, those of cpuset.cpus.effective. With more of
    them than its limit it shares them, and they change with other pods. `cores`: the CPUs of each
    core of the host. Of a core that the container shares, Slurm could use neither half: such cores
    count only without a whole one.
    """
    host = {cpu for core in cores for cpu in core}
    mine = host.intersection(allowed)
    if len(mine) > limit or mine == host:
        return []
    whole = [index for index, core in enumerate(cores) if mine.issuperset(core)]
    return whole or [index for index, core in enumerate(cores) if not mine.isdisjoint(core)]


def others(own: Collection[int], cores: int, threads: int) -> str:
    """Return the value of CpuSpecList: Slurm's numbers of the CPUs of all other cores, as
    ranges.
    """
    free = [
        core * threads + thread
        for core in range(cores)
        if core not in own
        for thread in range(threads)
    ]
    ranges: list[list[int]] = []
    for cpu in free:
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
