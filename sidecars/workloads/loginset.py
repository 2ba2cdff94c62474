"""Login nodes: sshd configuration, host keys, Service and Deployment."""

import base64
from collections.abc import Mapping
from typing import Any

from sidecars.workloads import assembly, names, users
from sidecars.workloads.controller import conf_server, slurm_key
from sidecars.workloads.facts import (
    NOTHING,
    Facts,
    MissingReferenceError,
    combined,
    config_map_digests,
)
from sidecars.workloads.resources import Controller, Json, LoginSet, Manifest

HOST_KEY_TYPES = ("rsa", "ecdsa", "ed25519")

_OPTIONS = "SACKD_OPTIONS"


def host_keys_secret(loginset: LoginSet, keys: Mapping[str, str]) -> Manifest:
    """Return the immutable Secret with the host keys, to be created once and never changed.

    `keys` maps file names as sshd wants them (`ssh_host_rsa_key`, `ssh_host_rsa_key.pub`, likewise
    for every one of HOST_KEY_TYPES; private keys in OpenSSH's PEM) to their text. Raises ValueError
    when one is missing.
    """
    files = [f"ssh_host_{kind}_key{suffix}" for kind in HOST_KEY_TYPES for suffix in ("", ".pub")]
    missing = [name for name in files if not keys.get(name)]
    if missing:
        raise ValueError(f"host keys lack {', '.join(missing)}")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.ssh_host_keys(loginset.name),
            "labels": {
                names.APP_NAME: "login",
                names.APP_INSTANCE: loginset.name,
                names.APP_COMPONENT: "login",
            },
        },
        "immutable": True,
        "type": "Opaque",
        "data": {name: base64.b64encode(keys[name].encode()).decode() for name in files},
    }
    return assembly.owned(secret, loginset)


def objects(loginset: LoginSet, controller: Controller, facts: Facts) -> list[Manifest]:
    """ConfigMap, Service and Deployment, in the order to apply them.

    `facts.secrets` must contain the host keys' Secret (names.ssh_host_keys).
    Raises ResourceError and MissingReferenceError.
    """
    overlays = ["sssd"] if loginset.spec.sssd_conf_ref and loginset.spec.sssd_conf_ref.name else []
    overlays += users.overlays(controller)
    variables = _variables(loginset, controller, facts)
    workloads = facts.site.workloads
    rendered = workloads.render("login", overlays, variables)
    config_map = assembly.find(rendered, "ConfigMap")
    deployment = assembly.find(rendered, "Deployment")
    deployment["spec"]["template"] = assembly.pod_template(
        deployment["spec"]["template"],
        loginset,
        loginset.spec.template,
        {
            "login": _with_our_options(loginset.spec.login, controller),
            "initconf": loginset.spec.initconf,
        },
    )
    return [
        assembly.owned(config_map, loginset),
        assembly.service(assembly.find(rendered, "Service"), loginset, loginset.spec.service),
        assembly.owned(deployment, loginset),
    ]


def ssh_config_digest(loginset: LoginSet, controller: Controller, facts: Facts) -> str:
    """Return a digest of what running pods take over without a restart: sshd's configuration and
    root's keys.
    """
    config_map = assembly.find(objects(loginset, controller, facts), "ConfigMap")
    return combined({"": config_map_digests(config_map["data"])})


def addresses(loginset: LoginSet, pods: Mapping[str, str], live: Manifest | None) -> list[Manifest]:
    """Return the EndpointSlice that adds login pods by their hostnames to the cluster's DNS, beside
    worker pods.

    slurmctld and slurmd look the host of an srun up by its bare name, and Kubernetes has no names
    for a Deployment's pods
    (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/). `pods`: the
    addresses by the pods' names. `live`: the existing slice, whose address type can't be changed.
    Empty without pods and slice.
    """
    # A hostname is a pod's name as far as it fits:
    # https://kubernetes.io/docs/concepts/workloads/pods/pod-hostname/.
    known = sorted((name[:63].rstrip("-."), address) for name, address in pods.items())
    kind = live["addressType"] if live is not None else None
    if known and kind is None:
        kind = "IPv6" if ":" in known[0][1] else "IPv4"
    if kind is None:
        return []
    manifest = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": names.login_hosts(loginset.name),
            "labels": {
                names.APP_NAME: "login",
                names.APP_INSTANCE: loginset.name,
                names.APP_COMPONENT: "login",
                "kubernetes.io/service-name": names.workers(loginset.spec.controller_ref.name),
                "endpointslice.kubernetes.io/managed-by": "slurm-operator",
            },
        },
        "addressType": kind,
        "endpoints": [
            {"addresses": [address], "hostname": host, "conditions": {"ready": True}}
            for host, address in known
        ],
    }
    return [assembly.owned(manifest, loginset)]


def _variables(loginset: LoginSet, controller: Controller, facts: Facts) -> dict[str, Any]:
    slurm, sssd = slurm_key(controller), loginset.spec.sssd_conf_ref
    host_keys = names.ssh_host_keys(loginset.name)
    if host_keys not in facts.secrets:
        raise MissingReferenceError("Secret", host_keys, "metadata.name")
    return {
        "name": loginset.name,
        "namespace": loginset.namespace,
        "controller": controller.name,
        "clusterDomain": facts.site.cluster_domain,
        "sidecarsImage": facts.site.sidecars_image,
        "replicas": loginset.spec.replicas,
        "strategy": loginset.spec.strategy or None,
        "rootSshAuthorizedKeys": loginset.spec.root_ssh_authorized_keys,
        "extraSshdConfig": loginset.spec.extra_sshd_config,
        "usersSshdConfig": users.sshd_config(controller, loginset.spec.extra_sshd_config),
        **users.variables(controller),
        "sackdOptions": _our_options(controller),
        "slurmKeySecret": slurm.name,
        "slurmKeyKey": slurm.key,
        "slurmJwksSecret": names.slurm_jwks(slurm.name),
        "sshHostKeysHash": combined({"": facts.secrets[host_keys]}),
        "sssdConfSecret": sssd.name if sssd else "",
        "sssdConfKey": sssd.key if sssd else "",
        "sssdConfHash": facts.secret(sssd, "spec.sssdConfRef") if sssd and sssd.name else NOTHING,
    }


def _our_options(controller: Controller) -> str:
    return f"--conf-server {conf_server(controller)}"


def _with_our_options(login: Json, controller: Controller) -> Json:
    """Return the user's override, with its sackd options after ours instead of replacing them.

    Without --conf-server sackd has no configuration at all; a user who names another server means
    it.
    """
    ours = _our_options(controller)
    env = [
        item | {"value": f"{ours} {item['value']}"}
        if item.get("name") == _OPTIONS
        and item.get("value")
        and "--conf-server" not in item["value"]
        else item
        for item in login.get("env") or ()
    ]
    return login | {"env": env} if env else login
