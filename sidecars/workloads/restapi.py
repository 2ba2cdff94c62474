"""slurmrestd: its Service and Deployment."""

from sidecars.contract import ports
from sidecars.slurm import conf
from sidecars.workloads import assembly, names
from sidecars.workloads.config import slurm_conf
from sidecars.workloads.config_maps import more_sources
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.facts import Facts, combined, digest
from sidecars.workloads.resources import Controller, Manifest, RestApi

_READ = frozenset(
    key.lower()
    for key in (
        *(
            "AccountingStorageBackupHost",
            "AccountingStorageExternalHost",
            "AccountingStorageHost",
            "AccountingStoragePass",
        ),
        *(
            "AccountingStoragePort",
            "AccountingStorageType",
            "AuthAltParameters",
            "AuthAltTypes",
            "AuthInfo",
            "AuthType",
        ),
        *(
            "CertgenParameters",
            "CertgenType",
            "CertmgrParameters",
            "CertmgrType",
            "ClusterName",
            "CommunicationParameters",
        ),
        *("CredType", "DataParserParameters", "DebugFlags", "FederationParameters", "GresTypes", "HashPlugin"),
        *("MessageTimeout", "PluginDir", "SelectType", "SelectTypeParameters", "SlurmUser", "SlurmctldAddr"),
        *("SlurmctldHost", "SlurmctldPort", "SwitchType", "TCPTimeout", "TLSParameters", "TLSType", "TopologyPlugin"),
    )
)
"""Keys of slurm.conf that say how to reach and understand slurmctld and slurmdbd. The rest slurmrestd asks them for."""


def url(restapi: RestApi) -> str:
    """Where slurmrestd answers inside the cluster, without a trailing slash."""
    port = restapi.spec.service.port or ports.SLURMRESTD
    return f"http://{names.restapi(restapi.name)}.{restapi.namespace}:{port}"


def url_for(controller: Controller, restapi: RestApi | None) -> str:
    """Where a Controller's slurmrestd answers; with no RestApi yet, where the chart's would."""
    if restapi is not None:
        return url(restapi)
    return f"http://{names.restapi(controller.name)}.{controller.namespace}:{ports.SLURMRESTD}"


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
            "configHash": combined({"": {"slurm.conf": digest(_read(controller, facts))}}),
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


def _read(controller: Controller, facts: Facts) -> str:
    """What of the configuration slurmrestd restarts for, which reads it at its start only."""
    files = slurm_conf(controller, (), facts)
    lines = [line for name in sorted(files) for line in conf.parse_readable(files[name]).lines]
    return "\n".join(line.text.strip() for line in lines if line.pairs and line.pairs[0].key.lower() in _READ)


def _arguments(restapi: RestApi, controller: Controller) -> list[str]:
    # Without slurmdbd its part of the API would fail at start.
    no_accounting = [] if controller.spec.accounting_ref else ["-s", "openapi/slurmctld"]
    return [*no_accounting, *(restapi.spec.slurmrestd.get("args") or ()), f"0.0.0.0:{ports.SLURMRESTD}"]
