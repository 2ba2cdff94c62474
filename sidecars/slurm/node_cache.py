"""The node records of one cluster, as the answers to polls show them. Pure: the caller passes
answers and times.

Slurm 26.05 answers a change with all nodes; other releases may answer with the changed ones only.
An answer that lacks registered nodes is therefore compared with a full list before it counts.

slurmrestd may answer with a list that is empty or lacks most nodes, because slurmctld restarted
without its state or is a backup that never had it. Such nodes are `suspects`: they stay in the
cache until they are back, or until a full list `CONFIRM_AFTER` seconds later still lacks them. That
time covers two more full lists and is longer than an incomplete list lasts after a restart or a
take-over. It is short compared to the minutes that jobs take.
"""

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sidecars.slurm import states
from sidecars.slurm.records import Node, Nodes

if TYPE_CHECKING:
    from sidecars.slurm.versions import Release

CONFIRM_AFTER = 60.0
"""Seconds for which full lists must lack suspects before they count as removed."""

CALM_AFTER = 30.0
"""Seconds without a change, a write or a `stir` after which an idle cluster is calm."""

LISTED_FOR = 3600
"""Seconds for which it is remembered when a node that vanished was last in an answer."""

EXPECT_FOR = 600.0
"""Seconds for which an announced removal is expected."""

_FEW = 4  # with fewer nodes than this, "most of them vanished" means little

log = logging.getLogger(__name__)


def vanished_at_once(lost: int, registered: int, *, left: int) -> bool:
    """Return whether losing so many of the registered nodes looks like lost state. `left`: how many
    nodes the list has.
    """
    return lost > 0 and (not left or (registered >= _FEW and 2 * lost > registered))


