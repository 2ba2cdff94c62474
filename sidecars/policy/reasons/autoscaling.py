"""Why autoscaling counts a pending job or not, and why a NodeSet has the size that it has."""

from sidecars.contract.explained import Explained
from sidecars.policy.reasons.base import NOTHING, WAIT, Reason

_SHOW_JOB = "See `scontrol show job`."


class NotCounted(Explained):
    """Why autoscaling adds no node for a pending job ([Autoscaling](../autoscaling.md))."""

    NOT_RELEASED = (
        "NotReleased",
        "The job must be released before it may start.",
        "Run `scontrol release`.",
    )
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
        (
            "Slurm doesn't report whether the job is exclusive. It counts as one that shares "
            "nodes, and may have to wait."
        ),
        "Use a slurmrestd that offers API version v0.0.44.",
    )
    OTHER = "Other", "The job waits for a reason that more nodes don't change.", _SHOW_JOB
    IMPOSSIBLE = (
        "Impossible",
        (
            "No NodeSet of the job's partitions has nodes that it could run on. The message names "
            "what is missing."
        ),
        "Correct the job's request, or create a NodeSet for it.",
    )
    NOT_SCALED = (
        "NotScaled",
        (
            "Autoscaling scales no NodeSet of the job's partitions, or only other nodes of them "
            "could run the job."
        ),
        "Wait for these nodes, or set `spec.autoscaling` of a NodeSet.",
    )
    BEYOND_MAX = (
        "BeyondMax",
        "The NodeSets that could run the job are at their maximum.",
        "Wait for other jobs, or raise the maximum.",
    )
    TOO_LARGE = (
        "TooLarge",
        "The job needs more than the NodeSets that could run it have at their maximum.",
        "Raise the maximum, or request less.",
    )
    NOT_STARTED = (
        "NotStarted",
        (
            "Slurm has free nodes that should suffice, and did not start the job. The message has "
            "Slurm's reason. No node is added or kept for such a request. It counts again after "
            "some time."
        ),
        "See `scontrol show job`, and the limits of the partition.",
    )
    MISFIT = (
        "Misfit",
        (
            "The last nodes of the NodeSet that were added for the job can't run it: they offer "
            "less than its largest one, or than was declared. It gets no more for this request for "
            "some time."
        ),
        (
            "Use Kubernetes nodes of one size for a NodeSet, or correct `spec.autoscaling.node`, "
            "or request less."
        ),
    )
    NEXT_STEP = "NextStep", "One step may add only so many nodes.", WAIT
    BUDGET = (
        "Budget",
        "More nodes would exceed the budget.",
        "Wait for other jobs, or raise the budget.",
    )
    NO_CAPACITY = (
        "NoCapacity",
        (
            "The pods of the NodeSets that could run the job wait for a Kubernetes node or for "
            "their image."
        ),
        "See the condition `Autoscaled` of the NodeSets.",
    )
    WORKERS_UNUSABLE = (
        "WorkersUnusable",
        "Most or the newest workers of the NodeSets that could run the job can't run any job.",
        "See the condition `Autoscaled` of the NodeSets.",
    )
    SHAPE_UNKNOWN = (
        "ShapeUnknown",
        (
            "No node of the NodeSets of the job's partitions has registered yet, so their size is "
            "unknown."
        ),
        "Wait for the first node, or declare `spec.autoscaling.node`.",
    )


