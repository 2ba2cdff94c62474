"""Slurm's power saving in a simulated cluster, as observed with Slurm 26.05
(slurmctld/power_save.c, node_mgr.c).

A request advances it: `advance` does what slurmctld would have done since the last one.
"""

import math
from collections import Counter
from typing import Any

from sidecars.contract.reasons import RESUME_TIMEOUT
from sidecars.simulate.cluster import UNAVAILABLE, Cluster
from sidecars.simulate.records import SimJob, SimNode
from sidecars.slurm import gres, nodeconf
from sidecars.slurm.hostlists import HostlistError, expand

STOPPED, STOPPING, STARTING = "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"
POWER_STATES = frozenset({"POWER_UP", "POWER_DOWN", "POWER_DOWN_FORCE"})
"""States that ask power saving to start or to stop a node."""

_FLAGS: dict[str, set[str]] = {
    "CLOUD": {"CLOUD", STOPPED},
    "EXTERNAL": {"EXTERNAL"},
    "FUTURE": {"CLOUD", STOPPED},
}
"""The flags of a created record by its State, in capitals."""


class PowerSaving(Cluster):
    """A cluster whose CLOUD nodes are started for jobs and stopped when they are idle."""

    resume_timeout = 600.0
    suspend_timeout = 30.0

    def create_nodes(self, conf: str) -> bool:
        """`scontrol create`: records of powered-down or external nodes. Returns whether Slurm
        accepts the line.
        """
        items = nodeconf.parse(conf)
        try:
            names = expand(items.get("NodeName") or "")
        except HostlistError:
            return False
        numbers = [items.get(key) or "1" for key in ("CPUs", "RealMemory", "Weight")]
        if not all(number.isdigit() for number in numbers):
            return False
        flags = _FLAGS.get((items.get("State") or "").upper())
        if not names or flags is None or not _has_gres(items) or self.nodes.keys() & set(names):
            return False
        if len(names) > 1 and items.get("GresConf"):
            return False
        idle = items.get("SuspendTime") or ""
        for name in names:
            node = self.nodes[name] = SimNode(
                name, address=items.get("NodeAddr") or name, gres=items.get("Gres") or ""
            )
            node.flags = {"DYNAMIC_NORM", *flags}
            node.cpus = int(items.get("CPUs") or 1)
            node.real_memory = int(items.get("RealMemory") or 1)
            node.weight = int(items.get("Weight") or 1)
            node.features = (items.get("Features") or items.get("Feature") or "").split(",")
            node.active_features = list(node.features)
            node.suspend_time = int(idle) if idle.isdigit() else None
            self._touch(name)
        return True

    def job_plan(self, job_id: int, nodes: list[str], start: int) -> None:
        """Have the backfill scheduler plan these nodes for a pending job."""
        job = self.jobs[job_id]
        job.planned, job.start_time = nodes, start
        for name in nodes:
            self.nodes[name].flags.add("PLANNED")
            self._touch(name)
        self._touch_job(job)

    def set_power(self, node: SimNode, state: str) -> None:
        """Set one of POWER_STATES."""
        if state == "POWER_UP":
            if STOPPED in node.flags:
                self._power_up(node)
        elif STOPPING not in node.flags and STOPPED not in node.flags:
            if state == "POWER_DOWN_FORCE":
                self._requeue(node)
                self._stop(node)
            else:
                node.flags.add("POWER_DOWN")
        self._touch(node.name)

    def advance(self) -> None:
        """Do what slurmctld has done by now."""
        now = self.clock()
        for node in self.nodes.values():
            if "CLOUD" not in node.flags:
                continue
            idle = not any(job.on_nodes and node.name in job.nodes for job in self.jobs.values())
            if STOPPING in node.flags and now >= node.power_at + self.suspend_timeout:
                node.flags = (node.flags - {STOPPING}) | {STOPPED}
                node.power_at = now
                self._touch(node.name)
            elif STARTING in node.flags and now >= node.power_at + self.resume_timeout:
                node.flags = (node.flags - {STARTING, "DRAIN"}) | {STOPPED}
                node.silent_until = 0.0
                self._set_reason(node, RESUME_TIMEOUT)
                self._down(node)
            elif STOPPED in node.flags and not idle and node.base != "DOWN":
                self._power_up(node)
            elif not idle or node.busy_until is None:
                node.busy_until = now
            elif not node.flags & {STOPPED, STOPPING, STARTING} and self._may_stop(node, now):
                self._stop(node)

    def _may_stop(self, node: SimNode, now: float) -> bool:
        if "POWER_DOWN" in node.flags:
            return True
        if (
            node.suspend_time is None
            or node.busy_until is None
            or node.flags & {*UNAVAILABLE, "PLANNED"}
        ):
            return False
        return now > node.busy_until + node.suspend_time and not self.states(node.name) & {
            "RESERVED",
            "MAINTENANCE",
        }

    def _power_up(self, node: SimNode) -> None:
        node.flags = (node.flags - {STOPPED, STOPPING}) | {STARTING}
        node.power_at, node.silent_until = self.clock(), math.inf
        self._touch(node.name)

    def _stop(self, node: SimNode) -> None:
        node.flags = (node.flags - {STARTING, "POWER_DOWN", "DRAIN"}) | {STOPPING}
        node.power_at, node.silent_until = self.clock(), 0.0
        self._touch(node.name)

    def set_unavailable(self, node: SimNode, flag: str) -> None:
        """DRAIN or FAIL is set: jobs that wait for the start of the node are requeued."""
        node.flags = (node.flags - UNAVAILABLE) | {flag}
        if STARTING in node.flags or STOPPED in node.flags:
            self._requeue(node)

    def _requeue(self, node: SimNode) -> None:
        base, reason, at = node.base, node.reason, node.reason_changed_at
        self._down(node)
        node.base, node.reason, node.reason_changed_at = base, reason, at

    def node_register(self, name: str, **slurmd: Any) -> SimNode:
        """Register a node as `Cluster.node_register` does. A record of power saving keeps what it
        was created with.
        """
        known = self.nodes.get(name)
        cloud = known is not None and "CLOUD" in known.flags
        former = (
            (known.extra, known.gres, known.cpus, known.real_memory) if known is not None else None
        )
        started = cloud and known is not None and bool(known.flags & {STOPPED, STOPPING, STARTING})
        node = super().node_register(name, **slurmd | ({"rebooted": False} if started else {}))
        if cloud and former is not None:
            node.extra, node.gres, node.cpus, node.real_memory = former
            node.flags -= {STOPPED, STOPPING, STARTING, "INVALID_REG"}
            node.busy_until = self.clock()
            if "gres" in slurmd and (problem := _less(former[1], slurmd["gres"])):
                self._requeue(node)
                node.flags |= {"INVALID_REG", "DRAIN"}
                self._set_reason(node, problem)
                return node
            for job in self.jobs.values():
                if name in job.nodes and not self._waits(job):
                    job.states = job.states - {"CONFIGURING"}
                    self._touch_job(job)
        return node

    def node_silence(self, name: str) -> None:
        """Silence a node as `Cluster.node_silence` does. slurmctld doesn't ask a node that is
        powered down.
        """
        if not self.nodes[name].flags & {STOPPED, STOPPING, STARTING}:
            super().node_silence(name)

    def node_vanish(self, name: str) -> None:
        """Have a node vanish as `Cluster.node_vanish` does. slurmctld doesn't ask a node that is
        powered down.
        """
        if not self.nodes[name].flags & {STOPPED, STOPPING, STARTING}:
            super().node_vanish(name)

    def _add_job(self, job: SimJob) -> int:
        if self._waits(job):
            job.states = job.states | {"CONFIGURING"}
        number = super()._add_job(job)
        self.advance()
        return number

    def _waits(self, job: SimJob) -> bool:
        return any(
            self.nodes[name].flags & {STOPPED, STOPPING, STARTING}
            for name in job.nodes
            if name in self.nodes
        )


def _less(configured: str, reported: str) -> str:
    """Return why slurmctld drains a node with fewer GPUs than its record shows, "" if it has
    them.
    """
    wanted, found = (
        sum(it.count for it in gres.parse(text) if it.name == "gpu")
        for text in (configured, reported)
    )
    return (
        f"gres/gpu count reported lower than configured ({found} < {wanted})"
        if found < wanted
        else ""
    )


def _has_gres(items: nodeconf.NodeConf) -> bool:
    """Return whether GresConf has as much of each resource as Gres."""
    lines = [
        dict(it.partition("=")[::2] for it in line.split(","))
        for line in (items.get("GresConf") or "").split("+")
    ]
    present = Counter[tuple[str, str]]()
    for line in lines:
        present[line.get("name", ""), line.get("type", "")] += int(line.get("count", "1"))
    return all(present[it.name, it.type] >= it.count for it in gres.parse(items.get("Gres") or ""))
