"""The reason of a Slurm node, and who owns it: the one whose drain or DOWN the reason explains.

Slurm stores one reason per node, whoever sets it. Each owner lifts only its own drains and
overwrites no foreign reason. A prefix marks the reasons of this product.
"""

from enum import Enum

from sidecars.contract.explained import Explained

OPERATOR_PREFIX = "slurm-operator: "
"""Begins the reasons that the operator sets."""

POD_PREFIX = "slurm-node: "
"""Begins the reasons that a worker pod sets: its `register` and `node` containers and its health
checks.
"""

HEALTH_PREFIX = POD_PREFIX + "health: "
"""Begins the reasons of Slurm's HealthCheckProgram (charts/slurm-operator/workloads/health-run.sh).
"""

CHECK_PREFIX = POD_PREFIX + "check: "
"""Begins the reasons of checks that run as Slurm jobs (`sidecars.checks`). The name of the check
and `: ` follow.
"""

POD_LEAVING = POD_PREFIX + "the pod is terminating"
"""`node` drains the Slurm node with it when slurmd is about to be stopped."""

POD_GONE = POD_PREFIX + "slurmd has stopped"
"""`node` sets the Slurm node DOWN with it when slurmd has stopped and the node record can't be
deleted yet.
"""

RECORD_ORPHANED = OPERATOR_PREFIX + "its pod was deleted"
"""The operator sets a Slurm node DOWN with it when no pod is left that belongs to the node record.
"""

NOT_RESPONDING = "Not responding"
"""slurmctld sets it on a node whose slurmd is silent (slurmctld/ping_nodes.c)."""

PENDING_TERMINATION = " pending termination for "
"""Stands before the cause in the operator's reasons of nodes whose pods are to be deleted."""

KEPT_FOR = "; kept for "
"""Stands in a reason of this product before the job or the reservation because of which the record
outlives its pod.
"""

UNEXPECTEDLY_REBOOTED = "Node unexpectedly rebooted"
"""slurmctld sets it on a node that registers with a later boot time (slurmctld/node_mgr.c)."""

RESUME_TIMEOUT = "ResumeTimeout reached"
"""slurmctld sets it on a node that power saving has started and that did not register in time
(power_save.c).
"""

NO_CAPACITY = OPERATOR_PREFIX + "no capacity: "
"""Begins the reasons by which other versions have drained powered-down nodes."""

MAX_LENGTH = 200
"""Characters of a reason that a worker pod registers with. Longer ones are cut off."""


