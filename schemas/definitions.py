"""Custom resource definitions from `schemas/crds`, and their reference page.

Each source describes one kind. This module adds what all kinds share: group, version, metadata,
conditions, and the columns STATUS and MESSAGE. It writes no files.
"""

from typing import Any

from schemas import markdown, sources
from schemas.resource_fields import OURS, SOURCE, load, mapped

GROUP = "slinky.slurm.net"
VERSION = "v1beta1"
KINDS = ("Controller", "Accounting", "RestApi", "LoginSet", "NodeSet", "Token")

_READY = '.status.conditions[?(@.type=="Ready")]'
_COLUMNS = [
    {
        "name": "Status",
        "type": "string",
        "jsonPath": f"{_READY}.reason",
        "description": "Current state, in one word.",
    },
    {
        "name": "Message",
        "type": "string",
        "jsonPath": f"{_READY}.message",
        "priority": 1,
        "description": "Current state.",
    },
]


def custom_resource_definitions() -> list[dict[str, Any]]:
    """Return the definitions of all kinds, as they can be applied to a cluster."""
    return [definition(kind) for kind in KINDS]


def definition(kind: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one kind."""
    source = load(kind)
    plural = source["plural"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": source["shortNames"],
                "categories": ["slurm"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": source["columns"] + _COLUMNS,
                    "schema": {"openAPIV3Schema": _schema(source)},
                    "subresources": {"status": {}}
                    | ({"scale": source["scale"]} if "scale" in source else {}),
                }
            ],
        },
    }


def _schema(source: sources.Schema) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "description": source["description"],
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": source["spec"],
            "status": _status(source.get("status", {})),
        },
    }
    if "rules" in source:
        schema["x-kubernetes-validations"] = source["rules"]
    result: dict[str, Any] = mapped(schema, _plain)
    return result


def _plain(schema: sources.Schema) -> sources.Schema:
    """Return a schema with Kubernetes' words alone. `remedy` of a rule is for those who check
    values without an API server.
    """
    result = {word: value for word, value in schema.items() if word not in OURS}
    if rules := result.get("x-kubernetes-validations"):
        result["x-kubernetes-validations"] = [
            {word: value for word, value in rule.items() if word != "remedy"} for rule in rules
        ]
    return result


def _status(own: sources.Schema) -> dict[str, Any]:
    return {
        "description": "Current state.",
        "type": "object",
        "properties": {
            **own.get("properties", {}),
            "observedGeneration": {
                "description": "The `metadata.generation` that this status describes.",
                "type": "integer",
                "format": "int64",
            },
            "conditions": sources.load(SOURCE / "common.yaml")["Conditions"],
        },
    }


def page() -> str:
    """Return the reference page about all kinds."""
    about = (
        f"Group `{GROUP}`, version `{VERSION}`. All kinds are namespaced, have a `status` "
        "subresource, and belong to\n"
        "the category `slurm`: `kubectl get slurm` lists them all."
    )
    parts = ["# Custom resources", about]
    for kind in KINDS:
        parts += _kind_parts(load(kind))
    return markdown.page("schemas/crds", parts)


def _kind_parts(source: sources.Schema) -> list[str]:
    names = ", ".join(f"`{name}`" for name in source["shortNames"])
    parts = [f"## {source['kind']}", source["description"].strip(), f"Short names: {names}."]
    if "scale" in source:
        parts.append(
            "This kind has a `scale` subresource: `kubectl scale` and autoscalers can set "
            "`spec.replicas`."
        )
    parts.append(markdown.field_table(_fields(source["spec"], "spec")))
    rules = [rule["message"] for rule in [*source.get("rules", []), *_rules(source["spec"])]]
    if rules:
        parts += [
            "The API server also enforces these rules:",
            "\n".join(f"- {message}" for message in dict.fromkeys(rules)),
        ]
    if "status" in source:
        parts.append("Fields of the status, besides `observedGeneration` and `conditions`:")
        parts.append(markdown.field_table(_fields(source["status"], "status")))
    return parts


def _fields(schema: sources.Schema, path: str) -> list[markdown.Field]:
    fields = []
    required = schema.get("required", [])
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        default = (
            markdown.code(child["default"])
            if "default" in child
            else "required"
            if name in required
            else ""
        )
        fields.append(
            markdown.Field(here, markdown.type_of(child), default, child.get("description", ""))
        )
        fields += _fields(child, here)
        fields += _fields(child.get("items", {}), f"{here}[]")
    return fields


def _rules(schema: sources.Schema) -> list[sources.Schema]:
    rules = list(schema.get("x-kubernetes-validations", []))
    for child in [*schema.get("properties", {}).values(), schema.get("items", {})]:
        rules += _rules(child) if child else []
    return rules
