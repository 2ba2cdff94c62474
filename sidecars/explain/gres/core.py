"""Why Slurm lacks GPUs: compares what was requested, offered, configured and registered.

Pure: `examine` takes what was seen, and gives one Finding for each thing that is wrong, causes
before their effects. https://slurm.schedmd.com/gres.html
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sidecars.contract import project, reasons
from sidecars.contract.reasons import Owner
from sidecars.explain.core.records import Finding, Level
from sidecars.objects import Node as KubeNode
from sidecars.policy import placement
from sidecars.slurm import conf, gres, nodeconf, states
from sidecars.slurm.records import Node
from sidecars.workloads import gres as wanted_gres
from sidecars.workloads import quantities
from sidecars.workloads.resources import Json, Manifest, NodeSet, ResourceError

_VENDOR = "nvidia.com/"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker pod. `limits` are those of its slurmd container; `trouble` why it doesn't run, in
    Kubernetes' words.
    """

    pod: str
    slurm_node: str
    kube_node: str
    limits: Mapping[str, str]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was observed of one Slurm cluster."""

    nodesets: Sequence[NodeSet]
    kube_nodes: Sequence[KubeNode]
    workers: Mapping[str, Sequence[Worker]]
    slurm_conf: str | None
    """The file that slurmctld serves; None without one."""
    gres_conf: str | None
    """The file that slurmctld serves; None without one."""
    nodes: Sequence[Node] | None
    """Slurm's node records; None when Slurm didn't answer."""
    silence: str = ""
    """Why Slurm didn't answer."""
    refusals: Mapping[str, str] | None = None
    """Why the operator creates no pods for a NodeSet, by its name."""
    own_gres_conf: bool = False
    """Whether gres.conf is the user's."""


def _fault(place: str, what: str, fix: str) -> Finding:
    return Finding("", Level.BLOCKS, place, what, fix)


def examine(seen: Observed) -> list[Finding]:
    """Find all that is wrong with the GPUs of the cluster, causes first. Return [] when all is
    well.
    """
    gpu_nodesets = [nodeset for nodeset in seen.nodesets if _has_gpus(nodeset)]
    found = [finding for nodeset in seen.nodesets for finding in _intent(nodeset)]
    if gpu_nodesets:
        found += _slurm_conf(seen)
        found += _gres_conf(seen, gpu_nodesets)
    for nodeset in gpu_nodesets:
        found += _kubernetes(seen, nodeset)
        found += _workers(seen, nodeset) if _asked(nodeset)[0] else ()
    if gpu_nodesets and seen.nodes is None:
        fix = (
            "look at slurmrestd and slurmctld; from outside the cluster, forward a port and pass "
            "--slurmrestd-url"
        )
        found.append(_fault("Slurm", f"can't be asked what it has: {seen.silence}", fix))
    return found


def summary(seen: Observed) -> list[str]:
    """Describe what was compared, a line for each NodeSet and each of its workers."""
    known = {node.name: node for node in seen.nodes or ()}
    lines = []
    for nodeset in filter(_has_gpus, seen.nodesets):
        asked, resource = _asked(nodeset)
        lines.append(
            f"NodeSet {nodeset.name}: {asked} x {resource} per worker, {_expected(nodeset)} "
            "expected"
        )
        for worker in seen.workers.get(nodeset.name, ()):
            node = known.get(worker.slurm_node)
            slurm = (
                "not in Slurm"
                if node is None
                else f"Gres={node.gres or '(null)'} {'+'.join(sorted(node.states))}"
            )
            slurm = slurm if seen.nodes is not None else "Slurm not asked"
            got = worker.limits.get(resource, "0")
            lines.append(
                f"  {worker.slurm_node} on {worker.kube_node or 'no node yet'}: asks for {got}; "
                f"{slurm}"
            )
    return lines


# ---- what was asked for
# --------------------------------------------------------------------------------------------


def _has_gpus(nodeset: NodeSet) -> bool:
    return nodeset.spec.gpu.enabled


