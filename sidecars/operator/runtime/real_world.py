"""What the operator takes from the process that it runs in. Tests replace it."""

import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from sidecars.contract import status
from sidecars.kube import boottime
from sidecars.operator.runtime.clusters import Connect
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.client import ready, whole

STATUS_SECONDS = 2.0
STATUS_BYTES = 2**20

FetchStatus = Callable[[str, str], Awaitable[Mapping[str, Any]]]
"""The JSON of GET /status at an address, with this header Authorization. Raises OSError,
TimeoutError or ValueError.
"""

AskReady = Callable[[str], Awaitable[bool | None]]
"""Whether slurmctld at an address reports that it is the primary; None without an answer."""


async def fetch_status(address: str, signed: str) -> Mapping[str, Any]:
    """Over the network, a connection for each question."""
    host = f"[{address}]" if ":" in address else address
    url = f"http://{host}:{status.PORT}{status.STATUS_PATH}"
    headers = {"Authorization": signed}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=STATUS_SECONDS)) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}")
            return dict(json.loads(await whole(answer, STATUS_BYTES)))
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from error
    except (RecursionError, TypeError) as error:
        raise ValueError(f"not an answer of reconfigure: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class RealWorld:
    """Clocks, randomness, and the connections to slurmrestd and to slurmctld's pods."""

    clock: Callable[[], float] = boottime
    """Monotonic seconds that count suspend, so that what was known before a suspend is old
    afterwards.
    """
    wall_clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    connect: Connect = SlurmClient
    fetch_status: FetchStatus = fetch_status
    ask_ready: AskReady = ready
    rng: random.Random | None = None
    """None: the process's own randomness."""
