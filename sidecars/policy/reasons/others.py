"""The reasons of the other conditions: start gate, keys, Slurm, partitions, reservation,
metrics.
"""

from sidecars.policy.reasons.base import NOTHING, WAIT, Reason

_UNREACHABLE = "[slurmrestd is not reachable](../troubleshooting.md#slurmrestd-is-not-reachable)"
_ROTATION = "[Keys](../keys.md#rotate-slurmkey)"
_STEP = f"Wait. The message names what the step waits for ({_ROTATION})."


class StartGated(Reason):
    """Of a Controller with standbys: whether each slurmctld asked its [start
    gate](../slurmctld.md#start-gate) before it started, so that none started with old state while
    another one led.
    """

    PASSED = "Passed", "Each slurmctld asked its start gate, and no standby led.", NOTHING, "True"
    NOT_ASKED = (
        "NotAsked",
        (
            "slurmctld started without asking the start gate, for example because "
            "`slurmctld.command` restarts it."
        ),
        "Set a command that ends when slurmctld ends, and delete the pod that the message names.",
        "False",
    )
    STANDBY_LED = (
        "StandbyLed",
        (
            "slurmctld started although a standby may have led: that standby did not end, or did "
            "not answer."
        ),
        (
            "Check that slurmctld pods reach each other at port 6816, and compare `squeue` with "
            "the jobs that run."
        ),
        "False",
    )
    WAITING = (
        "Waiting",
        "slurmctld waits until no standby leads.",
        "Wait, at most about 20 s.",
        "Unknown",
    )
    NOT_RUNNING = (
        "NotRunning",
        "slurmctld doesn't run in the pod that the message names.",
        "See [slurmctld does not start](../troubleshooting.md#slurmctld-does-not-start).",
        "Unknown",
    )
    NO_ANSWER = (
        "NoAnswer",
        "The sidecar `reconfigure` of a slurmctld pod has not answered the operator.",
        "Wait. If it lasts, see the condition `ConfigurationAccepted`.",
        "Unknown",
    )
    NO_START_GATE = (
        "NoStartGate",
        "The pod was created by another version of the operator and has no start gate.",
        "Wait until the pod is replaced, or delete it.",
        "Unknown",
    )
    NO_POD = (
        "NoPod",
        "No slurmctld pod exists yet.",
        "Wait. If it lasts, see the condition `Ready`.",
        "Unknown",
    )


class SlurmKey(Reason):
    """Of a Controller: which keys Slurm's daemons have, and the step of a
    [rotation](../keys.md#rotate-slurmkey). If the keys of an external slurmctld can't be read, it
    has the reason that `Ready` would have.
    """

    IN_USE = (
        "InUse",
        "All daemons use only the key of the Secret that the message names.",
        NOTHING,
        "True",
    )
    SHARED = (
        "Shared",
        (
            "Several Controllers have the same `slurmKeyRef`. True: another Controller manages "
            "the keys. False: this Controller requests another key, which can't be introduced "
            "for one of them alone."
        ),
        "Give each Controller a Secret of its own before a rotation.",
        "True or False",
    )
    ADDING = (
        "Adding",
        "Step 1: all daemons get both keys, and sign with the old one.",
        _STEP,
        "False",
    )
    SWITCHING = (
        "Switching",
        "Step 2: all daemons sign with the new key, and still accept the old one.",
        _STEP,
        "False",
    )
    REMOVING = "Removing", "Step 3: the old key is removed.", _STEP, "False"
    REVERTING = (
        "Reverting",
        (
            "`nextSlurmKeyRef` was removed or changed during a rotation. The daemons first "
            "return to one key."
        ),
        _STEP,
        "False",
    )
    SWAPPED = (
        "Swapped",
        (
            "The Secret of `slurmKeyRef` contains another key than the cluster uses. The daemons "
            "keep their key."
        ),
        (
            "Put the former key back, or name a Secret with the new key in `nextSlurmKeyRef` "
            "([why](../keys.md#why-the-key-cant-be-replaced-at-once))."
        ),
        "False",
    )
    KEY_TOO_SHORT = (
        "KeyTooShort",
        "The new key has 16 bytes or fewer, which Slurm refuses. Nothing was changed.",
        "Use 1024 random bytes.",
        "False",
    )
    REFERENCE_MISSING = (
        "ReferenceMissing",
        "The Secret of `nextSlurmKeyRef`, or its key, doesn't exist. Nothing was changed.",
        "Create the Secret, or remove `nextSlurmKeyRef`.",
        "False",
    )


class SlurmReachable(Reason):
    """Of a Controller and a NodeSet: whether the operator can read and change Slurm, through
    slurmrestd. While it can't, it deletes no pod that may have a job.
    """

    POLLED = "Polled", "slurmrestd answers.", NOTHING, "True"
    NO_ANSWER = (
        "NoAnswer",
        (
            "slurmrestd doesn't answer, answers with an error, or refuses the operator's token. "
            "The message contains it."
        ),
        f"See {_UNREACHABLE}.",
        "False",
    )
    NO_REST_API = (
        "NoRestApi",
        "No RestApi refers to the Controller, so the operator can't reach its Slurm.",
        "Create a RestApi, or set `restapi.enabled: true` in the chart's values.",
        "Unknown",
    )


