"""Before slurmctld starts as the primary, the standby that has taken over since saves its state and
ends.

Left to itself a primary asks the standby for control (slurmctld(8)). A standby of Slurm 26.05
answers after 29 s, during which it does nothing, and then writes its state while the primary
already reads it: running jobs and dynamic nodes were lost. A slurmctld that is shut down saves
within tenths of a second, and closes its port only after that. slurmctld still asks a standby that
takes over in the very moment of the primary's start.

Standard library only.
"""

from collections.abc import Sequence
from typing import Protocol

from sidecars.reconfigure.dryrun import Host

PAUSE = 0.1
"""Seconds between two questions to a standby that leads."""
AGAIN = 2.0
"""Seconds after which a standby that still leads is asked again to end."""
SILENT = 10.0
"""Seconds for which a standby that gives no answer is asked whether it leads."""
LIMIT = 20.0
"""Seconds for all standbys together. Then slurmctld starts, and asks for control itself.

The kubelet grants a start one minute (startupProbe), of which 29 s may pass until that question is
answered.
"""


class Peers(Protocol):
    """What a primary that comes back knows of the other slurmctld, its clock and its log."""

    def standbys(self) -> Sequence[Host]:
        """Return the standbys behind this slurmctld, none if it isn't the first of SlurmctldHost.
        May raise OSError.
        """
        ...

    def leads(self, standby: Host) -> bool | None:
        """Return whether it is the primary, or None without an answer."""
        ...

    def ask_to_end(self, standby: Host) -> str:
        """Have its pod end its slurmctld if that leads. Returns why that failed, empty if it
        didn't.
        """
        ...

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def pause(self, seconds: float) -> None:
        """Do nothing for so long."""
        ...

    def log_line(self, text: str) -> None:
        """Write a line to the log."""
        ...


def behind(hosts: Sequence[Host], name: str) -> Sequence[Host]:
    """Return the standbys of the first of SlurmctldHost, none for any other, which claims no
    control when it starts.
    """
    return hosts[1:] if hosts and hosts[0].name == name else ()


def lead_alone(peers: Peers) -> str:
    """Wait until no standby leads, at most LIMIT. Returns why a standby may still lead, empty if
    none does.
    """
    began = peers.now()
    problems = [_hand_over(peers, standby, began + LIMIT) for standby in peers.standbys()]
    return "; ".join(filter(None, problems))


def _hand_over(peers: Peers, standby: Host, deadline: float) -> str:
    began = peers.now()
    asked: float | None = None
    while True:
        leads, now = peers.leads(standby), peers.now()
        if leads is False:
            if asked is not None:
                peers.log_line(
                    f"{standby.name} has saved its state and ended, after {now - began:.1f} s"
                )
            return ""
        if now >= deadline or (asked is None and leads is None and now - began >= SILENT):
            known = "led" if asked is not None else "did not report whether it leads"
            problem = f"{standby.name} {known} for {now - began:.0f} s"
            peers.log_line(f"{problem}; slurmctld starts, and asks it for control")
            return problem
        if leads and (asked is None or now - asked >= AGAIN):
            why_not = peers.ask_to_end(standby)
            asked = now
            outcome = (
                f"but it doesn't: {why_not}" if why_not else "and slurmctld starts here when it has"
            )
            peers.log_line(
                f"{standby.name} leads: it was asked to save its state and end, {outcome}"
            )
        peers.pause(PAUSE)
