"""sshd and sssd of worker pods."""

from typing import Any

from sidecars.workloads import users
from sidecars.workloads.facts import NOTHING, Facts, combined, config_map_digests
from sidecars.workloads.resources import Controller, KeySelector, Manifest, NodeSet, ResourceError
from sidecars.workloads.structure import Workloads


def variables(nodeset: NodeSet, controller: Controller, facts: Facts) -> dict[str, Any]:
    """Return the variables of slurmd-ssh.yaml. Raises ResourceError and MissingReferenceError."""
    ssh = nodeset.spec.ssh
    sssd = sssd_conf(nodeset)
    return {
        "name": nodeset.name,
        "controller": controller.name,
        "extraSshdConfig": ssh.extra_sshd_config,
        "usersSshdConfig": users.sshd_config(controller, ssh.extra_sshd_config),
        "sssdConfSecret": sssd.name if sssd else "",
        "sssdConfKey": sssd.key if sssd else "",
        "sssdConfHash": facts.secret(sssd, "spec.ssh.sssdConfRef") if sssd else NOTHING,
    }


def sssd_conf(nodeset: NodeSet) -> KeySelector | None:
    """Return the Secret key with sssd.conf, or None without ssh. Raises ResourceError when ssh is
    enabled and names none.
    """
    ssh = nodeset.spec.ssh
    if not ssh.enabled:
        return None
    if ssh.sssd_conf_ref is None or not ssh.sssd_conf_ref.name:
        raise ResourceError(
            "spec.ssh.sssdConfRef", "must name the Secret with sssd.conf when ssh is enabled"
        )
    return ssh.sssd_conf_ref


def config_map(nodeset: NodeSet, controller: Controller, facts: Facts) -> Manifest:
    """Return the ConfigMap with sshd's configuration. Raises ResourceError and
    MissingReferenceError.
    """
    documents = facts.site.workloads.files["slurmd-ssh"]
    only = [document for document in documents if document["kind"] == "ConfigMap"]
    [manifest] = Workloads({"ssh": only}).render("ssh", [], variables(nodeset, controller, facts))
    return manifest


def sshd_conf_hash(nodeset: NodeSet, controller: Controller, facts: Facts) -> str:
    """Return a digest of sshd's configuration, that of nothing without ssh."""
    if not nodeset.spec.ssh.enabled:
        return NOTHING
    return combined({"": config_map_digests(config_map(nodeset, controller, facts)["data"])})
