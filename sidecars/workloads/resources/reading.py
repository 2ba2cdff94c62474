"""Manifests as records of their kind, and back. Validates types only; the rules between fields are
in the CRDs.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from sidecars.objects import Manifest
from sidecars.workloads.resources.accounting import Accounting
from sidecars.workloads.resources.common import (
    API_VERSION,
    Json,
    Part,
    Resource,
    ResourceError,
)
from sidecars.workloads.resources.controller import Controller
from sidecars.workloads.resources.loginset import LoginSet
from sidecars.workloads.resources.nodeset import NodeSet
from sidecars.workloads.resources.restapi import RestApi
from sidecars.workloads.resources.token import Token

AnyResource: TypeAlias = Controller | Accounting | RestApi | LoginSet | NodeSet | Token

KINDS: Mapping[str, type[AnyResource]] = {
    "Accounting": Accounting,
    "Controller": Controller,
    "LoginSet": LoginSet,
    "NodeSet": NodeSet,
    "RestApi": RestApi,
    "Token": Token,
}

PLURALS: Mapping[str, str] = {kind: f"{kind.lower()}s" for kind in KINDS}

R = TypeVar("R", bound=Resource)


def read(kind: type[R], manifest: Manifest) -> R:
    """Return a manifest (parsed JSON or YAML) as a record of `kind` (`Controller`, …).

    Nulls count as absent, as for the apiserver; unknown fields are ignored. Raises ResourceError,
    which names the field, for a wrong type, a missing required field and another kind or version.
    """
    version, found = manifest.get("apiVersion", API_VERSION), manifest.get("kind", kind.__name__)
    if version != API_VERSION:
        raise ResourceError("apiVersion", f"{version!r} isn't {API_VERSION}")
    if found != kind.__name__:
        raise ResourceError("kind", f"{found!r} isn't {kind.__name__}")
    try:
        return msgspec.convert(_without_nulls(manifest), kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise ResourceError(place.rstrip("`").lstrip(".") or kind.__name__, problem) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def builtins(part: Part) -> Json:
    """Return the JSON form of a record, as it stands in a manifest: only what differs from the
    defaults.
    """
    return cast("Json", msgspec.to_builtins(part))