class PartitionsReleased(Reason):
    """Of a NodeSet, while removed partitions are still in slurm.conf: what they wait for."""

    JOBS_REFER = (
        "JobsRefer",
        "Jobs name a partition that was removed. It is closed, and stays until no job names it.",
        (
            "Wait for the jobs, cancel them, or set `spec.forceRemoval` ([Delete a NodeSet or "
            "its partition](../nodesets.md#delete-a-nodeset-or-its-partition))."
        ),
        "False",
    )


class RecordsReleased(Reason):
    """Of a NodeSet, while Slurm has node records of workers that are gone: what they wait for."""

    NAMED = (
        "Named",
        (
            "A job or a reservation names a Slurm node without a worker. The node stays DOWN "
            "until nothing names it: Slurm would end the job if the node's record were deleted."
        ),
        (
            "Scale the NodeSet out to have the job run. Otherwise cancel it, or give it other "
            "nodes ([Jobs that name a node](../nodesets.md#jobs-that-name-a-node))."
        ),
        "False",
    )


class ReservationCreated(Reason):
    """Of a NodeSet with update strategy ScheduledUpdate: the state of its
    [maintenance reservation](../nodesets.md#update-in-a-maintenance-window)."""

    CREATED = (
        "Created",
        "The reservation exists. The message names flags that Slurm doesn't show.",
        NOTHING,
        "True",
    )
    RECREATING = (
        "Recreating",
        "The reservation gets other flags, for which it is created again.",
        WAIT,
        "False",
    )
    NOT_EXISTS = (
        "NotExists",
        "The reservation doesn't exist. Its time is over, or it was deleted in it.",
        (
            "For another update, set `spec.updateStrategy.scheduledUpdate.startTime` to a time in "
            "the future."
        ),
        "False",
    )
    NO_NODES = (
        "NoNodes",
        "No worker is registered in Slurm yet.",
        "Wait for workers, or add some.",
        "False",
    )
    REFUSED = (
        "Refused",
        "Slurm refuses the reservation. The message quotes it.",
        "Correct `spec.updateStrategy.scheduledUpdate`.",
        "False",
    )
    NO_ANSWER = (
        "NoAnswer",
        "Slurm can't be asked for the reservation.",
        f"See {_UNREACHABLE}.",
        "Unknown",
    )


class ServiceMonitor(Reason):
    """Of a Controller with `metrics.serviceMonitor.enabled`. If its ServiceMonitor can't be
    applied, it has the reason that `Ready` would have, for example `Refused` or `NameTaken`.
    """

    APPLIED = "Applied", "The ServiceMonitor exists.", NOTHING, "True"
    KIND_MISSING = (
        "KindMissing",
        "Kubernetes has no kind ServiceMonitor.",
        "Install the Prometheus operator, or set `metrics.serviceMonitor.enabled: false`.",
        "False",
    )


class PowerSaving(Reason):
    """Of a NodeSet with `powerSaving`: whether workers run as Slurm asks for them
    ([Power saving](../power-saving.md))."""

    FOLLOWING = "Following", "Workers run for the Slurm nodes that are powered up.", NOTHING, "True"
    FIRST_WORKER = (
        "FirstWorker",
        (
            "It isn't known yet what a worker offers. One worker is started, and its registration "
            "shows it."
        ),
        "Wait, or set `spec.powerSaving.node`.",
        "False",
    )
    NO_CAPACITY = (
        "NoCapacity",
        (
            "The pod of a node that Slurm has started finds no Kubernetes node, or its image "
            "can't be pulled. A reservation closes the powered-down nodes of the NodeSet for "
            "`powerSaving.retrySeconds`, so that Slurm uses other NodeSets."
        ),
        "Add Kubernetes nodes, or correct the pod template. The message quotes Kubernetes.",
        "False",
    )
    WORKER_TOO_SMALL = (
        "WorkerTooSmall",
        (
            "A worker registered with fewer CPUs or GPUs or less memory than its node record "
            "shows. slurmctld has drained the node and requeued its job. The message quotes it."
        ),
        (
            "Repair the Kubernetes node, then `scontrol update nodename=NAME state=resume`. Or "
            "set `spec.powerSaving.node` to what the smallest worker offers: the operator powers "
            "the node down then, and replaces its record."
        ),
        "False",
    )
    RESUME_TIMEOUT = (
        "ResumeTimeout",
        (
            "Workers did not register within `powerSaving.startSeconds`, and Slurm has set their "
            "nodes DOWN."
        ),
        (
            "`kubectl describe pod` and `kubectl logs` show why. If they only need longer, "
            "increase `powerSaving.startSeconds`."
        ),
        "False",
    )
    SLURM_TOO_OLD = (
        "SlurmTooOld",
        (
            "slurmrestd reports a release of Slurm whose power saving this operator doesn't "
            "support. No node record is created or changed."
        ),
        "Update Slurm to the release that the message names, or set `powerSaving.enabled: false`.",
        "False",
    )
    INVALID = (
        "Invalid",
        (
            "`spec.powerSaving.node` or `spec.extraConf` can't be used for node records. The "
            "present records and workers stay, and Slurm powers nodes up and down as before."
        ),
        "Change the field that the message names.",
        "False",
    )
    NO_ANSWER = (
        "NoAnswer",
        "Slurm can't be asked. No worker is started or stopped.",
        f"See {_UNREACHABLE}.",
        "Unknown",
    )
