"""The kind Token: a Slurm token for a user."""

from sidecars.workloads.resources.common import Resource
from sidecars.workloads.resources.specs import TokenSpec, TokenStatus


class Token(Resource, frozen=True, kw_only=True):
    """A Slurm token for a user, kept in a Secret."""

    spec: TokenSpec
    kind: str = "Token"
    status: TokenStatus = TokenStatus()
