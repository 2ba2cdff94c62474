"""Why a Slurm node takes no jobs: whose drain it is, what becomes of it, and its worker pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.contract import bridge
from sidecars.contract.extra import pod_facts
from sidecars.contract.reasons import (
    CHECK_PREFIX,
    NodeReason,
    Owner,
    is_departure,
    is_for_deletion,
    is_health_check,
)
from sidecars.contract.reservations import is_closing
from sidecars.explain.core import objects, pod_trouble
from sidecars.explain.core.records import Answer, Finding, Level, Moment, plain, ranked
from sidecars.policy.checks.results import BAD, Kind, read
from sidecars.slurm import states
from sidecars.slurm.hostlists import HostlistError, expand
from sidecars.slurm.owners import owner_of

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object, Seen
    from sidecars.slurm.records import Node, Reservation

WHO = {
    Owner.OPERATOR: "the operator",
    Owner.POD: "its worker pod",
    Owner.SLURMCTLD: "slurmctld",
    Owner.FOREIGN: "an administrator or another program",
    Owner.NOBODY: "nobody",
}


def explain(seen: Seen, name: str) -> Answer:
    """Return the answer for the Slurm node, or for the Kubernetes node, of this name."""
    about = f"node {name}"
    node = next((it for it in seen.slurm.nodes or () if it.name == name), None)
    worker = worker_of(seen, node, name)
    kube_node = objects.named(seen.kube.kube_nodes, name)
    findings: list[Finding] = []
    timeline: list[Moment] = []
    if node is not None:
        state = (
            "+".join(sorted(node.states, key=lambda it: (it not in states.BASE_STATES, it)))
            or "UNKNOWN"
        )
        state += f", {node.alloc_cpus} of {node.effective_cpus} CPUs allocated"
        findings += trouble(node, seen)
        findings += of_checks(name, seen)
        if node.reason and node.reason_changed_at:
            timeline.append(Moment(node.reason_changed_at, f"reason: {node.reason}", "Slurm"))
        if node.slurmd_start_time:
            timeline.append(Moment(node.slurmd_start_time, "slurmd started", "Slurm"))
    elif kube_node is not None:
        return _kube_node(seen, kube_node)
    elif seen.slurm.nodes is None:
        state = "unknown: Slurm's nodes could not be read"
    else:
        state = "not registered in Slurm"
    if worker is not None:
        findings += pod_trouble.trouble(worker, seen)
        if node is None and seen.slurm.nodes is not None and pod_trouble.is_ready(worker):
            findings.append(_not_registered(worker, about, seen))
        timeline += objects.moments(
            objects.recent(
                objects.events_of(seen.kube.events, "Pod", objects.name(worker)),
                objects.text(worker, "metadata", "uid"),
            ),
            f"pod {objects.name(worker)}",
        )
    known = node is not None or worker is not None
    if not known and seen.slurm.nodes is not None:
        state = "does not exist in Slurm, and no worker pod has this name"
    return Answer(
        about,
        state,
        ranked(findings),
        timeline=tuple(sorted(timeline, key=lambda it: it.at)),
        missing=seen.missing,
        known=known,
    )


def worker_of(seen: Seen, node: Node | None, name: str) -> Object | None:
    """Return the worker pod of a Slurm node."""
    facts = pod_facts(node.extra) if node is not None else None
    for it in seen.kube.pods or ():
        if facts is not None and objects.text(it, "metadata", "uid") == facts.pod_uid:
            return it
    return next(
        (
            it
            for it in seen.kube.pods or ()
            if objects.is_worker(it) and objects.slurm_node(it) == name
        ),
        None,
    )


def of_both_families(worker: Object | None) -> str:
    """Return what to look at besides if the pod has addresses of both IP families; else "". Slurm
    uses the first, whether it is routed or not.
    """
    listed = objects.items(worker or {}, "status", "podIPs")
    addresses = [objects.text(it, "ip") for it in listed]
    versions = ["IPv6" if ":" in it else "IPv4" for it in addresses if it]
    if len(set(versions)) < 2:
        return ""
    return (
        f" Its pod has addresses of both IP families, and Slurm uses {versions[0]}, as "
        f"{addresses[0]} is the first: see whether {versions[0]} is routed between the Kubernetes "
        "nodes (docs/network.md)."
    )


def of_checks(name: str, seen: Seen) -> list[Finding]:
    """Find what the last run of each check found out about the node. Return [] for a check that
    tested it with success.
    """
    findings = []
    for results in seen.kube.check_results or ():
        for check, text in sorted((objects.dig(results, "data") or {}).items()):
            result = read(str(text))
            verdict = None if result is None else result.nodes.get(name)
            if result is None or verdict is None or verdict.kind is Kind.PASSED:
                continue
            ago = max(0, round((seen.now - result.at) / 60))
            cause = (
                f"Check {check}, {ago} min ago: {verdict.kind}"
                + (f": {verdict.text}" if verdict.text else "")
                + "."
            )
            level = Level.WARNS if verdict.kind in BAD else Level.SHOWS
            log = f"kubectl -n {seen.namespace} get configmap {objects.name(results)} -o yaml"
            findings.append(
                Finding(
                    f"Check{verdict.kind.capitalize()}", level, f"node {name}", cause, "", (log,)
                )
            )
    return findings


def _not_registered(worker: Object, about: str, seen: Seen) -> Finding:
    name = objects.name(worker)
    return Finding(
        "NotRegistered",
        Level.BLOCKS,
        about,
        f"Its pod {name} is ready, and Slurm has no such node.",
        f"See why slurmctld refuses it: the log of slurmd.{of_both_families(worker)}",
        (f"kubectl -n {seen.namespace} logs {name} -c logfile",),
        event="the operator replaces a worker that Slurm doesn't know after a minute",
    )


def trouble(node: Node, seen: Seen) -> list[Finding]:
    """Find why the node takes no job. Return [] if it takes jobs."""
    about, found = f"node {node.name}", []
    if states.is_drain(node.states) or states.is_down(node.states):
        found.append(_out_of_service(node, about, seen))
    elif "NOT_RESPONDING" in node.states and "POWERING_UP" not in node.states:
        found.append(
            Finding(
                "NotResponding",
                Level.BLOCKS,
                about,
                "slurmd doesn't answer slurmctld.",
                "See whether its pod runs and slurmctld reaches port 6818."
                + of_both_families(worker_of(seen, node, node.name)),
                event="Slurm sets it DOWN after SlurmdTimeout, or uses it again when slurmd "
                "answers",
            )
        )
    for state, cause, remedy in (
        (
            "INVALID_REG",
            "slurmd registered with other hardware than its record has.",
            "When it has no job, delete its pod: the next one gets a new record.",
        ),
        ("INVALID", "Slurm refuses the node's configuration.", "Correct the configuration."),
    ):
        if state in node.states:
            found.append(Finding(state, Level.BLOCKS, about, cause, remedy))
    found += _power(node, about)
    reserved = [it for it in seen.slurm.reservations or () if node.name in _names(it)]
    for reservation in reserved:
        if is_closing(reservation.name):
            found.append(
                Finding(
                    "Closed",
                    Level.WAITS,
                    about,
                    "Pods of its NodeSet could not start, so Slurm uses other NodeSets "
                    f"(reservation {reservation.name}).",
                    "See the condition PowerSaving of the NodeSet.",
                    event="Slurm may use it again",
                    at=float(reservation.end_time),
                )
            )
        elif reservation.start_time <= seen.now < reservation.end_time:
            whom = ", ".join(reservation.users + reservation.accounts) or "maintenance"
            found.append(
                Finding(
                    "Reserved",
                    Level.WAITS,
                    about,
                    f"Reservation {reservation.name} reserves it for {whom}.",
                    "Use the reservation, or wait for its end.",
                    event=f"reservation {reservation.name} ends",
                    at=float(reservation.end_time),
                )
            )
    if not reserved and node.reservation:
        found.append(
            Finding(
                "Reserved",
                Level.WAITS,
                about,
                f"Reservation {node.reservation} reserves it.",
                "Wait for its end.",
            )
        )
    return found


def _names(reservation: Reservation) -> frozenset[str]:
    try:
        return frozenset(expand(reservation.node_list))
    except HostlistError:
        return frozenset()


def _power(node: Node, about: str) -> list[Finding]:
    if "POWERED_DOWN" in node.states or "POWERING_DOWN" in node.states:
        text = "Slurm has powered it down: it has no worker pod until a job needs it."
        return [
            Finding("PoweredDown", Level.SHOWS, about, text, event="Slurm powers it up for a job")
        ]
    if "POWERING_UP" in node.states:
        return [
            Finding(
                "PoweringUp",
                Level.WAITS,
                about,
                "Slurm powers it up.",
                event="its slurmd registers",
            )
        ]
    return []


def _out_of_service(node: Node, about: str, seen: Seen) -> Finding:
    owner = owner_of(node)
    down, busy = states.is_down(node.states), states.is_busy(node.states)
    what = "DOWN" if down else "drained" if states.is_drained(node.states) else "draining"
    by = (
        f" ({node.reason_set_by_user})"
        if node.reason_set_by_user and owner is Owner.FOREIGN
        else ""
    )
    checked = node.reason.startswith(CHECK_PREFIX) or is_health_check(node.reason)
    who = "a check" if checked else WHO[owner]
    cause = f"It is {what}, set by {who}{by}" + (
        f": {node.reason}" if node.reason else ", without a reason"
    )
    resume = seen.command(f"scontrol update nodename={node.name} state=resume")
    level, remedy, event = Level.BLOCKS, "", ""
    commands: tuple[str, ...] = ()
    known = _explained(node.reason)
    if owner in (Owner.OPERATOR, Owner.POD):
        # Its owner lifts it, but an administrator has to repair what the check has found.
        level = Level.BLOCKS if checked else Level.WAITS
        remedy = (
            plain(known.remedy)
            if known is not None
            else "Nothing: its owner lifts the drain when the cause ends."
        )
        event = (
            "its jobs end, then its pod is deleted"
            if is_for_deletion(node.reason) or is_departure(node.reason)
            else ""
        )
        event = event or (
            "the next health check that passes returns it"
            if is_health_check(node.reason)
            else "the next run of the check that passes returns it"
            if node.reason.startswith(CHECK_PREFIX)
            else "its owner lifts the drain when the cause ends"
        )
        if "cordoned" in node.reason and "Pod (" in node.reason and "Node (" in node.reason:
            kube_node = node.reason.partition("Node (")[2].partition(")")[0]
            commands = (f"kubectl uncordon {kube_node}",)
    elif owner is Owner.SLURMCTLD:
        level = Level.WAITS
        remedy = plain(known.remedy) if known is not None else "See whether its pod runs."
        remedy += of_both_families(worker_of(seen, node, node.name))
        event = "it returns when slurmd answers"
    elif node.reason.startswith(bridge.DRAIN_PREFIX):
        cause = (
            f"It is {what}, set by the Slurm Bridge: "
            f"{node.reason.removeprefix(bridge.DRAIN_PREFIX)}"
        )
        level = Level.WAITS
        remedy = (
            "Remove the cause that it names. While the Slurm Bridge does not run, nobody ends "
            "the drain."
        )
        event = "the Slurm Bridge lifts the drain when the cause ends"
    else:
        remedy, commands = "Remove the cause, then return it to service.", (resume,)
    if busy and not event:
        event = "its jobs end, and it stays out of service"
    return Finding(
        "Down" if down else "Drained", level, about, f"{cause}.", remedy, commands, event
    )


def _explained(reason: str) -> NodeReason | None:
    """Return what this product has documented about a reason: the longest fixed beginning
    decides.
    """
    best: NodeReason | None = None
    length = 0
    for known in NodeReason:
        begin = known.value
        for word in ("NAMESPACE", "NODESET", "REASON", "FOUND", "CAUSE", "(NODE)"):
            begin = begin.partition(word)[0]
        if (
            len(begin) > length
            and reason.startswith(begin)
            and begin not in ("slurm-operator: ", "slurm-node: ")
        ):
            best, length = known, len(begin)
    return best


def of_kube_node(node: Object) -> list[Finding]:
    """Find what keeps a Kubernetes node from running workers. Return [] for nothing."""
    name = objects.name(node)
    about = f"Kubernetes node {name}"
    findings: list[Finding] = []
    ready = objects.condition(node, "Ready")
    if ready is None or ready.status != "True":
        why = ready.message if ready is not None else "its kubelet has not reported"
        text = f"It is not ready: {why}"
        findings.append(
            Finding("NotReady", Level.BLOCKS, about, text, f"Repair the kubelet of {name}.")
        )
    if objects.dig(node, "spec", "unschedulable") is True:
        text = "It is cordoned: its workers are drained in Slurm, and no new one starts on it."
        command = f"kubectl uncordon {name}"
        findings.append(
            Finding(
                "Cordoned",
                Level.BLOCKS,
                about,
                text,
                "Uncordon it after the maintenance.",
                (command,),
            )
        )
    return findings + [
        Finding(
            it.type,
            Level.WARNS,
            about,
            f"{it.type}: {it.message}",
            "Free the resource on the Kubernetes node.",
        )
        for it in objects.conditions(node)
        if it.type.endswith("Pressure") and it.status == "True"
    ]


def _kube_node(seen: Seen, node: Object) -> Answer:
    name = objects.name(node)
    findings = of_kube_node(node)
    workers = [
        it
        for it in seen.kube.pods or ()
        if objects.is_worker(it) and objects.text(it, "spec", "nodeName") == name
    ]
    by_name = {it.name: it for it in seen.slurm.nodes or ()}
    for worker in workers:
        findings += pod_trouble.trouble(worker, seen)
        slurm_node = by_name.get(objects.slurm_node(worker))
        findings += trouble(slurm_node, seen) if slurm_node is not None else []
    state = f"{len(workers)} worker pods: " + (", ".join(map(objects.name, workers)) or "none")
    return Answer(f"Kubernetes node {name}", state, ranked(findings), missing=seen.missing)
