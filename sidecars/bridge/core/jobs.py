"""What Slurm has answered about jobs so far: which details are to be read, and what is known. Pure.

The states of all jobs are read often, because that is cheap; the details of a job when its states
have changed. `states` must be called with a list that was requested after the details were read:
then a job that got what another one had is never seen without the end of that one.
"""

import dataclasses
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from sidecars.bridge.core.devices import Numbered
from sidecars.bridge.core.placeholder import NO_DEVICES, comment_of, job_of, together
from sidecars.bridge.core.records import GroupKey, Job
from sidecars.bridge.core.shape import Shape
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation, ExternalJob
from sidecars.slurm.job_states import ENDED, has_ended

TRUST_EMPTY_AFTER = 60.0
"""Seconds for which an empty list has to last before it counts, when a job was listed before that
had not ended.

slurmctld forgets jobs some minutes after their end. One that has lost its state answers with an
empty list, too.
"""

MOST_OTHERS = 2000
"""Jobs of others that are read at once. slurmrestd takes some hundreds a second, and each answer
has 15 s.
"""

TURN_SECONDS = 60
"""In this time, each pending placeholder is read again, as far as so many can be read."""

_NONE: frozenset[str] = frozenset()
_PENDING = frozenset({"PENDING"})
_Placeholder = tuple[ExternalJob, Comment]


