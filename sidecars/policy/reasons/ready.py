"""The reasons of the condition `Ready`."""

from sidecars.policy.reasons.base import NOTHING, WAIT, Reason

_PODS = (
    "`kubectl describe pod` shows why a pod is not scheduled or doesn't start, and `kubectl "
    "logs` what its daemon logs."
)
_UPGRADES = "[Upgrades](../upgrades.md)"
_TAKING_OVER = (
    "[Taking over a live installation](../compatibility.md#taking-over-a-live-installation)"
)


class Ready(Reason):
    """Every custom resource has it. It sums up the resource: the message names the step in progress
    and the remedy. `kubectl get` prints the reason.
    """

    # All kinds

    READY = "Ready", "All pods are up to date and ready.", NOTHING, "True"
    SCALED_TO_ZERO = "ScaledToZero", "`spec.replicas` is 0, so no pods run.", NOTHING, "True"
    EXTERNAL = (
        "External",
        "The daemon runs outside this Kubernetes cluster (`spec.external`).",
        NOTHING,
        "True",
    )
    STARTING = "Starting", "The StatefulSet or Deployment is being created.", WAIT, "False"
    UPDATING = (
        "Updating",
        "Pods of an earlier version are being replaced.",
        f"{WAIT} If the number of updated pods stays: {_PODS}",
        "False",
    )
    PODS_NOT_READY = (
        "PodsNotReady",
        (
            "Pods are pending, are starting, or fail. The message of a NodeSet quotes the "
            "scheduler, and names an image that can't be pulled. The message of an Accounting "
            "names its database, without which slurmdbd doesn't become ready."
        ),
        (
            f"{_PODS} If no Kubernetes node fits, add one or change `nodeSelector`, tolerations or "
            "resources."
        ),
        "False",
    )
    INVALID = (
        "Invalid",
        "A field of the custom resource, or an object that it refers to, can't be used as it is.",
        "Change the field that the message names.",
        "False",
    )
    REFERENCE_MISSING = (
        "ReferenceMissing",
        (
            "A Secret, a ConfigMap, a claim, or a key in one of them doesn't exist. The message "
            "names the field that refers to it."
        ),
        (
            "Create the object with this key, or correct the name. The operator then continues "
            "automatically."
        ),
        "False",
    )
    REFERENCE_UNREAD = (
        "ReferenceUnread",
        (
            "The Secret or ConfigMap exists, but the operator can't read it at present: the API "
            "server doesn't answer or refuses it."
        ),
        (
            "The operator repeats the read. If the message shows that access is forbidden, run "
            "`helm upgrade` for the operator's release, which restores its Role."
        ),
        "False",
    )
    REFUSED = (
        "Refused",
        (
            "The API server refuses an object of the operator. Its message follows: a quota, an "
            "admission policy, a missing right, or a value that Kubernetes doesn't accept."
        ),
        (
            "Change what the API server names: the quota, the policy, or the field of the pod "
            "template. The operator repeats the request."
        ),
        "False",
    )
    CHANGE_NOT_APPLIED = (
        "ChangeNotApplied",
        (
            "A field was changed that can't be changed after the creation, such as the size of a "
            "volume whose StorageClass doesn't expand it. It stays, and everything else is "
            "applied. The status is that of the pods."
        ),
        "The message names the field, both values and the remedy ([Volumes](../volumes.md)).",
        "True or False",
    )
    FAILED = (
        "Failed",
        "A request to the API server failed. The message quotes the answer.",
        (
            "The operator repeats the request, after up to a minute. If it lasts, check the API "
            "server and the operator's log."
        ),
        "False",
    )
    NAME_TAKEN = (
        "NameTaken",
        (
            "An object with the needed name exists and belongs to another owner. The operator "
            "doesn't change it."
        ),
        "Rename the custom resource, or delete the object that the message names.",
        "False",
    )
    FORBIDDEN = (
        "Forbidden",
        (
            "The operator has no Role in this namespace, for example after the namespace was "
            "deleted and created again. It changes nothing there."
        ),
        (
            "Run `helm upgrade` for the operator's release with the namespace in "
            "`operator.namespaces`."
        ),
        "False",
    )
    CONTROLLER_MISSING = (
        "ControllerMissing",
        "`spec.controllerRef` names a Controller that doesn't exist in this namespace.",
        "Create the Controller, or correct the name.",
        "False",
    )
    WAITING_FOR_KEYS = (
        "WaitingForKeys",
        "The Secret with the keys of Slurm's daemons is being created. No daemon starts before.",
        f"{WAIT} If it lasts, the condition `Ready` of the Controller shows the cause.",
        "False",
    )
    KEY_LOST = (
        "KeyLost",
        (
            "A Secret has lost the key or the password that the operator generated, and the "
            "cluster uses it. Another one is not generated, because the daemons have the former "
            "one."
        ),
        "Restore the Secret from a backup ([Keys](../keys.md#when-a-key-is-lost)).",
        "False",
    )
    WAITING_FOR_UPGRADE = (
        "WaitingForUpgrade",
        (
            "Slurm's daemons are upgraded in order, and one that must be upgraded earlier isn't "
            "ready yet."
        ),
        f"{WAIT} If it lasts, look at the resource that the message names ({_UPGRADES}).",
        "False",
    )
    TAKING_OVER = (
        "TakingOver",
        (
            "The objects of SchedMD's operator are replaced in order. This one is being "
            "replaced, or waits for the one that the message names."
        ),
        f"{WAIT} If it lasts, look at the StatefulSet that the message names ({_TAKING_OVER}).",
        "False",
    )
    TWO_OPERATORS = (
        "TwoOperators",
        (
            "SchedMD's operator has written to an object after this operator has taken it over. "
            "The object stays as it is, so that two operators don't replace Slurm's pods in turn."
        ),
        (
            "Find SchedMD's operator with `kubectl get deployments -A` and delete its "
            "Deployment. This operator tries again after 5 minutes to an hour, or when you "
            f"restart it ({_TAKING_OVER})."
        ),
        "False",
    )
    NEWER_THAN_LEADER = (
        "NewerThanLeader",
        (
            "The image is newer than that of the daemon that it connects to, which would not "
            "understand it."
        ),
        (
            "Give the daemon that the message names an image of this version or newer first "
            f"({_UPGRADES})."
        ),
        "False",
    )
    OLDER_THAN_STATE = (
        "OlderThanState",
        (
            "The image of slurmctld or slurmdbd is older than the version that has stored its "
            "state or database."
        ),
        (
            "Set an image of the version in the message or newer, or restore a backup of the state "
            f"({_UPGRADES})."
        ),
        "False",
    )
    IN_USE = (
        "InUse",
        "The Controller or RestApi is being deleted, and NodeSets still refer to it.",
        (
            "Delete the NodeSets that the message names. Their condition `Ready` shows what they "
            "wait for."
        ),
        "False",
    )

    # Controller

    CONFIGURATION_REFUSED = (
        "ConfigurationRefused",
        (
            "The newest configuration is refused, and slurmctld keeps the one before. The status "
            "is that of its pods."
        ),
        (
            "The message names file, line and reason. Correct that line "
            "([Configuration](../configuration.md))."
        ),
        "True or False",
    )
    ACCOUNTING_MISSING = (
        "AccountingMissing",
        "`spec.accountingRef` names an Accounting that doesn't exist in this namespace.",
        "Create the Accounting, or remove the reference.",
        "False",
    )
    WAITING_FOR_ACCOUNTING = (
        "WaitingForAccounting",
        "slurmctld needs slurmdbd for its first start, and the Accounting isn't ready.",
        (
            "See the condition `Ready` of the Accounting. slurmctld starts 120 s after its "
            "creation in any case."
        ),
        "False",
    )

    # RestApi, LoginSet

    WAITING_FOR_CONFIGURATION = (
        "WaitingForConfiguration",
        "slurmctld has accepted no configuration yet. slurmrestd reads the accepted one.",
        "See the condition `ConfigurationAccepted` of the Controller.",
        "False",
    )
    HOST_KEYS_FAILED = (
        "HostKeysFailed",
        "The operator can't generate the SSH host keys of the login nodes.",
        (
            "Run the operator from this project's image, which contains ssh-keygen. The message "
            "quotes ssh-keygen."
        ),
        "False",
    )

    # NodeSet

    DRAINING = (
        "Draining",
        (
            "Workers are to be deleted or replaced, and wait until Slurm shows that they have no "
            "job. The message names the first one and what it waits for."
        ),
        (
            "Wait for the jobs, or cancel them. See [A NodeSet does not scale "
            "in](../troubleshooting.md#a-nodeset-does-not-scale-in)."
        ),
        "False",
    )
    SCALING_IN = "ScalingIn", "Pods are terminating.", WAIT, "False"
    REMOVING = (
        "Removing",
        "The NodeSet is being deleted, and its pods are still terminating.",
        f"{WAIT} `spec.deletionTimeout` limits the time.",
        "False",
    )
    JOBS_REFER = (
        "JobsRefer",
        "The NodeSet is being deleted, and jobs name its partition, which would be lost with it.",
        "Wait for the jobs, cancel them, or set `spec.forceRemoval`.",
        "False",
    )
    KUBE_NODE_LOST = (
        "KubeNodeLost",
        (
            "A pod is terminating on a Kubernetes node whose kubelet doesn't report. Its slurmd "
            "may still run."
        ),
        (
            "If the host is off, run the `kubectl taint` command of the message. Else repair the "
            "kubelet ([Lost Kubernetes "
            "nodes](../nodesets.md#lost-kubernetes-nodes-and-unregistered-workers))."
        ),
        "False",
    )
    NAME_CONFLICT = (
        "NameConflict",
        "Two NodeSets, pods or Kubernetes nodes would have one name in Slurm.",
        (
            "Set another `spec.template.spec.hostname`, or in mode DaemonSet the annotation "
            "`nodeset.slinky.slurm.net/hostname-override` of a Kubernetes node."
        ),
        "False",
    )
    CLAIM_TERMINATING = (
        "ClaimTerminating",
        (
            "The PersistentVolumeClaim of an earlier worker with this name is being deleted, and "
            "the next one waits."
        ),
        f"{WAIT} If it lasts, `kubectl describe pvc` shows what uses the claim.",
        "False",
    )
    FEWER_GPUS_THAN_NODE = (
        "FewerGpusThanNode",
        (
            "Workers request fewer GPUs than their Kubernetes node has, and slurmd is "
            "privileged: it would use all of them."
        ),
        (
            "Set `gpu.count` to the number in the message, select other Kubernetes nodes, or set "
            "`slurmd.securityContext.privileged: false` ([GPUs](../gpus.md))."
        ),
        "False",
    )
    NOT_REGISTERED = (
        "NotRegistered",
        "A slurmd runs, and Slurm has no node of it. The pod is replaced after a time.",
        "See [A worker is not registered](../troubleshooting.md#a-worker-is-not-registered).",
        "False",
    )
    SLURM_NODES_DOWN = (
        "SlurmNodesDown",
        "Pods are ready, and their Slurm nodes are DOWN. The message quotes the reason of each.",
        (
            "Remove the cause, then run the `scontrol` command of the message. See [A Slurm node "
            "is DOWN or drained](../troubleshooting.md#a-slurm-node-is-down-or-drained)."
        ),
        "False",
    )
    STATE_LOST = (
        "StateLost",
        (
            "Slurm lacks the nodes of many running workers: slurmctld may have lost its state, "
            "and jobs may still run there. None of these pods is deleted."
        ),
        (
            "Restore slurmctld's state, or delete these pods when their jobs have ended ([When "
            "slurmctld may have lost its "
            "state](../nodesets.md#when-slurmctld-may-have-lost-its-state))."
        ),
        "False",
    )

    # Token

    ISSUED = "Issued", "The Secret contains a valid token.", NOTHING, "True"
    SIGNING = "Signing", "The token is being signed.", WAIT, "False"
    SECRET_TAKEN = (
        "SecretTaken",
        "A Secret with the name of the token exists and belongs to something else.",
        "Set another `spec.secretRef.name`, or delete that Secret.",
        "False",
    )
    OUTDATED = (
        "Outdated",
        "The token doesn't match the Token or its key, and `spec.refresh` is off.",
        "Delete the Secret to get another token, or set `spec.refresh: true`.",
        "False",
    )
    EXPIRED = (
        "Expired",
        "The token has expired, and `spec.refresh` is off.",
        "Delete the Secret to get another token, or set `spec.refresh: true`.",
        "False",
    )
