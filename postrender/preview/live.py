"""What a live cluster has, read by kubectl with the user's kubeconfig. Nothing is written."""

import base64
import gzip
import json
import re
import subprocess
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from postrender.errors import PostrenderError
from postrender.expand.cluster import is_custom, with_namespace
from postrender.preview.state import Key, SlurmState, State
from postrender.stream import Stream
from sidecars.contract import redaction
from sidecars.slurm import protocol
from sidecars.slurm.errors import SlurmError
from sidecars.workloads import names, references
from sidecars.workloads.resources import GROUP, PLURALS, Manifest

SECONDS = 60
"""For one command of kubectl."""

Kubectl = Callable[[Sequence[str], str], str]
"""Runs kubectl with arguments and text for stdin; returns what it prints. Raises PostrenderError.
"""

RELEASE = "meta.helm.sh/release-name"


def kubectl(arguments: Sequence[str], stdin: str = "") -> str:
    """Run kubectl. Raises PostrenderError."""
    command = ["kubectl", *arguments]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError:
        raise PostrenderError(
            "kubectl is missing: install it, or give a previous render in `before`"
        ) from None
    except subprocess.TimeoutExpired:
        raise PostrenderError(f"{' '.join(command[:6])}: no answer within {SECONDS} s") from None
    if done.returncode != 0:
        raise PostrenderError(f"{' '.join(command[:6])}: {done.stderr.strip()}")
    return done.stdout


def read(
    after: Sequence[Manifest],
    namespace: str,
    release: str,
    run: Kubectl = kubectl,
    now: float | None = None,
) -> tuple[list[Manifest], State]:
    """Return the objects before, and the state.

    `release`: whose custom resources count as deleted if `after` lacks them, and whose Secrets and
    ConfigMaps that custom resources refer to.

    Raises PostrenderError.
    """
    wanted = [it for it in after if it.get("kind")]
    spaces = sorted(
        {with_namespace(it, namespace)["metadata"]["namespace"] for it in wanted if is_custom(it)}
    )
    plain = [it for it in wanted if not is_custom(it)]
    before = (
        _items(run(_get("-f", "-", *_in(namespace), *_OWNED), json.dumps(_list(plain))))
        if plain
        else []
    )
    names_after = {(it["kind"], it["metadata"]["name"]) for it in wanted if is_custom(it)}
    referenced: list[Manifest] = []
    pods: list[Manifest] = []
    revisions: list[Manifest] = []
    slurm: dict[Key, SlurmState] = {}
    for space in spaces:
        kinds = ",".join(f"{plural}.{GROUP}" for plural in PLURALS.values())
        found = _items(run(_get(kinds, *_in(space), *_OWNED), ""))
        found = [
            it
            for it in found
            if (it["kind"], it["metadata"]["name"]) in names_after or _is_of(it, release)
        ]
        before += found
        custom = [*found, *(with_namespace(it, namespace) for it in wanted if is_custom(it))]
        for it in _referenced(custom, space, run):
            (before if _is_of(it, release) else referenced).append(it)
        pods += _items(run(_get("pods", *_in(space), "-l", f"{names.APP_NAME}=slurmd"), ""))
        revisions += _items(
            run(_get("controllerrevisions", *_in(space), "-l", f"{names.APP_NAME}=slurmd"), "")
        )
        for controller in (it for it in found if it["kind"] == "Controller"):
            name = controller["metadata"]["name"]
            if not controller["spec"].get("external"):
                slurm[space, name] = _slurm(space, name, run)
    kube_nodes = _items(run(_get("nodes"), "")) if spaces else []
    claims = [
        it
        for space in spaces
        for it in _items(
            run(
                _get("persistentvolumeclaims", *_in(space), "-l", f"{names.APP_NAME}=slurmctld"), ""
            )
        )
    ]
    state = State(
        now=time.time() if now is None else now,
        live=True,
        released=_released(release, namespace, run),
        referenced=_distinct(referenced),
        pods=pods,
        revisions=revisions,
        kube_nodes=kube_nodes,
        claims=claims,
        storage_classes=_storage_classes(run)
        if claims or any(it.get("kind") == _CLAIM for it in before)
        else None,
        slurm=slurm,
        refusals=_refusals([it for it in wanted if is_custom(it)], namespace, run),
    )
    return _distinct(before), state


_DRY_RUN = (
    "apply",
    "--server-side",
    "--force-conflicts",
    "--field-manager=helm",
    "--dry-run=server",
    "--output=name",
    "--filename=-",
)
_REFUSED = re.compile(
    r"[Ii]nvalid value|\(Invalid\)| is invalid|denied (?:the )?request|\(BadRequest\)"
    r"|exceeded quota|failed calling webhook"
)
"""What kubectl reports of an object that the API server refuses. Other failures are none: of
whoever may only read, of a namespace or a custom resource that the upgrade creates, and of a server
that doesn't answer.
"""
_LONGEST = 500
"""Characters of a refusal, which may repeat what the stream has: passwords are taken out first."""


