"""What the API server serves: groups, versions, kinds and the paths of their objects. Knows no
object's content.
"""

from __future__ import annotations

from dataclasses import dataclass

_RESERVED = frozenset("/?#%")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the Kubernetes API. `group` is empty for the core API; `plural` is the path
    segment.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of the collection, an object, or an object's subresource.

        Without `namespace`, a namespaced resource's collection across all namespaces. Raises
        ValueError for an object of a namespaced resource without its namespace, a namespace for a
        cluster-scoped one, or a name that can't be a path segment: each would reach another object
        than the one meant.
        """
        for part in (namespace, name):
            if part is not None and (
                not part or part in (".", "..") or not _RESERVED.isdisjoint(part)
            ):
                raise ValueError(
                    f"{part!r} can't name a {self.kind} or its namespace: pass the object's "
                    "metadata.name"
                )
        if namespace is not None and not self.namespaced:
            raise ValueError(
                f"{self.kind} is cluster-scoped: pass no namespace (got {namespace!r})"
            )
        if name is not None and namespace is None and self.namespaced:
            raise ValueError(f"{self.kind} {name!r} needs its namespace")
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace is not None:
            path += f"/namespaces/{namespace}"
        path += f"/{self.plural}"
        if name is not None:
            path += f"/{name}"
        if subresource is not None:
            path += f"/{subresource}"
        return path


PODS = Resource("", "v1", "Pod", "pods")
SERVICES = Resource("", "v1", "Service", "services")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SECRETS = Resource("", "v1", "Secret", "secrets")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
EVENTS = Resource("events.k8s.io", "v1", "Event", "events")
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
STATEFUL_SETS = Resource("apps", "v1", "StatefulSet", "statefulsets")
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
CONTROLLER_REVISIONS = Resource("apps", "v1", "ControllerRevision", "controllerrevisions")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
SERVICE_MONITORS = Resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")
"""Of the Prometheus operator, which a cluster may lack."""
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
