"""What to do about a Token: keep the present token, sign another, or report why neither."""

import hashlib
from dataclasses import dataclass

from sidecars.policy.conditions import Condition, timestamp
from sidecars.policy.reasons import Ready
from sidecars.slurm.tokens import ISSUER, Claims, claims, signed_by
from sidecars.workloads import token as render
from sidecars.workloads.resources import Token

EARLIEST, LATEST = 0.7, 0.8
"""Between these parts of its lifetime a token is renewed: not all of them at once, and long before
it ends.
"""


SIGNING = Condition("Ready", "False", Ready.SIGNING, "the token is being signed")


@dataclass(frozen=True, slots=True)
class PresentSecret:
    """The Secret as it is. `owner_uid` is that of its controlling owner, `owner_kind` the kind;
    empty for none.
    """

    text: str | None
    keys: frozenset[str]
    owner_kind: str = ""
    owner_uid: str = ""
    immutable: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the Secret of a Token."""

    sign: bool = False
    """Whether to write a new token."""
    replace: bool = False
    """Whether the Secret must be deleted first."""
    keep: bool = False
    """Whether to write the present token again."""
    claims: Claims | None = None
    """The claims of the present token if it is retained; None otherwise."""
    condition: Condition = SIGNING
    again: float | None = None
    """Seconds until the next decision; None to wait for a change."""
    why: str = ""
    """Why a token is signed that is no renewal, for an Event."""


def plan(token: Token, present: PresentSecret | None, key: bytes, now: float) -> Decision:
    """Decide. `present` is None without a Secret, `now` is seconds since the epoch. Raises
    ResourceError.
    """
    lifetime, name = render.lifetime(token), render.secret_name(token)
    if present is None:
        return Decision(sign=True)
    ours = present.owner_uid == token.metadata.uid
    found = claims(present.text) if present.text is not None else None
    if not ours and not _orphan_of_ours(token, present, found):
        message = (
            f"Secret {name!r} already exists and belongs to something else: set another "
            "spec.secretRef.name, or delete that Secret"
        )
        return Decision(condition=Condition("Ready", "False", Ready.SECRET_TAKEN, message))
    outdated = _outdated(token, present, found, key, lifetime)
    if token.spec.refresh:
        replace = present.immutable or not ours
        if found is None or outdated or now >= found.expires or now < found.issued:
            return Decision(sign=True, replace=replace, why=outdated)
        renew = renewal(present.text or "", found)
        if now >= renew or replace:
            return Decision(sign=True, replace=replace)
        return Decision(claims=found, condition=issued(token, found), again=renew - now)
    if found is None:
        return Decision(sign=True, replace=present.immutable or not ours)
    if outdated:
        message = (
            f"{outdated}; spec.refresh is off: delete Secret {name!r} to get another token, or "
            "set spec.refresh to true"
        )
        return Decision(
            claims=found, condition=Condition("Ready", "False", Ready.OUTDATED, message)
        )
    if now >= found.expires:
        message = (
            f"the token expired at {timestamp(found.expires)}: delete Secret {name!r} to get "
            "another, or set spec.refresh to true"
        )
        return Decision(claims=found, condition=Condition("Ready", "False", Ready.EXPIRED, message))
    if not ours:
        return Decision(sign=True, replace=True)
    return Decision(
        keep=not present.immutable,
        claims=found,
        condition=issued(token, found),
        again=found.expires - now,
    )


def renewal(text: str, found: Claims) -> float:
    """Return when a token is to be renewed, drawn from the token itself, so that a restart changes
    nothing.
    """
    part = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32
    return found.issued + (found.expires - found.issued) * (EARLIEST + (LATEST - EARLIEST) * part)


def issued(token: Token, found: Claims) -> Condition:
    """Return the condition `Ready` of a Token whose Secret contains a valid token."""
    ends = timestamp(found.expires)
    message = (
        f"Secret {render.secret_name(token)!r} contains a token of {found.username!r} until {ends}"
    )
    return Condition(
        "Ready",
        "True",
        Ready.ISSUED,
        f"{message}, and is renewed before" if token.spec.refresh else message,
    )


def _orphan_of_ours(token: Token, present: PresentSecret, found: Claims | None) -> bool:
    """Return whether the Secret contains only a token of SchedMD's operator, which no Token
    owns.
    """
    alone = present.keys <= {render.secret_key(token)}
    return present.owner_kind != "Token" and alone and found is not None and found.issuer == ISSUER


def _outdated(
    token: Token, present: PresentSecret, found: Claims | None, key: bytes, lifetime: int
) -> str:
    """Return why the present token is not the desired one, "" if it is."""
    if found is None:
        return "the Secret contained no token"
    if not signed_by(present.text or "", key):
        return "the key that signs tokens has changed"
    if found.username != token.spec.username:
        return f"the token was of {found.username!r}"
    if found.expires - found.issued != lifetime:
        return f"the token had another lifetime ({found.expires - found.issued} s)"
    return ""
