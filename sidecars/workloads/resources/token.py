"""The kind Token: a Slurm token for a user."""

from datetime import datetime

import msgspec

from sidecars.workloads.resources.common import KeySelector, Part, Resource, Status


class TokenSpec(Part, frozen=True, kw_only=True):
    """Token.spec. `lifetime` is a Go duration."""

    username: str
    jwt_hs256_key_ref: KeySelector | None = msgspec.field(name="jwtHs256KeyRef", default=None)
    jwt_key_ref: KeySelector | None = None
    lifetime: str = "15m"
    refresh: bool = True
    secret_ref: KeySelector | None = None


class TokenStatus(Status, frozen=True, kw_only=True):
    """Token.status."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None


class Token(Resource, frozen=True, kw_only=True):
    """A Slurm token for a user, kept in a Secret."""

    spec: TokenSpec
    kind: str = "Token"
    status: TokenStatus = TokenStatus()
