"""What the Slurm Bridge shows on the pods and nodes that it manages."""

from sidecars.contract.explained import Explained
from sidecars.policy.reasons.base import NOTHING, WAIT


class PodQueued(Explained):
    """The reasons of the condition `slinky.slurm.net/Queued` of a pod that Slurm schedules
    ([Slurm Bridge](../bridge.md)). Its status is True while the pod waits."""

    WAITING = (
        "Waiting",
        (
            "Slurm has the pod's job in its queue. The message has Slurm's reason, and when Slurm "
            "expects it to start."
        ),
        WAIT,
    )
    INCOMPLETE = (
        "GroupIncomplete",
        (
            "The job of a group is submitted when all pods of the group exist. The message has "
            "their number."
        ),
        "Create the other pods, or correct the [size of the group](../bridge-pods.md#groups).",
    )
    REFUSED = (
        "Refused",
        (
            "The pod can't have a job, or Slurm refuses the job, or Kubernetes a change of the "
            "pod. See the message."
        ),
        "Correct what the message names. Create the pod again for another specification.",
    )
    NO_JOB = (
        "NoJob",
        (
            "The annotation `submit` of the pod asks for a job that its user submits, and Slurm "
            "has none."
        ),
        (
            "Submit [a job that brings the pods "
            "along](../bridge-pods.md#a-slurm-job-that-brings-pods-along)."
        ),
    )
    NODE_NOT_FREE = (
        "NodeNotFree",
        (
            "The job runs. The message has what its node waits for, or what place or device the "
            "job lacks for the pod."
        ),
        WAIT,
    )
    JOB_UNKNOWN = (
        "JobUnknown",
        (
            "slurmctld doesn't list the pod's job, and slurmdbd has no end of it. The pod is "
            "neither deleted nor submitted again."
        ),
        "If the job has ended, delete the pod.",
    )
    RELEASED = "Released", "The job runs, and the pod may start.", NOTHING


class PodDisrupted(Explained):
    """The reasons of the condition `DisruptionTarget` of a pod that the Slurm Bridge deletes though
    neither its owner nor its time limit ends it ([the end of a
    job](../bridge-lifecycle.md#pods-that-end-through-no-fault-of-their-own)).
    """

    PREEMPTED = "PreemptedBySlurm", "Slurm has preempted the pod's job.", NOTHING
    NODE_FAIL = "SlurmNodeFail", "Slurm has ended the pod's job, because a node failed.", NOTHING
    GIVEN_UP = (
        "JobGivenUp",
        "The bridge has cancelled the pod's job, because not all of its pods could start.",
        "The Events of the pods of the job quote the cause.",
    )
    REQUEUED = "SlurmJobRequeued", "The pod's job was queued again.", NOTHING


class BridgeEvent(Explained):
    """Events of the Slurm Bridge, of pods, of Kubernetes nodes, and of the ConfigMap of the
    tenants.
    """

    SUBMITTED = "Submitted", "The pod got a job in Slurm. The note has its id.", NOTHING
    RELEASED = "Released", "The job runs, and the pod may start on the job's node.", NOTHING
    JOB_ENDED = (
        "JobEnded",
        "The job has ended, and the pod is deleted. The note has the job's state.",
        NOTHING,
    )
    NOT_BOUND = (
        "NotBound",
        (
            "The scheduler couldn't bind a released pod within 15 s. Its job is cancelled, and the "
            "node avoided."
        ),
        "The note quotes the scheduler.",
    )
    NOT_STARTED = (
        "NotStarted",
        (
            "A bound pod has not started in time, such as without its image or its volume. Its "
            "job is cancelled, and the node avoided."
        ),
        "The note quotes the kubelet. `kubectl describe pod` has the rest.",
    )
    NO_ROLE_BINDING = (
        "NoRoleBinding",
        "A tenant's namespace has no RoleBinding with which the bridge may change its pods.",
        "Run the command in the note ([Rights](../bridge-security.md#rights)).",
    )
    REQUEUED = (
        "Requeued",
        (
            "Its job couldn't start the pod, or has ended before. The pod gets another job. The "
            "note has the cause."
        ),
        WAIT,
    )
    REFUSED = (
        "Refused",
        (
            "The pod can't have a job, or the Kubernetes node can't have a record in Slurm. The "
            "note has the cause."
        ),
        "Correct what the note names.",
    )