class Autoscaled(Reason):
    """Whether the operator sets `spec.replicas` of a NodeSet by the queue, and why it wants that
    number.

    Only NodeSets with `spec.autoscaling` have this condition ([Autoscaling](../autoscaling.md)).
    """

    SATISFIED = (
        "Satisfied",
        "The NodeSet has the nodes that running and pending jobs need.",
        NOTHING,
        "True",
    )
    DEMAND = "Demand", "Pending jobs need more nodes.", WAIT, "True"
    MINIMUM = "Minimum", "The minimum is higher than what the jobs need.", NOTHING, "True"
    MAXIMUM = (
        "Maximum",
        "The jobs need more nodes than the maximum.",
        "Raise the maximum, or wait.",
        "True",
    )
    BUDGET = "Budget", "More nodes would exceed the budget.", "Raise the budget, or wait.", "True"
    STEP = "Step", "The jobs need more nodes than one step may add.", WAIT, "True"
    IDLE = "Idle", "Nodes have been idle for long enough.", NOTHING, "True"
    NOT_NEEDED = "NotNeeded", "No job needs pods that haven't started yet.", NOTHING, "True"
    COOLING_DOWN = (
        "CoolingDown",
        "Fewer nodes would do, but the last change is too recent.",
        WAIT,
        "True",
    )
    LEARNING = (
        "Learning",
        (
            "A job waits, and no node of the NodeSet has registered yet. One node is started, to "
            "learn what it offers."
        ),
        "Wait, or declare `spec.autoscaling.node`.",
        "True",
    )
    NO_DATA = (
        "NoData",
        "The jobs or nodes of Slurm are unknown or out of date. The number of replicas stays.",
        "See whether slurmctld and slurmrestd answer.",
        "False",
    )
    NO_CAPACITY = (
        "NoCapacity",
        (
            "Pods have waited for longer than `capacityWaitSeconds` for a Kubernetes node or for "
            "their image."
        ),
        (
            "The message has the cause. Add Kubernetes nodes, lower the requests of the pods, or "
            "correct the image."
        ),
        "False",
    )
    WORKERS_UNUSABLE = (
        "WorkersUnusable",
        (
            "Most workers of the NodeSet, or its newest ones, can't run jobs: they are DOWN, "
            "drained by a check, or have an invalid registration. No more are added."
        ),
        (
            "The message names one. Correct the cause. If its node stays drained, run `scontrol "
            "update nodename=NODE state=resume`, or delete its pod. Autoscaling then continues."
        ),
        "False",
    )
    OTHER_OWNER = (
        "OtherOwner",
        "Another client, which the message names, has set `spec.replicas`.",
        (
            "After `kubectl` or Helm: wait for `coolDownSeconds`. Else see [Another "
            "autoscaler](../autoscaling.md#another-autoscaler-or-kubectl-sets-the-number)."
        ),
        "False",
    )
    SHAPE_DIFFERS = (
        "ShapeDiffers",
        (
            "The workers have registered something else than `spec.autoscaling.node` declares. "
            "What they have registered counts."
        ),
        "Correct `spec.autoscaling.node`, or remove it.",
        "True",
    )
    REFUSED = (
        "Refused",
        "The API server refuses the new number of replicas. The message has its words.",
        "Correct what the message names.",
        "False",
    )
    INVALID = (
        "Invalid",
        "`spec.autoscaling.node` can't be read. The message names the item.",
        "Correct it, or remove it: then what a worker registers counts.",
        "False",
    )


class JobsCounted(Reason):
    """Whether autoscaling can help all pending jobs that wait for nodes.

    Only Controllers with a NodeSet that has `spec.autoscaling` have this condition
    ([Autoscaling](../autoscaling.md)).
    """

    COUNTED = "Counted", "Each job that waits for nodes is counted.", NOTHING, "True"
    NOT_COUNTED = (
        "NotCounted",
        (
            "Jobs wait that no NodeSet could run, or that can't be counted. The message has the "
            "reasons that have stood for a minute, and what is missing. A reason of which no job "
            "waits is kept for 5 minutes."
        ),
        "See [Jobs that autoscaling does not count](#jobs-that-autoscaling-does-not-count).",
        "False",
    )
    NO_DATA = (
        "NoData",
        "The jobs or nodes of Slurm are unknown or out of date.",
        "See whether slurmctld and slurmrestd answer.",
        "Unknown",
    )