def _limits(nodeset: NodeSet) -> Json:
    found: Json = {}
    for holder in (nodeset.spec.template.spec, nodeset.spec.slurmd):
        resources = holder.get("resources")
        limits = resources.get("limits") if isinstance(resources, dict) else None
        found |= limits if isinstance(limits, dict) else {}
    return found


def _asked(nodeset: NodeSet) -> tuple[int, str]:
    """Return how many devices of which resource a worker asks for, 0 where that can't be read."""
    try:
        return wanted_gres.count(nodeset, _limits(nodeset)), nodeset.spec.gpu.resource_name
    except ResourceError:
        return 0, nodeset.spec.gpu.resource_name


def _expected(nodeset: NodeSet) -> int:
    expected = nodeset.spec.gpu.expected
    return _asked(nodeset)[0] if expected is None else expected


def _intent(nodeset: NodeSet) -> Iterable[Finding]:
    place = f"NodeSet {nodeset.name}"
    if nodeset.spec.gpu.enabled:
        if "gres" in _conf_keys(nodeset):
            what = "extraConf has Gres=, which wins over the GPUs that the workers find"
            yield _fault(
                place,
                what,
                "remove Gres= from the NodeSet's extraConf; gpu.type and gpu.expected remain",
            )
        return
    devices = sorted(name for name in _limits(nodeset) if name.startswith(_VENDOR))
    if devices and "gres" not in _conf_keys(nodeset):
        key = _key(nodeset)
        what = (
            f"asks Kubernetes for {', '.join(devices)}, but Slurm doesn't get them: its nodes "
            "have Gres=(null)"
        )
        yield _fault(
            place, what, f"set nodesets.{key}.gpu.enabled: true (NodeSet.spec.gpu.enabled)"
        )


def _conf_keys(nodeset: NodeSet) -> frozenset[str]:
    return nodeconf.parse(nodeset.spec.extra_conf).keys


def _key(nodeset: NodeSet) -> str:
    """Return the NodeSet's key in the values of the chart, with which its workers' names begin."""
    return str(nodeset.spec.template.spec.get("hostname") or "").rstrip("-") or nodeset.name


# ---- Slurm's files
# -------------------------------------------------------------------------------------------------


def _slurm_conf(seen: Observed) -> Iterable[Finding]:
    if seen.slurm_conf is None:
        yield _fault(
            "slurm.conf", "hasn't been composed yet", "see the condition Ready of the Controller"
        )
        return
    try:
        types = conf.parse(seen.slurm_conf).get("GresTypes") or ""
    except conf.ConfError as error:
        yield _fault("slurm.conf", str(error), "see the condition Ready of the Controller")
        return
    if "gpu" not in types.lower().split(","):
        what = (
            f"GresTypes={types or '(none)'} lacks gpu: slurmctld creates records with Gres=(null)"
        )
        yield _fault(
            "slurm.conf",
            what,
            "remove GresTypes from extraConf, or add gpu to it; then delete the workers' pods",
        )


def _gres_conf(seen: Observed, gpu_nodesets: Sequence[NodeSet]) -> Iterable[Finding]:
    own = "configFiles" if seen.own_gres_conf else "the operator's"
    remove = (
        "remove gres.conf from configFiles (Controller.spec.configFileRefs): the operator then "
        "writes it"
    )
    if seen.gres_conf is None:
        yield _fault(
            "gres.conf",
            "does not exist: slurmd declares no device",
            "see the condition Ready of the Controller",
        )
        return
    try:
        lines = conf.parse(seen.gres_conf).lines
    except conf.ConfError as error:
        yield _fault(f"gres.conf ({own})", str(error), remove)
        return
    detected = any(
        value not in (None, "off") for value in (_lower(line.get("AutoDetect")) for line in lines)
    )
    declared = [line for line in lines if _lower(line.get("Name")) == "gpu"]
    if not detected and not declared:
        fix = (
            f"{remove}; or add AutoDetect=nvidia"
            if seen.own_gres_conf
            else "see the condition Ready of the Controller"
        )
        yield _fault(f"gres.conf ({own})", "neither detects GPUs nor declares any", fix)
    for line in declared:
        if not line.get("File") and not detected:
            what = (
                f"line {line.number} declares GPUs without File=, which slurmd ignores: its node "
                "becomes INVALID"
            )
            yield _fault(
                f"gres.conf ({own})", what, f"add File=/dev/nvidia[0-7] there; or {remove}"
            )
    if seen.own_gres_conf:
        for nodeset in gpu_nodesets:
            if nodeset.spec.gpu.devices or nodeset.spec.gpu.auto_detect != "nvidia":
                what = (
                    f"your own gres.conf replaces gpu.devices and gpu.autoDetect of {nodeset.name}"
                )
                yield _fault("gres.conf (configFiles)", what, remove)


