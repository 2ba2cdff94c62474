"""What to do about a Token: keep the token that is there, sign another, or say why neither."""

import hashlib
from dataclasses import dataclass

from sidecars.policy.conditions import Condition, timestamp
from sidecars.slurm.tokens import ISSUER, Claims, claims, signed_by
from sidecars.workloads import token as render
from sidecars.workloads.resources import Token

_EARLIEST, _LATEST = 0.7, 0.8
"""Between these parts of its lifetime a token is renewed: not all of them at once, and long before it ends."""


SIGNING = Condition("Ready", "False", "Signing", "the token is being signed")


@dataclass(frozen=True, slots=True)
class Held:
    """The Secret as it is. `owner_uid` is that of its controlling owner, `owner_kind` the kind; empty for none."""

    text: str | None
    keys: frozenset[str]
    owner_kind: str = ""
    owner_uid: str = ""
    immutable: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """`sign`: write a new token. `replace`: the Secret must be deleted first. `keep`: write the present token again.

    `claims` are those of the token that stays; None when another is signed or there is none. `again`: seconds until the
    next look; None for when something changes. `why` tells an administrator about a signing that is no renewal.
    """

    sign: bool = False
    replace: bool = False
    keep: bool = False
    claims: Claims | None = None
    condition: Condition = SIGNING
    again: float | None = None
    why: str = ""


def plan(token: Token, held: Held | None, key: bytes, now: float) -> Decision:
    """Decide. `held` is None when there is no Secret, `now` seconds since the epoch. Raises ResourceError."""
    lifetime, name = render.lifetime(token), render.secret_name(token)
    if held is None:
        return Decision(sign=True)
    ours = held.owner_uid == token.metadata.uid
    found = claims(held.text) if held.text is not None else None
    if not ours and not _orphan_of_ours(token, held, found):
        said = (
            f"Secret {name!r} is there already and isn't this Token's: name another in spec.secretRef.name, "
            "or delete that one"
        )
        return Decision(condition=Condition("Ready", "False", "SecretTaken", said))
    outdated = _outdated(token, held, found, key, lifetime)
    if token.spec.refresh:
        replace = held.immutable or not ours
        if found is None or outdated or now >= found.expires or now < found.issued:
            return Decision(sign=True, replace=replace, why=outdated)
        renew = renewal(held.text or "", found)
        if now >= renew or replace:
            return Decision(sign=True, replace=replace)
        return Decision(claims=found, condition=issued(token, found), again=renew - now)
    if found is None:
        return Decision(sign=True, replace=held.immutable or not ours)
    if outdated:
        said = f"{outdated}; spec.refresh is off: delete Secret {name!r} to get another token, or turn it on"
        return Decision(claims=found, condition=Condition("Ready", "False", "Outdated", said))
    if now >= found.expires:
        said = f"the token ended at {timestamp(found.expires)}: delete Secret {name!r} to get another"
        return Decision(claims=found, condition=Condition("Ready", "False", "Expired", said))
    if not ours:
        return Decision(sign=True, replace=True)
    return Decision(keep=not held.immutable, claims=found, condition=issued(token, found), again=found.expires - now)


def renewal(text: str, found: Claims) -> float:
    """When a token is to be renewed: drawn from the token itself, so that a restart changes nothing."""
    part = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32
    return found.issued + (found.expires - found.issued) * (_EARLIEST + (_LATEST - _EARLIEST) * part)


def issued(token: Token, found: Claims) -> Condition:
    """The condition `Ready` of a Token whose Secret holds a valid token."""
    ends = timestamp(found.expires)
    said = f"Secret {render.secret_name(token)!r} holds a token of {found.username!r} until {ends}"
    return Condition("Ready", "True", "Issued", f"{said}, and is renewed before" if token.spec.refresh else said)


def _orphan_of_ours(token: Token, held: Held, found: Claims | None) -> bool:
    """Whether the Secret holds nothing but a token that SchedMD's operator made, which no Token owns."""
    alone = held.keys <= {render.secret_key(token)}
    return held.owner_kind != "Token" and alone and found is not None and found.issuer == ISSUER


def _outdated(token: Token, held: Held, found: Claims | None, key: bytes, lifetime: int) -> str:
    """Why the token that is there is not the one that is wanted; empty if it is."""
    if found is None:
        return "the Secret held no token"
    if not signed_by(held.text or "", key):
        return "the key that signs tokens has changed"
    if found.username != token.spec.username:
        return f"the token was of {found.username!r}"
    if found.expires - found.issued != lifetime:
        return f"the token had another lifetime ({found.expires - found.issued} s)"
    return ""
