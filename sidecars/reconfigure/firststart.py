"""Has a slurmctld with accounting start again that was killed before it had saved all of its state
once.

When slurmctld starts for the first time, it gets the id of the cluster from slurmdbd and writes it
to `clustername`. It writes each other file when what it contains changes, and all of them after
five minutes and when it ends. If it finds the id and one of the others is missing, it ends, because
that may have been lost. So one that was killed in its first minutes would never start again.
Without the id it does what it did at its first start: it reads the files that exist, and asks
slurmdbd for the id (controller.c, assoc_mgr.c and state_save.c in Slurm's source).

The id is removed only where nothing can have been lost: a mark proves that this state has begun
from nothing and was never seen complete, and no missing file has left a trace. Standard library
only.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sidecars.reconfigure.dryrun import CLUSTER_FILE

MARK: Final = ".first-start"
"""Beside the state from before its first slurmctld until all was saved. Contains what `clustername`
had with the id.
"""
USAGE: Final = "assoc_usage"
NEEDED: Final = frozenset(
    {USAGE, "fed_mgr_state", "job_state", "node_state", "resv_state", "trigger_state"}
)
"""Without one of these slurmctld ends when it has found the id."""
AFTER_USAGE: Final = frozenset(
    {"qos_usage", "fed_mgr_state", "last_tres.old", "assoc_mgr_state.old"}
)
"""Written only after USAGE has been, or for the second time after what precedes it."""
GONE: Final = 1.0
"""Seconds for which nothing listens at slurmctld's port until it counts as ended."""


class FirstStart:
    """Looks after the state in a folder. `log_line` gets what was done."""

    def __init__(self, state: Path, log_line: Callable[[str], None]) -> None:
        self._state, self._log = state, log_line
        self._silent_since: float | None = None
        self._problem = ""

    def begin(self) -> None:
        """Mark a state that has no file yet. Call it before slurmctld may start."""
        try:
            if all(
                it.name.startswith(".") or it.name == "lost+found" for it in self._state.iterdir()
            ):
                _write(self._state / MARK, "")
        except OSError as error:
            self._report(error)

    def pending(self) -> bool:
        """Return whether a look may still have something to do."""
        return (self._state / MARK).exists()

    def look(self, now: float, answers: bool | None, accounting: Callable[[], bool]) -> None:
        """Take one look.

        `answers`: whether slurmctld answers at its port, False if nothing listens, None if unknown.
        `accounting`: whether slurmctld uses slurmdbd. Otherwise it starts with the files that
        exist, and without the id would choose another.
        """
        if answers is not False:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        ended = self._silent_since is not None and now - self._silent_since >= GONE
        try:
            if self.pending():
                self._look(accounting if ended else None)
        except OSError as error:
            self._report(error)

    def _look(self, accounting: Callable[[], bool] | None) -> None:
        """Take one look with a mark. `accounting` is None while slurmctld may run."""
        names = {it.name for it in self._state.iterdir()}
        if CLUSTER_FILE not in names:
            return
        missing = NEEDED - names
        if not missing or f"{USAGE}.old" in names:
            self._end()
            return
        lost = any(f"{name}.old" in names for name in missing)
        if (
            lost
            or (USAGE in missing and not names.isdisjoint(AFTER_USAGE))
            or accounting is None
            or not accounting()
        ):
            return
        cluster = self._state / CLUSTER_FILE
        content = _read(cluster)
        name, _, id_ = content.partition("|")
        if name and id_.strip() not in ("", "0"):
            _write(self._state / MARK, content)
            os.truncate(cluster, len(os.fsencode(name)))
            self._log(
                "slurmctld ended before it had saved all of its state for the first time. So "
                f"that it starts with the files that exist, {cluster} is now without the id "
                f"{id_.strip()}, which slurmdbd gives it again"
            )

    def _end(self) -> None:
        """Remove the mark: all was saved. Should `clustername` be without the id, it was removed
        while slurmctld ran, which has it.
        """
        cluster, mark = self._state / CLUSTER_FILE, self._state / MARK
        before, now = _read(mark), _read(cluster)
        if before and now == before.partition("|")[0]:
            with cluster.open("ab") as stream:
                stream.write(os.fsencode(before[len(now) :]))
        elif before and now != before:
            self._log(
                f"{cluster} was {before!r} at the first start of slurmctld and is {now!r} now"
            )
        mark.unlink()

    def _report(self, error: OSError) -> None:
        if str(error) != self._problem:
            self._problem = str(error)
            self._log(f"whether slurmctld has saved all of its state isn't known: {error}")


def _read(path: Path) -> str:
    return os.fsdecode(path.read_bytes())


def _write(path: Path, text: str) -> None:
    """Replace a file at once."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as stream:
        stream.write(os.fsencode(text))
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
