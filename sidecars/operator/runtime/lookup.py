"""Finds what a custom resource refers to, and what refers to it, in the caches."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sidecars.kube import Manifest
from sidecars.operator.runtime.caches import Caches
from sidecars.operator.runtime.contents import Contents, NotReadError
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.policy.reasons import Ready
from sidecars.workloads import names, references, resources, restapi
from sidecars.workloads.config_maps import CONFIG_MAPS
from sidecars.workloads.facts import Facts, Site, digest

log = logging.getLogger(__name__)
V = TypeVar("V")


class Lookup:
    """`slurmrestd_url`: one address for all Controllers instead of their Services, None
    normally.
    """

    def __init__(
        self, caches: Caches, contents: Contents, site: Site, slurmrestd_url: str | None = None
    ) -> None:
        self._caches = caches
        self._contents = contents
        self._site = site
        self._slurmrestd_url = slurmrestd_url
        self._controllers: dict[Key, tuple[Manifest, resources.Controller]] = {}

    def controller(self, namespace: str, name: str) -> resources.Controller | None:
        """Return the Controller of that name, or None if none exists. Raises ResourceError for one
        that can't be read.
        """
        manifest = self._caches.controllers.store.get(namespace, name)
        if manifest is None:
            self._controllers.pop((namespace, name), None)
            return None
        known = self._controllers.get((namespace, name))
        # Each poll of its Slurm asks for its key, mostly without a change of the Controller.
        if known is None or known[0] is not manifest:
            known = self._controllers[namespace, name] = (
                manifest,
                resources.read(resources.Controller, manifest),
            )
        return known[1]

    def needed_controller(self, namespace: str, name: str) -> resources.Controller:
        """Return the Controller that a controllerRef names. Raises NotUsableError if none exists,
        ResourceError.
        """
        controller = self.controller(namespace, name)
        if controller is None:
            message = (
                f"spec.controllerRef: no Controller {name!r} exists in {namespace!r}: create it, "
                "or correct the name"
            )
            raise NotUsableError(Ready.CONTROLLER_MISSING, message)
        return controller

    def controller_of_nodeset(self, nodeset: Key) -> Key:
        """Return namespace and name of the Controller of a NodeSet, without a name for a NodeSet
        that does not exist.
        """
        manifest = self._caches.nodesets.store.get(*nodeset)
        return controller_of(manifest) if manifest is not None else (nodeset[0], "")

    def controller_of_pod(self, pod: Key) -> Key:
        """Return namespace and name of the Controller of a worker pod, without a name for a pod
        that does not exist.
        """
        record = self._caches.pods.store.get(*pod)
        return pod[0], record.metadata.labels.get(names.CLUSTER, "") if record is not None else ""

    def nodesets_of(self, namespace: str, controller: str) -> list[resources.NodeSet]:
        """Return the NodeSets that refer to the Controller, by name. Unreadable ones are left out
        and logged.
        """
        return sorted(
            _readable(
                self._caches.nodesets.store.values(), resources.NodeSet, namespace, controller
            ),
            key=lambda nodeset: nodeset.name,
        )

    def loginsets_of(self, namespace: str, controller: str) -> list[resources.LoginSet]:
        """Return the LoginSets that refer to the Controller. Unreadable ones are left out and
        logged.
        """
        return _readable(
            self._caches.loginsets.store.values(), resources.LoginSet, namespace, controller
        )

    def controllers_of(self, namespace: str, accounting: str) -> list[resources.Controller]:
        """Return the Controllers that use the Accounting. Unreadable ones are left out and
        logged.
        """
        found = []
        for manifest in self._caches.controllers.store.values():
            metadata, spec = manifest["metadata"], manifest.get("spec") or {}
            if (metadata["namespace"], (spec.get("accountingRef") or {}).get("name")) == (
                namespace,
                accounting,
            ):
                try:
                    found.append(resources.read(resources.Controller, manifest))
                except resources.ResourceError as error:
                    log.warning(
                        "Controller %s/%s can't be read: %s", namespace, metadata["name"], error
                    )
        return found

    def users_of(self, namespace: str, controller: str) -> list[str]:
        """Return the names of the NodeSets that refer to the Controller, readable or not."""
        nodesets = self._caches.nodesets.store.values()
        return sorted(
            item["metadata"]["name"]
            for item in nodesets
            if controller_of(item) == (namespace, controller)
        )

    def restapi_of(self, namespace: str, controller: str) -> resources.RestApi | None:
        """Return the RestApi that serves the Controller: the oldest, then the first by name. Return
        None if none exists.
        """
        found = _readable(
            self._caches.restapis.store.values(), resources.RestApi, namespace, controller
        )
        return min(
            found,
            key=lambda restapi: (str(restapi.metadata.creation_timestamp), restapi.name),
            default=None,
        )

    def url(self, served_by: resources.RestApi | None) -> str | None:
        """Return the address at which slurmrestd answers, None without a RestApi."""
        return None if served_by is None else self._slurmrestd_url or restapi.url(served_by)

    async def facts(self, controller: resources.Controller, user: Manifest | None = None) -> Facts:
        """Return what surrounds the Controller, with what it refers to, and what `user` refers to,
        another custom resource.

        Raises KubeError and NotUsableError where that can't be read, ResourceError for its
        Accounting.
        """
        namespace, accounting = controller.namespace, None
        if controller.spec.accounting_ref is not None:
            manifest = self._caches.accountings.store.get(
                namespace, controller.spec.accounting_ref.name
            )
            accounting = (
                resources.read(resources.Accounting, manifest) if manifest is not None else None
            )
        own = self._caches.controllers.store.get(namespace, controller.name)
        return replace(
            await self.namespace_facts(namespace, *(it for it in (own, user) if it is not None)),
            published=frozenset(
                self.config_maps(namespace, partial(names.config, controller.name))
            ),
            accounting=accounting,
            restapi=self.restapi_of(namespace, controller.name),
        )

    def config_maps(self, namespace: str, name: Callable[[int], str]) -> dict[str, Manifest]:
        """Return the ConfigMaps with a Controller's files that exist, by name. `name` gives their
        names by index.
        """
        found = {
            name(index): self._caches.own_config_maps.store.get(namespace, name(index))
            for index in range(CONFIG_MAPS)
        }
        return {name: manifest for name, manifest in found.items() if manifest is not None}

    async def namespace_facts(self, namespace: str, *users: Manifest) -> Facts:
        """Return the Secrets and ConfigMaps of a namespace that these custom resources refer to.

        Raises KubeError and NotUsableError where one can't be read.
        """
        await self._contents.read(
            {reference for user in users for reference in references.of(user)}
        )
        return Facts(
            site=self._site,
            secrets=_Referenced(partial(self._digests, namespace)),
            config_maps=_Referenced(partial(self._contents.config_map, namespace)),
        )

    def _digests(self, namespace: str, name: str) -> Mapping[str, str] | None:
        secret = self._contents.secret(namespace, name)
        return (
            {key: digest(value) for key, value in secret.data.items()}
            if secret is not None
            else None
        )

    def secret_value(
        self, namespace: str, facts: Facts, selector: resources.KeySelector, place: str
    ) -> bytes:
        """Return the value of a key of a Secret. Raises MissingReferenceError, which names the
        `place` that refers to it.
        """
        facts.secret(selector, place)
        secret = self._contents.secret(namespace, selector.name)
        return secret.data[selector.key] if secret is not None else b""

    def jwt_key(self, key: Key) -> bytes | None:
        """Return the key that signs tokens for a Controller's Slurm, or None while its Secret or
        the Controller is missing.

        None too for a Controller that can't be read. A Secret that has not been read yet is read by
        the Controller's next pass.
        """
        try:
            controller = self.controller(*key)
        except resources.ResourceError:
            return None
        reference = controller.jwt_key_ref if controller is not None else None
        if reference is None:
            return None
        try:
            secret = self._contents.secret(key[0], reference.name)
        except NotReadError:
            return None
        return secret.data.get(reference.key) if secret is not None else None


class _Referenced(Mapping[str, V]):
    """Objects by name, each looked up when it is first asked for, and the same from then on.

    A custom resource refers to a handful of the thousands that a namespace may have, so they can't
    be listed.
    """

    def __init__(self, find: Callable[[str], V | None]) -> None:
        self._find = find
        self._found: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._found:
            item = self._find(name)
            if item is None:
                raise KeyError(name)
            self._found[name] = item
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _readable(
    manifests: Iterable[Manifest], kind: type[Any], namespace: str, controller: str
) -> list[Any]:
    found = []
    for manifest in manifests:
        if controller_of(manifest) != (namespace, controller):
            continue
        try:
            found.append(resources.read(kind, manifest))
        except resources.ResourceError as error:
            log.warning(
                "%s %s/%s is left out: %s",
                kind.__name__,
                namespace,
                manifest["metadata"]["name"],
                error,
            )
    return found


def controller_of(manifest: Manifest) -> Key:
    """Return namespace and name of the Controller that a controllerRef names. The name is empty
    without one.
    """
    reference = (manifest.get("spec") or {}).get("controllerRef") or {}
    return manifest["metadata"]["namespace"], reference.get("name", "")
