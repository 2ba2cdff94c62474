"""Before slurmctld starts as the primary, the standby that has taken over since saves its state and ends.

Left to itself a primary asks the standby for control (slurmctld(8)). One of Slurm 26.05 answers that 29 s later, having
done nothing meanwhile, and then writes its state while the primary already reads it: running jobs and dynamic nodes
were lost. A slurmctld that is shut down saves within tenths, and closes its port only after that. A standby that takes
over in the moment of the primary's start is still asked by slurmctld.

`GATE` is a FIFO beside slurmctld's configuration. `HOOK` is a file that bash reads before it runs slurmctld, where
BASH_ENV names it; it opens the FIFO, and reads a line once slurmctld may start. Standard library only.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from sidecars.reconfigure.dryrun import Host

GATE = ".handover"
HOOK = ".handover.sh"
HOOK_TEXT = """\
# bash(1) reads this at its start. The one that becomes slurmctld waits here until no other slurmctld leads: the images
# start it by `bash -c "exec slurmctld …"`, and have no hook of their own.
case "${BASH_EXECUTION_STRING-}" in
  *"exec "*slurmctld" "*)
    until read -r _ < "${BASH_ENV%.sh}"; do sleep 0.2; done
    unset BASH_ENV
    ;;
esac
"""

PAUSE = 0.1
"""Seconds between two looks at a standby that leads."""
AGAIN = 2.0
"""Seconds until one that still leads is asked once more."""
SILENT = 10.0
"""Seconds for which one that gives no answer is asked whether it leads."""
LIMIT = 20.0
"""Seconds for all that; then slurmctld starts, and asks for control itself.

The kubelet gives a start a minute (startupProbe), of which 29 s may pass until that is answered.
"""


class World(Protocol):
    """What a primary that comes back sees of the others."""

    def standbys(self) -> Sequence[Host]:
        """Those behind this one; none for a slurmctld that isn't the first of SlurmctldHost. May raise OSError."""
        ...

    def leads(self, standby: Host) -> bool | None:
        """Whether it is the primary now; None without an answer."""
        ...

    def ask_to_end(self, standby: Host) -> str:
        """Have its pod end its slurmctld if that leads; why it doesn't, empty if it does."""
        ...

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def pause(self, seconds: float) -> None:
        """Do nothing for so long."""
        ...

    def say(self, text: str) -> None:
        """Put a line into the log."""
        ...


def behind(hosts: Sequence[Host], name: str) -> Sequence[Host]:
    """The standbys of the first of SlurmctldHost; none for any other, which claims no control when it starts."""
    return hosts[1:] if hosts and hosts[0].name == name else ()


def lead_alone(world: World) -> None:
    """Returns when no standby leads any more, or none that leads can be moved to end."""
    began = world.now()
    for standby in world.standbys():
        _hand_over(world, standby, began + LIMIT)


def _hand_over(world: World, standby: Host, deadline: float) -> None:
    began = world.now()
    asked: float | None = None
    while True:
        leads, now = world.leads(standby), world.now()
        if leads is False:
            if asked is not None:
                world.say(f"{standby.name} has saved its state and ended, after {now - began:.1f} s")
            return
        if now >= deadline or (asked is None and leads is None and now - began >= SILENT):
            known = "led" if asked is not None else "did not say whether it leads"
            world.say(f"{standby.name} {known} for {now - began:.0f} s; slurmctld starts, and asks it for control")
            return
        if leads and (asked is None or now - asked >= AGAIN):
            why_not = world.ask_to_end(standby)
            asked = now
            outcome = f"but it doesn't: {why_not}" if why_not else "and slurmctld starts here when it has"
            world.say(f"{standby.name} leads: it was asked to save its state and end, {outcome}")
        world.pause(PAUSE)


def prepare(folder: Path) -> None:
    """Put hook and FIFO into slurmctld's folder."""
    draft, gate = folder / f"{HOOK}.new", folder / GATE
    draft.write_text(HOOK_TEXT)
    draft.replace(folder / HOOK)  # at once: a bash that found it empty would not wait
    if not gate.is_fifo():
        os.mkfifo(gate, 0o644)


def keep_gate(folder: Path, world: World) -> NoReturn:
    """Let each start of slurmctld through when it leads alone."""
    while True:
        # Opens when the hook has opened its end.
        with contextlib.suppress(BrokenPipeError), (folder / GATE).open("wb", buffering=0) as gate:
            try:
                lead_alone(world)
            except OSError as error:
                # Nothing is written, so that the hook asks again.
                world.say(f"slurmctld can't start yet: {error}")
            else:
                gate.write(b"go\n")
        # The hook has closed its end by then, and isn't taken for the next start.
        world.pause(PAUSE)
