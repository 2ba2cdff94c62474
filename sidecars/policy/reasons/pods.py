"""What worker pods and Kubernetes nodes show: conditions, labels and annotations."""

from sidecars.contract.explained import Explained
from sidecars.policy.reasons.base import NOTHING
from sidecars.workloads import names

_DOWN_OR_DRAINED = (
    "See [A Slurm node is DOWN or drained](../troubleshooting.md#a-slurm-node-is-down-or-drained)."
)


class SlurmNodeState(Explained):
    """The end of a condition's type `SlurmNodeState…` of a worker pod, by the state of its Slurm
    node. The condition exists while the node has the state. Its message is the node's reason.
    """

    ALLOCATED = "Allocated", "Jobs use all CPUs of the node.", NOTHING
    COMPLETING = (
        "Completing",
        "A job is ending.",
        (
            "Wait. If it lasts, a process of the job can't be killed: see the log of slurmd and "
            "the job's Epilog."
        ),
    )
    DOWN = "Down", "Slurm can't use the node.", _DOWN_OR_DRAINED
    DRAIN = "Drain", "No further job starts on the node.", _DOWN_OR_DRAINED
    ERROR = "Error", "Slurm reports the node as faulty.", "See the logs of slurmctld and slurmd."
    FAIL = (
        "Fail",
        "An administrator has set the node to FAIL: it drains.",
        "Resume it with `scontrol` when it is repaired.",
    )
    FUTURE = (
        "Future",
        "The node is defined, and no slurmd has registered as it yet.",
        "See the log of slurmd.",
    )
    IDLE = "Idle", "No job uses the node.", NOTHING
    INVALID = (
        "Invalid",
        "The record of the node can't be used.",
        "See the log of slurmctld, and delete the pod.",
    )
    INVALID_REG = (
        "InvalidReg",
        "slurmd registered with other hardware than its record has, for example fewer GPUs.",
        "Run `slurm-sidecars doctor gres`. A new pod gets a new record.",
    )
    MAINTENANCE = "Maintenance", "The node is in a reservation for maintenance.", NOTHING
    MIXED = "Mixed", "Jobs use a part of the CPUs of the node.", NOTHING
    NOT_RESPONDING = (
        "NotResponding",
        "slurmctld doesn't reach slurmd.",
        "See whether the pod runs and whether slurmctld reaches its port 6818.",
    )
    UNDRAIN = "Undrain", "The drain of the node is being lifted.", "Wait."
    UNKNOWN = "Unknown", "slurmctld has started and has not heard from slurmd yet.", "Wait."


class Mark(Explained):
    """A label or annotation that shows what the operator knows, or does."""

    POD_CORDON = (
        names.POD_CORDON,
        "Annotation of a worker pod. `true`: its Slurm node is drained. A user may set it.",
        "If a user set it, that user removes it to undrain the node.",
    )
    POD_CORDON_REQUESTED = (
        names.POD_CORDON_REQUESTED,
        (
            "Annotation of a worker pod that a health check or an administrator's program sets. "
            "`true`: its Slurm node is drained, unless someone else has drained it or set its "
            "reason. The operator sets `pod-cordon` then. Provisional: SchedMD documents the name "
            "alone."
        ),
        "Whoever has set it removes it to undrain the node.",
    )
    POD_CORDONED_BY = (
        names.POD_CORDONED_BY,
        (
            "Annotation of a worker pod. `operator`: the operator has set `pod-cordon`, and "
            "removes it."
        ),
        NOTHING,
    )
    POD_PROTECT = (
        names.POD_PROTECT,
        (
            "Label of a worker pod with jobs. A PodDisruptionBudget blocks its eviction, so "
            "`kubectl drain` waits."
        ),
        "Wait for the jobs, or cancel them. `workloadDisruptionProtection: false` disables it.",
    )
    KARPENTER_KEEP = (
        names.KARPENTER_KEEP,
        "Annotation of a worker pod with jobs: Karpenter disrupts its Kubernetes node for no gain.",
        "As for `pod-protect`. One that the pod template sets is kept.",
    )
    AUTOSCALER_EVICT = (
        names.AUTOSCALER_EVICT,
        "Annotation of a worker pod with jobs: Cluster Autoscaler keeps its Kubernetes node.",
        "As for `pod-protect`. One that the pod template sets is kept.",
    )
    POD_DEADLINE = (
        names.POD_DEADLINE,
        "Annotation of a draining worker pod: the time when its last job ends at the latest.",
        NOTHING,
    )
    ACTIVE = (
        names.ACTIVE,
        "Label of the slurmctld pod that is the primary. With standbys, the Service selects it.",
        NOTHING,
    )
    LABELLED_FOR = (
        names.LABELLED_FOR,
        (
            "Annotation of a Kubernetes node that the operator has labelled "
            "(`labelKubeNodes`): the NodeSet of the worker that the label "
            "`slinky.slurm.net/slurm-nodename` names."
        ),
        NOTHING,
    )
    CORDONED_FOR = (
        names.CORDONED_FOR,
        (
            "Annotation of a Kubernetes node that the operator has cordoned "
            "(`cordonDrainedNodes`): the Slurm cluster and the reason of the drain."
        ),
        "Undrain the Slurm node: the operator then uncordons the Kubernetes node.",
    )
    RAN_VERSION = (
        names.RAN_VERSION,
        (
            "Annotation of the StatefulSets of slurmctld and slurmdbd: the newest version of Slurm "
            "that has run."
        ),
        "To go back to an older one, see [Downgrade Slurm](../upgrades.md#downgrade-slurm).",
    )
