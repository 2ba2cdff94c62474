"""What a render needs beside the custom resource. Collected by the caller; this module reads
nothing.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sidecars.contract.manifest import SLURM_JWKS
from sidecars.workloads import names
from sidecars.workloads.resources import Accounting, KeySelector, LocalObjectReference, RestApi
from sidecars.workloads.structure import Workloads

NOTHING = hashlib.sha256().hexdigest()
"""The digest of no data."""


class MissingReferenceError(LookupError):
    """An object that a custom resource refers to doesn't exist yet or lacks the key: wait, then
    render again.
    """

    def __init__(self, kind: str, name: str, field: str, key: str | None = None) -> None:
        what = f"{kind} {name!r}" if key is None else f"key {key!r} in {kind} {name!r}"
        super().__init__(f"{field}: {what} doesn't exist")
        self.kind = kind
        self.name = name
        self.key = key
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is the same for every Slurm cluster that one operator looks after."""

    workloads: Workloads
    sidecars_image: str
    cluster_domain: str = "cluster.local"
    ipv6: bool = False
    """Whether the first address of each pod is one of IPv6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The objects around one Slurm cluster, all of its namespace. An object that doesn't exist is
    absent.
    """

    site: Site
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """A digest per key, by object name."""
    config_maps: Mapping[str, Mapping[str, str | bytes]] = field(default_factory=dict)
    """The contents by object name, see `config_map_contents`."""
    published: frozenset[str] = frozenset()
    """Names of the ConfigMaps that the operator wrote for this Controller."""
    accounting: Accounting | None = None
    """The Accounting of the Controller's accountingRef; None without one."""
    restapi: RestApi | None = None
    """The RestApi that serves the Controller (the oldest of several); None without one."""

    def secret(self, selector: KeySelector, place: str) -> str:
        """Return the digest of one key of a Secret. Raises MissingReferenceError."""
        found = _of(self.secrets, "Secret", selector, place)
        if selector.key not in found:
            raise MissingReferenceError("Secret", selector.name, place, selector.key)
        return found[selector.key]

    def slurm_keys(self, selector: KeySelector, place: str) -> str:
        """Return the digest of the keys of auth/slurm that daemons have. Raises
        MissingReferenceError as `secret` does.
        """
        named = self.secret(selector, place)
        ours = names.slurm_jwks(selector.name)
        return self.secrets[ours].get(SLURM_JWKS, named) if ours in self.secrets else named

    def config_map(self, selector: KeySelector, place: str) -> str:
        """Return the digest of one key of a ConfigMap. Raises MissingReferenceError."""
        found = _of(self.config_maps, "ConfigMap", selector, place)
        if selector.key not in found:
            raise MissingReferenceError("ConfigMap", selector.name, place, selector.key)
        return digest(found[selector.key])

    def files(
        self, references: Iterable[LocalObjectReference] | None, place: str
    ) -> dict[str, Mapping[str, str | bytes]]:
        """Return the contents of the ConfigMaps referred to, by name. Raises
        MissingReferenceError.
        """
        found = {}
        for reference in references or ():
            if reference.name not in self.config_maps:
                raise MissingReferenceError("ConfigMap", reference.name, place)
            found[reference.name] = self.config_maps[reference.name]
        return found


class UnreadKeys(Mapping[str, str]):
    """The keys of a Secret that exists and whose contents are not known: each has the digest of no
    data.
    """

    def __getitem__(self, key: str) -> str:
        return NOTHING

    def __contains__(self, key: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class UnreadObjects(Mapping[str, UnreadKeys]):
    """Secrets or ConfigMaps of any name, all of which exist and whose contents are not known."""

    def __getitem__(self, name: str) -> UnreadKeys:
        return UnreadKeys()

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_Keys = TypeVar("_Keys")


def _of(objects: Mapping[str, _Keys], kind: str, selector: KeySelector, place: str) -> _Keys:
    if selector.name not in objects:
        raise MissingReferenceError(kind, selector.name, place)
    return objects[selector.name]


def digest(text: str | bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def config_map_digests(
    data: Mapping[str, str] | None, binary_data: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return a digest for each key of a ConfigMap's `data` (text) and `binaryData` (base64)."""
    return {key: digest(value) for key, value in config_map_contents(data, binary_data).items()}


def config_map_contents(
    data: Mapping[str, str] | None, binary_data: Mapping[str, str] | None = None
) -> dict[str, str | bytes]:
    """Return the contents of a ConfigMap by key: `data` (text) and `binaryData` (base64)."""
    return {
        **(data or {}),
        **{key: base64.b64decode(value) for key, value in (binary_data or {}).items()},
    }


def combined(digests: Mapping[str, Mapping[str, str]]) -> str:
    """Return one digest of several objects' digests per key. It doesn't depend on the order of
    either.
    """
    return digest(
        "".join(
            f"{name}\0{key}\0{digests[name][key]}\n"
            for name in sorted(digests)
            for key in sorted(digests[name])
        )
    )
