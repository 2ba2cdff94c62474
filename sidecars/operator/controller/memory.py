"""What is remembered of the Controllers, and what is asked of their slurmctld pods all the time."""

import asyncio
from dataclasses import dataclass, field

from sidecars.operator.controller.failover import Primaries
from sidecars.operator.controller.quotes import Quotes
from sidecars.operator.controller.statuses import Statuses
from sidecars.operator.keys import distribution
from sidecars.operator.keys.distribution import Distributions
from sidecars.operator.runtime.queues import Key


@dataclass(frozen=True, slots=True)
class Memory:
    """All Controllers'."""

    statuses: Statuses
    """How their pods stand to the configuration that is published."""
    primaries: Primaries
    """Which of several slurmctld is the primary."""
    quotes: Quotes = field(default_factory=Quotes)
    """What daemons logged that ended on a configuration."""
    distributions: Distributions = field(default_factory=dict)
    """How far the distribution of their keys has come."""

    def forget(self, key: Key) -> None:
        """Forget a Controller that is deleted, or whose slurmctld is none of the operator's."""
        self.statuses.want(key, None, ())
        self.quotes.forget(key)
        self.primaries.want(key, None)

    async def aclose(self) -> None:
        """End all asking."""
        forgotten = [
            distribution.forget(self.distributions, key) for key in tuple(self.distributions)
        ]
        await asyncio.gather(self.statuses.aclose(), self.primaries.aclose(), *forgotten)
