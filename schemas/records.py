"""The Python records of the custom resources: sidecars/workloads/resources/specs.py from
`schemas/crds`.

Each object of a spec or a status becomes a class with the name of its field, with the same fields
and defaults. A field without a default may be absent: an absent text is "", an absent number of a
status is 0, an absent map of an object of Kubernetes is {}, and anything else is None, except an
object whose fields may all be absent. `x-record` differs: `class` names the class, `type` is
another type, and `default` another default.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from schemas import definitions, resource_fields, sources
from schemas.sources import Schema

WIDTH = 100
HEADER = '''"""The specs and statuses of the custom resources, as `schemas/crds` describes them.

Generated from schemas/crds by `make generate`. Edit that instead.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from sidecars.workloads.resources.common import Json, Part, Status
'''
_SCALARS = {"integer": "int", "boolean": "bool", "string": "str"}
_REQUIRED = object()


@dataclass(frozen=True)
class Record:
    """One class: its name, its base, its docstring, and its fields, each with its own docstring."""

    name: str
    base: str
    about: str
    fields: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """Return the class in Python."""
        head = f"\n\nclass {self.name}({self.base}, frozen=True, kw_only=True):\n"
        lines = [_docstring(self.about), *([""] if self.fields else [])]
        for line, about in self.fields:
            lines += [f"    {line}", *([_docstring(about)] if about else [])]
        return head + "\n".join(lines) + "\n"


def text() -> str:
    """Return the module."""
    records: dict[str, Record] = {}
    for each in _all():
        former = records.setdefault(each.name, each)
        if [line for line, _ in former.fields] != [line for line, _ in each.fields]:
            raise sources.SchemaError(
                f"two different objects are the record {each.name}: name one with `class` in "
                "`x-record`"
            )
    return HEADER + "".join(each.text() for each in records.values())


def _all() -> Iterator[Record]:
    """Yield the records, the parts of others first."""
    common = sources.load(resource_fields.SOURCE / "common.yaml")
    for name, schema in common.items():
        if "class" in schema.get("x-record", {}):
            yield from _records(schema, name, "")
    for kind in definitions.KINDS:
        source = resource_fields.load(kind)
        yield from _records(source["spec"] | {"x-record": {"class": f"{kind}Spec"}}, "spec", kind)
        if "status" in source:
            status = {"type": "object", "description": "Current state.", **source["status"]}
            named = status | {"x-record": {"class": f"{kind}Status"}}
            yield from _records(named, "status", kind)


def _records(schema: Schema, name: str, place: str) -> Iterator[Record]:
    """Yield the records of an object and of what is in it, the inner ones first. `place` is the
    path of the object that has the field `name`; "" for a shared one.
    """
    if "items" in schema:
        yield from _records(schema["items"], name, place)
    if not _is_record(schema):
        return
    here = f"{place}.{name}" if place else ""
    for field, child in schema["properties"].items():
        yield from _records(child, field, here)
    in_status = here.endswith(".status")
    required = schema.get("required", ())
    fields = tuple(
        (
            _field(field, child, required=field in required, in_status=in_status),
            "" if _is_record(child) and not _is_shared(child) else _plain(child),
        )
        for field, child in schema["properties"].items()
    )
    about = f"{here}: {_plain(schema)}" if here else _plain(schema)
    yield Record(_class(schema, name), "Status" if in_status else "Part", about, fields)


def _is_record(schema: Schema) -> bool:
    own = schema.get("x-record", {})
    opaque = schema.get("x-kubernetes-preserve-unknown-fields")
    return "properties" in schema and "type" not in own and not opaque


def _is_shared(schema: Schema) -> bool:
    """Return whether objects of several places are this record. Its docstring isn't about one of
    them then.
    """
    own = schema.get("x-record", {})
    return bool(own.get("shared"))


def _class(schema: Schema, name: str) -> str:
    result: str = schema.get("x-record", {}).get("class", name[:1].upper() + name[1:])
    return result


def _field(name: str, schema: Schema, *, required: bool, in_status: bool) -> str:
    """Return the line of a field."""
    kind = _type(schema, name)
    default = _default(schema, kind, required=required, in_status=in_status)
    own_name = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    if default is _REQUIRED:
        return f"{own_name}: {kind}"
    if default is None:
        return f"{own_name}: {kind} | None = None"
    return f"{own_name}: {kind} = {default}"


def _type(schema: Schema, name: str) -> str:
    own = schema.get("x-record", {})
    if "type" in own:
        return str(own["type"])
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return "Json"
    if "enum" in schema:
        return f"Literal[{', '.join(map(_literal, schema['enum']))}]"
    if schema.get("x-kubernetes-int-or-string"):
        return "int | str"
    if "properties" in schema:
        return _class(schema, name)
    if "additionalProperties" in schema:
        return f"Mapping[str, {_type(schema['additionalProperties'], name)}]"
    if "items" in schema:
        return f"list[{_type(schema['items'], name)}]"
    return "datetime" if schema.get("format") == "date-time" else _SCALARS[schema["type"]]


def _default(schema: Schema, kind: str, *, required: bool, in_status: bool) -> Any:
    """Return the default in Python, None for None, and `_REQUIRED` for a field that must exist."""
    own = schema.get("x-record", {})
    for words in (own, schema):
        if "default" in words:
            value = words["default"]
            return value if value is None or "type" in own else _literal(value)
    if required:
        return _REQUIRED
    if _is_record(schema) and not _needs(schema):
        return f"{kind}()"
    if schema.get("nullable"):
        return None
    if kind.startswith("list["):
        return "[]"
    return ({"str": '""', "Json": "{}"} | ({"int": "0"} if in_status else {})).get(kind)


def _needs(schema: Schema) -> list[str]:
    """Return the fields of an object that have no default and must be there."""
    return [
        name for name in schema.get("required", ()) if "default" not in schema["properties"][name]
    ]


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return repr(value)


def _plain(schema: Schema) -> str:
    return " ".join(schema.get("description", "").split())


def _docstring(about: str) -> str:
    """Return a docstring inside a class, wrapped."""
    opened = f'    """{about}'
    if len(opened) + 3 <= WIDTH:
        return f'{opened}"""'
    # The formatter would append the quotes to a line with too little room for them.
    lines = textwrap.wrap(
        opened, WIDTH - 3, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join([*lines, '    """'])