class NodeCache:
    """The records of one cluster. Times are of one monotonic clock; `full_every` is the seconds
    between full lists.
    """

    def __init__(self, now: float, full_every: float) -> None:
        self._full_every = full_every
        self._nodes: dict[str, Node] = {}
        self.nodes: Mapping[str, Node] = MappingProxyType(self._nodes)
        """The last record of each node by name: a live view, read-only."""
        self.last_update: int | None = None
        """The server's time of the last answer with nodes; None before the first."""
        self.release: Release | None = None
        """The release that the server reports; None before the first answer with nodes, and if it
        can't be read.
        """
        self.last_change = float("-inf")
        """When a record last changed."""
        self.last_listed: dict[str, int] = {}
        """The server's time of the last answer that had the node, for nodes that vanished lately
        too.
        """
        self.reversals = 0
        """How often the server's time has gone backwards. Until that time has come again, the
        server reports no change of what was read before.
        """
        self.ever_had_nodes = False
        self._full_at = float("-inf")
        self._full_wanted = True
        self._partial_answers = False
        self._changes_refused = False
        self._suspects: dict[str, float] = {}
        self._expected: dict[str, float] = {}
        self._deleted: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._changed_at: dict[str, float] = {}
        self._stirred_at = now
        self._working = False

    @property
    def suspects(self) -> frozenset[str]:
        """Nodes that vanished in a way that looks like lost state; still in `nodes`."""
        return frozenset(self._suspects)

    @property
    def unsettled(self) -> frozenset[str]:
        """Nodes whose state was written after the last answer was asked for: their record may be
        out of date.
        """
        return frozenset(self._written)

    def changed_after(self, at: float, names: Iterable[str]) -> frozenset[str]:
        """Return the nodes among these whose record has changed after that time."""
        return frozenset(name for name in names if self._changed_at.get(name, float("-inf")) > at)

    def calm(self, now: float) -> bool:
        """Return whether no node has work, none is suspect, and nothing has happened for
        `CALM_AFTER`.
        """
        return not self._working and not self._suspects and now - self._stirred_at >= CALM_AFTER

    def stir(self, now: float) -> None:
        """Record that something is about to change."""
        self._stirred_at = now

    def expect_removal(self, names: Iterable[str], now: float) -> None:
        """Announce that others are about to delete these records."""
        names = frozenset(names)
        if names - self._expected.keys():
            self.stir(now)
        self._expected.update((name, now + EXPECT_FOR) for name in names)

    def being_written(self, names: Iterable[str]) -> None:
        """Record that a write of the nodes' states has been sent."""
        self._written.update(dict.fromkeys(names, float("inf")))

    def written(self, names: Iterable[str], now: float) -> None:
        """Record that a write of the nodes' states has ended, successful or not."""
        self._written.update(dict.fromkeys(names, now))

    def deleted(self, name: str, now: float) -> bool:
        """Forget a record that was just deleted. Returns whether it was in the cache."""
        # An answer that was asked for earlier may still contain it.
        self._deleted[name] = now
        self._full_wanted = True
        present = name in self._nodes
        self._forget(name)
        return present

    # --- answers

    def needs_full_list(self, now: float) -> bool:
        """Return whether to ask for all nodes instead of changes."""
        wanted = self._full_wanted or self._changes_refused
        return wanted or self.last_update is None or now - self._full_at >= self._full_every

    def changes_refused(self, *, refused: bool) -> None:
        """Record whether the server refused to report the changes: a request for them is in vain
        until all is quiet.
        """
        self._changes_refused = refused

    def to_confirm(self, answer: Nodes) -> frozenset[str]:
        """Return the registered nodes that an answer about changes lacks, so that a full list is
        needed to find out why.
        """
        return frozenset() if self._partial_answers else self._missing(answer)

    def got_full_list(self, answer: Nodes, missing: frozenset[str], asked_at: float) -> None:
        """Record that `answer` is a full list; `missing`: the nodes that the answer about changes
        before it lacked.
        """
        # Present in the full list, but absent from the answer before: that one contained changed
        # nodes only.
        self._partial_answers = self._partial_answers or any(
            node.name in missing for node in answer.nodes
        )
        self._full_at, self._full_wanted = asked_at, False

    def settle(self, asked_at: float) -> None:
        """Forget the writes that ended before a good answer was asked for."""
        self._written = {name: at for name, at in self._written.items() if at > asked_at}

    def apply(
        self, answer: Nodes, asked_at: float, now: float, *, full: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Take the answer's records over. Returns the names of changed (also new) and of removed
        nodes.
        """
        if self.last_update is not None and answer.last_update < self.last_update:
            # Another slurmctld, or one whose clock was set back: `last_update` may be in its
            # future.
            self._full_wanted = not full
            self.reversals += 1
        self.last_update, self.release = answer.last_update, answer.release
        self._deleted = {name: at for name, at in self._deleted.items() if at >= asked_at}
        present = {node.name: node for node in answer.nodes if node.name not in self._deleted}
        former = self._nodes.get
        changed = frozenset(
            name
            for name, node in present.items()
            # Most are the same object, and identity is much cheaper to check than equality.
            if former(name) is not node and former(name) != node
        )
        self.last_listed.update(dict.fromkeys(present, answer.last_update))
        if full and len(self.last_listed) > len(present):
            oldest = answer.last_update - LISTED_FOR
            self.last_listed = {name: at for name, at in self.last_listed.items() if at > oldest}
        removed = self._removed(present, asked_at) if full else frozenset()
        if changed:
            self.last_change = now
            self._changed_at.update(dict.fromkeys(changed, now))
        self._nodes.update(present)
        self.ever_had_nodes = self.ever_had_nodes or bool(present)
        for name in present:
            self._suspects.pop(name, None)
        for name in removed:
            self._forget(name)
        if not changed and not removed:
            # Such a server still reports that nothing has changed, which costs slurmctld much less
            # than a list.
            self._changes_refused = False
        else:
            self.stir(now)
            self._working = any(states.is_busy(node.states) for node in self._nodes.values())
        return changed, removed

    def _missing(self, answer: Nodes) -> frozenset[str]:
        present = {node.name for node in answer.nodes}
        return frozenset(
            name for name in self._nodes if name not in present and name not in self._suspects
        )

    def _removed(self, present: Mapping[str, Node], now: float) -> frozenset[str]:
        """Return the nodes that a full list shows to be removed, and record the suspects."""
        self._expected = {name: until for name, until in self._expected.items() if until > now}
        absent = self._nodes.keys() - present.keys()
        expected = absent & self._expected.keys()
        sudden = absent - expected - self._suspects.keys()
        others = len(self._nodes) - len(expected) - len(self._suspects.keys() & absent)
        if vanished_at_once(len(sudden), others, left=len(present)):
            log.warning(
                "poll: %d of %d Slurm nodes vanished at once", len(sudden), len(self._nodes)
            )
            self._suspects.update((name, now) for name in sudden)
            sudden = set()
        confirmed = {
            name
            for name, since in self._suspects.items()
            if name in absent and now - since >= CONFIRM_AFTER
        }
        return frozenset(expected | sudden | confirmed)

    def _forget(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._changed_at.pop(name, None)
        self._suspects.pop(name, None)
        self._expected.pop(name, None)