class NodeReason(Explained):
    """Every reason of a Slurm node that this product sets, or waits for. Words in capitals stand
    for other texts.
    """

    POD_TERMINATES = (
        OPERATOR_PREFIX + "Pod (NAMESPACE/POD) is pending termination for CAUSE",
        (
            "The worker is to be deleted, for example for `scale-in` or `an update`, when its jobs "
            "have ended."
        ),
        (
            "Wait, or cancel the jobs. A worker that is to be deleted for `scale-in` stays if the "
            "NodeSet is scaled out again."
        ),
    )
    PODS_TERMINATE = (
        OPERATOR_PREFIX + "Pods of NodeSet (NAMESPACE/NODESET) are pending termination for CAUSE",
        "The same, for 16 or more workers at once.",
        (
            "Wait, or cancel the jobs. Workers that are to be deleted for `scale-in` stay if the "
            "NodeSet is scaled out again."
        ),
    )
    POD_CORDONED = (
        OPERATOR_PREFIX + "Pod (NAMESPACE/POD) was cordoned",
        (
            'A user has set the annotation `nodeset.slinky.slurm.net/pod-cordon: "true"` on the '
            "worker pod."
        ),
        "Remove the annotation.",
    )
    POD_CORDON_REQUESTED = (
        OPERATOR_PREFIX + "Pod (NAMESPACE/POD) was asked to be cordoned",
        (
            "A program or a user has set the annotation "
            '`nodeset.slinky.slurm.net/pod-cordon-requested: "true"` on the worker pod.'
        ),
        "Whoever has set the annotation removes it.",
    )
    KUBE_NODE_CORDONED = (
        OPERATOR_PREFIX + "Node (NODE) was cordoned, Pod (NAMESPACE/POD) must be cordoned",
        "The worker's Kubernetes node is cordoned.",
        "Run `kubectl uncordon` when the maintenance is over.",
    )
    KUBE_NODE_CORDONED_FOR = (
        OPERATOR_PREFIX + "REASON",
        (
            "The worker's Kubernetes node is cordoned, with this annotation "
            "`nodeset.slinky.slurm.net/node-cordon-reason`, or "
            "with these conditions."
        ),
        "Run `kubectl uncordon` when the cause is fixed.",
    )
    CAPACITY = (
        NO_CAPACITY + "REASON",
        (
            "A pod of the NodeSet, which Slurm's power saving had started, found no Kubernetes "
            "node or no image, with another version of the operator."
        ),
        (
            "None. The operator undrains the nodes at once, and closes nodes in another way "
            "([Power saving](../power-saving.md#no-capacity))."
        ),
    )
    ORPHANED = (
        RECORD_ORPHANED,
        (
            "The worker's pod is gone. The node is DOWN, and its record stays because of a "
            "reservation, a job or another drain."
        ),
        (
            "The operator deletes the record when it is free. A record with a drain of an "
            "administrator is left to the administrator."
        ),
    )
    KEPT = (
        f"REASON{KEPT_FOR}job JOB",
        (
            "The worker's pod is to be deleted or is gone, and this job or a reservation names "
            "the node, the job with `--nodelist`. Slurm would end the job with NODE_FAIL if the "
            "node's record were deleted."
        ),
        (
            "To have the job run there, scale the NodeSet out again. Otherwise cancel it, or "
            "give it other nodes with `scontrol update jobid=JOB nodelist=NODES`. The operator "
            "deletes the record when nothing names it."
        ),
    )
    LEAVING = (
        POD_LEAVING,
        "The worker pod is terminating, and waits for its jobs.",
        "Wait. The record is deleted with the pod.",
    )
    GONE = (
        POD_GONE,
        "slurmd has stopped, and the record could not be deleted.",
        "Nothing. The next pod of this name or the operator deletes the record.",
    )
    GPUS = (
        POD_PREFIX + "FOUND of EXPECTED expected GPUs found by SOURCE",
        "The worker has another number of GPUs than `gpu.expected`.",
        (
            "Repair the GPUs, or correct `gpu.expected`, then delete the pod. `slurm-sidecars "
            "doctor gres` shows more ([GPUs](../gpus.md#a-gpu-is-missing))."
        ),
    )
    DISK = (
        HEALTH_PREFIX + "disk: REASON",
        "A file system is nearly full, or can't be written to.",
        "Free space, or correct the mount. The next check undrains the node.",
    )
    MEMORY = (
        HEALTH_PREFIX + "memory: REASON",
        "The host has too little free memory.",
        "Find the process that uses it. The next check undrains the node.",
    )
    MOUNTS = (
        HEALTH_PREFIX + "mounts: REASON",
        "A network file system or folder doesn't answer, is stale, or is missing.",
        "Check its server and the mount on the Kubernetes node. The next check undrains the node.",
    )
    GPU_ANSWERS = (
        HEALTH_PREFIX + "gpu-answers: REASON",
        "`nvidia-smi -L` fails, is missing, or doesn't answer in time.",
        (
            "Check the driver on the Kubernetes node. Without it, `nvidia-smi` comes from the "
            "NVIDIA container runtime."
        ),
    )
    GPU_COUNT = (
        HEALTH_PREFIX + "gpu-count: REASON",
        "The driver lists fewer GPUs or MIG devices than the worker should have.",
        "A GPU has failed: reset or replace it, or reboot the host.",
    )
    GPU_ECC = (
        HEALTH_PREFIX + "gpu-ecc: REASON",
        "GPUs have uncorrected memory errors, or rows or pages that wait for a reset.",
        "Reset the GPU or reboot the host. Replace a GPU with rows that can't be remapped.",
    )
    GPU_XID = (
        HEALTH_PREFIX + "gpu-xid: REASON",
        "The kernel has logged an Xid error of the GPU.",
        "Repair the GPU, then delete the pod: the check of the new pod ignores older errors.",
    )
    CHECK = (
        CHECK_PREFIX + "REASON",
        (
            "A check that ran as a Slurm job on the node has failed. The reason begins with the "
            "name of the check."
        ),
        (
            "Repair the node. The next run of the check that passes undrains it ([Checks that "
            "run](../checks.md))."
        ),
    )
    SILENT = (
        NOT_RESPONDING,
        "slurmctld has set it: slurmd doesn't answer.",
        (
            "See whether the pod runs and whether slurmctld reaches its port 6818. The node "
            "returns when slurmd answers."
        ),
    )
    REBOOTED = (
        UNEXPECTEDLY_REBOOTED,
        "slurmctld has set it: the host of slurmd was rebooted.",
        "Nothing. The operator resumes the node when its pod is ready and slurmd has registered.",
    )
    NOT_RESUMED = (
        RESUME_TIMEOUT,
        "slurmctld has set it: the worker that power saving started did not register in time.",
        (
            "See the condition `PowerSaving` of the NodeSet. The operator resumes the node when "
            "the worker has registered, or else after `powerSaving.retrySeconds`."
        ),
    )


