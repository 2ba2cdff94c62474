"""The operator's picture of the Kubernetes cluster: one reflector for each resource that it decides by."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

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
    records,
)
from sidecars.operator.apply import FIELD_MANAGER, MANAGED_BY
from sidecars.workloads.resources import GROUP, PLURALS, VERSION

CONTROLLERS = Resource(GROUP, VERSION, "Controller", PLURALS["Controller"])
RESTAPIS = Resource(GROUP, VERSION, "RestApi", PLURALS["RestApi"])
ACCOUNTINGS = Resource(GROUP, VERSION, "Accounting", PLURALS["Accounting"])
LOGINSETS = Resource(GROUP, VERSION, "LoginSet", PLURALS["LoginSet"])
NODESETS = Resource(GROUP, VERSION, "NodeSet", PLURALS["NodeSet"])
TOKENS = Resource(GROUP, VERSION, "Token", PLURALS["Token"])

OURS = f"{MANAGED_BY}={FIELD_MANAGER}"
WORKERS = "app.kubernetes.io/name=slurmd"
SLURMCTLDS = "app.kubernetes.io/name=slurmctld"
NOT_WORKERS = "app.kubernetes.io/name!=slurmd"
LOGINS = "app.kubernetes.io/name=login"
# Helm's release records are large, and none of our business.
NO_HELM_RELEASES = "type!=helm.sh/release.v1"


@dataclass(frozen=True)
class Caches:
    """Reflectors by what they hold. Custom resources stay plain JSON here: one that can't be read spoils no list."""

    controllers: Reflector[Manifest]
    restapis: Reflector[Manifest]
    accountings: Reflector[Manifest]
    loginsets: Reflector[Manifest]
    nodesets: Reflector[Manifest]
    tokens: Reflector[Manifest]
    pods: Reflector[records.Pod]
    slurmctld_pods: Reflector[records.Pod]
    login_pods: Reflector[records.Pod]
    kube_nodes: Reflector[records.Node]
    secrets: Reflector[records.Secret]
    config_maps: Reflector[Manifest]
    services: Reflector[Manifest]
    stateful_sets: Reflector[Manifest]
    deployments: Reflector[Manifest]
    pod_disruption_budgets: Reflector[Manifest]
    endpoint_slices: Reflector[Manifest]
    controller_revisions: Reflector[Manifest]
    claims: Reflector[records.PersistentVolumeClaim]
    """Those of workers."""
    other_claims: Reflector[records.PersistentVolumeClaim]
    """Those that a Controller may name; of each, only what the record holds is kept."""
    service_monitors: Reflector[Manifest]
    """Of a kind that the API server may lack."""

    @classmethod
    def of(
        cls,
        client: Client,
        namespaces: tuple[str, ...],
        rng: random.Random | None = None,
        monitored: Callable[[], None] = lambda: None,
    ) -> "Caches":
        """Reflectors over `namespaces`, all if empty; none runs yet. `rng` spreads their requests; `monitored` is
        called when the API server has ServiceMonitors after it had none.
        """
        where = namespaces or None

        def plain(resource: Resource, label_selector: str = "") -> Reflector[Manifest]:
            return Reflector(client, resource, namespaces=where, label_selector=label_selector, rng=rng)

        return cls(
            controllers=plain(CONTROLLERS),
            restapis=plain(RESTAPIS),
            accountings=plain(ACCOUNTINGS),
            loginsets=plain(LOGINSETS),
            nodesets=plain(NODESETS),
            tokens=plain(TOKENS),
            pods=Reflector(client, PODS, namespaces=where, type=records.Pod, label_selector=WORKERS, rng=rng),
            slurmctld_pods=Reflector(
                client, PODS, namespaces=where, type=records.Pod, label_selector=SLURMCTLDS, rng=rng
            ),
            login_pods=Reflector(client, PODS, namespaces=where, type=records.Pod, label_selector=LOGINS, rng=rng),
            kube_nodes=Reflector(client, NODES, type=records.Node, rng=rng),
            secrets=Reflector(
                client, SECRETS, namespaces=where, type=records.Secret, field_selector=NO_HELM_RELEASES, rng=rng
            ),
            config_maps=plain(CONFIG_MAPS),
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
                type=records.PersistentVolumeClaim,
                label_selector=WORKERS,
            ),
            other_claims=Reflector(
                client,
                PERSISTENT_VOLUME_CLAIMS,
                namespaces=where,
                type=records.PersistentVolumeClaim,
                label_selector=NOT_WORKERS,
                rng=rng,
            ),
            service_monitors=Reflector(
                client, SERVICE_MONITORS, namespaces=where, label_selector=OURS, served=monitored, rng=rng
            ),
        )

    def live(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """An object that the operator applies, as last seen; None if there is none."""
        if resource.kind == SECRETS.kind:
            secret = self.secrets.store.get(namespace, name)
            return None if secret is None else {"apiVersion": "v1", "kind": "Secret", **msgspec.to_builtins(secret)}
        by_kind = {
            CONFIG_MAPS.kind: self.config_maps,
            SERVICES.kind: self.services,
            STATEFUL_SETS.kind: self.stateful_sets,
            DEPLOYMENTS.kind: self.deployments,
            POD_DISRUPTION_BUDGETS.kind: self.pod_disruption_budgets,
            ENDPOINT_SLICES.kind: self.endpoint_slices,
            SERVICE_MONITORS.kind: self.service_monitors,
        }
        return by_kind[resource.kind].store.get(namespace, name)

    def __iter__(self) -> Iterator[Reflector[Manifest] | Reflector[Any]]:
        for name in self.__dataclass_fields__:
            yield getattr(self, name)
