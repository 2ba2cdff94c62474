"""The text of slurm.conf and its sister files: our own lines, then the user's.

Slurm takes the last of several values of one key (https://slurm.schedmd.com/slurm.conf.html), so the user's lines come
after ours and win; the list-valued keys that both set are merged at the end.
"""

from collections.abc import Iterable, Sequence

from sidecars.slurm import conf
from sidecars.workloads import names
from sidecars.workloads.assembly import text
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Accounting, Controller, LocalObjectReference, NodeSet, ResourceError

CGROUP_CONF = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"

RESERVED_FILES = ("slurm.conf", "slurmdbd.conf")
"""Files that configFileRefs may not bring: the operator composes them."""

STATE_FOLDER = "/var/spool/slurmctld"

_LOG = "/var/log/slurm"


def slurm_conf(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> str:
    """slurm.conf of the cluster; for an external Controller the few lines that its clients need.

    Raises ResourceError for what can't be put into the file, MissingReferenceError for scripts that aren't there.
    """
    if controller.spec.external:
        return _compose([_external_general(controller) + _accounting(facts.accounting)])
    lists = _lists(controller)
    return _compose(
        [
            ["### GENERAL ###", *_general(controller)],
            [
                "### LOGGING ###",
                f"SlurmctldLogFile={_LOG}/slurmctld.log",
                f"SlurmSchedLogFile={_LOG}/slurmctld.log",
                f"SlurmdLogFile={_LOG}/slurmd.log",
            ],
            ["### PLUGINS & PARAMETERS ###", *_plugins(controller, lists)],
            ["### ACCOUNTING ###", *_accounting(facts.accounting)],
            _titled("### SLURMCTLD PROLOG & EPILOG ###", _slurmctld_scripts(controller, facts)),
            _titled("### PROLOG & EPILOG ###", _scripts(controller, facts)),
            _titled("### NODESET & PARTITION ###", _nodesets(nodesets)),
            _titled("### EXTRA CONFIG ###", _extra(controller.spec.extra_conf)),
            _titled("### MERGED CONFIG ###", _merged(lists, controller.spec.extra_conf)),
        ]
    )


def _compose(sections: Iterable[Sequence[str]]) -> str:
    return "".join("#\n" + "".join(f"{line}\n" for line in lines) for lines in sections if lines)


def _titled(title: str, lines: list[str]) -> list[str]:
    return [title, *lines] if lines else []


def _external_general(controller: Controller) -> list[str]:
    external = controller.spec.external_config
    if external is None:
        raise ResourceError("spec.externalConfig", "must say where the external slurmctld is (host and port)")
    return [
        "### GENERAL ###",
        f"ClusterName={text(controller.cluster_name, 'spec.clusterName')}",
        "SlurmUser=slurm",
        f"SlurmctldHost={text(external.host, 'spec.externalConfig.host')}",
        f"SlurmctldPort={external.port}",
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
    ]


def _general(controller: Controller) -> list[str]:
    pods = names.controller(controller.name)
    service = f"{names.controller_internal(controller.name)}.{controller.namespace}"
    cluster = text(controller.cluster_name, "spec.clusterName")
    return [
        f"ClusterName={cluster}",
        "SlurmUser=slurm",
        *(f"SlurmctldHost={pods}-{i}({pods}-{i}.{service})" for i in range(controller.replicas)),
        f"SlurmctldPort={names.SLURMCTLD_PORT}",
        f"SlurmctldAddr={pods}.{controller.namespace}",
        f"StateSaveLocation={STATE_FOLDER}/{cluster}",
        "SlurmdUser=root",
        f"SlurmdPort={names.SLURMD_PORT}",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "MaxNodeCount=1024",
    ]


def _lists(controller: Controller) -> dict[str, str]:
    """Our values of keys that hold lists, which a user may add to."""
    jwks = ",jwks=/etc/slurm/jwks.json" if controller.spec.jwks_key_ref else ""
    return {
        "AuthAltParameters": f"jwt_key=/etc/slurm/jwt.key{jwks}",
        "AuthInfo": "use_client_ids",
        "SlurmctldParameters": "enable_configless,reconfig_on_restart",
    }


def _plugins(controller: Controller, lists: dict[str, str]) -> list[str]:
    return [
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
        *(f"{key}={value}" for key, value in lists.items()),
        *(["MetricsType=metrics/openmetrics"] if controller.spec.metrics.enabled else []),
    ]


def _accounting(accounting: Accounting | None) -> list[str]:
    if accounting is None:
        return ["AccountingStorageType=accounting_storage/none"]
    external = accounting.spec.external_config if accounting.spec.external else None
    host = text(external.host, "spec.externalConfig.host") if external else names.accounting(accounting.name)
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={host}",
        f"AccountingStoragePort={external.port if external else names.SLURMDBD_PORT}",
    ]


def _file_names(references: Iterable[LocalObjectReference] | None, place: str, facts: Facts) -> list[str]:
    return sorted({text(name, place) for files in facts.files(references, place).values() for name in files})


def _slurmctld_scripts(controller: Controller, facts: Facts) -> list[str]:
    spec = controller.spec
    prologs = _file_names(spec.prolog_slurmctld_script_refs, "spec.prologSlurmctldScriptRefs", facts)
    epilogs = _file_names(spec.epilog_slurmctld_script_refs, "spec.epilogSlurmctldScriptRefs", facts)
    return [f"PrologSlurmctld=/etc/slurm/{name}" for name in prologs] + [
        f"EpilogSlurmctld=/etc/slurm/{name}" for name in epilogs
    ]


def _scripts(controller: Controller, facts: Facts) -> list[str]:
    """Bare names: slurmctld hands these files to every slurmd (configless)."""
    spec = controller.spec
    prologs = _file_names(spec.prolog_script_refs, "spec.prologScriptRefs", facts)
    epilogs = _file_names(spec.epilog_script_refs, "spec.epilogScriptRefs", facts)
    return [f"Prolog={name}" for name in prologs] + [f"Epilog={name}" for name in epilogs]


def _nodesets(nodesets: Sequence[NodeSet]) -> list[str]:
    """NodeSets in the order of their names; a name is declared once, for slurmctld dies of a second partition."""
    lines = []
    declared: set[str] = set()
    for nodeset in sorted(nodesets, key=lambda nodeset: nodeset.name):
        name = text(nodeset.slurm_name, "spec.template.spec.hostname")
        if name in declared:
            continue
        declared.add(name)
        lines.append(f"NodeSet={name} Feature={name}")
        if nodeset.spec.partition.enabled:
            rest = text(nodeset.spec.partition.config, "spec.partition.config")
            lines.append(f"PartitionName={name} Nodes={name} {rest}".rstrip())
    return lines


def _extra(extra_conf: str) -> list[str]:
    return [extra_conf.rstrip("\n")] if extra_conf.strip() else []


def _merged(lists: dict[str, str], extra_conf: str) -> list[str]:
    try:
        merged = conf.merge_lists(lists, conf.parse(extra_conf))
    except conf.ConfError as error:
        raise ResourceError("spec.extraConf", str(error)) from error
    return [conf.render(key, value) for key, value in sorted(merged.items())]
