"""Worker pods, their claims, and what the NodeSets of one Controller share."""

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from sidecars.slurm import keys, nodeconf, versions
from sidecars.slurm.nodeconf import Item
from sidecars.workloads import assembly, gres, health, merge, names, quantities, restapi
from sidecars.workloads.controller import conf_server, jwt_key, slurm_key
from sidecars.workloads.facts import NOTHING, Facts, combined, config_map_digests, digest
from sidecars.workloads.resources import (
    Controller,
    Json,
    KeySelector,
    Manifest,
    NodeSet,
    NodeSetSpec,
    ResourceError,
    builtins,
)
from sidecars.workloads.structure import Workloads

GRACE_SECONDS = 3600
"""terminationGracePeriodSeconds of worker pods whose NodeSet sets none: time for jobs to end."""

LAST_SECONDS = 20
"""How long before the end of the grace period slurmd is stopped whatever still runs, so that its record can go."""

CHOICES = ("template", "slurmd", "gpu", "extraConf", "logfile", "ssh", "ordinalPadding", "oversubscribeNode")
"""The fields of NodeSet.spec whose change is a new revision."""

_LABEL_LIMIT = 63
_DIGEST = 10
_HOSTNAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Revision:
    """What a worker pod is made from: the NodeSet's choices and the base that was current when they were made.

    `hash` depends on the content alone, so that a new release's base is adopted only at a roll made for another reason.
    It is the pod label controller-revision-hash and NodeSet.status.nodeSetHash.
    """

    hash: str
    data: Json

    @property
    def content(self) -> tuple[object, object]:
        """What makes it a revision of its own: the NodeSet's choices, and what the pods read beside them."""
        return self.data.get("spec"), self.data.get("reads")


def revision(nodeset: NodeSet, controller: Controller, facts: Facts, collisions: int | None = None) -> Revision:
    """The revision that the NodeSet asks for now, with the present base.

    Where a stored one has the same content, that is the one to use (`revision_of`): its base is the one its pods have.
    `collisions` (None: those of the status) makes another hash of the same content. Raises ResourceError and
    MissingReferenceError.
    """
    spec = builtins(nodeset.spec)
    choices = merge.chosen({field: spec[field] for field in CHOICES if field in spec})
    # What slurmd reads only once, at its start.
    slurm, sssd = slurm_key(controller), _sssd(nodeset)
    # slurm.jwks is read anew at each reconfigure.
    facts.secret(slurm, "spec.slurmKeyRef")
    reads = {"slurm.jwks": names.slurm_jwks(slurm.name), "confServer": conf_server(controller)}
    if sssd is not None:
        reads["sssd.conf"] = facts.secret(sssd, "spec.ssh.sssdConfRef")
    salt = collisions if collisions is not None else nodeset.status.collision_count or 0
    text = json.dumps([choices, reads, salt], sort_keys=True, separators=(",", ":"))
    base = {
        "files": dict(facts.site.workloads.part("slurmd").files),
        "sidecarsImage": facts.site.sidecars_image,
    }
    return Revision(digest(text)[:10], {"spec": choices, "reads": reads, "base": base})


def revision_object(nodeset: NodeSet, revision: Revision, number: int) -> Manifest:
    """The revision as a ControllerRevision `<nodeset>-<hash>`; `number` grows with every new choice."""
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{nodeset.name}-{revision.hash}",
            "labels": selector(nodeset) | {names.REVISION_HASH: revision.hash},
        },
        "revision": number,
        "data": revision.data,
    }
    return assembly.owned(manifest, nodeset)


def revision_of(controller_revision: Manifest) -> Revision:
    """The revision that a ControllerRevision holds. Raises ValueError for one that isn't of this form."""
    metadata, data = controller_revision.get("metadata") or {}, controller_revision.get("data")
    label = (metadata.get("labels") or {}).get(names.REVISION_HASH)
    if not label or not isinstance(data, dict) or not isinstance(data.get("spec"), dict):
        raise ValueError(f"ControllerRevision {metadata.get('name')!r} holds no revision of a NodeSet")
    return Revision(label, data)


