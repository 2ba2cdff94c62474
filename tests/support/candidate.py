"""A process of its own that runs for a lease, and counts in a ConfigMap while it leads.

Usage: python -m tests.support.candidate KUBECONFIG NAMESPACE IDENTITY
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sidecars.kube import (
    CONFIG_MAPS,
    Client,
    Election,
    Periods,
    Reflector,
    load_credentials,
    run_until_lost,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecars.objects import ConfigMap

LEASE_DURATION = 4
RENEW_DEADLINE = 2.5
RETRY_PERIOD = 0.5


@contextlib.asynccontextmanager
async def running(
    kubeconfig: Path, namespace: str, identity: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A candidate in a process of its own that runs for the lease, killed at the end."""
    module = "tests.support.candidate"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, str(kubeconfig), namespace, identity),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline(), f"{identity} has ended before it ran for the lease"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


class Log:
    """Who wrote, in the order in which the API server stored it, and when it was seen (seconds of
    the loop).
    """

    def __init__(self, reflector: Reflector[ConfigMap]) -> None:
        self.writers: list[str] = []
        self.times: list[float] = []
        reflector.store.subscribe(lambda event: self.note(event.object))

    def note(self, item: ConfigMap) -> None:
        if "by" in item.data:
            self.writers.append(item.data["by"])
            self.times.append(asyncio.get_running_loop().time())

    def first(self, writer: str) -> float:
        return self.times[self.writers.index(writer)]


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    """SIGUSR1 blocks the event loop until SIGCONT."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, signal.sigwait, {signal.SIGCONT})
    async with Client.connect(load_credentials(Path(kubeconfig))) as client:
        election = Election(
            client,
            namespace,
            "lock",
            identity,
            periods=Periods(LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD),
        )
        guarded = client.guarded(election.left)

        async def lead() -> None:
            for count in itertools.count():
                await guarded.merge_patch(
                    CONFIG_MAPS, namespace, "log", {"data": {"by": identity, "n": str(count)}}
                )
                await asyncio.sleep(0.01)

        print("runs for the lease", flush=True)
        await election.run(lead)


if __name__ == "__main__":
    run_until_lost(main(*sys.argv[1:]))
