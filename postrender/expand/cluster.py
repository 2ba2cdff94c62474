"""The custom resources of one namespace, and the Secrets and ConfigMaps that they refer to."""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postrender.errors import PostrenderError
from sidecars.workloads import names
from sidecars.workloads.facts import Facts, Site, UnreadKeys, config_map_contents, digest
from sidecars.workloads.resources import (
    API_VERSION,
    GROUP,
    PLURALS,
    Accounting,
    Controller,
    LoginSet,
    Manifest,
    NodeSet,
    Resource,
    ResourceError,
    RestApi,
    Token,
    read,
)

R = TypeVar("R", bound=Resource)

HOOK = "helm.sh/hook"
_SCALED_BY_OTHERS = "NodeSet without replicas"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a stream has of one namespace. Of each kind by name, in the order of the names."""

    namespace: str
    controllers: Mapping[str, Controller]
    accountings: Mapping[str, Accounting]
    restapis: Mapping[str, RestApi]
    loginsets: Mapping[str, LoginSet]
    nodesets: Mapping[str, NodeSet]
    tokens: Mapping[str, Token]
    secrets: Mapping[str, Mapping[str, bytes] | None]
    """The contents by name; None for a Secret whose contents the render doesn't know."""
    config_maps: Mapping[str, Mapping[str, str | bytes]] = field(default_factory=dict)
    scaled_by_others: frozenset[str] = frozenset()
    """NodeSets whose `replicas` are not in the stream: whoever scales them sets the number."""

    def controller(self, user: LoginSet | NodeSet | RestApi) -> Controller:
        """Return the Controller that a resource refers to. Raises PostrenderError."""
        name = user.spec.controller_ref.name
        if name not in self.controllers:
            raise PostrenderError(
                f"{label(user)}: spec.controllerRef: the stream has no Controller {name!r}: add "
                "it, or correct the name"
            )
        return self.controllers[name]

    def nodesets_of(self, controller: Controller) -> list[NodeSet]:
        """Return the NodeSets of a Controller, by name."""
        return [
            it for it in self.nodesets.values() if it.spec.controller_ref.name == controller.name
        ]

    def restapi_of(self, controller: Controller) -> RestApi | None:
        """Return the RestApi that serves a Controller: the oldest, then the first by name. Return
        None without one.
        """
        found = [
            it for it in self.restapis.values() if it.spec.controller_ref.name == controller.name
        ]
        return min(
            found, key=lambda it: (str(it.metadata.creation_timestamp), it.name), default=None
        )

    def controllers_of(self, accounting: Accounting) -> list[Controller]:
        """Return the Controllers that use it, by name."""
        found = ((it, it.spec.accounting_ref) for it in self.controllers.values())
        return [
            it
            for it, reference in found
            if reference is not None and reference.name == accounting.name
        ]

    def facts(
        self,
        site: Site,
        controller: Controller | None = None,
        published: frozenset[str] = frozenset(),
    ) -> Facts:
        """Collect the facts that a render needs beside the custom resource. Raises
        PostrenderError.
        """
        accounting = None
        if controller is not None and controller.spec.accounting_ref is not None:
            accounting = self.accountings.get(controller.spec.accounting_ref.name)
            if accounting is None:
                raise PostrenderError(
                    f"{label(controller)}: spec.accountingRef: the stream has no Accounting "
                    f"{controller.spec.accounting_ref.name!r}: add it, or correct the name"
                )
        return Facts(
            site=site,
            secrets={
                name: UnreadKeys()
                if data is None
                else {key: digest(value) for key, value in data.items()}
                for name, data in self.secrets.items()
            },
            config_maps=self.config_maps,
            published=published,
            accounting=accounting,
            restapi=self.restapi_of(controller) if controller is not None else None,
        )


def label(resource: Resource) -> str:
    """Return a custom resource as messages name it."""
    return f"{resource.kind} {resource.namespace}/{resource.name}"


def is_custom(document: Manifest) -> bool:
    """Return whether it is one of the six custom resources, in any version, and no hook."""
    group, _, _ = str(document.get("apiVersion", "")).partition("/")
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    return group == GROUP and document.get("kind") in PLURALS and HOOK not in annotations


