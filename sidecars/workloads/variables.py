"""Environment variables that a container's list sets twice.

Kubernetes accepts such a list for a pod and sets the variables in their order: `$(NAME)` in a value
means what an item before it has set, and the last item wins. Server-side apply refuses such a list.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sidecars.workloads.resources import Json, ResourceError

_TOKEN = re.compile(r"\$\$|\$\(([^)]*)\)|\$\(|\$\Z")
"""An escaped dollar, a reference, the start of one that isn't closed, and a dollar at the end."""


def each_once(items: Sequence[Any], place: str) -> list[Any]:
    """Return environment variables without duplicate names, which give a container what `items`
    give it.

    The last item of a name stays. In the values up to it, `$(NAME)` is replaced by what the earlier
    item has set. Raises ResourceError with `place` if that came from a source (`valueFrom`), whose
    value isn't known here. Items that aren't well-formed are kept as they are.
    """
    left = Counter(item["name"] for item in items if _is_named(item))
    if all(count == 1 for count in left.values()):
        return list(items)
    earlier: dict[str, str | None] = {}
    result = []
    for item in items:
        if not _is_named(item):
            result.append(item)
            continue
        name, new = item["name"], _with_earlier(item, earlier, place)
        left[name] -= 1
        if left[name]:
            value = new.get("value", "")
            earlier[name] = None if "valueFrom" in new else _closed(str(value))
        else:
            earlier.pop(name, None)
            result.append(new)
    return result


def _is_named(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("name"), str)


def _with_earlier(item: Mapping[str, Any], earlier: Mapping[str, str | None], place: str) -> Json:
    """Return the item whose references to earlier items are replaced by their values."""
    value = item.get("value")
    if not isinstance(value, str):
        return dict(item)

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        if name is None or name not in earlier:
            return found[0]
        known = earlier[name]
        if known is None:
            raise ResourceError(
                place,
                f"the value of `{item['name']}` refers to `{name}`, which is set twice and first "
                "from a source: give the first one another name",
            )
        return known

    return {**item, "value": _TOKEN.sub(replaced, value)}


def _closed(value: str) -> str:
    """Return a value that means the same wherever it stands in another."""
    return _TOKEN.sub(
        lambda found: f"$${found[0][1:]}" if found[0] in ("$", "$(") else found[0], value
    )
