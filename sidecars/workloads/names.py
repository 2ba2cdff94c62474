"""The keys and names that users and tools rely on: labels, annotations, names of objects, ports.

`owner` is always the custom resource's name, `namespace` the one it lives in.
"""

from typing import Final

from sidecars.contract import autoscaling

# Labels

APP_NAME: Final = "app.kubernetes.io/name"
APP_INSTANCE: Final = "app.kubernetes.io/instance"
APP_COMPONENT: Final = "app.kubernetes.io/component"
APP_PART_OF: Final = "app.kubernetes.io/part-of"
CLUSTER: Final = "slinky.slurm.net/cluster"
INTERNAL: Final = "controller.slinky.slurm.net/internal"
ACTIVE: Final = "controller.slinky.slurm.net/active"
POD_NAME: Final = "nodeset.slinky.slurm.net/pod-name"
POD_INDEX: Final = "nodeset.slinky.slurm.net/pod-index"
POD_PROTECT: Final = "nodeset.slinky.slurm.net/pod-protect"
SCALING_MODE: Final = "nodeset.slinky.slurm.net/scaling-mode"
REVISION_HASH: Final = "controller-revision-hash"

# Annotations

POD_CORDON: Final = "nodeset.slinky.slurm.net/pod-cordon"
POD_CORDON_REQUESTED: Final = "nodeset.slinky.slurm.net/pod-cordon-requested"
POD_CORDONED_BY: Final = "nodeset.slinky.slurm.net/pod-cordoned-by"
POD_DELETION_COST: Final = "nodeset.slinky.slurm.net/pod-deletion-cost"
POD_DEADLINE: Final = "nodeset.slinky.slurm.net/pod-deadline"
KARPENTER_KEEP: Final = "karpenter.sh/do-not-disrupt"
AUTOSCALER_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
EVICTION: Final = {KARPENTER_KEEP: "true", AUTOSCALER_EVICT: "false"}
"""On a worker pod with jobs, by which node autoscalers leave its Kubernetes node alone."""
KUBE_NODE: Final = "nodeset.slinky.slurm.net/kube-node"
NODE_CORDON_REASON: Final = "nodeset.slinky.slurm.net/node-cordon-reason"
LABELLED_FOR: Final = "nodeset.slinky.slurm.net/labelled-for"
CORDONED_FOR: Final = "nodeset.slinky.slurm.net/cordoned-for"
FEATURES: Final = "features.slinky.slurm.net/spec"
HOSTNAME_OVERRIDE: Final = "nodeset.slinky.slurm.net/hostname-override"
RAN_VERSION: Final = "slinky.slurm.net/newest-version"
AUTOSCALING: Final = autoscaling.ANNOTATION
"""On a NodeSet: what the operator has last decided about its replicas."""
KEYS_SINCE: Final = "slinky.slurm.net/keys-since"
KEYS_NUDGE: Final = "slinky.slurm.net/keys-nudge"
USERS_NUDGE: Final = "slinky.slurm.net/users-nudge"
KEYS_SETTLE: Final = "slinky.slurm.net/keys-settle-seconds"
GENERATE: Final = "slinky.slurm.net/generate"
"""On a Secret: the key in its data that the operator generates."""
GENERATED: Final = "slinky.slurm.net/generated"
"""On a Secret: the key in its data that the operator has generated."""
SIDECARS_IMAGE: Final = "slinky.slurm.net/sidecars-image"
"""On a Controller that is installed without an operator: the sidecars image of the release."""
SLURM_KEY_HASH: Final = "slinky.slurm.net/slurm-key-hash"
SSHD_CONF_HASH: Final = "slinky.slurm.net/sshd-conf-hash"


# Keys in Secrets

TOKEN_KEY: Final = "SLURM_JWT"  # noqa: S105 - the name of a key


def controller(owner: str) -> str:
    """Name slurmctld's StatefulSet, client Service and ServiceMonitor."""
    return f"{owner}-controller"


def controller_internal(owner: str) -> str:
    """Name slurmctld's headless Service, which gives each pod a name of its own."""
    return f"{owner}-controller-internal"


def config(owner: str, index: int = 0) -> str:
    """Return the ConfigMap with slurm.conf, and those after it with what has no room there."""
    return f"{owner}-config-{index}" if index else f"{owner}-config"


def accepted_config(owner: str, index: int = 0) -> str:
    """Name a ConfigMap like `config` does, with the configuration that slurmctld has accepted and
    slurmrestd reads.
    """
    return f"{config(owner)}-accepted{f'-{index}' if index else ''}"


def created_accounts(owner: str) -> str:
    """Return the ConfigMap with the names of what was created in slurmdbd from the Controller's
    declaration.
    """
    return f"{owner}-created-accounts"


def users(owner: str) -> str:
    """Name the ConfigMap with the users and groups that a Controller declares: files that its pods
    mount.
    """
    return f"{owner}-users"


def accounting(owner: str) -> str:
    """slurmdbd's StatefulSet, Service and configuration Secret."""
    return f"{owner}-accounting"


def restapi(owner: str) -> str:
    """slurmrestd's Deployment and Service."""
    return f"{owner}-restapi"


def ssh_host_keys(owner: str) -> str:
    """Return the Secret with a LoginSet's host keys."""
    return f"{owner}-ssh-host-keys"


def slurm_jwks(slurm_key_secret: str) -> str:
    """Return the Secret with the keys of auth/slurm that daemons have, beside the one that a custom
    resource names.
    """
    return f"{slurm_key_secret}-jwks"


def token_secret(owner: str, username: str) -> str:
    """Return the Secret with the token of a Token that names no other."""
    return f"{owner}-jwt-{username}"


def workers(controller_name: str) -> str:
    """Return the headless Service, and subdomain, of all worker pods of a Controller."""
    return f"slurm-workers-{controller_name}"


def login_hosts(owner: str) -> str:
    """Return the EndpointSlice with the hostnames of a LoginSet's pods."""
    return f"{owner}-hosts"


def claim(template: str, pod_or_suffix: str) -> str:
    """Name the claim created from a volumeClaimTemplate for a pod (StatefulSet mode: the pod's
    name).
    """
    return f"{template}-{pod_or_suffix}"
