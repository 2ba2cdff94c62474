"""When the certificate of the admission webhook is renewed, and which certificates the API server
trusts. Pure.

The certificate has signed itself, and the API server trusts this one alone: no key of an authority
exists that could sign another. At a renewal the API server trusts the new certificate before a pod
of the webhook has it. The former one stays trusted until it ends, because pods get the content of a
Secret with a delay.
"""

import base64
import binascii
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LIFETIME_DAYS = 365
RENEWED_BEFORE = 120 * 86400.0
"""Seconds before its end when a certificate is renewed: a third of its life, in which the bridge
may not run.
"""

CERTIFICATE, KEY, FORMER = "tls.crt", "tls.key", "former.crt"
"""Keys of the Secret."""


@dataclass(frozen=True, slots=True)
class Content:
    """What the Secret has, as PEM; "" for what it lacks."""

    certificate: str = ""
    key: str = ""
    former: str = ""
    """The certificate before."""


def content(secret: Mapping[str, Any]) -> Content:
    """Read the manifest of the Secret. A value that is no text counts as none."""
    data = secret.get("data") or {}
    return Content(*(_text(data.get(name) or "") for name in (CERTIFICATE, KEY, FORMER)))


def expiry(certificate: str, host: str) -> float | None:
    """Return when the certificate ends, in seconds since the epoch, None for what isn't one
    certificate for this DNS name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificate)
        [found] = context.get_ca_certs()
        end = found["notAfter"]
        if ("DNS", host) in found.get("subjectAltName", ()) and isinstance(end, str):
            return ssl.cert_time_to_seconds(end)
    except (ssl.SSLError, ValueError, KeyError):
        pass
    return None


def is_due(present: Content, host: str, now: float) -> bool:
    """Return whether a new certificate is needed, because none can be read, it is for another name,
    or it ends soon.
    """
    end = expiry(present.certificate, host)
    return end is None or end - now < RENEWED_BEFORE


def bundle(certificates: Iterable[str], host: str, now: float) -> str:
    """Return the certificates that the API server is to trust, in base64, as `caBundle` has them:
    those that haven't ended.
    """
    valid = dict.fromkeys(it.strip() for it in certificates if (expiry(it, host) or 0.0) > now)
    return base64.b64encode("".join(f"{it}\n" for it in valid).encode()).decode()


def _text(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
