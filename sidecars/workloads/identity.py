"""Which ServiceAccounts' tokens the pods of custom resources may have.

Whoever may write a custom resource need not be allowed to create pods: a pod template that names
the ServiceAccount of another program would give its rights to them.
"""

from collections.abc import Collection, Iterator
from typing import Any, TypeVar

from sidecars.workloads.merge import kind_of
from sidecars.workloads.resources import Json, ResourceError

T = TypeVar("T", list[Any], dict[str, Any])

_PLACE = "spec.template.spec"
_SOURCES = ("serviceAccountToken", "podCertificate")
"""Sources of a projected volume that prove who the pod is."""


def check(spec: Json, namespace: str, allowed: Collection[str], setting: str) -> None:
    """Raise ResourceError for a PodSpec whose pods get a token of a ServiceAccount that isn't
    `allowed`.

    `allowed`: as NAMESPACE/NAME, from the `setting` that the message names. A ServiceAccount
    without its token is not looked at.
    """
    account = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")
    place = f"{namespace}/{account}"
    if place in allowed:
        return
    for field, remedy in _tokens(spec):
        raise ResourceError(
            f"{_PLACE}.{field}",
            f"pods would get a token of the ServiceAccount {account!r}: {remedy}, or have an "
            f"administrator add {place!r} to {setting}",
        )


def _tokens(spec: Json) -> Iterator[tuple[str, str]]:
    """Yield the fields by which a pod gets a token, and what ends that. Without the field,
    Kubernetes mounts one.
    """
    if spec.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken", "set it to false"
    for index, volume in enumerate(spec.get("volumes") or ()):
        place = f"volumes[{index}]"
        projected = _of(dict, _of(dict, volume, place).get("projected"), f"{place}.projected")
        place = f"{place}.projected.sources"
        for number, item in enumerate(_of(list, projected.get("sources"), place)):
            source = _of(dict, item, f"{place}[{number}]")
            for kind in _SOURCES:
                if source.get(kind) is not None:
                    yield place, f"remove the {kind}"


def _of(kind: type[T], value: Any, place: str) -> T:
    """Return the value, or an empty one of its kind for null."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        wanted = kind_of(kind())
        raise ResourceError(f"{_PLACE}.{place}", f"{kind_of(value)} stands where {wanted} belongs")
    return value
