"""Which devices of a running job each of its pods gets: the very ones that Slurm has given to the
job. Pure.

A claim keeps its devices while the job or the pod runs. A pod is released when its claims show
them, so that a restart between the two finds the same devices again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sidecars.bridge.core.alone import fault_of
from sidecars.bridge.core.devices import Claim, Device, Granted
from sidecars.bridge.core.records import Action, Deallocate, Grant, Job, Phase, Pod, View
from sidecars.contract import queued


@dataclass
class Plan:
    """What has to happen before the pods of a job can be released."""

    actions: list[Action] = field(default_factory=list)
    """Allocations to write and to remove. Nothing is released before they are done."""
    fault: str = ""
    """Why no pod can be released, or why the devices can't be given."""


def node_of(pod: Pod, job: Job) -> str:
    """Return the node of the devices that its claims have already, if the job has them, ""
    otherwise.
    """
    has = {device for claim in pod.claims or () for _, device in claim.granted or ()}
    return next((node for node, _, devices in job.devices if has & set(devices)), "")


def unused(view: View) -> Iterator[Deallocate]:
    """Take back what the claims of pods behind the gate have while their job doesn't run: Slurm
    gives it to other jobs.
    """
    for pod in view.pods:
        found = view.components.get(pod.job) if pod.job is not None else None
        runs = found is not None and found[0].phase is Phase.RUNNING
        # A cache may still show a gate that was removed a moment ago: such a pod has a node.
        if runs or not pod.gated or pod.node:
            continue
        for claim in pod.claims or ():
            if claim.shown and not claim.others:
                yield Deallocate(pod, claim)


def plan(job: Job, pairs: Iterable[tuple[Pod, str]], view: View) -> Plan:
    """Plan the devices for the pods of the pairs, each with the node where it is to run."""
    pairs = tuple(pairs)
    found = Plan(fault=fault_of(job, pairs, view))
    if found.fault:
        return found
    wanting = [(pod, node) for pod, node in pairs if pod.claims is None or pod.claims]
    lost = next((pod for pod, _ in wanting if pod.claims is None), None)
    if lost is not None:
        found.fault = (
            f"the ResourceClaims of pod {lost.name} can't be read: {lost.problem or lost.unsized}"
        )
        return found
    nothing: Mapping[str, tuple[Device, ...]] = {}
    parts = {it.job_id: _by_node(it) for it in job.components}
    taken: dict[Device, set[str]] = {device: set(uids) for device, uids in view.holders.items()}
    open_ones: list[tuple[Pod, str, Claim, Mapping[str, tuple[Device, ...]]]] = []
    for pod, node in wanting:
        given = parts.get(pod.job or 0, {}).get(node, nothing)
        for claim in pod.claims or ():
            if claim.granted is not None and not claim.shown and _fits(claim, given, taken):
                found.actions.append(Grant(pod, node, claim, claim.granted))
            elif claim.granted is None or not claim.shown:
                open_ones.append((pod, node, claim, given))
            elif claim.others or claim.returned or not _fits(claim, given, taken):
                found.actions += _taken_back(pod, claim, job, found)
    for pod, node, claim, given in open_ones:
        granted = _chosen(pod, node, claim, given, taken, job, found)
        if granted:
            found.actions.append(Grant(pod, node, claim, granted))
    return found


def _by_node(component: Job) -> dict[str, dict[str, tuple[Device, ...]]]:
    found: dict[str, dict[str, tuple[Device, ...]]] = {}
    for node, gres, devices in component.devices:
        found.setdefault(node, {})[gres] = devices
    return found


def _fits(
    claim: Claim, given: Mapping[str, tuple[Device, ...]], taken: Mapping[Device, set[str]]
) -> bool:
    """Return whether it has what it requests, all of it the job's, and nothing that another claim
    has, too.
    """
    granted = claim.granted or ()
    for wish in claim.wishes:
        its = [device for request, device in granted if request == wish.request]
        if len(its) != wish.number or not set(its) <= set(given.get(wish.gres, ())):
            return False
    if len(granted) != sum(it.number for it in claim.wishes):
        return False
    return all(taken.get(device, set()) <= {claim.uid} for _, device in granted)


def _taken_back(pod: Pod, claim: Claim, job: Job, found: Plan) -> Iterator[Action]:
    # A cache may still show a gate that was removed a moment ago: such a pod has a node.
    if claim.others or not pod.gated or pod.node:
        found.fault = (
            f"ResourceClaim {claim.name} has other devices than Slurm job {job.job_id}: delete "
            "the pod"
        )
        return
    yield Deallocate(pod, claim)


def _chosen(
    pod: Pod,
    node: str,
    claim: Claim,
    given: Mapping[str, tuple[Device, ...]],
    taken: dict[Device, set[str]],
    job: Job,
    found: Plan,
) -> tuple[Granted, ...]:
    if claim.deleting:
        found.fault = f"ResourceClaim {claim.name} is being deleted: delete pod {pod.name}"
        return ()
    granted: list[Granted] = []
    # What one request got, no other one of the same claim gets.
    used: set[Device] = set()
    for wish in claim.wishes:
        has = given.get(wish.gres, ())
        if not has:
            found.fault = (
                f"Slurm names no device of GRES {wish.gres} that the job has on node {node}"
            )
            return ()
        free = [it for it in has if it not in used and taken.get(it, set()) <= {claim.uid}]
        if len(free) < wish.number:
            busy = next((it for it in has if not taken.get(it, set()) <= {claim.uid}), None)
            found.fault = (
                queued.BUSY_DEVICE.write(device=busy.name, node=node)
                if busy is not None
                else f"the job has {len(has)} devices of GRES {wish.gres} on node {node}, and "
                f"{pod.name} requests more"
            )
            return ()
        for device in free[: wish.number]:
            used.add(device)
            taken.setdefault(device, set()).add(claim.uid)
            granted.append(Granted(wish.request, device))
    return tuple(granted)