class JobBook:
    """The states and details of the jobs of one Slurm cluster, as far as they are placeholders of
    one Kubernetes cluster: see `Comment.cluster`.
    """

    def __init__(self, cluster: str = "") -> None:
        self._cluster = cluster
        self._states: Mapping[int, frozenset[str]] = {}
        self._gone: dict[int, frozenset[str]] = {}
        """The last states of the placeholders that slurmctld has forgotten after their end."""
        self._records: dict[int, _Placeholder] = {}
        """The placeholders."""
        self._read: dict[int, frozenset[str]] = {}
        """The states that a job had in the list when its details were read."""
        self._fresh: frozenset[int] = frozenset()
        """The jobs that were submitted between the last two lists."""
        self._start: int | None = None
        """When slurmctld started."""
        self._outdated: set[int] = set()
        """The placeholders whose details a slurmctld has given that has ended since."""
        self._turn: deque[int] = deque()
        """The pending placeholders that are still to be read again in this turn."""
        self._share = 0
        """How many of them are read each second."""
        self._none_waits = False
        """Whether no placeholder is pending until something changes."""
        self._answered = False
        self._empty_since: float | None = None
        self._all_read = False
        """Whether nothing is to be read until something changes."""
        self._names: tuple[object, ...] = ()
        self._jobs: dict[int, tuple[tuple[object, ...], Job]] = {}
        """The jobs of the last pass, each after what it comes from: of thousands of jobs, few
        change in each pass.
        """

    def states(
        self, listed: Mapping[int, frozenset[str]], now: float, *, again: bool = False
    ) -> bool:
        """Take in the states of all jobs, requested at `now` (monotonic seconds). Whether anything
        has changed.

        `again`: the list is the second one of a pass. A job that only this one has was submitted
        meanwhile. It is a held job if it is the bridge's, and may wait for the next pass.
        """
        self._fresh = frozenset(listed.keys() - self._states.keys()) if again else frozenset()
        if self._answered and self._empty_since is None and listed is self._states:
            # It is the same answer as before.
            return False
        changed = not self._answered or listed != self._states
        self._answered, self._all_read, self._none_waits = True, False, False
        if listed or all(has_ended(states) for states in self._states.values()):
            self._empty_since = None
        elif self._empty_since is None or now - self._empty_since < TRUST_EMPTY_AFTER:
            self._empty_since = now if self._empty_since is None else self._empty_since
            return changed
        self._empty_since = None
        for job_id in [it for it in self._read if it not in listed]:
            del self._read[job_id]
            last = self._states.get(job_id, _NONE)
            if job_id in self._records:
                if has_ended(last):
                    self._gone[job_id] = last - {"COMPLETING"}
                else:
                    del self._records[job_id]
        for job_id in [it for it in self._gone if it in listed]:
            # A slurmctld that has lost its state gives the ids of before to other jobs.
            del self._gone[job_id]
            self._records.pop(job_id, None)
        self._outdated &= listed.keys()
        self._states = listed
        return changed

    def fail(self) -> None:
        """No answer: nothing is known until the next one."""
        self._answered = False

    def started_at(self, start: int) -> bool:
        """Take in when slurmctld started, asked for after the details were read. Whether they are
        to be read again.

        One that is killed forgets the last seconds: a job that it starts again has the states of
        before, and may have other nodes, and the id of a job of others may be given to a
        placeholder. Its clock has seconds.
        """
        if start == self._start:
            return False
        self._start = start
        self._all_read = False
        self._outdated |= {it for it in self._records if not has_ended(self._states.get(it, ENDED))}
        others = self._read.keys() - self._records.keys()
        for job_id in others:
            del self._read[job_id]
        return bool(self._outdated or others)

    @property
    def known(self) -> bool:
        """Whether the last list was answered, is plausible, and the details of each job in it were
        read once.

        But those of jobs that were submitted since the list before. No details are those of an
        earlier slurmctld.
        """
        listed = self._answered and self._empty_since is None
        return listed and not self._outdated and self._fresh.issuperset(self.unread())

    def unread(self) -> list[int]:
        """Return the listed jobs whose details were never read."""
        return [it for it in self._states if it not in self._read and it not in self._records]

    def to_read(self) -> list[int]:
        """Return the jobs whose details are to be read: new ones, and placeholders that have
        changed. Of thousands of jobs that may be those of others, some: until all are read, nothing
        is `known`.
        """
        if self._all_read:
            return []
        found = [
            job_id
            for job_id, states in self._states.items()
            if job_id not in self._read
            or job_id in self._outdated
            or (self._read[job_id] != states and self._matters(job_id, states))
        ]
        self._all_read = not found
        others = [it for it in found if it not in self._records]
        return [*(it for it in found if it in self._records), *others[:MOST_OTHERS]]

    def _matters(self, job_id: int, states: frozenset[str]) -> bool:
        found = self._records.get(job_id)
        if found is None:
            # An earlier bridge can have written an admin comment since, so that its Epilog waits
            # for an answer.
            return "COMPLETING" in states
        return not (has_ended(states) and has_ended(found[0].states))

    def details(self, job_id: int, record: ExternalJob | None) -> bool:
        """Take in the details of a job of the last list; None if Slurm doesn't know it by now.
        Whether they are new.
        """
        self._all_read = self._none_waits = False
        self._outdated.discard(job_id)
        comment = comment_of(record, self._cluster) if record is not None else None
        former = self._records.get(job_id)
        if record is not None and former is not None:
            if _has_begun(former, record):
                comment = former[1]
            elif comment is None and "COMPLETING" in record.states:
                # Its Epilogs may have known it before, and wait for an answer.
                comment = former[1]
        if record is not None and comment is not None:
            over = record.states & (ENDED | {"COMPLETING"})
            if former is not None and former[1] == comment and over and not record.allocations:
                # What an ended job had is needed until its pods are gone.
                record = dataclasses.replace(record, allocations=former[0].allocations)
            self._records[job_id] = record, comment
        elif record is not None:
            self._records.pop(job_id, None)
        new = self._records.get(job_id) != former or job_id not in self._read
        if job_id in self._states:
            new = new or self._read[job_id] != self._states[job_id]
            self._read[job_id] = self._states[job_id]
        return new

    def beside(self, begun: Iterable[int]) -> list[int]:
        """Return the running placeholders on several nodes, of which another job of these that has
        `begun` to run has one.

        The owner of a running job may give up nodes of it, which changes no state, and the next job
        gets them: read after the details of that one, the details of these show it. One node
        remains to a job until its end.
        """
        on: defaultdict[str, set[int]] = defaultdict(set)
        for job_id in begun:
            for it in self._has(job_id):
                on[it.node].add(job_id)
        if not on:
            return []
        return [
            job_id
            for job_id in self._records
            if len(has := self._has(job_id)) > 1
            and any(on.get(it.node, set()) - {job_id} for it in has)
        ]

    def _has(self, job_id: int) -> tuple[Allocation, ...]:
        """Return what a placeholder has that has not ended, () for any other job."""
        found = self._records.get(job_id)
        if found is None or has_ended(self._states.get(job_id, ENDED)):
            return ()
        return found[0].allocations

    def holding(self) -> frozenset[str] | None:
        """Return the Slurm nodes of the placeholders that have begun and not ended. The node of a
        suspended one is IDLE.

        None while not all jobs are known.
        """
        if not self.known:
            return None
        return frozenset(it.node for job_id in self._records for it in self._has(job_id))

    def stale(self, job_id: int) -> None:
        """Have the details of this job read again: they have changed without its states."""
        self._read.pop(job_id, None)
        self._all_read = False

    def started(self, job_id: int, admin_comment: str) -> None:
        """Record that Slurm has answered that this held job may start. Its details are known until
        its states change.
        """
        found = self._records.get(job_id)
        if found is not None:
            record = dataclasses.replace(
                found[0], blocked=False, admin_comment=admin_comment, reason=""
            )
            self._records[job_id] = record, comment_of(record, self._cluster) or found[1]
            self._read[job_id] = _PENDING

    def next_waiting(self, least: int, most: int) -> list[int]:
        """Return the pending placeholders that are to be read again this second, in turn: their
        reason and priority change without their states. A turn of many takes TURN_SECONDS, with
        `least` to `most` a second. Fewer are returned at the end of a turn.
        """
        found: list[int] = []
        if not self._turn and not self._none_waits:
            self._turn.extend(filter(self._waits, self._records))
            self._none_waits = not self._turn
            self._share = min(most, max(least, -(-len(self._turn) // TURN_SECONDS)))
        while self._turn and len(found) < self._share:
            job_id = self._turn.popleft()
            # There may have been thousands, which have begun to run since.
            if self._waits(job_id):
                found.append(job_id)
        return found

    def _waits(self, job_id: int) -> bool:
        return "PENDING" in self._states.get(job_id, _NONE)

    def unlisted(self, labelled: Iterable[int]) -> frozenset[int]:
        """Return those of these jobs that Slurm doesn't list, and whose end isn't known."""
        return frozenset(it for it in labelled if it not in self._states and it not in self._gone)

    def stored(self, record: ExternalJob) -> bool:
        """Take in slurmdbd's record of a job that Slurm doesn't list. Whether it has the end of a
        placeholder.

        Only an end that slurmctld itself has reported counts, which has the admin comment: a
        slurmctld without its state has slurmdbd end all jobs, whatever runs.
        """
        comment = comment_of(record, self._cluster)
        reported = has_ended(record.states) and bridge.decode(record.admin_comment) is not None
        if comment is None or not reported or record.job_id in self._states:
            return False
        self._gone[record.job_id] = record.states - {"COMPLETING"}
        self._records[record.job_id] = record, comment
        return True

    def forget(self, labelled: Iterable[int]) -> None:
        """Forget the ended placeholders that Slurm has forgotten, unless a pod has their label."""
        for job_id in self._gone.keys() - set(labelled):
            del self._gone[job_id]
            self._records.pop(job_id, None)

    def jobs(
        self,
        shapes: Mapping[int, Collection[tuple[GroupKey, Shape]]],
        kube_nodes: Mapping[str, str],
        guard_nodes: Mapping[str, str] = MappingProxyType({}),
        devices: Mapping[str, tuple[Numbered, ...]] = NO_DEVICES,
    ) -> dict[int, Job]:
        """Return the placeholders by id, a heterogeneous job by that of its first component.

        `shapes`, `kube_nodes`, `guard_nodes` and `devices`: see `job_of`.
        """
        found: dict[int, Job] = {}
        components: defaultdict[int, list[Job]] = defaultdict(list)
        names = dict(kube_nodes), dict(guard_nodes), dict(devices)
        known = self._jobs if names == self._names else {}
        self._names, self._jobs = names, {}
        for job_id, (record, comment) in self._records.items():
            states = self._states.get(job_id) or self._gone.get(job_id)
            if states is not None:
                current = self._read.get(job_id) == states
                facts = record, comment, states, current, frozenset(shapes.get(job_id, ()))
                former = known.get(job_id)
                if former is not None and former[0] == facts:
                    job = former[1]
                else:
                    job = job_of(
                        *(record, comment, states),
                        current=current,
                        shapes=shapes,
                        kube_nodes=kube_nodes,
                        guard_nodes=guard_nodes,
                        devices=devices,
                    )
                self._jobs[job_id] = facts, job
                # The other components of a job that a user has submitted need not be external ones.
                if record.het_id and not comment.by_user:
                    components[record.het_id].append(job)
                else:
                    found[job_id] = job
        for its in components.values():
            whole = together(its)
            found[whole.job_id] = whole
        return found


def _has_begun(former: _Placeholder, record: ExternalJob) -> bool:
    """Return whether it is a user's job for a group that has begun with its former comment, which
    the user can change.
    """
    before, comment = former
    same = (before.user_name, before.external) == (record.user_name, record.external)
    return comment.by_user and same and bool(before.allocations) and "PENDING" not in record.states
