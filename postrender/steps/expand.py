"""The step `expand`: custom resources become the objects of an installation without an operator."""

from collections.abc import Sequence
from typing import TypedDict

from postrender.configuration import StepSettings
from postrender.errors import PostrenderError
from postrender.expand import standalone
from postrender.expand.cluster import clusters, is_custom, with_namespace
from postrender.report import Run
from postrender.stream import Document, Manifest, Object, Stream
from sidecars.workloads import structure
from sidecars.workloads.facts import Site

DEFAULT_IMAGE = f"ghcr.io/slurm-charts/sidecars:{structure.VERSION}"


class SiteSettings(TypedDict, total=False):
    """What an operator would know of the Kubernetes cluster."""

    image: str
    domain: str
    workloads: str


class Settings(SiteSettings, total=False):
    """Of the step."""

    secrets: list[str]


def site(settings: SiteSettings, run: Run, place: str) -> Site:
    """`place`: of the setting `workloads`. Raises PostrenderError for a folder of workloads that can't be used."""
    named = settings.get("workloads")
    try:
        workloads = structure.load(run.file(named, place) if named else structure.folder(None))
    except structure.StructureError as error:
        raise PostrenderError(str(error)) from error
    return Site(
        workloads=workloads,
        sidecars_image=settings.get("image") or DEFAULT_IMAGE,
        cluster_domain=settings.get("domain") or "cluster.local",
    )


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    objects = list(stream.objects())
    found = clusters((it.value for it in objects), run.namespace, step.settings.get("secrets") or ())
    if not found:
        return
    used = site(step.settings, run, step.at("workloads"))
    expanded = {space: standalone.expand(cluster, used) for space, cluster in found.items()}
    by_document: dict[Document, list[Object]] = {}
    for item in objects:
        if is_custom(item.value):
            by_document.setdefault(item.document, []).append(item)
    for document, resources in by_document.items():
        values: list[Manifest] = []
        for item in resources:
            metadata = with_namespace(item.value, run.namespace)["metadata"]
            values += expanded[metadata["namespace"]][item.kind, metadata["name"]]
        stream.insert_after(document, values)
        _remove(stream, document, [it.index for it in resources])


def _remove(stream: Stream, document: Document, indexes: Sequence[int | None]) -> None:
    """Remove the document, or these items of its `List`."""
    whole = document.value or {}
    others = [it for index, it in enumerate(whole.get("items") or ()) if index not in indexes]
    if None in indexes or not others:
        stream.remove(document)
    else:
        document.replace({**whole, "items": others})
