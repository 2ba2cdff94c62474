"""What slurmctld asks of a token before it believes it (https://slurm.schedmd.com/jwt.html)."""

import base64
import binascii
import hashlib
import hmac
import json


def user_of(token: str, key: bytes, now: float) -> str | None:
    """Return the Slurm user that an HS256 token names, or None unless `key` signed it and it is
    valid at `now`, epoch seconds.
    """
    signed, _, signature = token.rpartition(".")
    try:
        header, claims = (json.loads(_decoded(part)) for part in signed.split("."))
        good = hmac.compare_digest(
            _decoded(signature), hmac.new(key, signed.encode(), hashlib.sha256).digest()
        )
        user = claims["sun"]
        if not good or header["alg"] != "HS256" or not claims["iat"] <= now < claims["exp"]:
            return None
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None
    return user if isinstance(user, str) and user else None


def acting_user(owner: str, named: str | None) -> str | None:
    """Return the user of a request with the token of `owner` that names this user; None: slurmctld
    refuses it.
    """
    return owner if named in (None, owner) else named if owner in ("slurm", "root") else None


def _decoded(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
