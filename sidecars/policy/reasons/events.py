"""The reasons of Kubernetes Events."""

from sidecars.contract.explained import Explained
from sidecars.policy.reasons.base import NOTHING


class EventReason(Explained):
    """Of the custom resource, or of a worker pod. `kubectl describe` shows them; Kubernetes keeps
    them for an hour.
    """

    # All kinds

    SYNC_FAILED = (
        "SyncFailed",
        (
            "The resource can't be reconciled. The note begins with the reason of the condition "
            "`Ready`."
        ),
        "Search for that reason on this page.",
    )
    RESTARTING = (
        "Restarting",
        (
            "The pods of a StatefulSet or Deployment are replaced, because something changed "
            "that they read only at their start. The note names it."
        ),
        NOTHING,
    )

    CHANGE_NOT_APPLIED = (
        "ChangeNotApplied",
        "A changed field stays as it is, because it can't be changed after the creation.",
        "The note names the field, both values and the remedy ([Volumes](../volumes.md)).",
    )
    VOLUME_RESIZED = (
        "VolumeResized",
        (
            "A claim requests another size, as the custom resource does. Its volume follows when "
            "the storage has done it."
        ),
        NOTHING,
    )

    # Controller

    CONFIGURATION_ACCEPTED = (
        "ConfigurationAccepted",
        "A configuration passed slurmctld's dry run.",
        NOTHING,
    )
    CONFIGURATION_REJECTED = (
        "ConfigurationRejected",
        "A configuration was refused. slurmctld continues with the one before.",
        (
            "The note names file, line and reason. Correct that line "
            "([Configuration](../configuration.md))."
        ),
    )
    CONFIGURATION_RUNNING = (
        "ConfigurationRunning",
        "slurmctld runs with a new configuration.",
        NOTHING,
    )
    START_NOT_GATED = (
        "StartNotGated",
        "A slurmctld started past its start gate, perhaps with old state while another one led.",
        "See the reasons of the condition `StartGated`.",
    )
    ACCOUNTS_CHANGED = (
        "AccountsChanged",
        (
            "The declared accounts, users or QOS differ from slurmdbd. The note lists the changes "
            "that are applied."
        ),
        "See the condition `AccountsApplied`.",
    )
    ACCOUNTS_DRIFT = (
        "AccountsDrift",
        "Someone changed in slurmdbd what is declared. The note lists what is set back.",
        "Change the declaration instead, or remove the field from it.",
    )
    SLURM_KEY = (
        "SlurmKey",
        "The keys of Slurm's daemons reached the next step of a rotation.",
        NOTHING,
    )

    # NodeSet

    SCALING_UP = "ScalingUp", "Pods are created.", NOTHING
    DRAINING = (
        "Draining",
        "Slurm nodes are drained, because their workers are to be deleted or are cordoned.",
        NOTHING,
    )
    NO_CAPACITY = (
        "NoCapacity",
        (
            "A pod that power saving started finds no Kubernetes node or no image, so Slurm uses "
            "other NodeSets."
        ),
        "See the condition `PowerSaving`.",
    )
    SUCCESSFUL_DELETE = "SuccessfulDelete", "Pods were deleted. The note names the cause.", NOTHING
    HOSTNAME_MISMATCH = (
        "HostnameMismatch",
        (
            "A worker of mode DaemonSet was deleted, because its Kubernetes node has another "
            "name in Slurm."
        ),
        NOTHING,
    )
    FAILED_DAEMON_POD = (
        "FailedDaemonPod",
        (
            "A failed worker of mode DaemonSet was deleted. The operator creates another one, "
            "after up to 15 minutes."
        ),
        "If it repeats, `kubectl logs --previous` and `kubectl describe pod` show the cause.",
    )
    SUCCEEDED_DAEMON_POD = (
        "SucceededDaemonPod",
        "A worker of mode DaemonSet that has ended was deleted.",
        NOTHING,
    )
    SLURM_NODE_NOT_REGISTERED = (
        "SlurmNodeNotRegistered",
        (
            "A worker was deleted, because its slurmd ran and Slurm had no node of it. Another one "
            "is created."
        ),
        (
            "If it repeats, see [A worker is not "
            "registered](../troubleshooting.md#a-worker-is-not-registered)."
        ),
    )
    FAILED_CREATE = (
        "FailedCreate",
        "The API server refuses a worker pod. The note quotes it.",
        (
            "Change the quota, the admission policy or the field of the pod template that the note "
            "names."
        ),
    )

    # Worker pods

    PLACEMENT_REFUSED = (
        "PlacementRefused",
        (
            "Slurm refuses the topology or the features of the pod's Kubernetes node. The operator "
            "repeats the request."
        ),
        (
            "Correct the annotation of the Kubernetes node, or topology.yaml "
            "([Topology and features](../nodesets.md#topology-and-features))."
        ),
    )
    PLACE_UNKNOWN = (
        "PlaceUnknown",
        (
            "Labels of the Kubernetes node don't tell where the pod's Slurm node is in a "
            "topology. It is in the switch `NAME-other`."
        ),
        "Correct the labels that the message names ([Topology](../rdma-topology.md#topology)).",
    )
    BAD_FEATURE = (
        "BadFeature",
        (
            "A name in the annotation `features.slinky.slurm.net/spec` of the Kubernetes node "
            "can't be a feature. It is ignored."
        ),
        "Use letters, digits and `_.:/=-`, and begin with a letter, a digit or `_`.",
    )

    # Token

    SIGNED = (
        "Signed",
        "Another token was signed before the present one needed renewal. The note names the cause.",
        NOTHING,
    )
