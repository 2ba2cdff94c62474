"""What is wrong with a Slurm cluster on Kubernetes, ranked: what its resources report, and what
nothing reports.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from sidecars.contract import bridge, paths
from sidecars.explain.core import node as of_node
from sidecars.explain.core import nodeset, nodeset_partitions, objects, resources
from sidecars.explain.core.records import Answer, Finding, Level, ranked
from sidecars.policy.reasons.autoscaling import Autoscaled
from sidecars.slurm import job_reasons, states, versions
from sidecars.slurm.owners import owner_of, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecars.explain.core.records import Seen
    from sidecars.slurm.records import Node

SHOWN = 5
_SHORT = frozenset(map(str, range(1, 6)))
"""Intervals of Slurm's scheduler, in seconds, that pods of the Slurm Bridge don't notice."""
_COMMANDS = {
    "DependencyNeverSatisfied": "scancel {}",
    "JobLaunchFailure": "scontrol release {}",
    "JobHoldMaxRequeue": "scontrol release {}",
}
"""The command that ends the wait of jobs with these reasons, without a correction before."""
_OWN = frozenset(
    {"JobHeldUser", "JobHeldAdmin", "PartitionDown", "PartitionInactive", "PartitionConfig"}
)
"""Reasons that a user or an administrator intends, or that a finding about the partition explains.
"""
_ANYWAY = frozenset({"JobHeldUser", "JobHeldAdmin", "BeginTime", "Dependency"})
"""Reasons of jobs that would wait as long with nodes and an open partition."""
_PART_OF = "app.kubernetes.io/part-of"
_VERSION = re.compile(r"(\d+)\.(\d+)")


def explain(seen: Seen, name: str = "") -> Answer:
    """Return all findings. `name` is not used: the question is about the whole namespace."""
    findings: list[Finding] = []
    for check in CHECKS:
        findings += check(seen)
    found = ranked(_without_consequences(findings))
    blocks = sum(it.level is Level.BLOCKS for it in found)
    state = f"{len(found)} findings, {blocks} of which need a remedy" if found else "all is well"
    if not found and seen.missing:
        state = "all is well, as far as was read"
    return Answer(f"Slurm in namespace {seen.namespace}{name}", state, found, missing=seen.missing)


def _without_consequences(findings: Iterable[Finding]) -> list[Finding]:
    """Keep one finding for each code and object."""
    found: dict[tuple[str, str], Finding] = {}
    for it in findings:
        found.setdefault((it.code, it.about), it)
    return list(found.values())


def _nodesets(seen: Seen) -> list[Finding]:
    facts = (it for each in seen.kube.nodesets or () for it in nodeset.examine(each, seen))
    found = [it for it in facts if it.level is not Level.SHOWS and not it.about.startswith("node ")]
    # The first finding of a code and an object is the one that stays.
    return _not_scaled(seen) + found


def _not_scaled(seen: Seen) -> list[Finding]:
    """Find NodeSets that autoscaling can't scale while jobs wait for their first node."""
    found = []
    for partition in _awaited(seen):
        for it in nodeset_partitions.of_partitions(seen, (partition,)):
            if nodeset_partitions.is_scaled(it):
                found += [each for each in resources.scaling(it) if each.level is Level.BLOCKS]
    # After another client has set the size, autoscaling waits, and sets it again.
    return [it for it in found if it.code != Autoscaled.OTHER_OWNER]


def _down(seen: Seen) -> list[Finding]:
    """Programs of this project that don't run."""
    found = []
    for it in seen.kube.workloads or ():
        if objects.number(it, "status", "readyReplicas"):
            continue
        code, program = "OperatorDown", "The operator"
        effect = "Nothing is created, drained or deleted until it runs. Jobs continue."
        if objects.label(it, _PART_OF) == "slurm-bridge":
            code, program = "BridgeDown", "The Slurm Bridge"
            effect = "No pod of its tenants starts until it runs. Pods and jobs that run continue."
        where = f"{objects.text(it, 'metadata', 'namespace')}/{objects.name(it)}"
        wanted = objects.dig(it, "spec", "replicas")
        cause = (
            f"{program} is scaled to 0."
            if wanted == 0
            else f"No pod of {program[0].lower()}{program[1:]} is ready."
        )
        command = (
            f"kubectl -n {objects.text(it, 'metadata', 'namespace')} scale "
            f"deployment/{objects.name(it)} --replicas=1"
        )
        found.append(
            Finding(
                code,
                Level.BLOCKS,
                f"Deployment {where}",
                f"{cause} {effect}",
                "Start it.",
                (command,) if wanted == 0 else (),
            )
        )
    return found


