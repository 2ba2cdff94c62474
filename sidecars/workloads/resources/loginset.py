"""The kind LoginSet: login nodes."""

from sidecars.workloads.resources.common import Resource
from sidecars.workloads.resources.specs import LoginSetSpec, LoginSetStatus


class LoginSet(Resource, frozen=True, kw_only=True):
    """Login nodes: sackd and sshd."""

    spec: LoginSetSpec
    kind: str = "LoginSet"
    status: LoginSetStatus = LoginSetStatus()