def _lower(value: str | None) -> str | None:
    return None if value is None else value.lower()


# ---- Kubernetes
# --------------------------------------------------------------------------------------------------


def _kubernetes(seen: Observed, nodeset: NodeSet) -> Iterable[Finding]:
    place = f"NodeSet {nodeset.name}"
    refusal = (seen.refusals or {}).get(nodeset.name)
    if refusal:
        yield _fault(place, "the operator creates no pods", refusal)
    asked, resource = _asked(nodeset)
    if not asked:
        what = f"its limit of {resource} is no number of devices"
        yield _fault(
            place,
            what,
            f"set slurmd.resources.limits of {resource} to a number from 1 to 1024, or remove it",
        )
        return
    rules = placement.Rules.of(dict(nodeset.spec.template.spec))
    meant = [node for node in seen.kube_nodes if rules.fits(node)]
    offering = [node for node in meant if _whole(node.status.capacity.get(resource)) > 0]
    if not meant:
        yield _fault(
            place,
            "no Kubernetes node fits its nodeSelector and affinity",
            "correct podSpec.nodeSelector or podSpec.affinity",
        )
    elif not offering:
        others = sorted(
            {
                name
                for node in meant
                for name in node.status.capacity
                if _VENDOR in name and name != resource
            }
        )
        what = f"no Kubernetes node of its has {resource}"
        if others:
            yield _fault(
                place, f"{what}, but {', '.join(others)}", f"set gpu.resourceName to {others[0]}"
            )
        else:
            fix = (
                "have it run there; `kubectl get pods -A -o wide | grep device-plugin` and its "
                "log say why it doesn't"
            )
            yield _fault(
                place, f"{what}: no device plugin has registered any with the kubelet", fix
            )
    for node in offering:
        has, offers = (
            _whole(node.status.capacity.get(resource)),
            _whole(node.status.allocatable.get(resource)),
        )
        if offers < has:
            what = (
                f"{has - offers} of its {has} {resource} are reported as unhealthy by the device "
                "plugin"
            )
            yield _fault(
                f"Kubernetes node {node.metadata.name}",
                what,
                "look at the device plugin's log and at dmesg there; repair the GPU",
            )
    most = max((_whole(node.status.allocatable.get(resource)) for node in offering), default=0)
    if offering and asked > most:
        what = (
            f"asks for {asked} {resource} per worker, and no Kubernetes node offers more than "
            f"{most}"
        )
        yield _fault(
            place,
            what,
            f"set nodesets.{_key(nodeset)}.gpu.count to {most}" if most else "repair the GPUs",
        )


def _whole(quantity: object) -> int:
    try:
        return quantities.whole(str(quantity or "0"), "")
    except ResourceError:
        return 0


# ---- the workers, and what slurmd reported
# -------------------------------------------------------------------------


def _workers(seen: Observed, nodeset: NodeSet) -> Iterable[Finding]:
    asked, resource = _asked(nodeset)
    known = {node.name: node for node in seen.nodes or ()}
    for worker in seen.workers.get(nodeset.name, ()):
        if worker.trouble:
            fix = f"kubectl describe pod {worker.pod}; kubectl logs {worker.pod} -c register"
            yield _fault(f"pod {worker.pod}", worker.trouble, fix)
            continue
        got = _whole(worker.limits.get(resource))
        if got != asked:
            what = f"was created with {got} {resource}, the NodeSet asks for {asked}"
            yield _fault(
                f"pod {worker.pod}", what, f"wait for the roll, or: kubectl delete pod {worker.pod}"
            )
        if seen.nodes is not None:
            node = known.get(worker.slurm_node)
            if node is None:
                what = "isn't in Slurm: slurmd hasn't registered"
                yield _fault(
                    f"Slurm node {worker.slurm_node}", what, f"kubectl logs {worker.pod} -c logfile"
                )
            else:
                yield from _registered(nodeset, worker, node)


