"""Where the API server is and how to be let in: in-cluster service accounts and kubeconfig files.

Tokens and certificates rotate, so files are read again (at most `REREAD` seconds old), exec plug-ins are asked again
before their answer expires, and everything at once after a 401. No secret appears in an error or a repr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


class Access(NamedTuple):
    """What one request carries: the Authorization header (None: no such header) and TLS (None for plain HTTP)."""

    authorization: str | None
    ssl: ssl.SSLContext | None


class Credentials:
    """How to reach one API server. `server` is its base URL, `namespace` the default one, `source` says where from."""

    server: str
    namespace: str
    source: str

    async def access(self) -> Access:
        """What the next request carries. Raises CredentialsError."""
        raise NotImplementedError

    def invalidate(self) -> None:
        """The server refused them: read everything anew at the next `access`."""
        raise NotImplementedError


def load_credentials(kubeconfig: Path | None = None, *, context: str | None = None) -> Credentials:
    """Those of the kubeconfig; without one, of $KUBECONFIG (several, parted by colons, as kubectl merges them); without
    that, of the pod's service account. Raises CredentialsError naming file, field and remedy.
    """
    raise NotImplementedError
