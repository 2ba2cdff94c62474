"""The kind RestApi: slurmrestd."""

from sidecars.workloads.resources.common import Resource
from sidecars.workloads.resources.specs import RestApiSpec, RestApiStatus


class RestApi(Resource, frozen=True, kw_only=True):
    """slurmrestd."""

    spec: RestApiSpec
    kind: str = "RestApi"
    status: RestApiStatus = RestApiStatus()
