"""slurmrestd: its Service and Deployment."""

from sidecars.workloads import assembly, names
from sidecars.workloads.config import more_sources, slurm_conf
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.facts import Facts, combined, digest
from sidecars.workloads.resources import Controller, Manifest, RestApi


def url(restapi: RestApi) -> str:
    """Where slurmrestd answers inside the cluster, without a trailing slash."""
    port = restapi.spec.service.port or names.SLURMRESTD_PORT
    return f"http://{names.restapi(restapi.name)}.{restapi.namespace}:{port}"


def url_for(controller: Controller, restapi: RestApi | None) -> str:
    """Where a Controller's slurmrestd answers; with no RestApi yet, where the chart's would."""
    if restapi is not None:
        return url(restapi)
    return f"http://{names.restapi(controller.name)}.{controller.namespace}:{names.SLURMRESTD_PORT}"


def objects(restapi: RestApi, controller: Controller, facts: Facts) -> list[Manifest]:
    """Service and Deployment, in the order to apply them. Raises ResourceError and MissingReferenceError."""
    slurm = slurm_key(controller)
    rendered = facts.site.workloads.render(
        "slurmrestd",
        [],
        {
            "name": restapi.name,
            "controller": controller.name,
            "replicas": restapi.spec.replicas,
            "slurmKeySecret": slurm.name,
            "slurmKeyKey": slurm.key,
            "slurmJwksSecret": names.slurm_jwks(slurm.name),
            "slurmKeyHash": facts.slurm_keys(slurm, "spec.slurmKeyRef"),
            # slurmrestd asks slurmctld about nodes and partitions: a new NodeSet is no reason to restart it.
            "configHash": combined(
                {"": {name: digest(text) for name, text in slurm_conf(controller, (), facts).items()}}
            ),
            "fileSources": more_sources(controller.name),
            "arguments": _arguments(restapi, controller),
        },
    )
    deployment = assembly.find(rendered, "Deployment")
    # The listening address must be the last argument, so the user's were already put before it.
    override = {key: value for key, value in restapi.spec.slurmrestd.items() if key != "args"}
    deployment["spec"]["template"] = assembly.pod_template(
        deployment["spec"]["template"], restapi, restapi.spec.template, {"slurmrestd": override}
    )
    return [
        assembly.service(assembly.find(rendered, "Service"), restapi, restapi.spec.service),
        assembly.owned(deployment, restapi),
    ]


def _arguments(restapi: RestApi, controller: Controller) -> list[str]:
    # Without slurmdbd its part of the API would fail at start.
    no_accounting = [] if controller.spec.accounting_ref else ["-s", "openapi/slurmctld"]
    return [*no_accounting, *(restapi.spec.slurmrestd.get("args") or ()), f"0.0.0.0:{names.SLURMRESTD_PORT}"]
