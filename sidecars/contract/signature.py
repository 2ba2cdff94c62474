"""How a request to a `reconfigure` sidecar proves that its sender has the cluster's jwt.key.

The header Authorization contains `SlurmSidecar TIME.NONCE.SIGNATURE`. The signature covers the
method, the path and the pod that is asked, so that no other request is signed with it. A pod
accepts each nonce once, for LIFETIME seconds.

It is signed with a key derived from jwt.key: no token of Slurm is such a signature, and no
signature is a token.
"""

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass

LIFETIME = 60
"""Seconds for which a request can be used. The clocks of sender and pod may differ by as much."""

_SCHEME = "SlurmSidecar"
_PURPOSE = b"slurm-operator: requests between sidecars"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of whom."""

    method: str
    path: str
    pod: str
    """Name of the pod whose sidecar is asked."""


def authorization(request: Request, key: bytes, now: float) -> str:
    """Return the header's value. `now`: seconds since the epoch. Raises ValueError for an empty
    key.
    """
    if not key:
        raise ValueError(
            "the JWT key is empty: put a key into the Secret that the Controller's jwtKeyRef names"
        )
    issued, nonce = int(now), secrets.token_hex(16)
    return f"{_SCHEME} {issued}.{nonce}.{_signature(request, key, issued, nonce)}"


class Verifier:
    """Accepts requests to one pod, each once. It can be used by several threads."""

    def __init__(self, pod: str) -> None:
        self._pod = pod
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        """The nonces that were accepted, with the time of their request."""

    def accepts(self, method: str, path: str, header: str, key: bytes, now: float) -> bool:
        """Return whether this header authorizes this request, and has not done so before."""
        scheme, _, value = header.partition(" ")
        time, _, rest = value.partition(".")
        nonce, _, signature = rest.partition(".")
        if (
            scheme != _SCHEME
            or not key
            or not (time.isascii() and time.isdecimal() and len(time) <= 16)
        ):
            return False
        issued = int(time)
        wanted = _signature(Request(method, path, self._pod), key, issued, nonce)
        if (
            not hmac.compare_digest(signature.encode(), wanted.encode())
            or abs(now - issued) > LIFETIME
        ):
            return False
        with self._lock:
            self._used = {it: at for it, at in self._used.items() if abs(now - at) <= LIFETIME}
            if nonce in self._used:
                return False
            self._used[nonce] = issued
        return True


def _signature(request: Request, key: bytes, issued: int, nonce: str) -> str:
    derived = hmac.new(key, _PURPOSE, hashlib.sha256).digest()
    signed = f"{request.method} {request.path}\n{request.pod}\n{issued}\n{nonce}"
    return hmac.new(derived, signed.encode(), hashlib.sha256).hexdigest()
