"""What all pods of a NodeSet have in common."""

from typing import Any

import msgspec

from sidecars.workloads import assembly, gres, job_logs, names, quantities, restapi, users
from sidecars.workloads.controller import conf_server, jwt_key, slurm_key
from sidecars.workloads.facts import Facts
from sidecars.workloads.nodeset import ssh
from sidecars.workloads.nodeset.limits import limits, pod_limits, register_resources
from sidecars.workloads.nodeset.naming import check_hostname
from sidecars.workloads.nodeset.node_conf import node_conf
from sidecars.workloads.nodeset.revisions import Revision, as_of
from sidecars.workloads.resources import Controller, Json, Manifest, NodeSet, ResourceError
from sidecars.workloads.structure import Workloads

GRACE_SECONDS = 3600
"""terminationGracePeriodSeconds of worker pods whose NodeSet doesn't set it: the time for jobs to
end.
"""

LAST_SECONDS = 20
"""Seconds before the end of the grace period at which slurmd is stopped whatever runs, so that its
node record can be deleted.
"""


def pod_template(
    nodeset: NodeSet, controller: Controller, facts: Facts, revision: Revision | None = None
) -> Manifest:
    """Return all that the pods of a NodeSet have in common: {metadata, spec}. Render it once, then
    `pod` per ordinal.

    With `revision` (a stored one), its choices and its base are used. Without it, the NodeSet's own
    and the current base are used. Raises ResourceError and MissingReferenceError.
    """
    workloads, sidecars_image = facts.site.workloads, facts.site.sidecars_image
    if revision is not None:
        nodeset = as_of(nodeset, revision)
        base = revision.data.get("base") or {}
        workloads = Workloads(base["files"]) if "files" in base else workloads
        sidecars_image = base.get("sidecarsImage", sidecars_image)
    check_hostname(nodeset)
    if nodeset.spec.power_saving.enabled and nodeset.spec.template.spec.get("hostNetwork"):
        raise ResourceError(
            "spec.powerSaving", "the names of the Slurm nodes must be known: remove hostNetwork"
        )
    user = dict(nodeset.spec.template.spec)
    # It is the prefix of the pods' hostnames, not a hostname.
    user.pop("hostname", None)
    variables = _variables(nodeset, controller, facts) | {"sidecarsImage": sidecars_image}
    has_users = users.overlays(controller) if revision is None else revision.users_overlays
    overlays = [*_overlays(nodeset), *has_users]
    pod = assembly.find(workloads.render("slurmd", overlays, variables), "Pod")
    return assembly.pod_template(
        pod,
        nodeset,
        msgspec.structs.replace(nodeset.spec.template, spec=user),
        {"slurmd": _slurmd(nodeset), "logfile": nodeset.spec.logfile},
    )


def _slurmd(nodeset: NodeSet) -> Json:
    """Return the user's part of the slurmd container, with what power saving adds.

    slurmctld uses a node that it has powered up only when the node has booted after that. With -b,
    slurmd reports its own start instead of the host's. The image's entrypoint sets
    SLURMD_BOOT_TIME, so that a slurmd that is restarted within the container reports the same time:
    after a later one, slurmctld would end the jobs.
    """
    own = nodeset.spec.slurmd
    if not nodeset.spec.power_saving.enabled:
        return own
    arguments = own.get("args") or []
    if not isinstance(arguments, list):
        raise ResourceError("spec.slurmd.args", "must be a list")
    return own | {"args": [*arguments, "-b"]}


def _overlays(nodeset: NodeSet) -> list[str]:
    """Return the names of the overlays of slurmd.yaml that this NodeSet needs, in order."""
    daemon_set, host_network = (
        nodeset.spec.scaling_mode == "DaemonSet",
        bool(nodeset.spec.template.spec.get("hostNetwork")),
    )
    needed = {
        "exclusive": not nodeset.spec.oversubscribe_node,
        "gpu": nodeset.spec.gpu.enabled,
        "hostnetwork": host_network,
        "daemonset": daemon_set and not host_network,
        "daemonset-hostnetwork": daemon_set and host_network,
        "ssh": nodeset.spec.ssh.enabled,
        **job_logs.overlays(nodeset),
    }
    return [overlay for overlay, on in needed.items() if on]


def _variables(nodeset: NodeSet, controller: Controller, facts: Facts) -> dict[str, Any]:
    slurm, jwt = slurm_key(controller), jwt_key(controller)
    grace = _grace_seconds(nodeset)
    slurmd_limits = limits(nodeset)
    gpus = gres.variables(nodeset, slurmd_limits)
    return (
        ssh.variables(nodeset, controller, facts)
        | users.variables(controller)
        | gpus
        | job_logs.variables(nodeset)
        | {
            "namespace": nodeset.namespace,
            "clusterDomain": facts.site.cluster_domain,
            "confServer": conf_server(controller),
            "nodesetConf": node_conf(nodeset),
            "nodesetUid": nodeset.metadata.uid,
            "limitCpus": str(
                quantities.whole(slurmd_limits.get("cpu", 0), "spec.slurmd.resources.limits.cpu")
            ),
            "limitMemoryMib": str(
                quantities.mebibytes(
                    slurmd_limits.get("memory", 0), "spec.slurmd.resources.limits.memory"
                )
            ),
            "podMemoryMib": str(
                quantities.mebibytes(
                    pod_limits(nodeset).get("memory", 0),
                    "spec.template.spec.resources.limits.memory",
                )
            ),
            "registerResources": register_resources(nodeset, gpus.get("gpuResources") or {}),
            "exclusiveCpus": "false" if nodeset.spec.power_saving.enabled else "true",
            "slurmrestdUrl": restapi.url_for(controller, facts.restapi),
            "graceSeconds": grace,
            "graceText": str(grace),
            "stopSeconds": max(1, grace - LAST_SECONDS),
            "slurmKeySecret": slurm.name,
            "slurmKeyKey": slurm.key,
            "slurmJwksSecret": names.slurm_jwks(slurm.name),
            "slurmKeyHash": facts.secret(slurm, "spec.slurmKeyRef"),
            "jwtKeySecret": jwt.name,
            "jwtKeyKey": jwt.key,
            "jwtKeyHash": facts.secret(jwt, "spec.jwtKeyRef"),
            "sshdConfHash": ssh.sshd_conf_hash(nodeset, controller, facts),
        }
    )


def _grace_seconds(nodeset: NodeSet) -> int:
    grace = nodeset.spec.template.spec.get("terminationGracePeriodSeconds")
    if grace is None:
        return GRACE_SECONDS
    if isinstance(grace, bool) or not isinstance(grace, int) or grace < 0:
        raise ResourceError(
            "spec.template.spec.terminationGracePeriodSeconds",
            f"{grace!r} isn't a number of seconds",
        )
    return grace
