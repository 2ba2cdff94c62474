"""The Job that generates keys, passwords and tokens in the cluster, so that none of them passes
through Helm.
"""

import json
from typing import Any

import msgspec

from postrender.errors import PostrenderError
from postrender.expand.cluster import Cluster, label
from postrender.expand.objects import usable
from sidecars.workloads import accounting as slurmdbd
from sidecars.workloads import assembly, names
from sidecars.workloads import controller as slurmctld
from sidecars.workloads import token as render
from sidecars.workloads.facts import Site, digest
from sidecars.workloads.resources import Manifest, Resource

SHORTEST_SECONDS = 600
"""Of a token that is renewed: the Job runs every 5 minutes."""


def objects(cluster: Cluster, site: Site) -> list[Manifest]:
    """ServiceAccount, Role, RoleBinding, ConfigMap, Job and perhaps CronJob; empty if nothing is to
    be generated.

    Raises PostrenderError.
    """
    resources, wanted = _wanted(cluster)
    if not resources:
        return []
    text = json.dumps([_manifest(it) for it in resources], sort_keys=True, separators=(",", ":"))
    name = f"{next(iter(cluster.controllers), resources[0].name)}-secrets"
    users = [names.controller(it) for it in cluster.controllers]
    users += [names.accounting(it) for it in cluster.accountings]
    renewed = [it for it in cluster.tokens.values() if it.spec.refresh]
    for token in renewed:
        with usable(token):
            lifetime = render.lifetime(token)
        if lifetime < SHORTEST_SECONDS:
            raise PostrenderError(
                f"{label(token)}: spec.lifetime: {token.spec.lifetime} is too short to be renewed "
                f"in time without an operator: give at least {SHORTEST_SECONDS}s"
            )
    rendered = site.workloads.render(
        "secrets",
        ["refresh"] if renewed else [],
        {
            "name": name,
            "jobName": f"{name}-{digest(text + site.sidecars_image)[:10]}",
            "namespace": cluster.namespace,
            "sidecarsImage": site.sidecars_image,
            "resources": text,
            "secretNames": sorted(wanted),
            "statefulSetNames": sorted(users),
        },
    )
    if pull_secrets := _pull_secrets(cluster):
        for it in rendered:
            if "spec" in it:
                of_pods = it["spec"].get("jobTemplate", it)["spec"]["template"]["spec"]
                of_pods["imagePullSecrets"] = pull_secrets
    labels = {names.APP_NAME: "slurm-secrets", names.APP_INSTANCE: name}
    return [
        it | {"metadata": it["metadata"] | {"namespace": cluster.namespace, "labels": labels}}
        for it in rendered
    ]


def _pull_secrets(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the pull Secrets of the Controllers' pods, which have the same image as the Job."""
    found: list[dict[str, Any]] = []
    for controller in cluster.controllers.values():
        for each in controller.spec.template.spec.get("imagePullSecrets") or ():
            if each not in found:
                found.append(each)
    return found


def _wanted(cluster: Cluster) -> tuple[list[Resource], set[str]]:
    """Return the custom resources for which something is generated, and the names of the Secrets
    that this reads or writes.
    """
    resources: list[Resource] = []
    wanted: set[str] = set()
    for controller in cluster.controllers.values():
        with usable(controller):
            keys = {slurmctld.slurm_key(controller).name, slurmctld.jwt_key(controller).name}
        if not controller.spec.external and any(_is_unread(cluster, it) for it in keys):
            resources.append(controller)
            wanted |= keys
    for accounting in cluster.accountings.values():
        if accounting.spec.external:
            continue
        with usable(accounting):
            password = slurmdbd.storage_of(accounting).password_key_ref.name
        if _is_unread(cluster, password):
            resources.append(accounting)
            wanted |= {password, names.accounting(accounting.name)}
    for loginset in cluster.loginsets.values():
        host_keys = names.ssh_host_keys(loginset.name)
        if host_keys not in cluster.secrets:
            resources.append(loginset)
            wanted.add(host_keys)
    for token in cluster.tokens.values():
        with usable(token):
            resources.append(token)
            wanted |= {render.jwt_key(token).name, render.secret_name(token)}
    return resources, wanted


def _is_unread(cluster: Cluster, name: str) -> bool:
    return cluster.secrets.get(name) is None


def _manifest(resource: Resource) -> dict[str, Any]:
    """Return the custom resource without what deployment tools add to it."""
    found: dict[str, Any] = msgspec.to_builtins(resource)
    metadata = found["metadata"]
    metadata["labels"] = assembly.labels(resource)
    metadata["annotations"] = assembly.annotations(resource)
    return found | {"kind": resource.kind}