def _drains(seen: Seen) -> list[Finding]:
    """Find nodes out of service, one finding for each reason."""
    groups: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for it in seen.slurm.nodes or ():
        if states.is_drain(it.states) or states.is_down(it.states):
            groups[owner_of(it).value, it.reason].append(it)
    found = []
    for each in groups.values():
        first = of_node.trouble(each[0], seen)[0]
        if len(each) == 1:
            found.append(first)
            continue
        names = ",".join(it.name for it in each[:SHOWN]) + ("…" if len(each) > SHOWN else "")
        commands = tuple(
            it.replace(f"nodename={each[0].name} ", f"nodename={','.join(n.name for n in each)} ")
            for it in first.commands
        )
        found.append(
            Finding(
                first.code,
                first.level,
                f"{len(each)} nodes ({names})",
                first.cause,
                first.remedy,
                commands,
                first.event,
                first.at,
            )
        )
    silent = [
        it
        for it in seen.slurm.nodes or ()
        if "NOT_RESPONDING" in it.states and not states.is_down(it.states)
    ]
    return found + [
        it
        for each in silent[:SHOWN]
        for it in of_node.trouble(each, seen)
        if it.code == "NotResponding" and "EXTERNAL" not in each.states
    ]


def _external(seen: Seen) -> list[Finding]:
    found = []
    for it in seen.slurm.nodes or ():
        if "EXTERNAL" not in it.states:
            continue
        if not it.address or it.address == it.name:
            text = (
                "It has no NodeAddr. If its name doesn't resolve, each allocation on it stops "
                "slurmctld for 10 seconds."
            )
            remedy = "Give it the address of its host."
            command = seen.command(f"scontrol update nodename={it.name} nodeaddr=ADDRESS")
            found.append(
                Finding(
                    "ExternalNodeWithoutAddress",
                    Level.WARNS,
                    f"node {it.name}",
                    text,
                    remedy,
                    (command,),
                )
            )
        if "NOT_RESPONDING" in it.states:
            text = (
                "A signal was sent to an external job, and Slurm waits for a slurmd that does "
                "not exist. No change of its state ends this."
            )
            remedy = "When no job is on it, delete the node record and create it again."
            command = seen.command(f"scontrol delete nodename={it.name}")
            found.append(
                Finding(
                    "ExternalNodeNotResponding",
                    Level.BLOCKS,
                    f"node {it.name}",
                    text,
                    remedy,
                    (command,),
                )
            )
    external = {
        name for it in seen.slurm.nodes or () if "EXTERNAL" in it.states for name in it.partitions
    }
    for partition in seen.slurm.partitions or ():
        if partition.name in external and partition.grace_time:
            text = (
                "It has external nodes and a GraceTime: a preemption sends a signal, and they "
                "don't respond to it."
            )
            command = seen.command(f"scontrol update partitionname={partition.name} gracetime=0")
            found.append(
                Finding(
                    "GraceTimeOfExternalNodes",
                    Level.WARNS,
                    f"partition {partition.name}",
                    text,
                    "Set GraceTime=0, and in the configuration.",
                    (command,),
                )
            )
    return found


def _suspending(seen: Seen) -> list[Finding]:
    """Find where a preemption would suspend the job of a pod, or where a QOS would send it a
    signal.
    """
    config = seen.slurm.config or {}
    guarded = {
        objects.slurm_node(it)
        for it in seen.kube.pods or ()
        if objects.is_worker(it) and objects.annotation(it, bridge.GUARD)
    }
    of_pods = [it for it in seen.slurm.nodes or () if "EXTERNAL" in it.states or it.name in guarded]
    if not of_pods:
        return []
    of_cluster = frozenset(config.get("preemptmode", "").upper().split(","))
    by_qos = "qos" in config.get("preempttype", "")
    found = []
    for partition in seen.slurm.partitions or ():
        own = partition.preempt_modes - {"CLUSTER_GLOBAL"} if not by_qos else frozenset()
        if any(partition.name in it.partitions for it in of_pods) and "SUSPEND" in (
            own or of_cluster
        ):
            command = seen.command(
                f"scontrol update partitionname={partition.name} preemptmode=cancel"
            )
            found.append(_suspends(f"partition {partition.name}", "the partition", command))
    for qos in (seen.slurm.qos or ()) if by_qos else ():
        if "SUSPEND" in qos.preempt_mode.upper():
            command = seen.command(f"sacctmgr -i modify qos {qos.name} set preemptmode=cancel")
            found.append(_suspends(f"QOS {qos.name}", "the QOS", command))
        if qos.grace_time.strip("0:") and any("EXTERNAL" in it.states for it in of_pods):
            command = seen.command(f"sacctmgr -i modify qos {qos.name} set gracetime=0")
            text = (
                "It has a GraceTime: a preemption sends a signal, and external nodes don't "
                "respond to it."
            )
            remedy = (
                "Set GraceTime=0 for the QOS of jobs of the Slurm Bridge, and where it is declared."
            )
            found.append(
                Finding(
                    "GraceTimeOfExternalNodes",
                    Level.WARNS,
                    f"QOS {qos.name}",
                    text,
                    remedy,
                    (command,),
                )
            )
    return found