def _refusals(
    custom: Sequence[Manifest], namespace: str, run: Kubectl
) -> dict[tuple[str, str, str], str]:
    """Return why the API server would refuse custom resources, by kind, namespace and name. Its dry
    run stores nothing.
    """
    objects = [with_namespace(it, namespace) for it in custom]
    if not objects or not _refusal(_list(objects), run):
        return {}
    found = {
        (it["kind"], it["metadata"]["namespace"], it["metadata"]["name"]): _refusal(it, run)
        for it in objects
    }
    return {key: why for key, why in found.items() if why}


def _refusal(manifest: Manifest, run: Kubectl) -> str:
    try:
        run(_DRY_RUN, json.dumps(manifest))
    except PostrenderError as error:
        if not _REFUSED.search(str(error)):
            return ""
        return redaction.text(" ".join(str(error).partition(": ")[2].split()))[:_LONGEST]
    return ""


_OWNED = ("--show-managed-fields",)


def _get(*words: str) -> list[str]:
    return ["get", *words, "--ignore-not-found", "-o", "json"]


def _in(namespace: str) -> list[str]:
    return ["-n", namespace] if namespace else []


def _list(items: Sequence[Manifest]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def _items(text: str) -> list[Manifest]:
    if not text.strip():
        return []
    found = json.loads(text)
    return list(found["items"]) if str(found.get("kind", "")).endswith("List") else [found]


def _is_of(manifest: Manifest, release: str) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    return bool(release) and annotations.get(RELEASE) == release


def _released(release: str, namespace: str, run: Kubectl) -> list[Manifest]:
    """Return the objects of the deployed release, which Helm keeps in a Secret
    (https://helm.sh/docs/topics/advanced/#storage-backends). Return [] if it can't be read.
    """
    if not release:
        return []
    selector = f"owner=helm,name={release},status=deployed"
    try:
        found = _items(run(_get("secrets", *_in(namespace), "-l", selector), ""))
        # Helm encodes what Kubernetes encodes again.
        stored = [base64.b64decode(base64.b64decode(it["data"]["release"])) for it in found]
        texts = [json.loads(gzip.decompress(it))["manifest"] for it in stored]
        return [it.value for text in texts for it in Stream.read(text.encode()).objects()]
    except (PostrenderError, OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return []


def _referenced(resources: Iterable[Manifest], namespace: str, run: Kubectl) -> list[Manifest]:
    """Return the Secrets and ConfigMaps that custom resources refer to, as far as they exist."""
    wanted = sorted(
        {
            it
            for manifest in resources
            for it in references.of(manifest)
            if it.namespace == namespace
        }
    )
    words = [f"{it.kind.lower()}/{it.name}" for it in wanted]
    return _items(run(_get(*words, *_in(namespace), *_OWNED), "")) if words else []


_CLAIM = "PersistentVolumeClaim"


def _storage_classes(run: Kubectl) -> dict[str, bool] | None:
    """Return whether claims can grow. None without the right to read StorageClasses, which few
    users of a namespace have.
    """
    try:
        found = _items(run(_get("storageclasses"), ""))
    except PostrenderError:
        return None
    return {it["metadata"]["name"]: bool(it.get("allowVolumeExpansion")) for it in found}


def _distinct(items: Iterable[Manifest]) -> list[Manifest]:
    by_identity = {
        (
            it.get("apiVersion"),
            it["kind"],
            it["metadata"].get("namespace"),
            it["metadata"]["name"],
        ): it
        for it in items
    }
    return list(by_identity.values())


def _slurm(namespace: str, controller: str, run: Kubectl) -> SlurmState:
    """Read nodes and jobs as slurmctld reports them in its pod, or the reason why it can't be
    asked.
    """
    pod = f"{names.controller(controller)}-0"
    at = ["exec", "-n", namespace, pod, "-c", "slurmctld", "--"]
    try:
        nodes = run([*at, "scontrol", "show", "nodes", "--json"], "")
        jobs = run([*at, "squeue", "--json"], "")
        node_list = protocol.decode(protocol.get_nodes(), 200, nodes.encode())
        job_list = protocol.decode(protocol.get_jobs(), 200, jobs.encode())
    except (PostrenderError, SlurmError) as error:
        return SlurmState(problem=str(error))
    if node_list is None or job_list is None:
        return SlurmState(problem=f"pod {pod} gives no list of nodes and jobs")
    return SlurmState(node_list.nodes, job_list.jobs)
