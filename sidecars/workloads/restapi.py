"""slurmrestd: its Service and Deployment."""

from collections.abc import Mapping
from functools import partial

from sidecars.contract import ports
from sidecars.slurm import conf
from sidecars.workloads import assembly, names, users
from sidecars.workloads.config import included
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
        *(
            "CredType",
            "DataParserParameters",
            "DebugFlags",
            "FederationParameters",
            "GresTypes",
            "HashPlugin",
        ),
        *(
            "MessageTimeout",
            "PluginDir",
            "SelectType",
            "SelectTypeParameters",
            "SlurmUser",
            "SlurmctldAddr",
        ),
        *(
            "SlurmctldHost",
            "SlurmctldPort",
            "SwitchType",
            "TCPTimeout",
            "TLSParameters",
            "TLSType",
            "TopologyPlugin",
        ),
    )
)
"""Keys of slurm.conf that say how to reach and understand slurmctld and slurmdbd. The rest
slurmrestd asks them for.
"""


_SLURMDBD = "accounting_storage/slurmdbd"
_ALL = {False: "0.0.0.0", True: "[::]"}  # noqa: S104 - a pod's clients come by its own address
"""All addresses of a pod, by whether pods communicate by IPv6."""


def config_map(controller: Controller, index: int = 0) -> str:
    """Name a ConfigMap with the configuration that slurmrestd reads: the accepted one. Nothing of
    the operator's accepts an external Controller's.
    """
    name = names.config if controller.spec.external else names.accepted_config
    return name(controller.name, index)


def url(restapi: RestApi) -> str:
    """Return the address at which slurmrestd answers inside the cluster, without a trailing
    slash.
    """
    port = restapi.spec.service.port or ports.SLURMRESTD
    return f"http://{names.restapi(restapi.name)}.{restapi.namespace}:{port}"


def url_for(controller: Controller, restapi: RestApi | None) -> str:
    """Return the address at which a Controller's slurmrestd answers. With no RestApi yet, return
    that of the chart's.
    """
    if restapi is not None:
        return url(restapi)
    return f"http://{names.restapi(controller.name)}.{controller.namespace}:{ports.SLURMRESTD}"


def objects(
    restapi: RestApi, controller: Controller, facts: Facts, files: Mapping[str, str | bytes]
) -> list[Manifest]:
    """Service and Deployment, in the order to apply them. Raises ResourceError and
    MissingReferenceError.

    `files`: the configuration in the ConfigMaps that `config_map` names.
    """
    slurm = slurm_key(controller)
    rendered = facts.site.workloads.render(
        "slurmrestd",
        users.overlays(controller),
        {
            "name": restapi.name,
            "config": config_map(controller),
            "replicas": restapi.spec.replicas,
            "slurmKeySecret": slurm.name,
            "slurmKeyKey": slurm.key,
            "slurmJwksSecret": names.slurm_jwks(slurm.name),
            "slurmKeyHash": facts.slurm_keys(slurm, "spec.slurmKeyRef"),
            "configHash": combined({"": {"slurm.conf": digest(_read(files))}}),
            "fileSources": more_sources(partial(config_map, controller)),
            "arguments": _arguments(restapi, files, ipv6=facts.site.ipv6),
            **users.variables(controller),
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


def _read(files: Mapping[str, str | bytes]) -> str:
    """Return what of the configuration slurmrestd restarts for, which reads it at its start
    only.
    """
    found = included(files)
    lines = [line for name in sorted(found) for line in conf.parse_readable(found[name]).lines]
    return "\n".join(
        line.text.strip() for line in lines if line.pairs and line.pairs[0].key.lower() in _READ
    )


def _arguments(restapi: RestApi, files: Mapping[str, str | bytes], *, ipv6: bool) -> list[str]:
    # Without slurmdbd its part of the API would fail at start.
    storage = [
        conf.parse_readable(text).get("AccountingStorageType") for text in included(files).values()
    ]
    no_accounting = [] if _SLURMDBD in storage else ["-s", "openapi/slurmctld"]
    return [
        *no_accounting,
        *(restapi.spec.slurmrestd.get("args") or ()),
        f"{_ALL[ipv6]}:{ports.SLURMRESTD}",
    ]