def _registered(nodeset: NodeSet, worker: Worker, node: Node) -> Iterable[Finding]:
    place = f"Slurm node {node.name}"
    renew = (
        f"kubectl delete pod {worker.pod}: a record keeps its GPUs, and the next pod gets a new "
        "record"
    )
    if states.is_drain(node.states) and reasons.is_foreign(node.reason):
        # Such a record outlives its pod, and slurmctld 26.05 refuses another number of devices for
        # it (2072).
        renew = (
            f"scontrol update NodeName={node.name} State=UNDRAIN ({node.reason}), as its record "
            f"else stays; {renew}"
        )
    expected = _expected(nodeset)
    try:
        items = [item for item in gres.parse(node.gres) if item.name == "gpu"]
    except gres.GresError as error:
        yield _fault(place, f"Gres can't be read: {error}", renew)
        return
    count = sum(item.count for item in items)
    own_drain = states.is_drain(node.states) and reasons.owner(node.reason) in reasons.OURS
    if "INVALID_REG" in node.states:
        what = (
            "slurmd found other devices than it registered with: "
            f"{node.reason or 'no reason given'}"
        )
        look = f"kubectl exec {worker.pod} -c slurmd -- slurmd -G"
        yield _fault(
            place, what, f"compare Gres={node.gres} with what slurmd detects: {look}; then {renew}"
        )
    elif not count and expected:
        what = "has Gres=(null)"
        if own_drain:
            what += f": {node.reason}"
        yield _fault(
            place, what, f"kubectl logs {worker.pod} -c register lists what it found; then {renew}"
        )
    elif count != expected:
        what = (
            f"has {count} GPUs (Gres={node.gres}), {expected} are "
            f"expected{f': {node.reason}' if own_drain else ''}"
        )
        yield _fault(place, what, f"repair the GPUs, then {renew}; or set gpu.expected to {count}")
    elif states.is_drain(node.states) and reasons.owner(node.reason) is Owner.POD:
        yield _fault(
            place,
            f"is drained: {node.reason}",
            "repair the cause in the reason; see docs/health.md",
        )
    wrong = sorted(
        {
            item.type
            for item in items
            if nodeset.spec.gpu.type and item.type != nodeset.spec.gpu.type
        }
    )
    if wrong:
        what = f"has type {', '.join(wrong)}, the NodeSet has gpu.type {nodeset.spec.gpu.type}"
        yield _fault(place, what, renew)
    if any(not item.type for item in items):
        yield _fault(
            place, f"Gres={node.gres} has no type", f"remove Gres= from extraConf, then {renew}"
        )


def pod_limits(pod: Manifest) -> dict[str, str]:
    """Return the limits of a pod's slurmd container."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    for container in containers:
        if container.get("name") == "slurmd":
            limits = (container.get("resources") or {}).get("limits") or {}
            return {str(name): str(value) for name, value in limits.items()}
    return {}


def pod_trouble(pod: Manifest) -> str:
    """Return why a worker pod doesn't run, in Kubernetes' words, "" where it does, or is about
    to.
    """
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"isn't scheduled: {condition.get('message', '')}"
    if status.get("reason") and status.get("phase") == "Failed":
        return f"{status['reason']}: {status.get('message', '')}"
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            for state in (container.get("state") or {}, container.get("lastState") or {}):
                ended = state.get("terminated") or {}
                if ended.get("exitCode") and container.get("name") == "register":
                    return (
                        f"register failed: {str(ended.get('message', '')).strip() or 'see its log'}"
                    )
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in {
                "CrashLoopBackOff",
                "ImagePullBackOff",
                "ErrImagePull",
                "CreateContainerError",
            }:
                remedy = project.remedy([container.get("image", "")])
                text = f"{container.get('name')}: {waiting['reason']}: {waiting.get('message', '')}"
                return f"{text}. {remedy}" if remedy else text
    return ""
