"""slurmrestd: its Service and Deployment."""

from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, Manifest, RestApi


def url(restapi: RestApi) -> str:
    """Where slurmrestd answers inside the cluster, without a trailing slash."""
    raise NotImplementedError


def objects(restapi: RestApi, controller: Controller, facts: Facts) -> list[Manifest]:
    """Service and Deployment, in the order to apply them. Raises ResourceError and MissingReferenceError."""
    raise NotImplementedError