def _of_the_bridge(seen: Seen) -> list[Finding]:
    """Find what the Slurm Bridge needs of SchedulerParameters, where it has nodes."""
    guards = any(
        objects.is_worker(it) and objects.annotation(it, bridge.GUARD)
        for it in seen.kube.pods or ()
    )
    external = any(
        "EXTERNAL" in it.states and bridge.labels_of(it.extra) is not None
        for it in seen.slurm.nodes or ()
    )
    if seen.slurm.config is None or not (guards or external):
        return []
    options, found = seen.slurm.scheduler_parameters, []
    if external and "extra_constraints" not in options:
        found.append(
            _parameter(
                "ExtraConstraintsOff",
                "Slurm compares no node selector of a pod with the labels of Kubernetes nodes: a "
                "pod can get a node that it can't run on.",
                "extra_constraints",
            )
        )
    if "disable_job_shrink" not in options:
        found.append(
            _parameter(
                "JobsCanShrink",
                "The owner of a job can give up one of its nodes, where its pods then run on.",
                "disable_job_shrink",
            )
        )
    interval = options.get("sched_interval", "60")
    if external and interval not in _SHORT:
        found.append(
            _parameter(
                "PodsWaitForScheduler",
                "The end of an external job doesn't wake Slurm's scheduler: the next pod waits for "
                f"sched_interval, which is {interval} seconds.",
                "sched_interval=2",
            )
        )
    return found


def _parameter(code: str, text: str, option: str) -> Finding:
    remedy = f"Add {option} to SchedulerParameters in spec.extraConf."
    return Finding(code, Level.WARNS, "SchedulerParameters", text, remedy)


def _suspends(about: str, place: str, command: str) -> Finding:
    text = (
        "PreemptMode=SUSPEND: a preemption suspends jobs of the Slurm Bridge, too. Slurm gives "
        "their cores to others, and their pods run on."
    )
    remedy = f"Set PreemptMode=CANCEL for {place}, and where it is declared."
    return Finding("PreemptionSuspends", Level.WARNS, about, text, remedy, (command,))


def _power_saving(seen: Seen) -> list[Finding]:
    config = seen.slurm.config
    if config is None or seen.slurm.nodes is None:
        return []
    found = []
    about = f"configuration of namespace {seen.namespace}"
    is_global = _is_set(config.get("suspendtime", ""))
    by_partition = [it.name for it in seen.slurm.partitions or () if it.suspend_time is not None]
    cloud = any("CLOUD" in it.states or "POWERED_DOWN" in it.states for it in seen.slurm.nodes)
    if by_partition and not is_global and not cloud:
        text = (
            f"SuspendTime is set for partition {', '.join(by_partition)} alone, and no CLOUD node "
            "existed when slurmctld started: power saving is off, and jobs that need a node to "
            "be powered up wait for ever."
        )
        found.append(
            Finding(
                "PowerSavingOff",
                Level.BLOCKS,
                about,
                text,
                "Add SuspendTime=1000000000 to spec.extraConf, and restart slurmctld.",
            )
        )
    external = any("EXTERNAL" in it.states for it in seen.slurm.nodes)
    if (
        (is_global or by_partition)
        and external
        and "EXTERNAL" not in config.get("suspendexcstates", "").upper()
    ):
        text = (
            "External nodes are powered down like others, which ends in DOWN and ends their jobs."
        )
        remedy = "Add SuspendExcStates=EXTERNAL to spec.extraConf."
        found.append(Finding("ExternalNodesAreSuspended", Level.BLOCKS, about, text, remedy))
    return found


