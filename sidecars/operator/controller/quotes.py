"""Quotes the daemons that ended on a configuration: reads their words in the logs of their
containers.

A slurmd that ends is started again in its container, whose status therefore doesn't show why.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sidecars.contract.status import Rejection
from sidecars.contract.text import printable
from sidecars.kube.errors import KubeError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import gate
from sidecars.policy.conditions import timestamp
from sidecars.policy.gate import Known, Pod
from sidecars.policy.nodeset.observation import CONTAINER
from sidecars.slurm import diagnosis
from sidecars.slurm.diagnosis import Culprit
from sidecars.workloads.config import ConfigSet

log = logging.getLogger(__name__)

BEFORE = 60.0
"""Seconds before a configuration was refused in which the daemon may have ended on it."""
BYTES = 65536
"""Of each log."""
SECONDS = 5.0
"""For all logs of a refusal. A kubelet may not answer, and the Controller's pass waits for it."""
TRIES = 5
AGAIN = 2.0
"""Seconds until a log is read again that has no end of the daemon yet."""
PODS = 2
"""slurmds whose logs are read."""
LOGFILE = "logfile"
"""The sidecar that prints a daemon's log file, for an image that doesn't print it."""


@dataclass(slots=True)
class Quote:
    """What is known of one refusal."""

    refusal: tuple[str, str]
    """The digest of the configuration, and what it failed."""
    tries: int = 0
    found: Culprit | None = None


@dataclass(slots=True)
class Quotes:
    """Those of all Controllers, by pod of slurmctld."""

    by_pod: dict[Key, dict[str, Quote]] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """Forget a Controller that is deleted."""
        self.by_pod.pop(key, None)


async def read(
    runtime: Runtime,
    quotes: Quotes,
    key: Key,
    pods: Sequence[Pod],
    known: Mapping[str, Known],
    config_set: ConfigSet,
) -> dict[str, Culprit]:
    """Read why daemons ended, by the pod of slurmctld that reports it. Those of which nothing is
    found (yet) are missing.
    """
    before, now = quotes.by_pod.get(key, {}), dict[str, Quote]()
    for pod in pods:
        report = gate.report_of(pod, known)
        rejected = report.rejected if report is not None else None
        if rejected is None or not rejected.daemon or rejected.sha256 != config_set.sha256:
            continue
        refusal = rejected.sha256, rejected.stage.value
        quote = before.get(pod.name)
        quote = now[pod.name] = (
            quote if quote is not None and quote.refusal == refusal else Quote(refusal)
        )
        if quote.found is None and quote.tries < TRIES:
            quote.tries += 1
            quote.found = await _quoted(runtime, key, pod, rejected, config_set)
            if quote.found is None and quote.tries < TRIES:
                runtime.queues.controllers.add_after(key, AGAIN)
    quotes.by_pod[key] = now
    return {name: quote.found for name, quote in now.items() if quote.found is not None}


async def _quoted(
    runtime: Runtime, key: Key, pod: Pod, rejected: Rejection, config_set: ConfigSet
) -> Culprit | None:
    files = {name: text.encode() for name, text in config_set.files.items()}
    try:
        async with asyncio.timeout(SECONDS):
            for name, container, previous in _logs(runtime, key, pod, rejected):
                text = await _log(
                    runtime, key[0], name, container, previous=previous, since=rejected.since
                )
                culprits = diagnosis.quoted(text, files, rejected.daemon)
                if culprits is not None:
                    return Culprit(printable(culprits.reason), culprits.file, culprits.line)
    except TimeoutError:
        log.info(
            "Controller %s/%s: the log of %s was not read within %g s",
            *key,
            rejected.daemon,
            SECONDS,
        )
    return None


def _logs(
    runtime: Runtime, key: Key, pod: Pod, rejected: Rejection
) -> Iterator[tuple[str, str, bool]]:
    """Pod, container, and whether it is its former instance; the likeliest first."""
    if rejected.daemon == gate.SLURMCTLD:
        yield from (
            (pod.name, gate.SLURMCTLD, True),
            (pod.name, gate.SLURMCTLD, False),
            (pod.name, LOGFILE, False),
        )
        return
    for node in rejected.nodes[:PODS]:
        for worker in runtime.caches.pods.store.by("slurm_node", (*key, node)):
            yield from ((worker.metadata.name, name, False) for name in (CONTAINER, LOGFILE))


async def _log(
    runtime: Runtime, namespace: str, pod: str, container: str, *, previous: bool, since: float
) -> str:
    """Read the log from shortly before the refusal on, "" if it can't be read."""
    try:
        begin = timestamp(since - BEFORE)
        return await runtime.client.log(
            namespace, pod, container, since=begin, limit=BYTES, previous=previous
        )
    except KubeError as error:
        log.debug("log of %s in %s/%s: %s", container, namespace, pod, error)
        return ""
