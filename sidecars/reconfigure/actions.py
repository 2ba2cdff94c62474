"""What the state machine asks for, and the answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.refusals import Refusal
from sidecars.reconfigure.slurmds import Slurmd
from sidecars.slurm.diagnosis import Culprit


# What to do.
@dataclass(frozen=True, slots=True)
class Check:
    """Dry-run a set."""

    id: Id


@dataclass(frozen=True, slots=True)
class Install:
    """Let slurmctld find this set."""

    id: Id


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """`scontrol reconfigure`."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Let slurmctld save its state and end; the kubelet starts it again in the same pod, and jobs
    go on.
    """


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask slurmctld whether it lives."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Store a set as the last good one."""

    id: Id


@dataclass(frozen=True, slots=True)
class Look:
    """Look whether these slurmds run."""

    slurmds: tuple[Slurmd, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Remember, beside the last good set, what slurmds ended of."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Forget:
    """Remember no refused set."""


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log."""

    text: str


Action = Check | Install | Reconfigure | Restart | Probe | Keep | Look | Refuse | Forget | Log


# Answers.
@dataclass(frozen=True, slots=True)
class Passed:
    """The dry run came up. `restart`: settings that a running slurmctld can't take, with their
    values; may be empty.

    `slurmds`: those that ran after it.
    """

    restart: str = ""
    slurmds: tuple[Slurmd, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """slurmctld, or a rule of ours, refused the set."""

    culprit: Culprit


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """It could not be done; the set itself may be good or bad."""

    reason: str


@dataclass(frozen=True, slots=True)
class Taken:
    """slurmctld took the reconfigure, or ends for the restart."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Whether slurmctld answers; no: nothing listens at its port."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of slurmds. `in_service`: their records as Slurm has them now, of those that
    may get jobs.

    `listening`: by name, whether slurmd answers. False: nothing listens at its port. It lacks those
    without an answer.
    """

    in_service: tuple[Slurmd, ...]
    listening: Mapping[str, bool]


Answer = Passed | Refused | NoAnswer | Taken | Alive | Looked
