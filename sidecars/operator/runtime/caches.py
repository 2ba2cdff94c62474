"""The operator's picture of the Kubernetes cluster: one reflector for each resource that it decides
by.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sidecars import objects
from sidecars.custom_resources import (
    ACCOUNTINGS,
    CONTROLLERS,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    TOKENS,
)
from sidecars.kube import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICE_MONITORS,
    SERVICES,
    STATEFUL_SETS,
    Client,
    Manifest,
    Reflector,
    Resource,
)
from sidecars.operator.runtime.apply import FIELD_MANAGER, MANAGED_BY

OURS = f"{MANAGED_BY}={FIELD_MANAGER}"
NOT_OURS = f"{MANAGED_BY}!={FIELD_MANAGER}"
WORKERS = "app.kubernetes.io/name=slurmd"
SLURMCTLDS = "app.kubernetes.io/name=slurmctld"
NOT_WORKERS = "app.kubernetes.io/name!=slurmd"
LOGINS = "app.kubernetes.io/name=login"
# Helm's release records are large, and none of our business.
NO_HELM_RELEASES = "type!=helm.sh/release.v1"


@dataclass(frozen=True)
class Caches:
    """Reflectors by what they store. Custom resources stay plain JSON here: one that can't be read
    spoils no list.
    """

    controllers: Reflector[Manifest]
    restapis: Reflector[Manifest]
    accountings: Reflector[Manifest]
    loginsets: Reflector[Manifest]
    nodesets: Reflector[Manifest]
    tokens: Reflector[Manifest]
    pods: Reflector[objects.Pod]
    slurmctld_pods: Reflector[objects.Pod]
    login_pods: Reflector[objects.Pod]
    kube_nodes: Reflector[objects.Node]
    own_secrets: Reflector[objects.Secret]
    """Those that the operator applies."""
    own_config_maps: Reflector[Manifest]
    """Those that the operator applies."""
    other_secrets: Reflector[objects.PartialObjectMetadata]
    other_config_maps: Reflector[objects.PartialObjectMetadata]
    services: Reflector[Manifest]
    stateful_sets: Reflector[Manifest]
    deployments: Reflector[Manifest]
    pod_disruption_budgets: Reflector[Manifest]
    endpoint_slices: Reflector[Manifest]
    controller_revisions: Reflector[Manifest]
    claims: Reflector[objects.PersistentVolumeClaim]
    """Those of workers."""
    other_claims: Reflector[objects.PersistentVolumeClaim]
    """Those that a Controller may name; of each, only the fields of the record are kept."""
    service_monitors: Reflector[Manifest]
    """Of a kind that the API server may lack."""
    service_monitors_served: list[Callable[[], None]]
    """Called when the API server begins to serve ServiceMonitors."""

    @classmethod
    def of(
        cls,
        client: Client,
        namespaces: tuple[str, ...],
        rng: random.Random | None = None,
    ) -> "Caches":
        """Reflectors over `namespaces`, all if empty; none runs yet. `rng` spreads their
        requests.
        """
        where = namespaces or None
        subscribers: list[Callable[[], None]] = []

        def served() -> None:
            for subscriber in subscribers:
                subscriber()

        def plain(resource: Resource, label_selector: str = "") -> Reflector[Manifest]:
            return Reflector(
                client, resource, namespaces=where, label_selector=label_selector, rng=rng
            )

        def custom(resource: Resource) -> Reflector[Manifest]:
            # A kind without its CRD has no objects. Those of the others must not wait for it: they
            # have finalizers.
            return Reflector(client, resource, namespaces=where, served=lambda: None, rng=rng)

        return cls(
            controllers=custom(CONTROLLERS),
            restapis=custom(RESTAPIS),
            accountings=custom(ACCOUNTINGS),
            loginsets=custom(LOGINSETS),
            nodesets=custom(NODESETS),
            tokens=custom(TOKENS),
            pods=Reflector(
                client, PODS, namespaces=where, type=objects.Pod, label_selector=WORKERS, rng=rng
            ),
            slurmctld_pods=Reflector(
                client, PODS, namespaces=where, type=objects.Pod, label_selector=SLURMCTLDS, rng=rng
            ),
            login_pods=Reflector(
                client, PODS, namespaces=where, type=objects.Pod, label_selector=LOGINS, rng=rng
            ),
            kube_nodes=Reflector(client, NODES, type=objects.Node, rng=rng),
            own_secrets=Reflector(
                client, SECRETS, namespaces=where, type=objects.Secret, label_selector=OURS, rng=rng
            ),
            own_config_maps=plain(CONFIG_MAPS, OURS),
            other_secrets=Reflector(
                client,
                SECRETS,
                namespaces=where,
                type=objects.PartialObjectMetadata,
                label_selector=NOT_OURS,
                field_selector=NO_HELM_RELEASES,
                rng=rng,
            ),
            other_config_maps=Reflector(
                client,
                CONFIG_MAPS,
                namespaces=where,
                type=objects.PartialObjectMetadata,
                label_selector=NOT_OURS,
                rng=rng,
            ),
            services=plain(SERVICES, OURS),
            stateful_sets=plain(STATEFUL_SETS, OURS),
            deployments=plain(DEPLOYMENTS, OURS),
            pod_disruption_budgets=plain(POD_DISRUPTION_BUDGETS, OURS),
            endpoint_slices=plain(ENDPOINT_SLICES, OURS),
            controller_revisions=plain(CONTROLLER_REVISIONS, WORKERS),
            claims=Reflector(
                client,
                PERSISTENT_VOLUME_CLAIMS,
                namespaces=where,
                type=objects.PersistentVolumeClaim,
                label_selector=WORKERS,
            ),
            other_claims=Reflector(
                client,
                PERSISTENT_VOLUME_CLAIMS,
                namespaces=where,
                type=objects.PersistentVolumeClaim,
                label_selector=NOT_WORKERS,
                rng=rng,
            ),
            service_monitors=Reflector(
                client,
                SERVICE_MONITORS,
                namespaces=where,
                label_selector=OURS,
                served=served,
                rng=rng,
            ),
            service_monitors_served=subscribers,
        )

    def live(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """Return an object that the operator applies, as last seen, or None if it doesn't exist."""
        item = self.applied()[resource.kind].store.get(namespace, name)
        if isinstance(item, objects.Secret):
            return {"apiVersion": "v1", "kind": "Secret", **msgspec.to_builtins(item)}
        return item

    def applied(self) -> Mapping[str, Reflector[Any]]:
        """Return the caches of the objects that the operator applies, by kind."""
        return {
            SECRETS.kind: self.own_secrets,
            CONFIG_MAPS.kind: self.own_config_maps,
            SERVICES.kind: self.services,
            STATEFUL_SETS.kind: self.stateful_sets,
            DEPLOYMENTS.kind: self.deployments,
            POD_DISRUPTION_BUDGETS.kind: self.pod_disruption_budgets,
            ENDPOINT_SLICES.kind: self.endpoint_slices,
            SERVICE_MONITORS.kind: self.service_monitors,
        }

    def custom_resources(self) -> Sequence[Reflector[Manifest]]:
        """Return the caches of the six kinds that the operator reconciles."""
        return (
            self.controllers,
            self.restapis,
            self.accountings,
            self.loginsets,
            self.nodesets,
            self.tokens,
        )

    def __iter__(self) -> Iterator[Reflector[Any]]:
        for name in self.__dataclass_fields__:
            if isinstance(reflector := getattr(self, name), Reflector):
                yield reflector