_SLURMCTLD = frozenset({NOT_RESPONDING, UNEXPECTEDLY_REBOOTED, RESUME_TIMEOUT})
"""The whole text: a text that merely begins with it was typed by a user. `sidecars.slurm.owners`
knows who set it.
"""


class Owner(Enum):
    """Whose a reason is."""

    NOBODY = "nobody"
    """The node has no reason."""

    OPERATOR = "operator"
    """The operator's."""

    POD = "pod"
    """A worker pod's: this one or an earlier one of the same node."""

    SLURMCTLD = "slurmctld"
    """slurmctld's own, about a node that does not respond. Nobody has to repair anything."""

    FOREIGN = "foreign"
    """An administrator's or another program's. Neither overwritten nor lifted, and its node record
    is not deleted.
    """


OURS = frozenset({Owner.OPERATOR, Owner.POD})
"""The owners that are part of this product."""

REPLACEABLE = OURS | {Owner.NOBODY}
"""The owners whose reasons this product may overwrite. Slurm itself returns a node that it set DOWN
only if its own words are still there (ReturnToService=1).
"""


def owner(reason: str) -> Owner:
    """Return the owner of the reason. All decisions about reasons start here."""
    if not reason:
        return Owner.NOBODY
    if reason.startswith(OPERATOR_PREFIX):
        return Owner.OPERATOR
    if reason.startswith(POD_PREFIX):
        return Owner.POD
    return Owner.SLURMCTLD if reason in _SLURMCTLD else Owner.FOREIGN


def is_foreign(reason: str) -> bool:
    """Return whether an administrator or another program set the reason."""
    return owner(reason) is Owner.FOREIGN


def is_health_check(reason: str) -> bool:
    """Return whether a health check of the worker pod set the reason. Its cause is the Kubernetes
    node, not the pod.
    """
    return reason.startswith(HEALTH_PREFIX)


def is_departure(reason: str) -> bool:
    """Return whether `node` set the reason because its pod was stopped. slurmctld may have appended
    its own words.
    """
    return reason.startswith((POD_LEAVING, POD_GONE))


def is_for_deletion(reason: str) -> bool:
    """Return whether the operator set the reason in order to delete the node's pod."""
    return owner(reason) is Owner.OPERATOR and PENDING_TERMINATION in reason


def kept(reason: str, by: str) -> str:
    """Return our reason for a node whose record is kept after its pod, because `by` names it: `job
    17`.
    """
    return f"{unmarked(reason)}{KEPT_FOR}{by}"


def is_kept(reason: str) -> bool:
    """Return whether this product keeps the node's record after its pod because a job or a
    reservation names it.
    """
    return owner(reason) in OURS and KEPT_FOR in reason


def unmarked(reason: str) -> str:
    """Return the reason without the mark that `kept` adds."""
    return reason.partition(KEPT_FOR)[0] if owner(reason) in OURS else reason


def is_for_the_end(reason: str) -> bool:
    """Return whether the reason shows that the node's pod is to be deleted, is being stopped, or is
    gone.
    """
    return is_for_deletion(reason) or is_departure(reason) or reason.startswith(RECORD_ORPHANED)


def of_operator(text: str) -> str:
    """Return a reason of the operator's."""
    return OPERATOR_PREFIX + text


def of_pod(text: str) -> str:
    """Return a reason that a worker pod registers with, "" for no text."""
    return (POD_PREFIX + text)[:MAX_LENGTH] if text else ""
