"""What is different where no operator runs.

NodeSets and LoginSets become StatefulSets: their pods get a stable name without an operator. The
pod's name is the hostname and the Slurm node's name, so a NodeSet's StatefulSet is called as the
prefix of its hostnames. What only an operator can do is refused, or listed in docs/postrender.md.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from postrender.errors import PostrenderError
from postrender.expand import objects, secrets
from postrender.expand.cluster import Cluster, label
from postrender.expand.objects import Configuration, usable
from sidecars.contract.annotations import TOPOLOGY
from sidecars.contract.environment import SLURM_NODE_NAME
from sidecars.workloads import assembly, identity, names, nodeset
from sidecars.workloads.facts import Site
from sidecars.workloads.resources import (
    Controller,
    LoginSet,
    Manifest,
    NodeSet,
    Resource,
    ResourceError,
)

Found = dict[tuple[str, str], list[Manifest]]
"""The objects that replace a custom resource, by its kind and name."""


def expand(cluster: Cluster, site: Site, allowed: Collection[str] = ()) -> Found:
    """Return the objects of an installation without an operator. Raises PostrenderError.

    `allowed`: ServiceAccounts whose tokens the pods may have, as NAMESPACE/NAME.
    """
    _check(cluster)
    host_keys = dict.fromkeys(names.ssh_host_keys(it.name) for it in cluster.loginsets.values())
    known = replace(cluster, secrets={**host_keys, **cluster.secrets})
    configured = {
        name: objects.configuration(known, it, site, frozenset())
        for name, it in cluster.controllers.items()
    }
    found: Found = {}
    for controller in cluster.controllers.values():
        rendered = objects.of_controller(known, controller, configured[controller.name])
        found["Controller", controller.name] = [
            _shared(it, controller) for it in rendered if it["kind"] != _BUDGET
        ]
    for accounting in cluster.accountings.values():
        found["Accounting", accounting.name] = objects.of_accounting(known, accounting, site)
    for restapi in cluster.restapis.values():
        configuration = configured[cluster.controller(restapi).name]
        found["RestApi", restapi.name] = objects.of_restapi(known, restapi, configuration)
    for loginset in cluster.loginsets.values():
        controller = cluster.controller(loginset)
        rendered = objects.of_loginset(known, loginset, configured[controller.name])
        found["LoginSet", loginset.name] = [_with_stable_names(it, loginset) for it in rendered]
    for workers in cluster.nodesets.values():
        found["NodeSet", workers.name] = _workers(
            known, workers, configured[cluster.controller(workers).name]
        )
    for token in cluster.tokens.values():
        found["Token", token.name] = []
    _distinct(found)
    _check_identities(cluster, found, allowed)
    first = next(iter(found))
    found[first] = [*secrets.objects(cluster, site), *found[first]]
    return {key: [assembly.ownerless(it) for it in items] for key, items in found.items()}


_ALLOWED = "allowedServiceAccounts of the step `expand`"
_BUDGET = "PodDisruptionBudget"
"""It protects the pods that an operator labels while they have jobs."""


def stateful_set_name(workers: NodeSet) -> str:
    """Return the prefix of its hostnames without the hyphen, or its own name."""
    prefix = str(workers.spec.template.spec.get("hostname") or f"{workers.name}-")
    if not prefix.endswith("-"):
        _refuse(
            workers,
            f"spec.template.spec.hostname: the Slurm nodes would be called {prefix}0, {prefix}1, "
            f"…, and the pods of a StatefulSet have a hyphen before the number: write {prefix}-, "
            "or leave it out",
        )
    return prefix[:-1]


def _workers(cluster: Cluster, workers: NodeSet, configured: Configuration) -> list[Manifest]:
    """Return the ConfigMaps of a NodeSet and its StatefulSet. Raises PostrenderError."""
    controller, spec = cluster.controller(workers), workers.spec
    with usable(workers):
        template = nodeset.pod_template(workers, controller, configured.facts)
        shared = nodeset.objects(workers, controller, configured.facts)
    metadata = template["metadata"]
    # `register` waits for the operator's annotation.
    annotations = {TOPOLOGY: ""} | metadata.get("annotations", {})
    for variable in assembly.container(template["spec"], "node")["env"]:
        if variable["name"] == SLURM_NODE_NAME:
            variable["valueFrom"] = {"fieldRef": {"fieldPath": "metadata.name"}}
    rolling = spec.update_strategy.rolling_update.max_unavailable
    retention = spec.persistent_volume_claim_retention_policy
    stateful_set: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": stateful_set_name(workers),
            "labels": nodeset.selector(workers)
            | {names.APP_COMPONENT: "worker", names.CLUSTER: controller.name},
        },
        "spec": {
            # With a number, an upgrade would undo `kubectl scale`, and delete workers with jobs.
            **({} if workers.name in cluster.scaled_by_others else {"replicas": spec.replicas}),
            "serviceName": names.workers(controller.name),
            "podManagementPolicy": "Parallel",
            "minReadySeconds": spec.min_ready_seconds,
            "revisionHistoryLimit": spec.revision_history_limit,
            "selector": {"matchLabels": nodeset.selector(workers)},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": rolling},
            }
            if spec.update_strategy.type == "RollingUpdate"
            else {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": retention.when_deleted,
                "whenScaled": retention.when_scaled,
            },
            "template": template | {"metadata": metadata | {"annotations": annotations}},
        },
    }
    if spec.volume_claim_templates:
        stateful_set["spec"]["volumeClaimTemplates"] = spec.volume_claim_templates
    return [*shared, assembly.owned(stateful_set, workers)]


def _with_stable_names(manifest: Manifest, loginset: LoginSet) -> Manifest:
    """Return the login pods as a StatefulSet: slurmctld and workers look the host of an srun up by
    its name.
    """
    if manifest["kind"] != "Deployment":
        return manifest
    spec = {key: value for key, value in manifest["spec"].items() if key != "strategy"}
    more = {
        "serviceName": names.workers(loginset.spec.controller_ref.name),
        "podManagementPolicy": "Parallel",
    }
    return manifest | {"kind": "StatefulSet", "spec": spec | more}


def _shared(manifest: Manifest, controller: Controller) -> Manifest:
    """Return the Service for the names of workers, with those of login pods too."""
    if (manifest["kind"], manifest["metadata"]["name"]) != (
        "Service",
        names.workers(controller.name),
    ):
        return manifest
    spec = manifest["spec"]
    selector = {names.CLUSTER: spec["selector"][names.CLUSTER]}
    # Login pods have no port of the name that the Service refers to.
    ports = [it | {"targetPort": it["port"]} for it in spec["ports"]]
    return manifest | {"spec": spec | {"selector": selector, "ports": ports}}


def _check(cluster: Cluster) -> None:
    """Raise PostrenderError for what needs an operator."""
    for controller in cluster.controllers.values():
        if controller.spec.ha.enabled:
            _refuse(
                controller,
                "spec.ha: the operator directs clients to the primary slurmctld: set "
                "spec.ha.enabled to false, or install the operator",
            )
        if controller.spec.next_slurm_key_ref is not None:
            _refuse(
                controller,
                "spec.nextSlurmKeyRef: only the operator replaces a key in use: leave it out",
            )
        if controller.spec.declared_accounts_ref is not None:
            _refuse(
                controller,
                "spec.declaredAccountsRef: needs the operator, which applies accounts to "
                "slurmdbd: leave it out, and use `sacctmgr`",
            )
    for workers in cluster.nodesets.values():
        spec = workers.spec
        if spec.scaling_mode != "StatefulSet":
            _refuse(
                workers,
                f"spec.scalingMode: {spec.scaling_mode!r} needs the operator: use StatefulSet, "
                "with one worker on each Kubernetes node (oversubscribeNode: false) and as many "
                "replicas as nodes",
            )
        if spec.ordinal_padding:
            _refuse(
                workers,
                "spec.ordinalPadding: the pods of a StatefulSet have no padded numbers: leave it "
                "out",
            )
        if spec.autoscaling is not None:
            _refuse(
                workers,
                "spec.autoscaling: needs the operator: leave it out, and set the number in "
                "spec.replicas",
            )
        if spec.power_saving.enabled:
            _refuse(
                workers,
                "spec.powerSaving: needs the operator, which starts and stops workers: set "
                "spec.powerSaving.enabled to false, and the number in spec.replicas",
            )
        if spec.pin_to_node:
            _refuse(
                workers,
                "spec.pinToNode: needs the operator: leave it out, or use a claim on a local "
                "volume",
            )


def _check_identities(cluster: Cluster, found: Found, allowed: Collection[str]) -> None:
    """Raise PostrenderError for pods with a token of a ServiceAccount that isn't `allowed`."""
    for (kind, name), manifests in found.items():
        for it in manifests:
            if it["kind"] not in {"StatefulSet", "Deployment"}:
                continue
            try:
                identity.check(it["spec"]["template"]["spec"], cluster.namespace, allowed, _ALLOWED)
            except ResourceError as error:
                raise PostrenderError(f"{kind} {cluster.namespace}/{name}: {error}") from error


def _distinct(found: Mapping[tuple[str, str], Iterable[Manifest]]) -> None:
    """Raise PostrenderError for two objects of one name."""
    owners: dict[tuple[Any, ...], tuple[str, str]] = {}
    for owner, manifests in found.items():
        for manifest in manifests:
            identity = manifest["kind"], manifest["metadata"]["name"]
            if identity in owners:
                raise PostrenderError(
                    f"{' '.join(owners[identity])} and {' '.join(owner)} both have a "
                    f"{' '.join(identity)}: give one of them another name, or its NodeSet another "
                    "spec.template.spec.hostname"
                )
            owners[identity] = owner


def _refuse(resource: Resource, problem: str) -> None:
    raise PostrenderError(f"{label(resource)}: {problem}")
