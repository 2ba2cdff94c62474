"""The slurmds of a cluster: which are in service, and at whose port nothing listens. Standard
library only.
"""

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sidecars.contract import ports
from sidecars.reconfigure import dryrun
from sidecars.slurm import health

MOST = 200
"""Of a larger cluster so many slurmds are watched, evenly spread over its nodes."""
SECONDS = 1.0
"""For the answer of a slurmd."""

_THREADS = 50
_OUT_OF_SERVICE = frozenset(
    {
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "FAIL",
        "FAILING",
        "FUTURE",
        "REBOOT",
        "UNKNOWN",
        "EXTERNAL",
    }
)
_POWER = "POWER"


@dataclass(frozen=True, slots=True)
class Slurmd:
    """One slurmd. `started`: when it started, in Slurm's words; it changes when slurmd has taken a
    configuration.
    """

    name: str
    address: str
    port: int
    started: str


def in_service(listing: str, files: Mapping[str, bytes]) -> tuple[Slurmd, ...]:
    """Return the slurmds of the nodes in the output of `scontrol -o show nodes` that may get jobs,
    in its order.

    `files`: those that slurmctld runs with. The node of a pod that is deleted is drained before its
    slurmd ends.
    """
    common = dryrun.setting(files, "SlurmdPort") or ""
    port = int(common) if common.isdecimal() else ports.SLURMD
    found = []
    for line in listing.splitlines():
        name, state = _value(line, "NodeName"), _value(line, "State")
        words = set(re.findall(r"[A-Z_]+", state))
        if (
            not name
            or not state
            or words & _OUT_OF_SERVICE
            or any(it.startswith(_POWER) for it in words)
        ):
            continue
        own = _value(line, "Port")
        found.append(
            Slurmd(
                name,
                _value(line, "NodeAddr") or name,
                int(own) if own.isdecimal() else port,
                _value(line, "SlurmdStartTime"),
            )
        )
    return tuple(found)


def running(listing: str, files: Mapping[str, bytes]) -> tuple[Slurmd, ...]:
    """Return the slurmds of `in_service` that answer, MOST of them."""
    some = spread(in_service(listing, files))
    answers = listening(some)
    return tuple(it for it in some if answers.get(it.name))


def spread(slurmds: tuple[Slurmd, ...], most: int = MOST) -> tuple[Slurmd, ...]:
    """Return at most so many slurmds, from all parts of the list."""
    if len(slurmds) <= most:
        return slurmds
    return tuple(slurmds[number * len(slurmds) // most] for number in range(most))


def listening(slurmds: Iterable[Slurmd]) -> Mapping[str, bool]:
    """Return by name whether slurmd answers, False if nothing listens at its port. One whose answer
    is missing is left out.

    A slurmd that takes a configuration executes itself again, and its port stays open.
    """

    def ask(slurmd: Slurmd) -> bool | None:
        try:
            return health.answers(slurmd.address, slurmd.port, SECONDS)
        except OSError:
            return None

    asked = tuple(slurmds)
    with ThreadPoolExecutor(_THREADS) as executor:
        answers = executor.map(ask, asked)
        return {
            slurmd.name: answer
            for slurmd, answer in zip(asked, answers, strict=True)
            if answer is not None
        }


def _value(line: str, key: str) -> str:
    found = re.search(rf"(?:^|\s){key}=(\S*)", line)
    return found[1] if found else ""
