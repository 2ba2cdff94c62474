"""Tokens for Slurm's auth/jwt: signed here with the cluster's HS256 key, renewed well before they
expire.

Claims are those that slurmctld asks for (https://slurm.schedmd.com/jwt.html): iat, exp, sun (the
Slurm user), and nbf, iss and jti beside. Keys and tokens never show in a repr or an error.
"""

import base64
import hashlib
import hmac
import json
import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ISSUER = "slurm-operator"

USERNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names of users that tokens are signed for: those that useradd(8) accepts, and those with dots."""


def checked(username: str) -> str:
    """Return the name itself. Raises ValueError for one other than USERNAME."""
    if not USERNAME.fullmatch(username):
        raise ValueError(f"{username!r} is not a user name: give letters, digits, '_', '.' and '-'")
    return username


def sign(key: bytes, username: str, lifetime_seconds: int, now: float) -> str:
    """Return a JWT for `username`, valid from `now` (seconds since the epoch) for
    `lifetime_seconds`.

    Raises ValueError for an empty key, a username other than USERNAME, or a lifetime below one
    second.
    """
    if not key:
        raise ValueError(
            "the JWT key is empty: put a key into the Secret that the Controller's jwtKeyRef names"
        )
    checked(username)
    if lifetime_seconds < 1:
        raise ValueError(
            f"a Slurm token's lifetime is {lifetime_seconds} s; it must be at least 1 s"
        )
    issued = int(now)
    claims = {
        "iat": issued,
        "nbf": issued,
        "exp": issued + lifetime_seconds,
        "sun": username,
        "iss": ISSUER,
        "jti": str(uuid.uuid4()),
    }
    signed = _part({"alg": "HS256", "typ": "JWT"}) + b"." + _part(claims)
    return (signed + b"." + _base64url(hmac.new(key, signed, hashlib.sha256).digest())).decode()


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. Times are seconds since the epoch."""

    username: str
    issued: int
    expires: int
    issuer: str = ""
    """"" when the token names none."""


def claims(token: str) -> Claims | None:
    """Return the claims of a token, whoever signed it, or None for a text that isn't a token."""
    try:
        found = json.loads(_decoded(token.split(".")[1]))
        return Claims(
            str(found["sun"]), int(found["iat"]), int(found["exp"]), str(found.get("iss", ""))
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def signed_by(token: str, key: bytes) -> bool:
    """Return whether the key signed this text by HS256."""
    signed, _, signature = token.rpartition(".")
    return bool(key) and hmac.compare_digest(
        signature.encode(), _base64url(hmac.new(key, signed.encode(), hashlib.sha256).digest())
    )


class Tokens(Protocol):
    """Where a client gets its tokens from."""

    def token(self) -> str:
        """Return a token that is valid now. Raises OSError or ValueError without one."""
        ...

    def forget(self) -> None:
        """Drop the token, because the server refused it."""
        ...


class TokenFile:
    """Tokens that another program writes to a file and renews there. The file is read for each
    call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def token(self) -> str:
        """Return the file's content. Raises OSError, or ValueError for an empty file."""
        text = self._path.read_text(encoding="utf-8").strip()
        if not text:
            raise ValueError(f"{self._path} is empty: write a token of Slurm into it")
        return text

    def forget(self) -> None:
        """Forget the token. Nothing is stored."""


class TokenSource:
    """Tokens of one user, signed with the provider's current key.

    `key()` returns the current key bytes and is asked for each call; another key means another
    token at once. A token is replaced after a random 70 to 80 per cent of its lifetime, so that
    many pods don't renew at the same time. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        key: Callable[[], bytes],
        *,
        clock: Callable[[], float],
        username: str = "slurm",
        lifetime_seconds: int = 900,
        rng: random.Random | None = None,
    ) -> None:
        self._key = key
        self._clock = clock
        self._username = username
        self._lifetime = lifetime_seconds
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._signed_with = b""
        self._token = ""
        self._issued = 0.0
        self._renew = 0.0

    def token(self) -> str:
        """Return a token that is valid now. Raises what `sign` and the key provider raise."""
        key, now = self._key(), self._clock()
        # After the clock is set back, a token is "issued in the future", which slurmctld refuses.
        if key != self._signed_with or not self._issued <= now < self._renew:
            self._token = sign(key, self._username, self._lifetime, now)
            self._signed_with, self._issued = key, now
            self._renew = now + self._lifetime * self._rng.uniform(0.7, 0.8)
        return self._token

    def forget(self) -> None:
        """Drop the token, so that the next call signs a new one: for when the server refused it."""
        self._signed_with = b""


def _part(claims: dict[str, object]) -> bytes:
    return _base64url(json.dumps(claims, separators=(",", ":")).encode())


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
