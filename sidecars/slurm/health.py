"""The HTTP health endpoints at slurmctld's own port (slurmctld(8)): `/livez` for alive, `/readyz`
for primary.

Standard library only, blocking. The operator asks by `sidecars.slurm.client.ready`.
"""

import http.client
import socket

LIVEZ, READYZ = "/livez", "/readyz"


def alive(host: str, port: int, seconds: float) -> bool:
    """Return whether slurmctld is alive, or False when nothing listens. Raises OSError for no
    answer within `seconds`.
    """
    try:
        return _succeeds(host, port, LIVEZ, seconds)
    except ConnectionError:
        return False


def answers(host: str, port: int, seconds: float) -> bool:
    """Return whether slurmctld answers at all, or False when nothing listens. Raises OSError for no
    answer.
    """
    try:
        _succeeds(host, port, LIVEZ, seconds)
    except ConnectionRefusedError:
        return False
    return True


def leads(host: str, port: int, seconds: float) -> bool:
    """Return whether slurmctld is the primary, or False when nothing listens, and for an unknown
    host.

    Raises OSError for no answer within `seconds`, as of one that is about to end.
    """
    try:
        return _succeeds(host, port, READYZ, seconds)
    except ConnectionRefusedError:
        return False
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            return False
        raise


def _succeeds(host: str, port: int, path: str, seconds: float) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 300
    except ConnectionError:
        raise
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP: {error!r}") from error
    finally:
        connection.close()
