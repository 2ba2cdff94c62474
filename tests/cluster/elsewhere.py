"""`make up` on a cluster of KUBECONFIG: with REGISTRY, the images are built here and pushed for its
nodes to pull.

Everything that can be wrong is looked at before the first change, the cheapest first.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sidecars.contract.project import REGISTRY
from tests.cluster import cache, images, install, preconditions, preflight, registry
from tests.cluster.errors import ClusterError
from tests.cluster.install import CHARTS, OPERATOR_NAMESPACE, SLURM_NAMESPACE, Target
from tests.cluster.progress import Progress
from tests.cluster.registry import Registry
from tests.cluster.tools import built, tool

SECRET = "registry-credentials"
VALUES = CHARTS.parent / "build" / "up"
"""The folder with the values files that are written here."""


def up(kubeconfig: str, progress: Progress) -> None:
    """Slurm on that cluster, and a first job. Raises ClusterError with the remedy."""
    chosen = registry.chosen()
    own = install.chosen_values(local=False)
    target = Target(kubeconfig)
    if chosen is not None:
        with progress.step("preconditions"):
            preconditions.demand(preconditions.observe_for_images(cold=not built("push")))
    install.check_reachable(target, progress)
    objects = install.check_charts(own, progress)
    if chosen is not None:
        demand_one_registry(chosen, own)
    privileged = preflight.needs_privileges(objects)
    facts = _check_cluster(target, chosen, objects, privileged, progress)
    operator: tuple[Path, ...] = ()
    if chosen is not None:
        digests = _push(chosen, progress)
        with progress.step("namespaces and pull Secret"):
            preflight.create_namespaces(target, privileged=privileged)
            secret = _pull_secret(target, chosen, digests, progress)
        operator, of_slurm = (
            (_write(chart, chosen, digests, secret, facts),)
            for chart in ("slurm-operator", "slurm")
        )
        target = Target(kubeconfig, values=of_slurm)
    else:
        with progress.step("namespaces"):
            preflight.create_namespaces(target, privileged=privileged)
    if install.install(target, install.releases((*target.values, *own), operator), progress):
        output = install.first_job(target, progress)
        progress.note(f"\n{output or ''}")
    else:
        progress.note(
            "\nSlurm is up already, as the charts and values describe it: nothing was done.\n"
        )
    progress.note(install.how_to(target))


def demand_one_registry(chosen: Registry, values: Iterable[Path]) -> None:
    """Raises ClusterError if values of the user, which replace those that are written here, name
    another registry.
    """
    for path in values:
        common = (yaml.safe_load(path.read_text()) or {}).get("global") or {}
        named = str(common.get("imageRepository") or "").rstrip("/")
        if named and named != str(chosen):
            raise ClusterError(
                f"{path} sets global.imageRepository to {named}, and REGISTRY is {chosen}, to "
                "which the images are pushed: remove global.imageRepository from the file, or "
                f"set it to {chosen}"
            )


def _check_cluster(
    target: Target,
    chosen: Registry | None,
    objects: Sequence[Mapping[str, Any]],
    privileged: bool,
    progress: Progress,
) -> preflight.Facts:
    if not built("push"):
        with progress.step("the program for registries (built once, a minute)"):
            tool("push")
    with progress.step("what the cluster offers"):
        facts = preflight.observe(target, objects, images.architecture() if chosen else None)
        if chosen is None:
            facts = preflight.with_missing_images(facts, _missing(target, objects))
        preflight.demand(facts)
        if privileged:
            preflight.check_admission(target)
    if crowded := preflight.crowded(objects, len(facts.nodes)):
        progress.note(crowded)
    return facts


def _push(chosen: Registry, progress: Progress) -> dict[str, str]:
    """Build the images and push them; the digest of each by NAME:TAG."""
    names = list(images.IMAGES)
    with progress.step(f"rights at {chosen}"):
        registry.check(chosen, names)
    with progress.step("images"):
        archive = images.build_images(cache.root(), progress.announce)
    with progress.step(f"push to {chosen}"):
        return registry.push(chosen, archive, names, progress.announce)


def _pull_secret(
    target: Target, chosen: Registry, digests: Mapping[str, str], progress: Progress
) -> str | None:
    """The name of the Secret with which the nodes pull. None: the images are public, or nothing is
    stored for them.
    """
    references = [f"{chosen}/{image}" for image in digests]
    if registry.readable(chosen, references, anonymously=True):
        return None
    stored = registry.credentials(chosen)
    if not stored.password:
        progress.note(
            f"The images in {chosen} are not public, and no password is stored for it that "
            "Kubernetes can use. If the nodes can't pull them, name a Secret of your own in "
            "global.imagePullSecrets of VALUES."
        )
        return None
    for namespace in (OPERATOR_NAMESPACE, SLURM_NAMESPACE):
        secret = registry.pull_secret(SECRET, namespace, chosen.host, stored)
        target.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(secret)
        )
    return SECRET


def _write(
    chart: str,
    chosen: Registry,
    digests: Mapping[str, str],
    secret: str | None,
    facts: preflight.Facts,
) -> Path:
    """The values file of a chart for this registry and cluster."""
    common: dict[str, Any] = {"imageRepository": str(chosen)}
    if secret is not None:
        common["imagePullSecrets"] = [{"name": secret}]
    values: dict[str, Any] = {
        "global": common,
        **yaml.safe_load(registry.pinned(CHARTS / chart, digests)),
    }
    if len(set(facts.nodes.values())) > 1:
        add_architecture(
            values,
            yaml.safe_load((CHARTS / chart / "values.yaml").read_text()),
            images.architecture(),
        )
    head = (
        f"# Written by `make up` with REGISTRY={chosen}: pass this file before your own values.\n"
    )
    path = VALUES / f"{chart}.yaml"
    cache.write(path, head + yaml.safe_dump(values, sort_keys=False, width=1000))
    return path


def add_architecture(
    values: dict[str, Any], defaults: Mapping[str, Any], architecture: str
) -> None:
    """Have each pod that the default values send to nodes with Linux run on nodes of this
    architecture.
    """
    for key, default in defaults.items():
        if key == "nodeSelector" and "kubernetes.io/os" in (default or {}):
            values[key] = {"kubernetes.io/arch": architecture}
        elif isinstance(default, Mapping):
            below = values.setdefault(key, {})
            add_architecture(below, default, architecture)
            if not below:
                del values[key]


def _missing(target: Target, objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Those of the default images that a node lacks, if they can't be pulled from their
    registry.
    """
    wanted = default_images(objects)
    nodes = json.loads(target.kubectl("get", "nodes", "-o", "json"))["items"]
    present = [
        {name for image in node["status"].get("images", []) for name in image.get("names", [])}
        for node in nodes
        if preflight.usable(node)
    ]
    absent = [image for image in wanted if not all(image in names for names in present)]
    host, _, path = REGISTRY.partition("/")
    return (
        absent
        if absent and not registry.readable(Registry(host, path), absent, anonymously=False)
        else []
    )


def default_images(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """The images in these objects that are those of the charts' default values."""
    found = re.findall(rf"{re.escape(REGISTRY)}/[\w./-]+:[\w.-]+", json.dumps(list(objects)))
    return sorted(set(found))
