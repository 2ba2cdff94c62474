"""The kind RestApi: slurmrestd."""

from sidecars.workloads.resources.common import Json, LocalObjectReference, Part, PodTemplate, Resource, Service, Status


class RestApiSpec(Part, frozen=True, kw_only=True):
    """RestApi.spec."""

    controller_ref: LocalObjectReference
    replicas: int = 1
    slurmrestd: Json = {}
    template: PodTemplate = PodTemplate()
    service: Service = Service()


class RestApiStatus(Status, frozen=True, kw_only=True):
    """RestApi.status."""

    replicas: int = 0
    ready_replicas: int = 0


class RestApi(Resource, frozen=True, kw_only=True):
    """slurmrestd."""

    spec: RestApiSpec
    kind: str = "RestApi"
    status: RestApiStatus = RestApiStatus()
