"""Generates the table of Kubernetes' strategic merge from Kubernetes' OpenAPI document.

The table describes how `kubectl patch` merges each field of each type: by which key it matches the
items of a list, which maps retain only the keys of the patch, and by which keys server-side apply
matches the items of a list, where these are others. Lists without an entry are
replaced, maps are merged key by key
(https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/).

    python -m schemas.merge_keys SWAGGER_JSON > sidecars/workloads/merge_keys.json
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

Rule: TypeAlias = dict[str, str | list[str]]
Table: TypeAlias = dict[str, dict[str, Rule]]

ROOTS = (
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
)


def merge_table(swagger: Mapping[str, Any]) -> Table:
    """Type → field → {type, key, keys, strategy}, sorted; types by their short name, those without
    any rule left out.

    `type` is that of the field's value or of its items, `key` the merge key of a list, `keys` those
    of server-side apply if it has others, `strategy` Kubernetes' own words (`merge`, `retainKeys`,
    `replace`, comma-separated). Raises ValueError when two types share a short name.
    """
    table: Table = {}
    long_names: dict[str, str] = {}
    waiting = list(ROOTS)
    while waiting:
        long_name = waiting.pop()
        name = _short(long_name)
        if long_names.setdefault(name, long_name) != long_name:
            raise ValueError(f"{long_name} and {long_names[name]} are both called {name}")
        if name in table:
            continue
        table[name] = {}
        for field, schema in swagger["definitions"][long_name].get("properties", {}).items():
            rule: Rule = {
                word: schema[f"x-kubernetes-patch-{extension}"]
                for word, extension in (("key", "merge-key"), ("strategy", "strategy"))
                if f"x-kubernetes-patch-{extension}" in schema
            }
            keys = schema.get("x-kubernetes-list-map-keys", [])
            if "key" in rule and keys and keys != [rule["key"]]:
                rule["keys"] = keys
            target = _target(schema)
            if target is not None:
                rule["type"] = _short(target)
                waiting.append(target)
            if rule:
                table[name][field] = rule
    return _without_idle_types(table)


def _target(schema: Mapping[str, Any]) -> str | None:
    reference = schema.get("$ref") or schema.get("items", {}).get("$ref")
    return str(reference).removeprefix("#/definitions/") if reference else None


def _short(long_name: str) -> str:
    return long_name.rpartition(".")[2]


def _without_idle_types(table: Table) -> Table:
    """Drop, until nothing changes, types without rules and the fields that do no more than point to
    such a type.
    """
    while True:
        kept = {
            name: {
                field: {
                    word: value
                    for word, value in rule.items()
                    if word != "type" or table.get(str(value))
                }
                for field, rule in sorted(fields.items())
                if rule.keys() != {"type"} or table.get(str(rule["type"]))
            }
            for name, fields in sorted(table.items())
            if fields
        }
        if kept == table:
            return kept
        table = kept


def main(arguments: list[str]) -> int:
    """Print the table of the OpenAPI document that is named."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    swagger = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    print(json.dumps(merge_table(swagger), indent=1, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
