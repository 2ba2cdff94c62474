"""The objects that the operator would apply for a custom resource, with the operator's own code."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from postrender.errors import PostrenderError
from postrender.expand.cluster import Cluster, label
from sidecars.contract.manifest import SLURM_JWKS
from sidecars.policy.configuration import lint as rules
from sidecars.policy.users import declared as users
from sidecars.slurm import versions
from sidecars.workloads import accounting as slurmdbd
from sidecars.workloads import config, config_maps, names, nodeset, restapi
from sidecars.workloads import controller as slurmctld
from sidecars.workloads import loginset as login
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.facts import Facts, MissingReferenceError, Site
from sidecars.workloads.resources import (
    Accounting,
    Controller,
    LoginSet,
    Manifest,
    NodeSet,
    Resource,
    ResourceError,
    RestApi,
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of one Slurm cluster."""

    config_set: ConfigSet
    facts: Facts
    config_maps: Sequence[Manifest]
    """Those that only `reconfigure` reads, and those that all others read."""
    warnings: Sequence[str] = ()

    def read_by_slurmrestd(self, controller: Controller) -> Mapping[str, str | bytes]:
        """Return the files in the ConfigMaps that slurmrestd mounts."""
        mounted = {
            restapi.config_map(controller, index) for index in range(config_maps.CONFIG_MAPS)
        }
        return config_maps.files(it for it in self.config_maps if it["metadata"]["name"] in mounted)


@contextlib.contextmanager
def usable(resource: Resource) -> Iterator[None]:
    """Name the custom resource in the errors of a render, which become PostrenderError."""
    try:
        yield
    except MissingReferenceError as error:
        remedy = "add it to the stream"
        if error.kind == "Secret":
            remedy = f"{remedy}, or name it in `secrets` of the step if it exists in the namespace"
        raise PostrenderError(f"{label(resource)}: {error}: {remedy}") from error
    except ResourceError as error:
        raise PostrenderError(f"{label(resource)}: {error}") from error


def configuration(
    cluster: Cluster, controller: Controller, site: Site, published: frozenset[str]
) -> Configuration:
    """Compose and check it. `published`: names of the ConfigMaps that exist. Raises
    PostrenderError.
    """
    facts, nodesets = cluster.facts(site, controller, published), cluster.nodesets_of(controller)
    with usable(controller):
        config_set = config.compose(controller, nodesets, facts)
        release = versions.of_image(str(controller.spec.slurmctld.get("image") or ""))
        findings = rules.lint(config_set, nodesets, release, None)
        faults = [str(it) for it in findings if it.severity == "error"]
        if faults:
            raise PostrenderError(f"{label(controller)}: {'; '.join(faults)}")
        published_maps = config_maps.config_maps(controller, config_set, published)
        accepted: list[Manifest] = []
        if not controller.spec.external:
            by_name = {it["metadata"]["name"]: it for it in published_maps}
            accepted = config_maps.accepted(controller, by_name)
    warnings = [str(it) for it in findings if it.severity == "warning"]
    return Configuration(config_set, facts, [*published_maps, *accepted], warnings)


def of_controller(
    cluster: Cluster, controller: Controller, configured: Configuration
) -> list[Manifest]:
    """ConfigMaps, Services and StatefulSet, the ServiceMonitor, and what its NodeSets share. Raises
    PostrenderError.
    """
    with usable(controller):
        monitor = slurmctld.service_monitor(controller)
        return [
            *configured.config_maps,
            *_users(cluster, controller, configured.facts),
            *slurmctld.workload(controller, configured.config_set, configured.facts),
            *([monitor] if monitor is not None else []),
            *nodeset.shared_objects(controller, cluster.nodesets_of(controller), configured.facts),
        ]


def _users(cluster: Cluster, controller: Controller, facts: Facts) -> list[Manifest]:
    """Return the ConfigMap with declared users, or nothing where the Secret's content is not known.
    Raises PostrenderError.
    """
    reference = controller.spec.users_ref
    if reference is None:
        return []
    facts.secret(reference, "spec.usersRef")
    data = cluster.secrets[reference.name]
    if data is None:
        return []
    try:
        declared = users.parse(data[reference.key])
    except users.DeclaredError as error:
        raise ResourceError("spec.usersRef", str(error)) from error
    faults = list(users.faults(declared))
    if faults:
        raise ResourceError("spec.usersRef", "; ".join(faults))
    return [config_maps.users(controller, users.files(declared))]


def of_accounting(cluster: Cluster, accounting: Accounting, site: Site) -> list[Manifest]:
    """Secret, Service and StatefulSet; without the Secret where its password is not known. Raises
    PostrenderError.
    """
    if accounting.spec.external:
        return []
    facts = cluster.facts(site)
    with usable(accounting):
        selector, key = (
            slurmdbd.storage_of(accounting).password_key_ref,
            slurmdbd.slurm_key(accounting),
        )
        facts.secret(selector, "spec.storageConfig.passwordKeyRef")
        facts.secret(key, "spec.slurmKeyRef")
        password, slurm_key = cluster.secrets[selector.name], cluster.secrets[key.name]
        shared = (cluster.secrets.get(names.slurm_jwks(key.name)) or {}).get(SLURM_JWKS, b"")
        values = slurmdbd.Secrets(
            # slurmdbd.conf with it is left out.
            password=password[selector.key] if password is not None else b"unknown",
            slurm_key=shared or (slurm_key[key.key] if slurm_key is not None else b"unknown"),
        )
        rendered = slurmdbd.objects(accounting, facts, values, cluster.controllers_of(accounting))
    return rendered if password is not None else [it for it in rendered if it["kind"] != "Secret"]


def of_restapi(cluster: Cluster, served: RestApi, configured: Configuration) -> list[Manifest]:
    """Service and Deployment. Raises PostrenderError."""
    controller = cluster.controller(served)
    with usable(served):
        return restapi.objects(
            served, controller, configured.facts, configured.read_by_slurmrestd(controller)
        )


def of_loginset(cluster: Cluster, loginset: LoginSet, configured: Configuration) -> list[Manifest]:
    """ConfigMap, Service and Deployment. Raises PostrenderError."""
    with usable(loginset):
        return login.objects(loginset, cluster.controller(loginset), configured.facts)


def of_nodeset(cluster: Cluster, workers: NodeSet, configured: Configuration) -> list[Manifest]:
    """Return the ConfigMaps, the revision and the pods of a NodeSet of mode StatefulSet. Raises
    PostrenderError.
    """
    controller, facts = cluster.controller(workers), configured.facts
    with usable(workers):
        revision = nodeset.revision(workers, controller, facts)
        template = nodeset.pod_template(workers, controller, facts, revision)
        ordinals = range(workers.spec.replicas if workers.spec.scaling_mode == "StatefulSet" else 0)
        return [
            *nodeset.objects(workers, controller, facts),
            nodeset.revision_object(workers, revision, 1),
            *(nodeset.pod(workers, template, ordinal, revision.hash) for ordinal in ordinals),
            *(claim for ordinal in ordinals for claim in nodeset.claims(workers, ordinal)),
        ]
