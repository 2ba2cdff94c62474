"""The Secret that contains a Token's token."""

import base64

from sidecars.slurm.tokens import USERNAME
from sidecars.workloads import assembly, names
from sidecars.workloads.resources import KeySelector, Manifest, ResourceError, Token, duration

SHORTEST_SECONDS = 30
LONGEST_SECONDS = 2**31 - 2
"""Bounds of a lifetime: below, renewing would be a load; above, Slurm's own numbers end."""


def secret_name(token: Token) -> str:
    """Return the name of the Secret."""
    named = token.spec.secret_ref.name if token.spec.secret_ref is not None else ""
    return named or names.token_secret(token.name, token.spec.username)


def secret_key(token: Token) -> str:
    """Return the key in the Secret's data."""
    return token.spec.secret_ref.key if token.spec.secret_ref is not None else names.TOKEN_KEY


def jwt_key(token: Token) -> KeySelector:
    """Return the Secret key that signs. Raises ResourceError when the Token names none."""
    selector = token.spec.jwt_key_ref or token.spec.jwt_hs256_key_ref
    if selector is None:
        raise ResourceError(
            "spec.jwtKeyRef", "must name the Secret with the key that signs Slurm's tokens"
        )
    return selector


def username(token: Token) -> str:
    """Return the Slurm user. Raises ResourceError for a name that no token is signed for."""
    name = token.spec.username
    if not USERNAME.fullmatch(name):
        raise ResourceError(
            "spec.username", f"{name!r} must consist of letters, digits, '_', '.' and '-'"
        )
    return name


def lifetime(token: Token) -> int:
    """Whole seconds. Raises ResourceError for one out of bounds."""
    seconds = int(duration(token.spec.lifetime, "spec.lifetime"))
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise ResourceError(
            "spec.lifetime",
            f"{token.spec.lifetime} must be at least {SHORTEST_SECONDS}s and at most "
            f"{LONGEST_SECONDS}s",
        )
    return seconds


def secret(token: Token, text: str) -> Manifest:
    """Return the Secret with the token in it, immutable unless the token is renewed."""
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(token),
            "labels": {
                names.APP_NAME: "token",
                names.APP_INSTANCE: token.name,
                names.APP_COMPONENT: "token",
            },
        },
        "type": "Opaque",
        "data": {secret_key(token): base64.b64encode(text.encode()).decode()},
    }
    return assembly.owned(manifest if token.spec.refresh else manifest | {"immutable": True}, token)
