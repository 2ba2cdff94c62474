"""Why autoscaling counts a pending job or not, and why a NodeSet has the size that it has."""

from sidecars.contract.explained import Explained
from sidecars.policy.reasons.base import NOTHING, WAIT

_SHOW_JOB = "See `scontrol show job`."


class NotCounted(Explained):
    """Why autoscaling adds no node for a pending job ([Autoscaling](../autoscaling.md))."""

    NOT_RELEASED = "NotReleased", "The job must be released before it may start.", "Run `scontrol release`."
    DEPENDENCY = "Dependency", "The job waits for another job.", WAIT
    DEPENDENCY_NEVER_SATISFIED = (
        "DependencyNeverSatisfied",
        "The job waits for another job, which ended in a way that the dependency excludes.",
        "Cancel the job, or change its dependency.",
    )
    BEGIN_TIME = "BeginTime", "The job may not start yet.", WAIT
    LIMIT = (
        "Limit",
        "A limit of the job's QOS, association or account is reached, or too low for the job.",
        "Wait for other jobs, or change the limit. The message has Slurm's word for it.",
    )
    LICENSES = "Licenses", "The job waits for licenses.", WAIT
    PARTITION = (
        "Partition",
        "The partition is down or inactive, or its limits exclude the job.",
        "Change the partition, or submit the job to another one.",
    )
    RESERVATION = "Reservation", "The job waits for a reservation, whose nodes are fixed.", WAIT
    NAMED_NODES = (
        "NamedNodes",
        "The job requests nodes by name, and they can't run it now.",
        "Request features instead of names.",
    )
    ARRAY_LIMIT = (
        "ArrayLimit",
        "As many tasks of the array run as its own limit allows (`--array=…%N`).",
        "Wait, or raise the limit: `scontrol update ArrayTaskThrottle`.",
    )
    HET_JOB_PART_MISSING = (
        "HetJobPartMissing",
        "Not all components of the heterogeneous job can be counted, and they start together.",
        "See the other components with `scontrol show job`.",
    )
    EXTERNAL = "External", "The job is external: its nodes run no slurmd.", NOTHING
    NOT_MODELLED = (
        "NotModelled",
        "The job requests something that autoscaling can't count. The message names it.",
        "Scale the NodeSet by hand, or request it in another way.",
    )
    EXCLUSIVE_UNKNOWN = (
        "ExclusiveUnknown",
        "Slurm doesn't report whether the job is exclusive. It counts as one that shares nodes, and may have to wait.",
        "Use a slurmrestd that offers API version v0.0.44.",
    )
    OTHER = "Other", "The job waits for a reason that more nodes don't change.", _SHOW_JOB
    IMPOSSIBLE = (
        "Impossible",
        "No NodeSet of the job's partitions has nodes that it could run on. The message names what is missing.",
        "Correct the job's request, or create a NodeSet for it.",
    )
    BEYOND_MAX = (
        "BeyondMax",
        "The NodeSets that could run the job are at their maximum.",
        "Wait for other jobs, or raise the maximum.",
    )
    NEXT_STEP = "NextStep", "One step may add only so many nodes.", WAIT
    BUDGET = "Budget", "More nodes would exceed the budget.", "Wait for other jobs, or raise the budget."
    NO_CAPACITY = (
        "NoCapacity",
        "The pods of the NodeSets that could run the job can't be scheduled.",
        "Add Kubernetes nodes, or lower the requests of the pods.",
    )
    SHAPE_UNKNOWN = (
        "ShapeUnknown",
        "No node of the NodeSets of the job's partitions has registered yet, so their size is unknown.",
        "Scale the NodeSet to 1 once.",
    )


class Sizing(Explained):
    """Why autoscaling wants a number of replicas ([Autoscaling](../autoscaling.md))."""

    SATISFIED = "Satisfied", "The NodeSet has the nodes that running and pending jobs need.", NOTHING
    DEMAND = "Demand", "Pending jobs need more nodes.", WAIT
    MINIMUM = "Minimum", "The minimum is higher than what the jobs need.", NOTHING
    MAXIMUM = "Maximum", "The jobs need more nodes than the maximum.", "Raise the maximum, or wait."
    STEP = "Step", "The jobs need more nodes than one step may add.", WAIT
    IDLE = "Idle", "Nodes have been idle for long enough.", NOTHING
    COOLING_DOWN = "CoolingDown", "Fewer nodes would do, but the last change is too recent.", WAIT
    NO_DATA = (
        "NoData",
        "The jobs or nodes of Slurm are unknown or out of date. The number of replicas stays.",
        "See whether slurmctld and slurmrestd answer.",
    )