def clusters(
    documents: Iterable[Manifest], namespace: str = "", secrets: Sequence[str] = ()
) -> dict[str, Cluster]:
    """Return the clusters in the stream, by namespace. Hooks don't count. `namespace` is that of
    objects that name none. `secrets` are Secrets that exist although the stream doesn't contain
    them. Raises PostrenderError.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for document in documents:
        kind, metadata = document.get("kind"), document.get("metadata") or {}
        if is_custom(document):
            resource = typed(with_namespace(document, namespace))
            there = found.setdefault(resource.namespace, {})
            _add(there.setdefault(resource.kind, {}), resource)
            if kind == "NodeSet" and (document.get("spec") or {}).get("replicas") is None:
                there.setdefault(_SCALED_BY_OTHERS, {})[resource.name] = resource
        elif (
            document.get("apiVersion") == "v1"
            and kind in {"Secret", "ConfigMap"}
            and HOOK not in (metadata.get("annotations") or {})
        ):
            of = found.setdefault(metadata.get("namespace") or namespace, {}).setdefault(
                str(kind), {}
            )
            of[str(metadata.get("name"))] = (_secret if kind == "Secret" else _config_map)(document)
    return {
        space: _cluster(space, of, secrets)
        for space, of in found.items()
        if PLURALS.keys() & of.keys()
    }


def with_namespace(document: Manifest, namespace: str) -> Manifest:
    """Return the custom resource in its namespace, or in this one if it names none. Raises
    PostrenderError without both.
    """
    metadata = document.get("metadata") or {}
    space = metadata.get("namespace") or namespace
    if not space:
        raise PostrenderError(
            f"{document.get('kind')} {metadata.get('name')!r} has no metadata.namespace: give the "
            "namespace of the release to the post-renderer"
        )
    return document | {"metadata": metadata | {"namespace": space}}


def typed(document: Manifest) -> Any:
    """Return the custom resource as a record of its kind. Raises PostrenderError."""
    if document["apiVersion"] != API_VERSION:
        raise PostrenderError(
            f"{document['kind']} {document['metadata'].get('name')!r}: apiVersion "
            f"{document['apiVersion']!r} isn't {API_VERSION}: change it"
        )
    kinds = (Accounting, Controller, LoginSet, NodeSet, RestApi, Token)
    kind: type[Resource] = next(it for it in kinds if it.__name__ == document["kind"])
    try:
        return read(kind, document)
    except ResourceError as error:
        where = (
            f"{document['kind']} "
            f"{document['metadata'].get('namespace')}/{document['metadata'].get('name')}"
        )
        raise PostrenderError(f"{where}: {error}") from error


def _add(of: dict[str, Any], resource: Resource) -> None:
    if resource.name in of:
        raise PostrenderError(f"{label(resource)} is in the stream twice: remove one of them")
    if not resource.name:
        raise PostrenderError(f"a {resource.kind} has no metadata.name: name it")
    of[resource.name] = resource


def _cluster(
    namespace: str, of: Mapping[str, Mapping[str, Any]], secrets: Sequence[str]
) -> Cluster:
    def named(kind: str) -> dict[str, Any]:
        return dict(sorted(of.get(kind, {}).items()))

    return Cluster(
        namespace=namespace,
        controllers=named("Controller"),
        accountings=named("Accounting"),
        restapis=named("RestApi"),
        loginsets=named("LoginSet"),
        nodesets=named("NodeSet"),
        tokens=named("Token"),
        # One that is named and empty in the stream gets its content in the namespace.
        secrets=dict.fromkeys(secrets)
        | {name: it for name, it in named("Secret").items() if it or name not in secrets},
        config_maps=named("ConfigMap"),
        scaled_by_others=frozenset(named(_SCALED_BY_OTHERS)),
    )


def _secret(document: Manifest) -> Mapping[str, bytes] | None:
    """Return the contents, or None where a key is generated later, or where only the cluster knows
    it.
    """
    metadata = document["metadata"]
    data: dict[str, bytes] = {
        key: str(it).encode() for key, it in (document.get("stringData") or {}).items()
    }
    for key, value in (document.get("data") or {}).items():
        try:
            data.setdefault(key, base64.b64decode(value or "", validate=True))
        except (binascii.Error, ValueError, TypeError) as error:
            raise PostrenderError(
                f"Secret {metadata.get('name')!r}: data.{key} isn't base64: encode it, or use "
                "stringData"
            ) from error
    wanted = (metadata.get("annotations") or {}).get(names.GENERATE)
    return None if wanted and wanted not in data else data


def _config_map(document: Manifest) -> Mapping[str, str | bytes]:
    try:
        return config_map_contents(document.get("data"), document.get("binaryData"))
    except (binascii.Error, ValueError, TypeError) as error:
        name = (document.get("metadata") or {}).get("name")
        raise PostrenderError(f"ConfigMap {name!r}: binaryData isn't base64: encode it") from error
