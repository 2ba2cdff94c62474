"""A simulated slurmctld's cluster: its records, and what happens to them. Pure but for the clock
that it gets.

It behaves as observed with Slurm 26.05. It schedules nothing: the caller starts and ends jobs.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sidecars.contract.reasons import NOT_RESPONDING, UNEXPECTEDLY_REBOOTED
from sidecars.simulate.records import (
    SimJob,
    SimNode,
    SimPartition,
    SimReservation,
)
from sidecars.slurm.hostlists import expand, nodes_in, units_in
from sidecars.slurm.job_states import has_ended

UNAVAILABLE = frozenset({"DRAIN", "FAIL"})
"""Flags of a node on which no job starts. Setting one of them ends the other."""


@dataclass(frozen=True, slots=True)
class Use:
    """What uses the nodes at one moment, by node, collected once for a whole list. Unused nodes are
    absent.
    """

    cpus: Mapping[str, int]
    completing: AbstractSet[str]
    reservations: Mapping[str, Sequence[SimReservation]]


class Cluster:
    """One simulated Slurm cluster. `clock` is the server's time in seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.release: tuple[int, ...] = (26, 5, 5)
        """Of Slurm."""
        self.reported: tuple[int, ...] | None = None
        """The release that it reports instead of its own."""
        self.nodes: dict[str, SimNode] = {}
        self.jobs: dict[int, SimJob] = {}
        self.partitions: dict[str, SimPartition] = {"all": SimPartition("all")}
        self.started_at = clock()
        self.select_type_parameters = ("CR_CORE_MEMORY",)
        """When slurmctld last started or was reconfigured."""
        self.return_to_service = 2
        """ReturnToService of slurm.conf: which DOWN nodes are up again when slurmd registers or
        answers a ping.
        """
        self._reservations: dict[str, SimReservation] = {}
        self._changed_at: dict[str, float] = {}
        self._last_node_update = clock()
        self._last_job_update = clock()
        self._last_reservation_update = clock()
        self._next_job = 1

    def node_register(
        self,
        name: str,
        *,
        features: Iterable[str] = (),
        extra: str = "",
        instance_id: str = "",
        topology: str = "",
        address: str = "",
        gres: str = "",
        cpus: int = 4,
        real_memory: int = 16_000,
        rebooted: bool = False,
    ) -> SimNode:
        """Start slurmd -Z. It creates a record, or returns the old one to service with drain,
        reason and comment. `rebooted`: its host has booted since slurmctld last heard of the node.
        """
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = SimNode(
                name, features=list(features), active_features=list(features)
            )
            node.topology = topology
        if node.base == "DOWN" and not (rebooted and self.return_to_service < 2):
            self._return(node)
        elif rebooted and self.return_to_service < 2 and not self._drained(node):
            if node.reason in ("", NOT_RESPONDING):
                self._set_reason(node, UNEXPECTEDLY_REBOOTED)
            self._down(node)
        node.silent_until = 0.0
        node.extra, node.instance_id, node.address, node.gres = (
            extra,
            instance_id,
            address or name,
            gres,
        )
        node.cpus, node.real_memory, node.slurmd_start_time = cpus, real_memory, int(self.clock())
        self._touch(name)
        return node

    def node_responds(self, name: str) -> None:
        """Have slurmd answer a ping (slurmctld/node_mgr.c, _node_did_resp)."""
        node = self.nodes[name]
        node.silent_until = 0.0
        if node.base == "DOWN":
            self._return(node)
        self._touch(name)

    def node_silence(self, name: str) -> None:
        """Have slurmd stop responding, before SlurmdTimeout has passed. `node_register` ends it."""
        self.nodes[name].silent_until = math.inf
        self._touch(name)

    def node_vanish(self, name: str) -> None:
        """Have SlurmdTimeout pass without a response of slurmd: the node is DOWN, and its jobs are
        lost.
        """
        node = self.nodes[name]
        node.silent_until = math.inf
        self._down(node)
        if not node.reason:
            self._set_reason(node, NOT_RESPONDING)

    def node_lose(self, *names: str) -> None:
        """Have slurmctld lose the records without a request to delete them."""
        for name in names:
            del self.nodes[name]
            self._touch(name)

    def job_start(
        self,
        nodes: str | Iterable[str],
        *,
        cpus: int = 1,
        time_limit: int | None = None,
        name: str = "job",
        partition: str = "all",
        user: str = "root",
        kill_on_node_fail: bool = True,
        requeue: bool = True,
        required: Iterable[str] = (),
    ) -> int:
        """Return a job starts on these nodes (a hostlist or names). Returns its id. Raises KeyError
        for an unknown node.

        `required`: those that it names (`--nodelist`).
        """
        names = expand(nodes) if isinstance(nodes, str) else list(nodes)
        for node in names:
            if node not in self.nodes:
                raise KeyError(node)
        now = int(self.clock())
        job = SimJob(
            self._next_job, names, {"RUNNING"}, cpus, now, time_limit, name, partition, user, now
        )
        job.kill_on_node_fail, job.requeue, job.required = (
            kill_on_node_fail,
            requeue,
            list(required),
        )
        return self._add_job(job)

    def job_submit(
        self,
        *,
        name: str = "job",
        cpus: int = 1,
        partition: str = "all",
        user: str = "root",
        exclusive: bool = False,
        nodes: int = 1,
        required: Iterable[str] = (),
        excluded: Iterable[str] = (),
    ) -> int:
        """Submit a job, which stays pending. It requests a number of `nodes`, with equal
        parts of its CPUs.

        `required`: those that it names (`--nodelist`). `excluded`: those that it is not to get
        (`--exclude`). Returns its id. Raises KeyError for an unknown node.
        """
        job = SimJob(
            self._next_job, [], {"PENDING"}, cpus, 0, None, name, partition, user, int(self.clock())
        )
        job.exclusive, job.node_count = exclusive, nodes
        job.required, job.excluded = list(required), list(excluded)
        return self._add_job(job)

    def _add_job(self, job: SimJob) -> int:
        for name in (*job.excluded, *self._absent(job)):
            if name not in self.nodes:
                raise KeyError(name)
        self._next_job += 1
        self.jobs[job.job_id] = job
        self._touch_job(job)
        return job.job_id

    def job_suspend(self, job_id: int) -> None:
        """Suspend a running job, whose nodes look idle then."""
        self.jobs[job_id].states = {"SUSPENDED"}
        self._touch_job(self.jobs[job_id])

    def job_resume(self, job_id: int) -> None:
        """Continue a suspended job."""
        self.jobs[job_id].states = {"RUNNING"}
        self._touch_job(self.jobs[job_id])

    def job_end(self, job_id: int, *, state: str = "COMPLETED", completing: bool = False) -> None:
        """End the job. With `completing` its nodes are busy until this is called again without."""
        job = self.jobs[job_id]
        job.states = {state, "COMPLETING"} if completing else {state}
        self._touch_job(job)

    def reserve(
        self, name: str, nodes: str, *, start: int, minutes: int, flags: Iterable[str] | None = None
    ) -> None:
        """Create a reservation, for maintenance unless `flags` differ."""
        reservation = SimReservation(name, nodes, start, start + 60 * minutes)
        if flags is not None:
            reservation = dataclasses.replace(reservation, flags=(*flags, "SPEC_NODES"))
        self._reservations[name] = reservation
        self._last_reservation_update = self.clock()

    def unreserve(self, name: str) -> None:
        """Delete a reservation, if it exists."""
        self._reservations.pop(name, None)
        self._last_reservation_update = self.clock()

    @property
    def reservations(self) -> dict[str, SimReservation]:
        """The current reservations by name. One that is over is deleted, or moved to its next time
        if it recurs.
        """
        now = self.clock()
        later = {name: reservation.later(now) for name, reservation in self._reservations.items()}
        settled = {
            name: reservation for name, reservation in later.items() if reservation is not None
        }
        if settled != self._reservations:
            self._reservations.clear()
            self._reservations.update(settled)
            self._last_reservation_update = now
        return self._reservations

    def restart(self, *, lost_state: bool = False) -> None:
        """Start slurmctld again, with its state or without."""
        if lost_state:
            self.nodes.clear()
            self.jobs.clear()
            self._reservations.clear()
        self._read_jobs()
        self.started_at = self.clock()
        self._last_node_update = self._last_job_update = self._last_reservation_update = (
            self.clock()
        )
        self._changed_at = dict.fromkeys(self.nodes, self._last_node_update)

    def reconfigure(self) -> None:
        """Have slurmctld read its configuration again: it executes itself, and then has started at
        that moment.
        """
        self._read_jobs()
        self.started_at = self.clock()

    def _read_jobs(self) -> None:
        """Start slurmctld with the jobs of its state. One that names an unknown node, switch or
        block ends, and one that excludes a node stays (_sync_detail_bitmaps).
        """
        for job in self.jobs.values():
            if not has_ended(job.states) and self._absent(job):
                job.states, job.nodes = {"NODE_FAIL"}, []
                self._touch_job(job)

    def _absent(self, job: SimJob) -> set[str]:
        """Return what the job names and Slurm doesn't know."""
        text = ",".join(job.required)
        topologies = (part for it in self.nodes.values() for part in it.topology.split(","))
        units = {unit for topology in topologies for unit in topology.split(":")[1:]}
        return ({*nodes_in(text)} - self.nodes.keys()) | ({*units_in(text)} - units)

    def states(self, name: str) -> frozenset[str]:
        """Return the node's states as the REST API shows them."""
        use = self._use()
        return self._states(self.nodes[name], use, use.cpus.get(name, 0))

    def _states(self, node: SimNode, use: Use, counted: int) -> frozenset[str]:
        """Return the states. `counted` has the CPUs that slurmctld last counted as allocated."""
        states = {self._base(node, use.cpus.get(node.name, 0), counted), *node.flags}
        if node.name in use.completing:
            states.add("COMPLETING")
        if node.silent_until > self.clock():
            states.add("NOT_RESPONDING")
        reserved = use.reservations.get(node.name, ())
        if reserved:
            states.add("RESERVED")
        if any("MAINT" in reservation.flags for reservation in reserved):
            states.add("MAINTENANCE")
        return frozenset(states)

    @staticmethod
    def _base(node: SimNode, running: int, counted: int) -> str:
        """Return the base state for the running jobs' CPUs, and for the CPUs that were last counted
        as allocated.
        """
        if node.base != "IDLE" or not (running or counted):
            return node.base
        return "MIXED" if 0 < counted < node.cpus or not running else "ALLOCATED"

    def _use(self) -> Use:
        now = self.clock()
        cpus: Counter[str] = Counter()
        completing: set[str] = set()
        for job in self.jobs.values():
            if "RUNNING" in job.states:
                cpus.update(job.allocation or dict.fromkeys(job.nodes, job.cpus))
            if job.on_nodes and "COMPLETING" in job.states:
                completing.update(job.nodes)
        reservations: dict[str, list[SimReservation]] = {}
        for reservation in self.reservations.values():
            for name in expand(reservation.nodes) if reservation.active(now) else ():
                reservations.setdefault(name, []).append(reservation)
        return Use(cpus, completing, reservations)

    def _down(self, node: SimNode) -> None:
        """Set the node DOWN, where its jobs end (slurmctld/job_mgr.c,
        kill_running_job_by_node_ptr).
        """
        node.base = "DOWN"
        for job in self.jobs.values():
            if not job.on_nodes or node.name not in job.nodes:
                continue
            if not job.states & {"RUNNING", "SUSPENDED"}:
                job.states = job.states - {"COMPLETING"}
            elif not job.kill_on_node_fail and len(job.nodes) > 1:
                job.nodes = [name for name in job.nodes if name != node.name]
            elif job.requeue:
                job.states, job.nodes = {"PENDING"}, []
            else:
                job.states = {"NODE_FAIL"}
            self._last_job_update = self.clock()
        self._touch(node.name)

    def may_return(self, node: SimNode) -> bool:
        """Return whether ReturnToService allows a DOWN node to be up again when its slurmd
        registers or answers.
        """
        return self.return_to_service == 2 or (
            self.return_to_service == 1 and node.reason == NOT_RESPONDING
        )

    def _return(self, node: SimNode) -> None:
        """Return a DOWN node to service, which has registered or answered."""
        if not self.may_return(node):
            return
        node.base = "IDLE"
        if not node.flags & UNAVAILABLE:
            node.reason, node.reason_changed_at = "", 0

    def _drained(self, node: SimNode) -> bool:
        return "DRAIN" in node.flags and not any(
            job.on_nodes and node.name in job.nodes for job in self.jobs.values()
        )

    def _set_reason(self, node: SimNode, reason: str) -> None:
        node.reason, node.reason_changed_at = reason, int(self.clock())

    def _touch(self, name: str, at: float | None = None) -> None:
        self._last_node_update = max(self._last_node_update, self.clock() if at is None else at)
        self._changed_at[name] = self._last_node_update

    def _touch_job(self, job: SimJob) -> None:
        self._last_job_update = self.clock()
        for name in job.nodes:
            self._touch(name)

    def _members(self) -> dict[str, AbstractSet[str]]:
        """Return the nodes of each partition, by its name."""
        return {it.name: self.nodes.keys() & self._nodes_of(it) for it in self.partitions.values()}

    def _nodes_of(self, partition: SimPartition) -> Iterable[str]:
        names = self.nodes if partition.nodes is None else expand(partition.nodes)
        if not partition.feature:
            return names
        return [
            it for it in names if it in self.nodes and partition.feature in self.nodes[it].features
        ]
