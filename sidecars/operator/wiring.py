"""Which change wakes which resource. Handlers only map objects to keys of queues."""

from collections.abc import Iterable
from typing import Any

from sidecars.kube import SECRETS, Event, Manifest, WorkQueue, records
from sidecars.operator.context import Context, Key, Memory, controller_of
from sidecars.operator.controller.pods import pod_view
from sidecars.operator.nodeset import machines
from sidecars.operator.nodeset.observation import as_placed, slurm_node
from sidecars.operator.nodeset.podstate import cluster_of, wake
from sidecars.policy import gate, podstate
from sidecars.policy.conditions import is_true
from sidecars.workloads import names

LONGEST_PATIENCE = 0.5
"""Seconds for which a NodeSet of 1,000 pods or more waits for more of their events."""

SETTLE_SECONDS = 0.3
"""How long a Controller waits after a change around it: `helm install` creates its NodeSets just after it."""


def patience(pods: int) -> float:
    """Seconds that a NodeSet of so many pods waits: a pass over thousands is dear, and events come in crowds."""
    return min(LONGEST_PATIENCE, pods * LONGEST_PATIENCE / 1_000)


def wire(context: Context) -> None:
    """Subscribe to every cache. To be called once, before the reflectors run."""
    caches, queues = context.caches, context.queues
    caches.pods.store.add_index("owner", _controlling_uids)
    caches.pods.store.add_index("slurm_node", _slurm_nodes)
    caches.kube_nodes.store.add_index("topology", _has_topology)
    caches.login_pods.store.add_index("loginset", lambda pod: (_instance(pod),))
    caches.slurmctld_pods.store.add_index("controller", lambda pod: (_instance(pod),))
    caches.pods.store.add_index("kube_node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())

    def wake_users(controller: Key) -> None:
        """Everything that is rendered from, or waits for, this Controller."""
        for store, queue in (
            (caches.restapis.store, queues.restapis),
            (caches.loginsets.store, queues.loginsets),
            (caches.nodesets.store, queues.nodesets),
        ):
            _add(queue, (_key(item) for item in store.values() if controller_of(item) == controller))

    def controllers(event: Event[Manifest]) -> None:
        if _spec_changed(context, event):
            queues.controllers.add_after(_key(event.object), SETTLE_SECONDS)
            wake_users(_key(event.object))
        if event.new is None and context.cordon_drained_nodes:
            queues.machines.add(machines.ALL)

    def restapis(event: Event[Manifest]) -> None:
        if _spec_changed(context, event):
            queues.restapis.add(_key(event.object))
            queues.controllers.add_after(controller_of(event.object), SETTLE_SECONDS)
            wake_users(controller_of(event.object))

    def loginsets(event: Event[Manifest]) -> None:
        if _spec_changed(context, event):
            queues.loginsets.add(_key(event.object))

    def urgent(key: Key) -> None:
        """Look at the NodeSet at once, even while its pods are created."""
        if key in context.remembered:
            context.remembered[key].urgent = True
        queues.nodesets.add(key)

    def nodesets(event: Event[Manifest]) -> None:
        if event.old is not None and event.new is not None and _partitions(event.old) != _partitions(event.new):
            queues.controllers.add_after(controller_of(event.object), SETTLE_SECONDS)
        if _spec_changed(context, event):
            urgent(_key(event.object))
            queues.controllers.add_after(controller_of(event.object), SETTLE_SECONDS)
            if event.old is not None:
                # Whether they are protected may have changed.
                _add(queues.pods, map(_pod_key, caches.pods.store.by("owner", event.object["metadata"]["uid"])))
            _add(
                queues.restapis,
                (_key(item) for item in caches.restapis.store.values() if _finalizing(item)),
            )

    def accountings(event: Event[Manifest]) -> None:
        changed = _spec_changed(context, event)
        if changed:
            queues.accountings.add(_key(event.object))
        if changed or _readiness_changed(event):
            _add(queues.restapis, _keys_in(caches.restapis.store.values(), event.object["metadata"]["namespace"]))
            _add(queues.controllers, _keys_in(caches.controllers.store.values(), event.object["metadata"]["namespace"]))

    def tokens(event: Event[Manifest]) -> None:
        if _spec_changed(context, event):
            queues.tokens.add(_key(event.object))

    def pods(event: Event[records.Pod]) -> None:
        owner = event.object.metadata.controller
        if owner is None or owner.kind != "NodeSet":
            return
        key = (event.object.metadata.namespace, owner.name)
        if event.kind == "ADDED":
            context.expectations.creation_observed(key)
        deleted = event.kind == "DELETED" or event.object.metadata.deletion_timestamp is not None
        if deleted:
            context.expectations.deletion_observed(key, event.object.metadata.uid)
        memory = context.remembered.get(key) or Memory()
        if event.old is None or event.new is None or _decided_by(event.old) != _decided_by(event.new):
            goes_on = memory.creating and context.expectations.satisfied(key)
            queues.nodesets.add_after(key, 0.0 if goes_on else patience(len(memory.observed)))
        if event.new is None:
            return
        if event.old is None or _state_shown(event.old) != _state_shown(event.new):
            queues.pods.add(_pod_key(event.new))
        if event.old is not None and event.new.status.ready and not event.old.status.ready and not memory.creating:
            # It has registered: Slurm's record of it is new. Of a crowd, the poller hears soon enough.
            cluster = cluster_of(context, event.new)
            if cluster is not None:
                cluster.poller.wake()

    def controller_revisions(event: Event[Manifest]) -> None:
        if event.kind != "ADDED":
            _add(queues.nodesets, _owning_nodesets(event.object))

    def claims(event: Event[records.PersistentVolumeClaim]) -> None:
        queues.nodesets.add(_instance(event.object))

    def other_claims(event: Event[records.PersistentVolumeClaim]) -> None:
        metadata = event.object.metadata
        for item in caches.controllers.store.values():
            if _existing_claim(item) == (metadata.namespace, metadata.name):
                queues.controllers.add(_key(item))

    def slurmctld_pods(event: Event[records.Pod]) -> None:
        if event.old is None or event.new is None or pod_view(event.old) != pod_view(event.new):
            queues.controllers.add(_instance(event.object))

    def login_pods(event: Event[records.Pod]) -> None:
        if event.old is None or event.new is None or _address(event.old) != _address(event.new):
            queues.loginsets.add(_instance(event.object))

    def kube_nodes(event: Event[records.Node]) -> None:
        old, new = event.old, event.new
        if old is not None and new is not None and _placement(old, context) == _placement(new, context):
            return
        if context.cordon_drained_nodes:
            queues.machines.add(machines.ALL)
        name = event.object.metadata.name
        for key, memory in context.remembered.items():
            rules = memory.rules
            if rules is not None:
                places = [rules.place(as_placed(node)) if node is not None else None for node in (old, new)]
                if places[0] != places[1]:
                    urgent(key)
        for pod in caches.pods.store.by("kube_node", name):
            queues.pods.add(_pod_key(pod))
            owner = pod.metadata.controller
            if owner is not None:
                urgent((pod.metadata.namespace, owner.name))

    def children(event: Event[Manifest]) -> None:
        if event.new is None:
            metadata = event.object["metadata"]
            context.applier.forget(event.object["kind"], metadata["namespace"], metadata["name"])
        # Those too that have just been taken away: they want it back.
        versions = (item for item in (event.old, event.new) if item is not None)
        owners = dict.fromkeys(
            (owner["kind"], owner["name"])
            for item in versions
            for owner in item["metadata"].get("ownerReferences") or ()
        )
        for kind, name in owners:
            key = (event.object["metadata"]["namespace"], name)
            if kind == "NodeSet":
                # What all NodeSets of a Controller share is made by the Controller's pass.
                nodeset = caches.nodesets.store.get(*key)
                if nodeset is not None:
                    queues.controllers.add(controller_of(nodeset))
            queue: WorkQueue[Key] | None = {
                "Controller": queues.controllers,
                "RestApi": queues.restapis,
                "LoginSet": queues.loginsets,
                "Accounting": queues.accountings,
            }.get(kind)
            if queue is not None:
                queue.add(key)

    def references(event: Event[Any]) -> None:
        """A Secret or ConfigMap that anything in its namespace may refer to."""
        item = event.object
        kind, namespace, name = (
            (item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
            if isinstance(item, dict)
            else (SECRETS.kind, item.metadata.namespace, item.metadata.name)
        )
        if event.new is None:
            context.applier.forget(kind, namespace, name)
        for store, queue in (
            (caches.controllers.store, queues.controllers),
            (caches.restapis.store, queues.restapis),
            (caches.loginsets.store, queues.loginsets),
            (caches.nodesets.store, queues.nodesets),
            (caches.accountings.store, queues.accountings),
            (caches.tokens.store, queues.tokens),
        ):
            _add(queue, _keys_in(store.values(), namespace))

    caches.controllers.store.subscribe(controllers)
    caches.restapis.store.subscribe(restapis)
    caches.loginsets.store.subscribe(loginsets)
    caches.nodesets.store.subscribe(nodesets)
    caches.accountings.store.subscribe(accountings)
    caches.tokens.store.subscribe(tokens)
    caches.pods.store.subscribe(pods)
    caches.slurmctld_pods.store.subscribe(slurmctld_pods)
    caches.login_pods.store.subscribe(login_pods)
    caches.kube_nodes.store.subscribe(kube_nodes)
    caches.claims.store.add_index("instance", lambda claim: (_instance(claim),))
    caches.claims.store.add_index("place", lambda claim: ((*_instance(claim), _place(claim)),) if _place(claim) else ())
    caches.claims.store.subscribe(claims)
    caches.other_claims.store.subscribe(other_claims)
    caches.controller_revisions.store.add_index("owner", _owning_uids)
    caches.controller_revisions.store.subscribe(controller_revisions)
    caches.secrets.store.subscribe(references)
    caches.config_maps.store.subscribe(references)
    for reflector in (
        caches.services,
        caches.stateful_sets,
        caches.deployments,
        caches.pod_disruption_budgets,
        caches.endpoint_slices,
        caches.service_monitors,
    ):
        reflector.store.subscribe(children)


def monitored(context: Context) -> None:
    """The API server has ServiceMonitors now."""
    _add(context.queues.controllers, map(_key, context.caches.controllers.store.values()))


def slurm_changed(context: Context, controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
    """Slurm's node records changed, or how far they can be trusted did (both sets empty)."""
    nodesets = [nodeset for nodeset in context.caches.nodesets.store.values() if controller_of(nodeset) == controller]
    _add(context.queues.nodesets, (_key(nodeset) for nodeset in nodesets))
    wake(context, controller, changed | removed)
    if context.cordon_drained_nodes:
        context.queues.machines.add(machines.ALL)
    manifest = context.caches.controllers.store.get(*controller)
    if manifest is not None and gate.is_invalid(manifest):
        # A partition may name a node that has registered now.
        context.queues.controllers.add_after(controller, SETTLE_SECONDS)
    if not changed and not removed:
        context.queues.controllers.add(controller)
        # What changed while Slurm couldn't be trusted has not been shown yet.
        for nodeset in nodesets:
            _add(context.queues.pods, map(_pod_key, context.caches.pods.store.by("owner", nodeset["metadata"]["uid"])))


def _key(manifest: Manifest) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _pod_key(pod: records.Pod) -> Key:
    return pod.metadata.namespace, pod.metadata.name


def _keys_in(manifests: Iterable[Manifest], namespace: str) -> Iterable[Key]:
    return (_key(item) for item in manifests if item["metadata"]["namespace"] == namespace)


def _add(queue: WorkQueue[Key], keys: Iterable[Key]) -> None:
    for key in keys:
        queue.add(key)


def _placement(node: records.Node, context: Context) -> tuple[object, ...]:
    told = tuple(node.status.condition(kind) for kind in context.propagated_node_conditions)
    explained = tuple((it.status, it.reason, it.message) for it in told if it is not None)
    return node.spec, node.metadata.annotations, node.metadata.labels, explained


def _existing_claim(controller: Manifest) -> Key:
    """Namespace and name of the claim that slurmctld's state is on; the name is empty without one."""
    persistence = (controller.get("spec") or {}).get("persistence") or {}
    return controller["metadata"]["namespace"], persistence.get("existingClaim") or ""


def _partitions(nodeset: Manifest) -> object:
    """What of a NodeSet's status is in slurm.conf."""
    return (nodeset.get("status") or {}).get("partitions")


def _finalizing(manifest: Manifest) -> bool:
    return manifest["metadata"].get("deletionTimestamp") is not None


def _spec_changed(context: Context, event: Event[Manifest]) -> bool:
    """Anything but our own status write: one that a cache has shown late, or another's, must be looked at."""
    if event.old is None or event.new is None:
        if event.new is None:
            context.forget(event.object)
        return True
    if event.old.get("status") != event.new.get("status") and not context.is_reported(event.new):
        return True
    return any(
        event.old["metadata"].get(field) != event.new["metadata"].get(field)
        for field in ("uid", "generation", "labels", "annotations", "finalizers", "deletionTimestamp")
    )


def _slurm_nodes(pod: records.Pod) -> Iterable[tuple[str, str, str]]:
    """Namespace and Controller of a worker pod, and its Slurm node."""
    name = slurm_node(pod)
    return ((pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER, ""), name),) if name else ()


def _has_topology(node: records.Node) -> Iterable[bool]:
    return (True,) if node.metadata.annotations.get(names.TOPOLOGY) else ()


def _decided_by(pod: records.Pod) -> tuple[object, ...]:
    """The pod without what the operator shows on it: no reason for another pass over all pods of its NodeSet."""
    meta, status = pod.metadata, pod.status
    return (
        (meta.uid, meta.deletion_timestamp, meta.deletion_grace_period_seconds, meta.owner_references, meta.finalizers),
        {name: value for name, value in meta.labels.items() if name != names.POD_PROTECT},
        {name: value for name, value in meta.annotations.items() if name not in {names.POD_DEADLINE, names.TOPOLOGY}},
        pod.spec,
        [it for it in status.conditions if not it.type.startswith(podstate.CONDITION_PREFIX)],
        (status.phase, status.reason, status.pod_ip, status.init_container_statuses, status.container_statuses),
    )


def _state_shown(pod: records.Pod) -> tuple[object, ...]:
    """What a pass over the pod alone depends on."""
    ours = [it for it in pod.status.conditions if it.type.startswith(podstate.CONDITION_PREFIX)]
    return pod.spec, pod.metadata.labels, pod.metadata.annotations, ours


def _readiness_changed(event: Event[Manifest]) -> bool:
    old, new = event.old, event.new
    return old is not None and new is not None and is_true(old, "Ready") != is_true(new, "Ready")


def _instance(item: records.Pod | records.PersistentVolumeClaim) -> Key:
    """Namespace and name of the custom resource whose instance label it has."""
    return item.metadata.namespace, item.metadata.labels.get(names.APP_INSTANCE, "")


def _place(claim: records.PersistentVolumeClaim) -> str | None:
    """The Kubernetes node whose worker's it is, in DaemonSet mode."""
    return claim.metadata.annotations.get(names.KUBE_NODE)


def _address(pod: records.Pod) -> tuple[str, str]:
    return pod.status.phase, pod.status.pod_ip


def _controlling_uids(pod: records.Pod) -> Iterable[str]:
    owner = pod.metadata.controller
    return (owner.uid,) if owner is not None else ()


def _owning_uids(manifest: Manifest) -> Iterable[str]:
    return (owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or () if owner.get("controller"))


def _owning_nodesets(manifest: Manifest) -> Iterable[Key]:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return ((metadata["namespace"], owner["name"]) for owner in owners if owner["kind"] == "NodeSet")
