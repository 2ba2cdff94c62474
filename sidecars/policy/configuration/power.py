"""Rules about lines of a site that keep Slurm's power saving from following the NodeSets with
`powerSaving`.

The site's lines count: it may have a reason. So these are warnings.
"""

from collections.abc import Sequence

from sidecars.policy.configuration.reading import Placed, Reading, is_less
from sidecars.workloads import slurm_conf_lines
from sidecars.workloads.resources import NodeSet

_EXCEPTED = ("EXTERNAL", "RESERVED")
"""States whose nodes Slurm must not power down: the Slurm Bridge has the former, and a reservation
keeps nodes up.
"""
_NEVER = 1_000_000_000
"""Seconds from which on a SuspendTime means that Slurm powers nothing down."""


def rules(reading: Reading, lines: Sequence[Placed], nodesets: Sequence[NodeSet]) -> None:
    """Apply all rules about power saving. None applies without a NodeSet with it."""
    saving = slurm_conf_lines.saving_power(nodesets)
    if not saving:
        return
    last = {at.key: at for at in lines if not at.ours}
    states = last.get("suspendexcstates")
    if states is not None:
        excepted = {it.strip().upper() for it in states.value.split(",")}
        lacking = [it for it in _EXCEPTED if it not in excepted]
        if lacking:
            text = f"SuspendExcStates={states.value} lacks {' and '.join(lacking)}"
            reading.report("warning", states, f"{text}: Slurm powers such nodes down; add it")
    idle = last.get("suspendtime")
    if idle is not None and is_less(idle.value, _NEVER):
        text = f"SuspendTime={idle.value}: Slurm also powers down workers without powerSaving"
        reading.report(
            "warning", idle, f"{text}, whose pods stay: set powerSaving.idleSeconds instead"
        )
    prolog = last.get("prologtimeout") or last.get("prologepilogtimeout")
    least, most = last.get("resumetimeout"), max(it.start_seconds for it in saving)
    if least is not None and is_less(least.value, most):
        text = f"ResumeTimeout={least.value} is less than powerSaving.startSeconds, {most}"
        reading.report("warning", least, f"{text}: remove it")
    if prolog is not None and is_less(prolog.value, most):
        pair = prolog.line.pairs[0]
        text = f"{pair.key}={pair.value} is less than powerSaving.startSeconds, {most}"
        reading.report(
            "warning",
            prolog,
            f"{text}: jobs whose workers take longer begin up to 30 s after them; remove it",
        )
