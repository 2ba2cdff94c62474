"""A process of its own that runs for a lease, and counts in a ConfigMap while it leads.

Usage: python -m tests.integration.kube.candidate KUBECONFIG NAMESPACE IDENTITY
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from sidecars.kube import CONFIG_MAPS, Client, Election, load_credentials

LEASE_DURATION = 4
RENEW_DEADLINE = 2.5
RETRY_PERIOD = 0.5


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    async with Client.connect(load_credentials(Path(kubeconfig))) as client:
        election = Election(
            client,
            namespace,
            "lock",
            identity,
            lease_duration=LEASE_DURATION,
            renew_deadline=RENEW_DEADLINE,
            retry_period=RETRY_PERIOD,
        )
        guarded = client.guarded(election.left)

        async def lead() -> None:
            for count in itertools.count():
                await guarded.merge_patch(CONFIG_MAPS, namespace, "log", {"data": {"by": identity, "n": str(count)}})
                await asyncio.sleep(0.01)

        await election.run(lead)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
