"""The kind LoginSet: login nodes."""

from sidecars.workloads.resources.common import (
    Json,
    KeySelector,
    LocalObjectReference,
    Part,
    PodTemplate,
    Resource,
    Service,
    Status,
)


class LoginSetSpec(Part, frozen=True, kw_only=True):
    """LoginSet.spec. `strategy` is a DeploymentStrategy."""

    controller_ref: LocalObjectReference
    sssd_conf_ref: KeySelector | None = None
    replicas: int = 1
    login: Json = {}
    initconf: Json = {}
    template: PodTemplate = PodTemplate()
    root_ssh_authorized_keys: str = ""
    extra_sshd_config: str = ""
    strategy: Json = {}
    service: Service = Service()


class LoginSetStatus(Status, frozen=True, kw_only=True):
    """LoginSet.status; `selector` is a label selector in its text form, for the scale subresource."""

    replicas: int = 0
    ready_replicas: int = 0
    selector: str = ""


class LoginSet(Resource, frozen=True, kw_only=True):
    """Login nodes: sackd and sshd."""

    spec: LoginSetSpec
    kind: str = "LoginSet"
    status: LoginSetStatus = LoginSetStatus()
