"""Checks Kubernetes objects without a cluster: built-in kinds against Kubernetes' schemas, ours
against theirs.

What only an API server can tell, like CEL rules, is the business of tests/integration.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]  # it has no types

from schemas import definitions

Schema = dict[str, Any]

OURS = f"{definitions.GROUP}/{definitions.VERSION}"
FOREIGN = ("monitoring.coreos.com",)
"""Groups whose kinds no schema here describes."""


def problems(manifest: Any, kubernetes: str) -> list[str]:
    """What is wrong with an object for a version of Kubernetes (`1.35.0`), each with its place;
    unknown fields too.
    """
    if not isinstance(manifest, dict) or not manifest.get("kind") or not manifest.get("apiVersion"):
        return [f"not an object of Kubernetes: {str(manifest)[:80]}"]
    name = f"{manifest['kind']} {manifest.get('metadata', {}).get('name', 'without a name')}"
    if manifest["apiVersion"] == OURS:
        found = _against(strict_schema(manifest["kind"]), manifest)
    elif manifest["apiVersion"].split("/")[0] in FOREIGN:
        found = []
    else:
        found = _built_in(manifest, kubernetes)
    return [f"{name}: {problem}" for problem in found]


RECOMMENDED_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
)
"""Those that Kubernetes and Helm recommend for every object."""

VERSION_LABELS = frozenset({"app.kubernetes.io/version", "helm.sh/chart"})
"""Those that change with each release of a chart. On a pod they would restart it."""


def label_problems(manifest: Any) -> list[str]:
    """Recommended labels that an object of a chart lacks, and labels with a version on its pods and
    claims.
    """
    labels = manifest["metadata"].get("labels") or {}
    found = [f"no label {key}" for key in RECOMMENDED_LABELS if not labels.get(key)]
    found += [
        f"{place}: label {key} changes with each version"
        for place, key in _versioned(manifest.get("spec"), "spec")
    ]
    return [f"{manifest['kind']} {manifest['metadata']['name']}: {problem}" for problem in found]


def _versioned(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in {"labels", "matchLabels", "selector"} and isinstance(item, dict):
                yield from (
                    (f"{place}.{key}", name) for name in sorted(VERSION_LABELS & item.keys())
                )
            yield from _versioned(item, f"{place}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _versioned(item, f"{place}.{number}")


MAY_BE_ROOT = frozenset({"fill"})
"""Containers that docs/security.md lists with rights of root: of the pods that a chart renders,
that of the shared root's Job.
"""


def root_problems(manifest: Any) -> list[str]:
    """Containers of an object's pods that may run as root. The operator renders those of ours."""
    if manifest["apiVersion"] == OURS:
        return []
    return [
        f"{manifest['kind']} {manifest['metadata']['name']}: container {name} may run as root"
        for name in _roots(manifest.get("spec"))
        if name not in MAY_BE_ROOT
    ]


def _roots(value: Any) -> Iterator[str]:
    items = value if isinstance(value, list) else []
    if isinstance(value, dict):
        items = list(value.values())
        of_pod = value.get("securityContext") or {}
        lists = [value.get(name) for name in ("initContainers", "containers")]
        # In a schema they are no lists.
        for container in (it for found in lists if isinstance(found, list) for it in found):
            context = of_pod | (container.get("securityContext") or {})
            if not (context.get("runAsNonRoot") and context.get("runAsUser")):
                yield container["name"]
    for item in items:
        yield from _roots(item)


@functools.cache
def strict_schema(kind: str) -> Schema:
    """The definition of a kind as JSON Schema, in which an unknown field is an error. KeyError for
    other kinds.
    """
    if kind not in definitions.KINDS:
        raise KeyError(kind)
    version = definitions.definition(kind)["spec"]["versions"][0]
    strict = _strict(version["schema"]["openAPIV3Schema"])
    return dict(strict)


def _strict(schema: Any) -> Any:
    """OpenAPI as CustomResourceDefinitions have it, in the words of JSON Schema."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: {name: _strict(child) for name, child in value.items()}
        if key == "properties"
        else _strict(value)
        for key, value in schema.items()
        if key not in {"default", "x-kubernetes-validations"}
    }
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if schema.get("nullable"):
        result["type"] = [schema["type"], "null"]
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result["additionalProperties"] = False
    return result


def _against(schema: Schema, manifest: Schema) -> list[str]:
    validator = jsonschema.Draft7Validator(schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]


def _built_in(manifest: Schema, kubernetes: str) -> list[str]:
    try:
        kubernetes_validate.validate(manifest, kubernetes, strict=True)
    except kubernetes_validate.ValidationError as error:
        place = ".".join(str(part) for part in error.path)
        return [f"{place or 'the object'}: {error.message}"]
    except (
        kubernetes_validate.SchemaNotFoundError,
        kubernetes_validate.InvalidSchemaError,
    ) as error:
        return [error.message]
    return []