def pod_template(nodeset: NodeSet, controller: Controller, facts: Facts, revision: Revision | None = None) -> Manifest:
    """All that the pods of a NodeSet have in common: {metadata, spec}. Render once, then `pod` per ordinal.

    With `revision` (a stored one) its choices and its base are used, else the NodeSet's own and the present base.
    Raises ResourceError and MissingReferenceError.
    """
    workloads, sidecars_image = facts.site.workloads, facts.site.sidecars_image
    if revision is not None:
        nodeset = _as_of(nodeset, revision)
        base = revision.data.get("base") or {}
        workloads = Workloads(base["files"]) if "files" in base else workloads
        sidecars_image = base.get("sidecarsImage", sidecars_image)
    _check_hostname(nodeset)
    user = dict(nodeset.spec.template.spec)
    # A prefix of the pods' hostnames, not theirs.
    user.pop("hostname", None)
    variables = _variables(nodeset, controller, facts) | {"sidecarsImage": sidecars_image}
    pod = assembly.find(workloads.render("slurmd", _overlays(nodeset), variables), "Pod")
    return assembly.pod_template(
        pod,
        nodeset,
        msgspec.structs.replace(nodeset.spec.template, spec=user),
        {"slurmd": nodeset.spec.slurmd, "logfile": nodeset.spec.logfile},
    )


def pod(
    nodeset: NodeSet, template: Manifest, ordinal: int, revision_hash: str, kube_node: str | None = None
) -> Manifest:
    """The pod of an ordinal in StatefulSet mode, to be created. With `kube_node` it may run on that node only."""
    name, host = pod_name(nodeset, ordinal), hostname(nodeset, ordinal)
    labels = {names.POD_INDEX: _index(nodeset, ordinal), names.SCALING_MODE: "StatefulSet"}
    made = _pod(nodeset, template, name, host, revision_hash, labels, claims(nodeset, ordinal))
    return made if kube_node is None else _on(made, kube_node)


def daemon_pod(nodeset: NodeSet, template: Manifest, kube_node: str, host: str, revision_hash: str) -> Manifest:
    """The pod for a Kubernetes node in DaemonSet mode, to be created; `host` is its name in Slurm."""
    name = daemon_pod_name(nodeset, kube_node)
    labels = {names.SCALING_MODE: "DaemonSet"}
    made = _on(
        _pod(nodeset, template, name, host, revision_hash, labels, daemon_claims(nodeset, kube_node, host)), kube_node
    )
    metadata = made["metadata"]
    annotations = metadata.get("annotations", {}) | {names.KUBE_NODE: kube_node}
    return made | {"metadata": metadata | {"generateName": f"{nodeset.name}-", "annotations": annotations}}


def _pod(
    nodeset: NodeSet,
    template: Manifest,
    name: str,
    host: str,
    revision_hash: str,
    labels: dict[str, str],
    owned_claims: Sequence[Manifest],
) -> Manifest:
    metadata = template["metadata"]
    spec = template["spec"] | {"hostname": host}
    if owned_claims:
        templates = nodeset.spec.volume_claim_templates or ()
        volumes = {
            wanted["metadata"]["name"]: {"claimName": claim["metadata"]["name"]}
            for wanted, claim in zip(templates, owned_claims, strict=True)
        }
        spec["volumes"] = [volume for volume in spec.get("volumes", ()) if volume["name"] not in volumes] + [
            {"name": volume, "persistentVolumeClaim": source} for volume, source in volumes.items()
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata
        | {
            "name": name,
            "namespace": nodeset.namespace,
            "labels": metadata["labels"]
            | {names.POD_NAME: name, names.POD_HOSTNAME: host, names.REVISION_HASH: revision_hash}
            | labels,
            "ownerReferences": [assembly.owner_reference(nodeset)],
        },
        "spec": spec,
    }


