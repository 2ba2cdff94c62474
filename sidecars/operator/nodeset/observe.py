"""What one pass over a NodeSet works with: what it asks for, and what is known of its pods and of
Slurm.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sidecars import objects
from sidecars.contract.extra import PodFacts
from sidecars.operator.nodeset import stored_revisions
from sidecars.operator.nodeset.adoption import leaves_pods
from sidecars.operator.nodeset.memories import CachedPod
from sidecars.operator.nodeset.passes import Pass, PodSource
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.waking import key_of, own_id
from sidecars.operator.upgrade import takeover
from sidecars.policy import placement
from sidecars.policy.nodeset import lost, power
from sidecars.policy.nodeset.desired import desired_pods
from sidecars.policy.nodeset.needs import Answer, Jobs, Known, Need, SlurmctldStart
from sidecars.policy.nodeset.observation import (
    observed_claim,
    slurm_node,
    slurmd_since,
    worker_pod,
)
from sidecars.policy.nodeset.records import (
    FINISHED,
    Claim,
    Desired,
    Observed,
    OtherWorkers,
    SlurmView,
    WorkerPod,
)
from sidecars.slurm.owners import pod_of
from sidecars.slurm.records import Node


def observe(this: Pass, source: PodSource) -> tuple[Desired, Observed]:
    """Read what the decision is based on, at one moment. `source`: what new pods are created from.

    No request is sent: what a decision has to store first is `source`.
    """
    runtime, nodeset = this.runtime, this.nodeset
    # Before the pods are read: what the watch shows of our own writes later does not count for this
    # decision.
    settled = runtime.expectations.satisfied(this.key)
    pods = observed_pods(this)
    if this.cluster is not None:
        # Their `node` sidecars delete the records. Many at once must not look like a Slurm that
        # lost its state.
        this.cluster.poller.expect_removal(pod.slurm_node for pod in pods if pod.terminating)
    # Power saving follows Slurm from the beginning of the pass on; what is applied is checked with
    # newer records.
    view = slurm_view(
        this, None, (), this.cluster.poller.now() if this.cluster is not None else 0.0
    )
    nodeset = power.with_offer(nodeset, pods, view)
    saves = nodeset.spec.power_saving.enabled and nodeset.metadata.deletion_timestamp is None
    record_line, record_problem = power.line(nodeset) if saves else ("", "")
    ordinals = None
    if saves:
        ordinals = power.ordinals(
            nodeset, pods, view, offered=bool(record_line), problem=record_problem
        )
    rules = placement.Rules.of(source.template["spec"]) if source.template is not None else None
    this.memory.rules = rules if nodeset.spec.scaling_mode == "DaemonSet" else None
    controller = runtime.caches.controllers.store.get(*this.controller)
    controller_deleted = (
        controller is None or controller["metadata"].get("deletionTimestamp") is not None
    )
    desired = Desired(
        nodeset=nodeset,
        pods=desired_pods(
            nodeset, source.revision, rules, _kube_nodes(this), pods, runtime.now(), ordinals
        ),
        creatable=source.template is not None,
        problem=source.problem,
        look_again=source.look_again,
        collisions=source.collisions,
        record_line=record_line,
        record_problem=record_problem,
    )
    observed = Observed(
        pods=pods,
        slurm=SlurmView({}, None),
        connected=this.cluster is not None,
        clock=this.cluster.poller.now() if this.cluster is not None else 0.0,
        settled=settled,
        controller_deleted=controller_deleted,
        claims=_claims(this),
        revisions=stored_revisions.stored_of(runtime, nodeset)
        if source.template is not None
        else (),
        conditions=(this.manifest.get("status") or {}).get("conditions") or (),
    )
    return desired, with_answers(this, observed, {})


def with_answers(this: Pass, observed: Observed, answers: Mapping[Need, Answer]) -> Observed:
    """Return the observation with Slurm as it is known now, and with these answers too."""
    available = {**observed.answers, **answers}
    view = slurm_view(this, available.get(Jobs()), observed.pods, observed.clock)
    # Now, and not when it was asked for: meanwhile a pass over another NodeSet may have replaced
    # some.
    others = _other_workers(this, view) if SlurmctldStart() in available else observed.others
    return replace(
        observed,
        slurm=view,
        orphans=_orphans(this, view, observed.pods),
        others=others,
        answers=available,
    )


def as_applied(this: Pass, observed: Observed) -> Observed:
    """Return the observation with the pods and with Slurm as they are after the actions were
    applied.
    """
    return replace(
        observed, pods=observed_pods(this), slurm=slurm_view(this, None, (), observed.clock)
    )


def slurm_view(
    this: Pass, jobs: Answer | None, pods: Iterable[WorkerPod], clock: float
) -> SlurmView:
    """Return what is known of Slurm. `jobs`: the answer to `Jobs`, if it was asked. `pods`: for
    which nodes. `clock`: when the pass began.
    """
    if this.cluster is None:
        return SlurmView({}, _why_unconnected(this))
    poller, view = this.cluster.poller, this.cluster.view()
    age = clock - poller.last_good if poller.last_good is not None else float("inf")
    unread: frozenset[str] = frozenset()
    if isinstance(jobs, Known):
        unread = poller.changed_after(jobs.value.asked_at, [pod.slurm_node for pod in pods])
    return replace(view, age=age, unread=unread)


def observed_pods(this: Pass) -> list[WorkerPod]:
    """Return the NodeSet's pods as the policy sees them. Those whose records are the same objects
    are not read again.

    One that is being deleted without its pods has none.
    """
    runtime, memory = this.runtime, this.memory
    if leaves_pods(this):
        return []
    now, workers = runtime.now(), []
    before, after = memory.pods, {}
    min_ready = this.nodeset.spec.min_ready_seconds
    explained_by = runtime.settings.propagated_node_conditions
    node_of = runtime.caches.kube_nodes.store.get
    for pod in runtime.caches.pods.store.by("owner", this.nodeset.own_id):
        node = node_of(None, pod.spec.node_name) if pod.spec.node_name else None
        cached = before.get(pod.metadata.uid)
        if cached is None or not cached.is_current(pod, node, min_ready):
            seen = worker_pod(
                pod, node, now=now, min_ready_seconds=min_ready, explained_by=explained_by
            )
            cached = CachedPod(pod, node, min_ready, seen)
        after[pod.metadata.uid] = cached
        notice = runtime.notices.about(pod)
        workers.append(cached.seen if notice is None else replace(cached.seen, notice=notice))
    memory.pods = after
    return workers


def _kube_nodes(this: Pass) -> Mapping[str, objects.Node]:
    """Return the Kubernetes nodes by name, where the desired pods depend on them."""
    if this.nodeset.spec.scaling_mode == "StatefulSet" and not this.nodeset.spec.pin_to_node:
        return {}
    return {node.metadata.name: node for node in this.runtime.caches.kube_nodes.store.values()}


def _other_workers(this: Pass, view: SlurmView) -> OtherWorkers:
    caches, now = this.runtime.caches, this.runtime.now()
    running = missing = 0
    replaced: list[float] = []
    for nodeset in caches.nodesets.store.values():
        key = key_of(nodeset)
        if key == this.key or controller_of(nodeset) != this.controller:
            continue
        for pod in caches.pods.store.by("owner", own_id(nodeset)):
            since = slurmd_since(pod)
            ended = pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED
            if since is not None and not ended:
                running += 1
                missing += lost.is_missing(since, slurm_node(pod), view, now)
        memory = this.memories.get(key)
        replaced += memory.decided.replaced.values() if memory is not None else ()
    return OtherWorkers(running, missing, tuple(replaced))


def _claims(this: Pass) -> list[Claim]:
    if not this.nodeset.spec.volume_claim_templates or leaves_pods(this):
        return []
    return [
        observed_claim(claim) for claim in this.runtime.caches.claims.store.by("instance", this.key)
    ]


def _orphans(this: Pass, view: SlurmView, observed: Iterable[WorkerPod]) -> list[Node]:
    """Node records that former pods of this NodeSet registered. `observed`: its pods."""
    pods = tuple(observed)
    _remember_former(this, view, pods)
    uids = {this.nodeset.metadata.uid, *this.memory.former_uids}
    bound = {pod.slurm_node for pod in pods if pod.kube_node is not None}
    # Reading the JSON of thousands of records in each pass would cost more than the rest of it.
    owned = [
        node
        for node in view.nodes.values()
        if node.name not in bound and any(uid in node.extra or uid in node.comment for uid in uids)
    ]
    if not owned or this.nodeset.spec.node_records == "Keep":
        return []
    store = this.runtime.caches.pods.store
    saved = power.retained(this.nodeset)
    registered = []
    for node in owned:
        if saved(node):
            continue
        facts = pod_of(node)
        if facts is None or facts.nodeset_uid not in uids:
            continue
        pod = store.get(this.nodeset.namespace, facts.pod)
        if pod is None or not _is_pod(facts, pod):
            registered.append((node, facts.pod_uid))
    if not registered:
        return []
    alive = {pod.metadata.uid for pod in store.values()}
    in_use = slurm_nodes_in_use(this)
    return [
        node for node, pod_uid in registered if node.name not in in_use and pod_uid not in alive
    ]


def _is_pod(facts: PodFacts, pod: objects.Pod) -> bool:
    """Return whether a pod of that name may be the very one."""
    return pod.metadata.uid == facts.pod_uid if facts.pod_uid else takeover.is_former(pod)


def _remember_former(this: Pass, view: SlurmView, pods: Iterable[WorkerPod]) -> None:
    """Note the NodeSets that adopted pods have had: the record of a pod names the one that created
    it.
    """
    meta = this.nodeset.metadata
    for pod in pods:
        node = view.nodes.get(pod.slurm_node)
        if node is None or meta.uid in node.extra:
            continue
        facts = pod_of(node)
        if facts is None or facts.namespace != meta.namespace or not facts.nodeset_uid:
            continue
        if facts.pod_uid == pod.uid or (not facts.pod_uid and facts.pod == pod.name):
            this.memory.former_uids.add(facts.nodeset_uid)
    if this.memory.former_uids:
        existing = {
            nodeset["metadata"]["uid"] for nodeset in this.runtime.caches.nodesets.store.values()
        }
        this.memory.former_uids -= existing


def slurm_nodes_in_use(this: Pass) -> set[str]:
    """Return the Slurm nodes of the namespace whose slurmd may run.

    A record keeps the uid of the pod that created it, also when another pod of this name has
    registered with it. A pod that isn't bound has no slurmd, and may never have one.
    """
    pods, namespace = this.runtime.caches.pods.store.values(), this.nodeset.namespace
    return {
        slurm_node(pod)
        for pod in pods
        if pod.metadata.namespace == namespace and pod.spec.node_name
    }


def _why_unconnected(this: Pass) -> str:
    namespace, name = this.controller
    if this.runtime.lookup.restapi_of(namespace, name) is None:
        return f"no RestApi refers to Controller {name!r}; enable one"
    return f"the JWT key of Controller {name!r} is missing"
