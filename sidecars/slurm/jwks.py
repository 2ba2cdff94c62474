"""slurm.jwks: several keys of auth/slurm at a time
(https://slurm.schedmd.com/authentication.html#multiple_key_setup).

A daemon signs with the default key and accepts what any of the keys has signed. One that started
with slurm.key alone never reads slurm.jwks; one that started with slurm.jwks reads it at each
reconfigure (observed with 26.05).
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass, field

MOST_ENTROPY_LACKING = 16
"""auth/slurm rejects keys of this many bytes or fewer."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Keys, the one to sign with first."""

    default: bytes = field(repr=False)
    others: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All of them."""
        return (self.default, *self.others)


def identifier(key: bytes) -> str:
    """Return a key's `kid`. It is part of every message that the key has signed, and reveals
    nothing about a random key.
    """
    return hashlib.sha256(key).hexdigest()[:16]


def render(ring: Ring) -> bytes:
    """Return the file."""
    keys = [
        {"alg": "HS256", "kty": "oct", "kid": identifier(key), "k": base64.b64encode(key).decode()}
        | ({"use": "default"} if key == ring.default else {})
        for key in ring.keys
    ]
    return json.dumps({"keys": keys}).encode()


def parse(text: bytes) -> Ring:
    """Return the keys of a file. Raises ValueError, which shows nothing of it, for one that isn't
    of this form.
    """
    try:
        entries = json.loads(text)["keys"]
        keys = [
            (base64.b64decode(entry["k"], validate=True), entry.get("use") == "default")
            for entry in entries
        ]
        [default] = [key for key, chosen in keys if chosen]
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error):
        raise ValueError("not a slurm.jwks with one default key") from None
    return Ring(default, tuple(key for key, chosen in keys if not chosen))
