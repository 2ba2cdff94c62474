"""Kubernetes' own types, for parts of values that the charts pass to Kubernetes unchanged.

The fields are those of all versions of Kubernetes in the range, together: a chart can't know which
of them the cluster has. All fields are nullable: Kubernetes' API treats `null` like a missing
field.
"""

import functools
import importlib.resources as packaged
import json
from typing import Any

Schema = dict[str, Any]

VERSIONS = tuple(f"1.{minor}.0" for minor in range(29, 38))
PACKAGES = (
    "api.core.v1",
    "apimachinery.pkg.apis.meta.v1",
    "apimachinery.pkg.api.resource",
    "apimachinery.pkg.util.intstr",
)
KEPT = ("type", "required", "properties", "additionalProperties", "items", "oneOf", "$ref")
PARTIAL = frozenset({"HTTPGetAction", "TCPSocketAction", "GRPCAction"})
"""Types that values may contain in part, because they are merged over those of the pod: nothing in
them is required.
"""

CHOICES = {
    ("Container", "imagePullPolicy"): ["Always", "IfNotPresent", "Never", "", None],
    ("HostPathVolumeSource", "type"): [
        *(
            "",
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ),
        None,
    ],
    ("LabelSelectorRequirement", "operator"): ["In", "NotIn", "Exists", "DoesNotExist"],
    ("NodeSelectorRequirement", "operator"): ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
    ("PersistentVolumeClaimSpec", "volumeMode"): ["Filesystem", "Block", "", None],
    ("ServiceSpec", "externalTrafficPolicy"): ["Cluster", "Local", "", None],
    ("ServiceSpec", "internalTrafficPolicy"): ["Cluster", "Local", None],
    ("ServiceSpec", "sessionAffinity"): ["ClientIP", "None", "", None],
    ("Toleration", "effect"): ["NoSchedule", "PreferNoSchedule", "NoExecute", "", None],
    ("Toleration", "operator"): ["Exists", "Equal", "Lt", "Gt", "", None],
    ("TopologySpreadConstraint", "whenUnsatisfiable"): ["DoNotSchedule", "ScheduleAnyway"],
}
"""Values of fields that Kubernetes describes in words only."""

QUANTITY: Schema = {
    "pattern": "^[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    "remedy": "Set a number, and a unit of Kubernetes such as `500m`, `10Gi` or `10G`.",
}
RESOURCES: Schema = {
    "pattern": "^(cpu|memory|ephemeral-storage|hugepages-[^/]+|[^/]+/[^/]+)$",
    "remedy": "Use cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with its domain, for "
    "example nvidia.com/gpu.",
}
"""Names of the resources of containers and pods."""


@functools.cache
def _types(version: str) -> dict[str, Schema]:
    folder = (
        packaged.files("kubernetes_validate")
        / "kubernetes-json-schema"
        / f"v{version}-local-strict"
    )
    content = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))
    return dict(content["$defs"])


def definition(name: str) -> Schema:
    """Return a type by its short name, such as `Toleration`. References in it are
    `#/definitions/NAME`.

    Raises KeyError if Kubernetes has no such type.
    """
    found = [
        _plain(each) for each in (_found(name, version) for version in VERSIONS) if each is not None
    ]
    if not found:
        raise KeyError(name)
    result = dict(found[-1])
    if "properties" in result:
        result["properties"] = {
            key: child for each in found for key, child in each.get("properties", {}).items()
        }
    if name == "Quantity":
        result |= QUANTITY
    if name == "ResourceRequirements":
        for field in ("limits", "requests"):
            result["properties"][field] = {
                **result["properties"][field],
                "propertyNames": RESOURCES,
            }
    if name in PARTIAL:
        result.pop("required", None)
    for (owner, field), choices in CHOICES.items():
        if owner == name:
            result["properties"][field] = {"enum": choices}
    return result


def references(schema: Any) -> set[str]:
    """Return the names of the types to which a schema refers."""
    if isinstance(schema, list):
        return set().union(*map(references, schema))
    if not isinstance(schema, dict):
        return set()
    own = {str(schema["$ref"]).rpartition("/")[2]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(references, schema.values()))


def definitions(schema: Schema) -> dict[str, Schema]:
    """Return all types to which a schema refers, those to which these refer included, by name."""
    found: dict[str, Schema] = {}
    waiting = sorted(references(schema))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = definition(name)
            waiting += sorted(references(found[name]))
    return dict(sorted(found.items()))


def _found(name: str, version: str) -> Schema | None:
    types = _types(version)
    long_names = (f"io.k8s.{package}.{name}" for package in PACKAGES)
    return next((types[long_name] for long_name in long_names if long_name in types), None)


def _plain(schema: Any) -> Any:
    """Return a schema without descriptions, and with short names in references. A choice of simple
    types becomes a list of them.
    """
    if not isinstance(schema, dict):
        return schema
    result = {key: schema[key] for key in KEPT if key in schema}
    if "oneOf" in result:
        types = [kind for each in result.pop("oneOf") for kind in each["type"]]
        result["type"] = list(dict.fromkeys(types))
    if "$ref" in result:
        result["$ref"] = f"#/definitions/{result['$ref'].rpartition('.')[2]}"
    if "properties" in result:
        result["properties"] = {name: _plain(child) for name, child in result["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = _plain(result[key])
    return result