def _of_no_nodeset(seen: Seen) -> list[Finding]:
    """Find nodes that Slurm's power saving may start although nothing creates their pods."""
    if seen.kube.nodesets is None:
        return []
    nodesets = {objects.text(it, "metadata", "uid") for it in seen.kube.nodesets}
    # Another program of the site may power up nodes of its own.
    powers_up = (seen.slurm.config or {}).get("resumeprogram") == paths.NO_PROGRAM
    found = []
    for it in seen.slurm.nodes or ():
        if "CLOUD" not in it.states:
            continue
        facts = pod_of(it)
        about, command = f"node {it.name}", seen.command(f"scontrol delete nodename={it.name}")
        if facts is None and powers_up and "POWERED_DOWN" in it.states:
            text = (
                "Its Extra names no NodeSet. If none has this node, Slurm may give it to a job, "
                "which would then wait for a worker that nothing creates."
            )
            remedy = "If no NodeSet has this node, delete the node record."
            found.append(
                Finding("NodeOfUnknownNodeSet", Level.WARNS, about, text, remedy, (command,))
            )
        if facts is None or facts.namespace != seen.namespace or facts.nodeset_uid in nodesets:
            continue
        text = (
            "Its NodeSet is gone. Slurm may give it to a job, which would then wait for a worker "
            "that nothing creates."
        )
        remedy = "Cancel or requeue the job that waits for it, if any. Then delete the node record."
        found.append(Finding("NodeOfNoNodeSet", Level.BLOCKS, about, text, remedy, (command,)))
    return found


def _is_set(text: str) -> bool:
    number = text.split()[0] if text.split() else ""
    return number.isdecimal() and int(number) < 1_000_000_000


def _configuration(seen: Seen) -> list[Finding]:
    config, about = seen.slurm.config, f"configuration of namespace {seen.namespace}"
    if config is None:
        return []
    found = []
    if config.get("returntoservice", "").startswith("0"):
        text = "ReturnToService=0: a node that was DOWN stays so when its slurmd answers again."
        found.append(
            Finding(
                "ReturnToService",
                Level.WARNS,
                about,
                text,
                "Remove ReturnToService from spec.extraConf: the default here is 2.",
            )
        )
    gpus = any("gpu" in it.gres for it in seen.slurm.nodes or ())
    stores = "slurmdbd" in config.get("accountingstoragetype", "")
    if gpus and stores and "gres/gpu" not in config.get("accountingstoragetres", "").lower():
        text = (
            "Nodes have GPUs, and AccountingStorageTRES has no gres/gpu: their use is not "
            "recorded, and limits on it don't apply."
        )
        found.append(
            Finding(
                "GpusNotAccounted",
                Level.WARNS,
                about,
                text,
                "Add AccountingStorageTRES=gres/gpu to spec.extraConf.",
            )
        )
    newest = _VERSION.search(config.get("slurm_version", ""))
    if newest is not None:
        leader = int(newest[1]), int(newest[2])
        if leader > versions.NEWEST:
            text = (
                f"Slurm {newest[0]} is newer than all releases that this version was tested with: "
                f"the newest is {versions.text(versions.NEWEST)}. Nothing is refused because of it."
            )
            remedy = "See docs/support-matrix.md, and whether a newer version of the charts exists."
            found.append(Finding("ReleaseNotTested", Level.WARNS, about, text, remedy))
        newer = [
            it.name
            for it in seen.slurm.nodes or ()
            if (v := _VERSION.match(it.version)) and (int(v[1]), int(v[2])) > leader
        ]
        if newer:
            names = ", ".join(newer[:SHOWN])
            text = (
                f"slurmd of {names} is newer than slurmctld ({newest[0]}), which does not "
                "understand it."
            )
            found.append(
                Finding("NewerThanLeader", Level.BLOCKS, about, text, "Upgrade slurmctld first.")
            )
    return found


def _gpus(seen: Seen) -> list[Finding]:
    found = []
    owners = nodeset_partitions.by_node(seen)
    for it in seen.kube.nodesets or ():
        if objects.dig(it, "spec", "gpu", "enabled") is not True:
            continue
        name = objects.name(it)
        without = [
            each.name
            for each in seen.slurm.nodes or ()
            if owners.get(each.name) == name and "gpu" not in each.gres
        ]
        if without:
            text = f"It requests GPUs, and Slurm has none of nodes {', '.join(without[:SHOWN])}."
            command = (
                "kubectl -n slinky exec deploy/slurm-operator -- slurm-sidecars doctor gres -n "
                f"{seen.namespace}"
            )
            found.append(
                Finding(
                    "GpusMissing",
                    Level.BLOCKS,
                    resources.about(it),
                    text,
                    "Compare both sides.",
                    (command,),
                )
            )
    return found


