"""The reasons of the conditions of a Controller's configuration."""

from sidecars.policy.reasons.base import NOTHING, WAIT, Reason

_SIDECAR = "`kubectl logs POD -c reconfigure` shows what the sidecar does."
_CORRECT = (
    "Correct the line that the message names. slurmctld continues with the configuration before."
)
_POD_NOT_STARTED = (
    "PodNotStarted",
    (
        "The sidecar `reconfigure` of a slurmctld pod is not running, so the pod's configuration "
        "is unknown."
    ),
    "`kubectl describe pod` shows why the pod is not scheduled or doesn't start.",
    "Unknown",
)
_NO_ANSWER = (
    "NoAnswer",
    (
        "The sidecar `reconfigure` of a slurmctld pod doesn't answer the operator. The message "
        "contains the error."
    ),
    f"Check that NetworkPolicies admit the operator at port 6816. {_SIDECAR}",
    "Unknown",
)
_NO_POD = (
    "NoPod",
    "No slurmctld pod exists yet.",
    "Wait. If it lasts, see the condition `Ready`.",
    "Unknown",
)


class ConfigurationAccepted(Reason):
    """Of a Controller: whether slurmctld takes its newest configuration
    ([Checks](../configuration.md#checks-before-a-change-is-applied)). A refused configuration
    changes nothing.
    """

    DRY_RUN_PASSED = (
        "DryRunPassed",
        (
            "slurmctld has read the newest configuration in a dry run. The message contains the "
            "operator's warnings."
        ),
        NOTHING,
        "True",
    )
    INVALID = (
        "Invalid",
        (
            "The operator found a fault in the configuration and didn't publish it. The message "
            "names file, line and source."
        ),
        "Correct the field or line that the message names.",
        "False",
    )
    DRY_RUN_FAILED = (
        "DryRunFailed",
        (
            "slurmctld refused the configuration in a dry run. The message quotes it, with file, "
            "line and source."
        ),
        _CORRECT,
        "False",
    )
    RECONFIGURE_FAILED = (
        "ReconfigureFailed",
        (
            "The configuration passed the dry run, but the running slurmctld refused it, or "
            "ended when it read it. The former one was restored. The message quotes slurmctld."
        ),
        _CORRECT,
        "False",
    )
    START_FAILED = (
        "StartFailed",
        (
            "slurmctld ended when it started with the configuration. The former one was restored. "
            "The message quotes it."
        ),
        _CORRECT,
        "False",
    )
    SLURMD_ENDED = (
        "SlurmdEnded",
        (
            "slurmctld took the configuration, and slurmds that ran ended when they read it. The "
            "former one was restored. The message names the nodes, and quotes slurmd."
        ),
        (
            f"{_CORRECT} If the cause is not in the configuration, revert the change, and make it "
            "again."
        ),
        "False",
    )
    NOT_CHECKED = (
        "NotChecked",
        (
            "The check of the configuration could not run, for example because it took too long. "
            "It is repeated."
        ),
        f"Wait. If it lasts: {_SIDECAR}",
        "Unknown",
    )
    NOT_PUBLISHED = (
        "NotPublished",
        "The operator has not composed the configuration yet.",
        WAIT,
        "Unknown",
    )
    ARRIVING = (
        "Arriving",
        "The kubelet has not updated the files in the slurmctld pod yet.",
        (
            "Wait, at most about a minute. If it lasts, check the kubelet of the pod's Kubernetes "
            "node."
        ),
        "Unknown",
    )
    CHECKING = "Checking", "A slurmctld pod is checking the configuration.", WAIT, "Unknown"
    POD_NOT_STARTED = _POD_NOT_STARTED
    NO_ANSWER = _NO_ANSWER
    NO_POD = _NO_POD


class ConfigurationRunning(Reason):
    """Of a Controller: whether slurmctld runs with its newest configuration."""

    RUNNING = (
        "Running",
        (
            "slurmctld runs with the newest configuration. The message names the changes for which "
            "it was restarted."
        ),
        NOTHING,
        "True",
    )
    NOT_RUNNING = (
        "NotRunning",
        "slurmctld doesn't answer in a pod whose sidecar does.",
        (
            "`kubectl logs POD -c slurmctld` shows why. See "
            "[slurmctld does not start](../troubleshooting.md#slurmctld-does-not-start)."
        ),
        "False",
    )
    DIFFERENT_CONFIGURATION = (
        "DifferentConfiguration",
        "slurmctld runs with another configuration than the newest.",
        (
            "See the condition `ConfigurationAccepted`, which shows whether the newest one is "
            "refused or being checked."
        ),
        "False",
    )
    POD_NOT_STARTED = _POD_NOT_STARTED
    NO_ANSWER = _NO_ANSWER
    NO_POD = _NO_POD
