"""Revisions: what worker pods are rendered from, and how it is stored."""

import json
from dataclasses import dataclass

import msgspec

from sidecars.workloads import assembly, merge, names, users
from sidecars.workloads.controller import conf_server, slurm_key
from sidecars.workloads.facts import Facts, digest
from sidecars.workloads.nodeset.naming import selector
from sidecars.workloads.nodeset.ssh import sssd_conf
from sidecars.workloads.resources import (
    Controller,
    Json,
    Manifest,
    NodeSet,
    NodeSetSpec,
    ResourceError,
    builtins,
)

CHOICES = (
    "template",
    "slurmd",
    "gpu",
    "extraConf",
    "logfile",
    "ssh",
    "ordinalPadding",
    "oversubscribeNode",
    "powerSaving",
    "jobLogs",
)
"""The fields of NodeSet.spec whose change is a new revision."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What a worker pod is rendered from: the NodeSet's choices and the base that was current when
    it chose them.
    """

    hash: str
    """The pod label controller-revision-hash and NodeSet.status.nodeSetHash.

    It depends on `content` alone, so that a new release's base is adopted only by an update that
    has another reason.
    """
    data: Json
    """`spec`: the choices. `reads`: what slurmd reads only when it starts. `base`: the pod
    structure of the release.
    """

    @property
    def content(self) -> tuple[object, object]:
        """What distinguishes revisions: the NodeSet's choices, and what slurmd reads when it
        starts.
        """
        return _effective(self.data["spec"]), self.data.get("reads")

    @property
    def users_overlays(self) -> list[str]:
        """The overlay of pods with declared users, if those of this revision have them; see
        `users.overlays`.
        """
        return [users.OVERLAY] if (self.data.get("reads") or {}).get("users") else []


def revision(
    nodeset: NodeSet, controller: Controller, facts: Facts, collisions: int | None = None
) -> Revision:
    """Return the revision that the NodeSet's spec describes, with the current base.

    Use a stored revision with the same content instead (`revision_of`): its pods have its base.
    `collisions` (None: those of the status) changes the hash of the same content. Raises
    ResourceError and MissingReferenceError.
    """
    spec = builtins(nodeset.spec)
    choices = merge.chosen({field: spec[field] for field in CHOICES if field in spec})
    # What slurmd reads only when it starts.
    slurm, sssd = slurm_key(controller), sssd_conf(nodeset)
    # The contents of slurm.jwks don't count: slurmd reads it at each reconfigure.
    facts.secret(slurm, "spec.slurmKeyRef")
    reads = {"slurm.jwks": names.slurm_jwks(slurm.name), "confServer": conf_server(controller)}
    if sssd is not None:
        reads["sssd.conf"] = facts.secret(sssd, "spec.ssh.sssdConfRef")
    if users.overlays(controller):
        # Which ConfigMap is mounted. Its contents change without a restart.
        reads["users"] = names.users(controller.name)
    salt = collisions if collisions is not None else nodeset.status.collision_count or 0
    text = json.dumps([_effective(choices), reads, salt], sort_keys=True, separators=(",", ":"))
    base = {
        "files": dict(facts.site.workloads.part("slurmd").files),
        "sidecarsImage": facts.site.sidecars_image,
    }
    return Revision(digest(text)[:10], {"spec": choices, "reads": reads, "base": base})


def _effective(spec: Json) -> Json:
    """Return the choices for which a running worker is replaced.

    Not among them is what distinguishes a NodeSet of SchedMD's chart from one of this project's
    with the same values: labels of the release and no PriorityClass in the template, and a
    reference of ssh that isn't enabled.
    """
    choices = dict(spec)
    saving = _map(choices.pop("powerSaving", None))
    if saving.get("enabled"):
        choices["powerSaving"] = {"enabled": True}
    if not _map(spec.get("jobLogs")).get("enabled"):
        choices.pop("jobLogs", None)
    if not _map(spec.get("ssh")).get("enabled"):
        choices.pop("ssh", None)
    if template := _map(spec.get("template")):
        metadata, pod = _map(template.get("metadata")), _map(template.get("spec"))
        chosen = {
            "labels": _without(
                assembly.without_tools(_map(metadata.get("labels"))), names.APP_PART_OF
            ),
            "annotations": assembly.without_tools(_map(metadata.get("annotations"))),
        }
        if pod.get("priorityClassName") == "":
            pod = _without(pod, "priorityClassName")
        choices["template"] = template | {"metadata": metadata | chosen, "spec": pod}
    return merge.chosen(choices)


def _map(value: object) -> Json:
    """Return a map, and of another value, which someone may have written into a ControllerRevision,
    an empty one.
    """
    return value if isinstance(value, dict) else {}


def _without(value: Json, name: str) -> Json:
    """Return the map without a key."""
    return {key: item for key, item in value.items() if key != name}


def revision_object(nodeset: NodeSet, revision: Revision, number: int) -> Manifest:
    """Return the revision as a ControllerRevision `<nodeset>-<hash>`. `number` increases with every
    new revision.
    """
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{nodeset.name}-{revision.hash}",
            "labels": selector(nodeset)
            | {names.APP_COMPONENT: "worker", names.REVISION_HASH: revision.hash},
        },
        "revision": number,
        "data": revision.data,
    }
    return assembly.owned(manifest, nodeset)


def revision_of(controller_revision: Manifest) -> Revision:
    """Return the revision in a ControllerRevision. Raises ValueError for one that isn't of this
    form.
    """
    metadata, data = controller_revision.get("metadata") or {}, controller_revision.get("data")
    label = (metadata.get("labels") or {}).get(names.REVISION_HASH)
    if not label or not isinstance(data, dict) or not isinstance(data.get("spec"), dict):
        raise ValueError(
            f"ControllerRevision {metadata.get('name')!r} contains no revision of a NodeSet"
        )
    return Revision(label, data)


def as_of(nodeset: NodeSet, revision: Revision) -> NodeSet:
    """Return the NodeSet with the choices of a revision. Raises ResourceError for a revision that
    this release can't read.
    """
    present = {key: value for key, value in builtins(nodeset.spec).items() if key not in CHOICES}
    try:
        spec = msgspec.convert(present | revision.data["spec"], NodeSetSpec)
    except msgspec.ValidationError as error:
        raise ResourceError("spec", f"revision {revision.hash} can't be read: {error}") from error
    return msgspec.structs.replace(nodeset, spec=spec)
