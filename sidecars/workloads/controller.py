"""slurmctld: its configuration, Services and StatefulSet."""

from collections.abc import Mapping, Sequence
from typing import Any

from sidecars.workloads import assembly, names
from sidecars.workloads.config import CGROUP_CONF, RESERVED_FILES, slurm_conf
from sidecars.workloads.facts import Facts, combined, digest
from sidecars.workloads.resources import (
    Controller,
    Json,
    KeySelector,
    LocalObjectReference,
    Manifest,
    NodeSet,
    ResourceError,
    builtins,
)


def objects(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> list[Manifest]:
    """ConfigMap, Services and StatefulSet, in the order to apply them; for an external Controller the ConfigMap alone.

    `nodesets` are those of the Controller's namespace that refer to it. Raises ResourceError for a Controller that
    can't be rendered and MissingReferenceError for one whose references aren't there yet.
    """
    files = config_files(controller, nodesets, facts)
    config_map = _config_map(controller, files, facts)
    if controller.spec.external:
        return [config_map]
    rendered = facts.site.workloads.render("slurmctld", _overlays(controller), _variables(controller, files, facts))
    internal = assembly.find(rendered, "Service", names.controller_internal(controller.name))
    client = assembly.find(rendered, "Service", names.controller(controller.name))
    stateful_set = assembly.find(rendered, "StatefulSet")
    stateful_set["spec"]["template"] = assembly.pod_template(
        stateful_set["spec"]["template"],
        controller,
        controller.spec.template,
        {"slurmctld": controller.spec.slurmctld, "logfile": controller.spec.logfile},
    )
    return [
        config_map,
        assembly.owned(internal, controller),
        assembly.service(client, controller, controller.spec.service),
        assembly.owned(stateful_set, controller),
    ]


def conf_server(controller: Controller) -> str:
    """`host:port` where slurmd and sackd get their configuration from."""
    external = controller.spec.external_config
    if controller.spec.external:
        if external is None:
            raise ResourceError("spec.externalConfig", "must say where the external slurmctld is (host and port)")
        return f"{external.host}:{external.port}"
    return f"{names.controller(controller.name)}.{controller.namespace}:{names.SLURMCTLD_PORT}"


def slurm_key(controller: Controller) -> KeySelector:
    """The Secret key of auth/slurm. Raises ResourceError when the Controller names none."""
    if controller.spec.slurm_key_ref is None:
        raise ResourceError("spec.slurmKeyRef", "must name the Secret with Slurm's key")
    return controller.spec.slurm_key_ref


def jwt_key(controller: Controller) -> KeySelector:
    """The Secret key that signs tokens. Raises ResourceError when the Controller names none."""
    if controller.jwt_key_ref is None:
        raise ResourceError("spec.jwtKeyRef", "must name the Secret with the key that signs Slurm's tokens")
    return controller.jwt_key_ref


def config_files(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> dict[str, str]:
    """The files that the operator writes into /etc/slurm, by name."""
    files = {"slurm.conf": slurm_conf(controller, nodesets, facts)}
    if controller.spec.external:
        return files
    place = "spec.configFileRefs"
    brought = facts.files(controller.spec.config_file_refs, place)
    for name, content in brought.items():
        for reserved in RESERVED_FILES:
            if reserved in content:
                raise ResourceError(place, f"ConfigMap {name!r} brings {reserved}: put its lines into spec.extraConf")
    if not any("cgroup.conf" in content for content in brought.values()):
        files["cgroup.conf"] = CGROUP_CONF
    return files


def _config_map(controller: Controller, files: Mapping[str, str], facts: Facts) -> Manifest:
    variables = {"name": controller.name, "files": dict(files)}
    [manifest] = facts.site.workloads.render("slurm-config", [], variables)
    return assembly.owned(manifest, controller)


def _overlays(controller: Controller) -> list[str]:
    """Names of the overlays of slurmctld.yaml that this Controller asks for, in order. Raises ResourceError."""
    persistence = controller.spec.persistence
    if controller.spec.ha.enabled and not (persistence.enabled and persistence.existing_claim):
        raise ResourceError(
            "spec.ha", "standbys share slurmctld's state: name a ReadWriteMany claim in spec.persistence.existingClaim"
        )
    claim = "no-claim" if not persistence.enabled else "existing-claim" if persistence.existing_claim else "new-claim"
    return [claim, *(["ha"] if controller.spec.ha.enabled else [])]


def _variables(controller: Controller, files: Mapping[str, str], facts: Facts) -> dict[str, Any]:
    spec = controller.spec
    slurm, jwt, jwks = slurm_key(controller), jwt_key(controller), spec.jwks_key_ref
    brought = _brought(controller, facts)
    own = {name: digest(content) for name, content in files.items()}
    jwks_digest = {jwks.name: {jwks.key: facts.config_map(jwks, "spec.jwksKeyRef")}} if jwks else {}
    return {
        "name": controller.name,
        "clusterName": controller.cluster_name,
        "replicas": controller.replicas,
        "sidecarsImage": facts.site.sidecars_image,
        "slurmKeySecret": slurm.name,
        "slurmKeyKey": slurm.key,
        "slurmKeyHash": facts.secret(slurm, "spec.slurmKeyRef"),
        "jwtKeySecret": jwt.name,
        "jwtKeyKey": jwt.key,
        "jwtKeyHash": facts.secret(jwt, "spec.jwtKeyRef"),
        "fileSources": [{"configMap": {"name": name}} for name in sorted(brought)],
        "jwksSource": _source(jwks, "jwks.json") if jwks else None,
        "configHash": combined({"": own} | brought | jwks_digest),
        "claimSpec": _claim_spec(controller),
        "existingClaim": spec.persistence.existing_claim,
    }


def _brought(controller: Controller, facts: Facts) -> dict[str, Mapping[str, str]]:
    """Every ConfigMap whose files land in /etc/slurm."""
    spec = controller.spec
    references: dict[str, list[LocalObjectReference] | None] = {
        "spec.configFileRefs": spec.config_file_refs,
        "spec.prologScriptRefs": spec.prolog_script_refs,
        "spec.epilogScriptRefs": spec.epilog_script_refs,
        "spec.prologSlurmctldScriptRefs": spec.prolog_slurmctld_script_refs,
        "spec.epilogSlurmctldScriptRefs": spec.epilog_slurmctld_script_refs,
    }
    found: dict[str, Mapping[str, str]] = {}
    for place, named in references.items():
        found |= facts.files(named, place)
    return found


def _source(selector: KeySelector, path: str) -> Json:
    return {"configMap": {"name": selector.name, "items": [{"key": selector.key, "path": path}]}}


def _claim_spec(controller: Controller) -> Json:
    """The claim's spec: the fields of spec.persistence that are a PersistentVolumeClaimSpec's.

    No claim is valid without an access mode and a size, so where they are not said they are the chart's defaults.
    """
    spec = builtins(controller.spec.persistence)
    needed = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}
    return needed | {key: value for key, value in spec.items() if key not in {"enabled", "existingClaim"}}
