"""The step `expand`: custom resources become the objects of an installation without an operator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from postrender import rules
from postrender.configuration import StepSettings
from postrender.errors import PostrenderError
from postrender.expand import standalone
from postrender.expand.cluster import Cluster, clusters, is_custom, with_namespace
from postrender.report import Run, finding
from postrender.stream import Document, Manifest, Object, Stream
from sidecars.contract.project import REGISTRY, VERSION
from sidecars.workloads import names, structure
from sidecars.workloads.facts import Site

DEFAULT_IMAGE = f"{REGISTRY}/sidecars:{VERSION}"


class SiteSettings(TypedDict, total=False):
    """What an operator would know of the Kubernetes cluster."""

    image: str
    domain: str
    workloads: str
    ipv6: bool


class Settings(SiteSettings, total=False):
    """Of the step."""

    secrets: list[str]
    allowedServiceAccounts: list[str]


def site(settings: SiteSettings, run: Run, place: str) -> Site:
    """`place`: of the setting `workloads`. Raises PostrenderError for a folder of workloads that
    can't be used.
    """
    named = settings.get("workloads")
    try:
        workloads = structure.load(run.file(named, place) if named else structure.folder(None))
    except structure.StructureError as error:
        raise PostrenderError(str(error)) from error
    return Site(
        workloads=workloads,
        sidecars_image=settings.get("image") or DEFAULT_IMAGE,
        cluster_domain=settings.get("domain") or "cluster.local",
        ipv6=settings.get("ipv6") or False,
    )


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    objects = list(stream.objects())
    found = clusters(
        (it.value for it in objects), run.namespace, step.settings.get("secrets") or ()
    )
    if not found:
        return
    custom = [it for it in objects if is_custom(it.value)]
    broken = [
        finding("invalid-resource", "error", it, *found)
        for it in custom
        for found in rules.messages(it.kind, it.value)
    ]
    if broken:  # what the API server would refuse, which never gets the custom resources
        run.findings += broken
        return
    used = site(step.settings, run, step.at("workloads"))
    allowed = step.settings.get("allowedServiceAccounts") or ()
    named = step.settings.get("image")
    expanded = {
        space: standalone.expand(cluster, used if named else _of_release(cluster, used), allowed)
        for space, cluster in found.items()
    }
    by_document: dict[Document, list[Object]] = {}
    for item in custom:
        by_document.setdefault(item.document, []).append(item)
    for document, resources in by_document.items():
        values: list[Manifest] = []
        for item in resources:
            metadata = with_namespace(item.value, run.namespace)["metadata"]
            values += expanded[metadata["namespace"]][item.kind, metadata["name"]]
        stream.insert_after(document, values)
        _remove(stream, document, [it.index for it in resources])


def _of_release(cluster: Cluster, used: Site) -> Site:
    """Return the site with the sidecars image that the chart's values name, which a Controller of
    the release has as an annotation.
    """
    for controller in cluster.controllers.values():
        image = (controller.metadata.annotations or {}).get(names.SIDECARS_IMAGE)
        if image:
            return replace(used, sidecars_image=image)
    return used


def _remove(stream: Stream, document: Document, indexes: Sequence[int | None]) -> None:
    """Remove the document, or these items of its `List`."""
    whole = document.value or {}
    others = [it for index, it in enumerate(whole.get("items") or ()) if index not in indexes]
    if None in indexes or not others:
        stream.remove(document)
    else:
        document.replace({**whole, "items": others})