def _queue(seen: Seen) -> list[Finding]:
    """Find jobs that never start without a remedy, and partitions that start none."""
    found = []
    waiting = seen.slurm.waiting or ()
    never = {it.reason for it in waiting if job_reasons.is_final(it.reason)} - _OWN
    for reason in sorted(never):
        jobs = [it.job for it in waiting if it.reason == reason]
        names = ", ".join(jobs[:SHOWN])
        text = (
            f"{len(jobs)} pending jobs with the reason {reason} never start without a remedy: "
            f"{names}."
        )
        first = jobs[0].partition("[")[0].rstrip("_")
        command = _COMMANDS.get(reason, "")
        # The id of an array is that of its running tasks too.
        is_safe = first == jobs[0] or not command.startswith("scancel")
        found.append(
            Finding(
                reason,
                Level.BLOCKS,
                "the queue",
                text,
                f"kubectl slurm explain job {first}",
                (seen.command(command.format(first)),) if command and is_safe else (),
            )
        )
    found += _without_nodes(seen)
    for partition in seen.slurm.partitions or ():
        if partition.states and "UP" not in partition.states:
            state = "+".join(sorted(partition.states))
            command = seen.command(f"scontrol update partitionname={partition.name} state=up")
            closed = any(
                partition.name in (objects.dig(it, "status", "partitions") or ())
                for it in seen.kube.nodesets or ()
            )
            remedy = (
                "Open it, unless an administrator has closed it or its NodeSet is being removed."
            )
            found.append(
                Finding(
                    "PartitionNotUp",
                    Level.BLOCKS if _waits_in(partition.name, seen) else Level.WARNS,
                    f"partition {partition.name}",
                    f"It is {state}: it starts no jobs.",
                    remedy,
                    () if closed and state == "INACTIVE" else (command,),
                )
            )
    return found


def _waits_in(partition: str, seen: Seen) -> bool:
    """Return whether a job waits for the partition and for no other."""
    return any(
        it.partitions == (partition,) and it.reason not in _ANYWAY
        for it in seen.slurm.waiting or ()
    )


def _awaited(seen: Seen) -> list[str]:
    """Return the partitions without a node in which jobs wait; none while nodes are unknown."""
    if seen.slurm.nodes is None:
        return []
    occupied = {name for it in seen.slurm.nodes for name in it.partitions}
    names = (it.name for it in seen.slurm.partitions or ())
    return [it for it in names if it not in occupied and _waits_in(it, seen)]


def _without_nodes(seen: Seen) -> list[Finding]:
    """Find partitions whose jobs wait, that have no node, and whose NodeSets are at zero."""
    found = []
    for partition in _awaited(seen):
        own = nodeset_partitions.of_partitions(seen, (partition,))
        idle = [it for it in own if objects.dig(it, "spec", "replicas") == 0]
        if len(idle) < len(own) or any(nodeset_partitions.is_scaled(it) for it in own):
            continue
        text = "Jobs wait in it, and it has no node: its NodeSets are scaled to zero."
        commands = tuple(
            f"kubectl -n {seen.namespace} scale nodesets.slinky.slurm.net/{objects.name(it)} "
            "--replicas=1"
            for it in idle[:1]
        )
        about = f"partition {partition}"
        found.append(
            Finding("NoNodes", Level.BLOCKS, about, text, "Scale a NodeSet out.", commands)
        )
    return found


def _kube_nodes(seen: Seen) -> list[Finding]:
    """Find Kubernetes nodes with workers that are cordoned or not ready."""
    hosts = Counter(
        objects.text(it, "spec", "nodeName") for it in seen.kube.pods or () if objects.is_worker(it)
    )
    found = []
    for it in seen.kube.kube_nodes or ():
        if hosts.get(objects.name(it)):
            found += [
                finding for finding in of_node.of_kube_node(it) if finding.level is not Level.SHOWS
            ]
    return found


CHECKS: tuple[Callable[[Seen], list[Finding]], ...] = (
    resources.daemons,
    _down,
    _nodesets,
    _kube_nodes,
    _drains,
    _external,
    _of_the_bridge,
    _suspending,
    _power_saving,
    _of_no_nodeset,
    _configuration,
    _gpus,
    _queue,
    resources.full_quotas,
)
