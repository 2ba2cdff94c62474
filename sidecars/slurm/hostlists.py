"""Slurm's hostlist expressions: `gpu-[0-3,007-009],login` to names and back (scontrol show hostnames, hostlist).

Only the language is here; whether such nodes exist is not its business.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

MAX_NAMES = 65_536
"""As many names as one expression may stand for; slurmctld itself takes no more nodes."""

_PLAIN = re.compile(r"[^\[\],\s\x00]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_TRAILING_NUMBER = re.compile(r"(.*?)([0-9]{1,18})\Z", re.DOTALL)


class HostlistError(ValueError):
    """The text is no hostlist, stands for too many names, or a name can't be written in one."""


def expand(expression: str) -> list[str]:
    """The names that a hostlist stands for, in its own order, each as often as it is there; [] for "".

    A range keeps the width of its first number when that begins with 0: `n[08-10]` is n08, n09, n10. Several brackets
    in one name multiply. Raises HostlistError.
    """
    raise NotImplementedError


def compress(names: Iterable[str]) -> str:
    """The shortest usual hostlist of the names: sorted by prefix and number, without duplicates; "" for none.

    Only a name's last digits become a range. Raises HostlistError for an empty name or one with a bracket, comma or white space.
    """
    raise NotImplementedError
