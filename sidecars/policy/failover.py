"""Which of several slurmctld is the primary, and which pods carry the label that its Service follows. Pure."""

from collections.abc import Mapping, Sequence

ACTIVE = "controller.slinky.slurm.net/active"
"""Label of the primary's pod; its value is `true`."""


def primary(
    ready: Mapping[str, bool | None], pings: Sequence[tuple[str, bool]] | None, present: str | None
) -> str | None:
    """The primary's pod, or `present` while it is not known.

    `ready`: by pod, whether its slurmctld reports on /readyz that it is the primary; None without an answer.
    `pings`: hostname and whether it responds, in order of SlurmctldHost, as slurmrestd reports; None without a report.
    """
    leading = [name for name, yes in sorted(ready.items()) if yes]
    if len(leading) == 1:
        return leading[0]
    for hostname, responds in pings or ():
        if responds and hostname in ready and (not leading or hostname in leading):
            return hostname
    if present in ready:
        return present
    # As Slurm does at its first start: the first of SlurmctldHost.
    return min(ready, default=None)


def labels(carrying: Mapping[str, bool], active: str | None) -> dict[str, bool]:
    """Pods whose label changes, and whether they get it. The new primary comes first, so that one always has it."""
    if active is None:
        return {}
    wanted = {name: name == active for name in carrying}
    return {
        name: wanted[name]
        for name in sorted(carrying, key=lambda name: (name != active, name))
        if carrying[name] != wanted[name]
    }