def _on(pod: Manifest, kube_node: str) -> Manifest:
    spec = pod["spec"]
    return pod | {"spec": spec | {"affinity": _pinned(spec.get("affinity") or {}, kube_node)}}


def pod_name(nodeset: NodeSet, ordinal: int) -> str:
    """The pod of an ordinal."""
    return f"{nodeset.name}-{_index(nodeset, ordinal)}"


def daemon_pod_name(nodeset: NodeSet, kube_node: str) -> str:
    """The pod for a Kubernetes node: always the same, so that none can be made twice."""
    head = nodeset.name[: _LABEL_LIMIT - 1 - _DIGEST]
    return f"{head}-{digest(f'{nodeset.name}/{kube_node}')[:_DIGEST]}"


def ordinal_of(nodeset: NodeSet, name: str) -> int | None:
    """The ordinal in a pod's name, whatever its padding; None if the name isn't one of this NodeSet's."""
    digits = name.removeprefix(f"{nodeset.name}-")
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None


def hostname(nodeset: NodeSet, ordinal: int) -> str:
    """The hostname, and thereby the Slurm node name, of an ordinal's pod that isn't on the host's network."""
    prefix = nodeset.spec.template.spec.get("hostname")
    return f"{prefix}{_index(nodeset, ordinal)}" if prefix else pod_name(nodeset, ordinal)


def slurm_node_name(pod: Manifest) -> str:
    """The Slurm node of a worker pod. On the host's network it is the Kubernetes node's; empty before it is bound."""
    spec = pod.get("spec") or {}
    if spec.get("hostNetwork"):
        return str(spec.get("nodeName") or "")
    return str(spec.get("hostname") or pod["metadata"]["name"])


def claims(nodeset: NodeSet, ordinal: int) -> list[Manifest]:
    """The PersistentVolumeClaims that a pod needs, without owners; to be created before it, never changed.

    In the order of spec.volumeClaimTemplates. Raises ResourceError for a template without a name.
    """
    return _claims(nodeset, pod_name(nodeset, ordinal), {})


def daemon_claims(nodeset: NodeSet, kube_node: str, host: str) -> list[Manifest]:
    """The same of a pod in DaemonSet mode."""
    return _claims(nodeset, f"{nodeset.name}-{host}", {names.KUBE_NODE: kube_node})


def _claims(nodeset: NodeSet, suffix: str, more: dict[str, str]) -> list[Manifest]:
    found = []
    for index, template in enumerate(nodeset.spec.volume_claim_templates or ()):
        metadata = template.get("metadata") or {}
        if not metadata.get("name"):
            raise ResourceError(f"spec.volumeClaimTemplates[{index}].metadata.name", "must not be empty")
        annotations = dict(metadata.get("annotations") or {}) | more
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": names.claim(metadata["name"], suffix),
                    "namespace": nodeset.namespace,
                    "labels": (metadata.get("labels") or {}) | selector(nodeset),
                }
                | ({"annotations": annotations} if annotations else {}),
                "spec": template.get("spec") or {},
            }
        )
    return found


def objects(nodeset: NodeSet, controller: Controller, facts: Facts) -> list[Manifest]:
    """What a NodeSet owns beside pods, claims and revisions: the ConfigMap of node health, and of sshd if it wants ssh.

    Raises ResourceError and MissingReferenceError.
    """
    found = [health.config_map(nodeset, _limits(nodeset), facts.site.workloads)]
    if nodeset.spec.ssh.enabled:
        found.append(_ssh_config(nodeset, controller, facts))
    return [assembly.owned(manifest, nodeset) for manifest in found]


