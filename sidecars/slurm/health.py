"""What slurmctld says of itself by HTTP at its own port (slurmctld(8)): `/livez` for alive, `/readyz` for primary.

Standard library only, blocking. The operator asks by `sidecars.slurm.client.ready`.
"""

import http.client

LIVEZ, READYZ = "/livez", "/readyz"
PORT = 6817


def alive(host: str, port: int, seconds: float) -> bool:
    """Whether slurmctld says so; False when nobody listens. Raises OSError for no answer within `seconds`."""
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", LIVEZ)
        return connection.getresponse().status < 300
    except ConnectionError:
        return False
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP: {error!r}") from error
    finally:
        connection.close()