def shared_objects(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> list[Manifest]:
    """What all NodeSets of a Controller share: the headless Service and the PodDisruptionBudget, owned by all of them.

    Empty without NodeSets. No owner is marked as the controller.
    """
    if not nodesets:
        return []
    owners = [
        assembly.owner_reference(nodeset, controller=False) for nodeset in sorted(nodesets, key=lambda item: item.name)
    ]
    return [
        manifest | {"metadata": manifest["metadata"] | {"namespace": controller.namespace, "ownerReferences": owners}}
        for manifest in facts.site.workloads.render("workers", [], {"controller": controller.name})
    ]


def selector(nodeset: NodeSet) -> dict[str, str]:
    """The labels that pick this NodeSet's pods."""
    return {names.APP_INSTANCE: nodeset.name, names.APP_NAME: "slurmd"}


def node_conf(nodeset: NodeSet) -> str:
    """The items of slurmd's --conf that the NodeSet decides, sorted by key: `Features`, and those of extraConf.

    Raises ResourceError for an extraConf that is no list of items, has an item without a value, or a key that slurmd of
    the image's release does not know: slurmd would end. Of an unknown release every key is accepted.
    """
    extra = nodeconf.parse(assembly.text(nodeset.spec.extra_conf.replace("\n", " "), "spec.extraConf"))
    if extra.problems:
        raise ResourceError("spec.extraConf", extra.problems[0])
    items: dict[str, str] = {}
    release = versions.of_image(str(nodeset.spec.slurmd.get("image") or ""))
    known = keys.of("NodeName", release) if release is not None and release <= keys.KNOWN[-1] else None
    features = {nodeset.slurm_name}
    for item in extra.items:
        if not item.value:
            raise ResourceError("spec.extraConf", f"{item.key} has no value: remove it")
        if known is not None and item.key.lower() not in known:
            near = difflib.get_close_matches(item.key.lower(), known, 1)
            meant = next((f"; is it {word}?" for word in keys.spelled("NodeName") if [word.lower()] == near), "")
            raise ResourceError("spec.extraConf", f"{item.key} isn't a key of a node in slurm.conf{meant}")
        if item.key.lower() in {"feature", "features"}:
            features |= {feature for feature in item.value.split(",") if feature}
        else:
            items[item.key[0].upper() + item.key[1:]] = item.value
    items["Features"] = ",".join(sorted(features))
    return nodeconf.render(Item(key, items[key]) for key in sorted(items))


def _index(nodeset: NodeSet, ordinal: int) -> str:
    return f"{ordinal:0{nodeset.spec.ordinal_padding}d}"


def _as_of(nodeset: NodeSet, revision: Revision) -> NodeSet:
    present = {key: value for key, value in builtins(nodeset.spec).items() if key not in CHOICES}
    try:
        spec = msgspec.convert(present | revision.data["spec"], NodeSetSpec)
    except msgspec.ValidationError as error:
        raise ResourceError("spec", f"revision {revision.hash} can't be read: {error}") from error
    return msgspec.structs.replace(nodeset, spec=spec)


def _overlays(nodeset: NodeSet) -> list[str]:
    """Names of the overlays of slurmd.yaml that this NodeSet asks for, in order."""
    daemon_set, host_network = (
        nodeset.spec.scaling_mode == "DaemonSet",
        bool(nodeset.spec.template.spec.get("hostNetwork")),
    )
    wanted = {
        "exclusive": not nodeset.spec.oversubscribe_node,
        "gpu": nodeset.spec.gpu.enabled,
        "hostnetwork": host_network,
        "daemonset": daemon_set and not host_network,
        "daemonset-hostnetwork": daemon_set and host_network,
        "ssh": nodeset.spec.ssh.enabled,
    }
    return [overlay for overlay, on in wanted.items() if on]


def _check_hostname(nodeset: NodeSet) -> None:
    if nodeset.spec.scaling_mode == "DaemonSet":
        return
    for ordinal in {0, max(0, nodeset.spec.replicas - 1)}:
        host = hostname(nodeset, ordinal)
        if not _HOSTNAME.fullmatch(host) or len(host) > _LABEL_LIMIT:
            raise ResourceError(
                "spec.template.spec.hostname",
                f"pods would be called {host!r}: use lower-case letters, digits and '-', "
                f"at most {_LABEL_LIMIT} characters with the ordinal",
            )


def _variables(nodeset: NodeSet, controller: Controller, facts: Facts) -> dict[str, Any]:
    slurm, jwt = slurm_key(controller), jwt_key(controller)
    grace = _grace_seconds(nodeset)
    limits = _limits(nodeset)
    return (
        _ssh_variables(nodeset, controller, facts)
        | gres.variables(nodeset, limits)
        | {
            "namespace": nodeset.namespace,
            "clusterDomain": facts.site.cluster_domain,
            "confServer": conf_server(controller),
            "nodesetConf": node_conf(nodeset),
            "nodesetUid": nodeset.metadata.uid,
            "limitCpus": str(quantities.whole(limits.get("cpu", 0), "spec.slurmd.resources.limits.cpu")),
            "limitMemoryMib": str(quantities.mebibytes(limits.get("memory", 0), "spec.slurmd.resources.limits.memory")),
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
            "sshdConfHash": _sshd_hash(nodeset, controller, facts),
        }
    )


def _grace_seconds(nodeset: NodeSet) -> int:
    grace = nodeset.spec.template.spec.get("terminationGracePeriodSeconds")
    if grace is None:
        return GRACE_SECONDS
    if isinstance(grace, bool) or not isinstance(grace, int) or grace < 0:
        raise ResourceError("spec.template.spec.terminationGracePeriodSeconds", f"{grace!r} isn't a number of seconds")
    return grace


def _limits(nodeset: NodeSet) -> Json:
    """Limits of the slurmd container; where it has none, those of the pod."""
    found: Json = {}
    for holder, place in ((nodeset.spec.template.spec, "spec.template.spec"), (nodeset.spec.slurmd, "spec.slurmd")):
        resources = holder.get("resources") or {}
        limits = (resources.get("limits") or {}) if isinstance(resources, dict) else None
        if not isinstance(limits, dict):
            raise ResourceError(f"{place}.resources", "must be a map with a map `limits`")
        found |= limits
    return found


def _ssh_variables(nodeset: NodeSet, controller: Controller, facts: Facts) -> dict[str, Any]:
    ssh = nodeset.spec.ssh
    sssd = _sssd(nodeset)
    return {
        "name": nodeset.name,
        "controller": controller.name,
        "extraSshdConfig": ssh.extra_sshd_config,
        "sssdConfSecret": sssd.name if sssd else "",
        "sssdConfKey": sssd.key if sssd else "",
        "sssdConfHash": facts.secret(sssd, "spec.ssh.sssdConfRef") if sssd else NOTHING,
    }


def _sssd(nodeset: NodeSet) -> KeySelector | None:
    ssh = nodeset.spec.ssh
    if not ssh.enabled:
        return None
    if ssh.sssd_conf_ref is None or not ssh.sssd_conf_ref.name:
        raise ResourceError("spec.ssh.sssdConfRef", "must name the Secret with sssd.conf when ssh is enabled")
    return ssh.sssd_conf_ref


def _ssh_config(nodeset: NodeSet, controller: Controller, facts: Facts) -> Manifest:
    documents = facts.site.workloads.files["slurmd-ssh"]
    only = [document for document in documents if document["kind"] == "ConfigMap"]
    [manifest] = Workloads({"ssh": only}).render("ssh", [], _ssh_variables(nodeset, controller, facts))
    return manifest


def _sshd_hash(nodeset: NodeSet, controller: Controller, facts: Facts) -> str:
    if not nodeset.spec.ssh.enabled:
        return NOTHING
    return combined({"": config_map_digests(_ssh_config(nodeset, controller, facts)["data"])})


def _pinned(affinity: Json, kube_node: str) -> Json:
    """The affinity, and on top of it: this node only. Terms are alternatives, so each of them gets the condition."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(required) or {}).get("nodeSelectorTerms") or [{}]
    match = {"key": "metadata.name", "operator": "In", "values": [kube_node]}
    pinned = [cast("Json", term) | {"matchFields": [match]} for term in terms]
    return affinity | {"nodeAffinity": node_affinity | {required: {"nodeSelectorTerms": pinned}}}
