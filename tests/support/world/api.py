"""The API server as controllers see it, in memory: no network, no faults, no time but the clock
that it is given.

What it does is what https://kubernetes.io/docs/reference/using-api/api-concepts/ promises:
resourceVersions, uid and resourceVersion preconditions, finalizers, graceful deletion of pods,
status as a subresource, generations, server-side apply with field ownership, watches that can be
too old. Custom resources get the defaults of their CRD. It validates nothing unless `refuse` does.

Objects are shared and never changed in place; a change creates a new one.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from schemas import definitions
from sidecars.kube import Manifest
from sidecars.kube.errors import ApiError, api_error

_WITH_STATUS = frozenset({"pods", "nodes", "statefulsets", "deployments", "poddisruptionbudgets"})
_GENERATED = frozenset({"pods", "statefulsets", "deployments", "poddisruptionbudgets"})
_OWNERS = ("metadata", "ownerReferences")

Path = tuple[str, ...]
Kind = Literal["ADDED", "MODIFIED", "DELETED"]
Term = tuple[str, bool, frozenset[str]]
"""A label or field, and whether it is, or isn't, one of the values."""


class Place(NamedTuple):
    """What a request's path names. `collection` is the path of all objects of the resource; "" for
    what isn't named.
    """

    collection: str
    namespace: str
    name: str
    subresource: str

    @property
    def plural(self) -> str:
        """The resource, e.g. `pods`."""
        return self.collection.rpartition("/")[2]


@dataclass(frozen=True)
class Change:
    """One change of the store."""

    version: int
    kind: Kind
    collection: str
    old: Manifest | None
    new: Manifest | None

    @property
    def object(self) -> Manifest:
        """The newest state: of a deleted object the last, with the version of its deletion."""
        item = self.new if self.new is not None else self.old
        assert item is not None
        if self.kind == "DELETED":
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        return item

    @functools.cached_property
    def raw(self) -> bytes:
        """The object as JSON."""
        return msgspec.json.encode(self.object)


@dataclass
class Selector:
    """Label and field selectors of a list or a watch."""

    namespace: str = ""
    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()

    @classmethod
    def of(cls, place: Place, query: Mapping[str, str]) -> "Selector":
        """Equality and `in` only. Raises ValueError for another operator."""
        return cls(
            place.namespace,
            *(_terms(query.get(name) or "") for name in ("labelSelector", "fieldSelector")),
        )

    def matches(self, item: Manifest | None) -> bool:
        """Whether the object is one of them."""
        if item is None:
            return False
        metadata = item["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        labels = metadata.get("labels") or {}
        if not all((labels.get(key) in values) is wanted for key, wanted, values in self.labels):
            return False
        return all((_field(item, key) in values) is wanted for key, wanted, values in self.fields)


class Api:
    """The store and its rules. `clock` is seconds since the epoch."""

    def __init__(
        self,
        clock: Callable[[], float],
        refuse: Callable[[Place, Manifest], str | None] | None = None,
    ) -> None:
        self.history: list[Change] = []
        self.listeners: list[Callable[[Change], None]] = []
        self.compacted = 0
        self.closed_namespaces: dict[str, Literal["terminating", "gone"]] = {}
        """Those in which nothing can be created."""
        self.closed_kinds: set[str] = set()
        """Collections whose CRD is being deleted, or is deleted: nothing of them can be created."""
        self.unserved: set[str] = set()
        """Collections whose CRD doesn't exist."""
        self._served_since: dict[str, int] = {}
        """The version at which a CRD was created again."""
        self._clock = clock
        self._refuse = refuse
        self._items: dict[str, dict[tuple[str, str], Manifest]] = {}
        self._version = 1
        self._uids = itertools.count(1)
        self._managed: dict[tuple[str, str, str], dict[str, frozenset[Path]]] = {}

    @property
    def version(self) -> int:
        """The newest resourceVersion."""
        return self._version

    def compact(self) -> None:
        """Versions before now are too old to watch from."""
        self.compacted = self._version

    def oldest(self, collection: str) -> int:
        """The oldest version that a list or a watch may show."""
        return max(self.compacted, self._served_since.get(collection, 0))

    def serve(self, collection: str) -> None:
        """The CRD exists again."""
        self.unserved.discard(collection)
        self.closed_kinds.discard(collection)
        self._served_since[collection] = self._version

    # --- what the cluster's own parts do, by collection: `PODS.path()` and so on

    def get(self, collection: str, namespace: str, name: str) -> Manifest | None:
        """The object; None if it doesn't exist."""
        return self._items.get(collection, {}).get((namespace, name))

    def all(self, collection: str) -> list[Manifest]:
        """All objects, in order of creation."""
        return list(self._items.get(collection, {}).values())

    def in_namespace(self, namespace: str) -> list[tuple[str, Manifest]]:
        """All objects in it, each with its collection."""
        return [
            (collection, item)
            for collection, items in self._items.items()
            for (where, _), item in items.items()
            if where == namespace
        ]

    def create(self, collection: str, manifest: Manifest) -> Manifest:
        """POST. Raises ApiError."""
        metadata = dict(manifest["metadata"])
        plural = collection.rpartition("/")[2]
        place = Place(collection, metadata.get("namespace", ""), metadata["name"], "")
        match self.closed_namespaces.get(place.namespace):
            case "terminating":
                why = f"because namespace {place.namespace} is being terminated"
                raise api_error(403, "Forbidden", f'{plural} "{place.name}" is forbidden: {why}')
            case "gone":
                raise api_error(404, "NotFound", f'namespaces "{place.namespace}" not found')
        if collection in self.closed_kinds:
            why = "create not allowed while custom resource definition is terminating"
            raise api_error(405, "MethodNotAllowed", why)
        refusal = self._refuse(place, manifest) if self._refuse is not None else None
        if refusal is not None:
            raise api_error(422, "Invalid", refusal)
        if self.get(collection, place.namespace, place.name) is not None:
            raise api_error(409, "AlreadyExists", f'{plural} "{place.name}" already exists')
        metadata |= {"uid": f"uid-{next(self._uids)}", "creationTimestamp": self.timestamp()}
        metadata.pop("resourceVersion", None)
        if _generated(collection):
            metadata["generation"] = 1
        item = {**manifest, "metadata": metadata}
        if _with_status(collection):
            item.pop("status", None)
        if plural == "pods":
            item["status"] = {"phase": "Pending"}
        return self._commit(place, None, _defaulted(collection, item))

    def put(self, collection: str, manifest: Manifest) -> Manifest:
        """Store the object as it stands, whatever the rules are. It keeps the uid that it has, or
        gets that of the manifest, if it has one.
        """
        old = self.get(collection, *_key(manifest))
        made = manifest["metadata"].get("uid") or f"uid-{next(self._uids)}"
        uid = old["metadata"]["uid"] if old is not None else made
        item = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
        return self._stored(collection, old, item)

    def remove(self, collection: str, namespace: str, name: str) -> None:
        """Delete the object at once, if it exists."""
        old = self.get(collection, namespace, name)
        if old is not None:
            self._remove(Place(collection, namespace, name, ""), old)

    def change(
        self, collection: str, namespace: str, name: str, patch: Any, *, status: bool = False
    ) -> Manifest:
        """Merge patch (RFC 7386), of the object or of its status. Raises ApiError."""
        place = Place(collection, namespace, name, "status" if status else "")
        old = self._needed(place)
        return self._update(place, old, merged(old, patch))

    def delete(
        self,
        collection: str,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        uid: str = "",
        version: str = "",
    ) -> None:
        """DELETE. Raises ApiError."""
        place = Place(collection, namespace, name, "")
        old = self._needed(place)
        metadata = old["metadata"]
        if (uid and uid != metadata["uid"]) or (version and version != metadata["resourceVersion"]):
            raise api_error(
                409, "Conflict", f"Precondition failed: the object is {metadata['uid']}"
            )
        seconds = 0
        if place.plural == "pods":
            # A pod that no kubelet runs has nobody to wait for (Kubernetes,
            # podStrategy.CheckGracefulDelete).
            seconds = (
                grace if grace is not None else old["spec"].get("terminationGracePeriodSeconds", 30)
            )
            if not old["spec"].get("nodeName") or (old.get("status") or {}).get("phase") in {
                "Succeeded",
                "Failed",
            }:
                seconds = 0
        before = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and before is not None:
            seconds = min(seconds, before)
        if seconds == 0 and not metadata.get("finalizers"):
            self._remove(place, old)
        elif not metadata.get("deletionTimestamp") or seconds != before:
            going = {
                "deletionTimestamp": self.timestamp(seconds),
                "deletionGracePeriodSeconds": seconds,
            }
            self._commit(place, old, {**old, "metadata": {**metadata, **going}})

    def timestamp(self, later: float = 0) -> str:
        """The time as Kubernetes writes it."""
        return datetime.fromtimestamp(self._clock() + later, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- what clients ask

    def handle(
        self, method: str, place: Place, query: Mapping[str, str], body: Any, content_type: str
    ) -> bytes:
        """The body of the answer to a request that names an object, or creates one. Raises
        ApiError.
        """
        self._check_served(place.collection)
        if method == "GET":
            return msgspec.json.encode(self._needed(place))
        if method == "DELETE":
            asked = body.get("preconditions") or {}
            grace, uid, version = (
                body.get("gracePeriodSeconds"),
                asked.get("uid", ""),
                asked.get("resourceVersion", ""),
            )
            self.delete(
                place.collection, place.namespace, place.name, grace=grace, uid=uid, version=version
            )
            return b'{"kind":"Status","status":"Success"}'
        if method == "POST":
            return msgspec.json.encode(self.create(place.collection, body))
        if method == "PATCH" and "apply-patch" in content_type:
            return msgspec.json.encode(self._apply(place, body, query["fieldManager"]))
        old = self._needed(place)
        if method == "PUT":
            new = {**body, "metadata": {**body["metadata"], **_kept(old)}}
            self._expect(old, body["metadata"])
        elif "json-patch" in content_type:
            new = json_patched(old, body)
        else:
            self._expect(old, body.get("metadata") or {})
            new = merged(old, body)
        return msgspec.json.encode(self._update(place, old, new))

    def page(
        self,
        place: Place,
        query: Mapping[str, str],
        version: int | None = None,
        *,
        metadata_only: bool = False,
    ) -> bytes:
        """The answer to a list, as of `version` (None: now), of whole objects or as
        PartialObjectMetadataList. Raises Gone for a continue token that is too old.
        """
        self._check_served(place.collection)
        selector = Selector.of(place, query)
        token = query.get("continue") or ""
        start = 0
        if token:
            at, start = map(int, token.split(":"))
            if at < self.compacted:
                raise api_error(410, "Expired", "The provided continue parameter is too old")
            version = at
        if version is None or version == self._version:
            version, items = self._version, list(self._items.get(place.collection, {}).values())
        else:
            items = self._as_of(place.collection, version)
        found = [item for item in items if selector.matches(item)]
        limit = int(query.get("limit") or 0) or len(found)
        metadata = {"resourceVersion": str(version)}
        if start + limit < len(found):
            metadata["continue"] = f"{version}:{start + limit}"
        items = found[start : start + limit]
        return msgspec.json.encode(
            {
                "metadata": metadata,
                "items": [partial(item) for item in items] if metadata_only else items,
            }
        )

    def changes(self, collection: str, since: int) -> list[Change]:
        """What a watch from that version on begins with. Raises Gone."""
        self._check_served(collection)
        if since < self.oldest(collection):
            raise api_error(
                410, "Expired", f"too old resource version: {since} ({self.oldest(collection)})"
            )
        newer = itertools.takewhile(lambda change: change.version > since, reversed(self.history))
        return [change for change in reversed(list(newer)) if change.collection == collection]

    # --- rules

    def _check_served(self, collection: str) -> None:
        if collection in self.unserved:
            raise api_error(404, "NotFound", "the server could not find the requested resource")

    def _as_of(self, collection: str, version: int) -> list[Manifest]:
        items: dict[tuple[str, str], Manifest] = {}
        for change in self.history:
            if change.version > version:
                break
            if change.collection == collection:
                key = _key(change.object)
                if change.new is None:
                    items.pop(key, None)
                else:
                    items[key] = change.new
        return list(items.values())

    def _needed(self, place: Place) -> Manifest:
        item = self.get(place.collection, place.namespace, place.name)
        if item is None:
            raise api_error(404, "NotFound", f'{place.plural} "{place.name}" not found')
        return item

    def _expect(self, old: Manifest, metadata: Mapping[str, Any]) -> None:
        for name in ("uid", "resourceVersion"):
            if metadata.get(name) and metadata[name] != old["metadata"][name]:
                raise api_error(
                    409,
                    "Conflict",
                    f"the object has been modified: {name} is {old['metadata'][name]}",
                )

    def _update(self, place: Place, old: Manifest, new: Manifest) -> Manifest:
        if place.subresource == "status":
            new = {**old, "status": new.get("status")}
        else:
            refusal = self._refuse(place, new) if self._refuse is not None else None
            if refusal is not None:
                raise api_error(422, "Invalid", refusal)
            new = _defaulted(
                place.collection, {**new, "metadata": {**new["metadata"], **_kept(old)}}
            )
            if _with_status(place.collection):
                new.pop("status", None)
                if "status" in old:
                    new["status"] = old["status"]
        return self._commit(place, old, new)

    def _commit(self, place: Place, old: Manifest | None, new: Manifest) -> Manifest:
        if old is not None:
            if new == old:
                return old
            if _generated(place.collection) and _spec(new) != _spec(old):
                generation = old["metadata"].get("generation", 0) + 1
                new = {**new, "metadata": {**new["metadata"], "generation": generation}}
            metadata = new["metadata"]
            released = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
            if released and not metadata.get("deletionGracePeriodSeconds"):
                self._remove(place, new)
                return new
        return self._stored(place.collection, old, new)

    def _stored(self, collection: str, old: Manifest | None, new: Manifest) -> Manifest:
        self._version += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self._version)}}
        self._items.setdefault(collection, {})[_key(new)] = new
        kind: Kind = "ADDED" if old is None else "MODIFIED"
        self._notify(Change(self._version, kind, collection, old, new))
        return new

    def _remove(self, place: Place, old: Manifest) -> None:
        self._version += 1
        key = _key(old)
        del self._items[place.collection][key]
        self._managed.pop((place.collection, *key), None)
        self._notify(Change(self._version, "DELETED", place.collection, old, None))

    def _notify(self, change: Change) -> None:
        self.history.append(change)
        for listener in tuple(self.listeners):
            listener(change)

    def _apply(self, place: Place, wanted: Manifest, manager: str) -> Manifest:
        """https://kubernetes.io/docs/reference/using-api/server-side-apply/, forced; lists but
        owners are atomic.
        """
        conditions = wanted["metadata"]
        unconditional = {
            key: value for key, value in conditions.items() if key not in {"uid", "resourceVersion"}
        }
        wanted = {**wanted, "metadata": unconditional}
        managed = self._managed.setdefault((place.collection, place.namespace, place.name), {})
        paths = frozenset(_leaves(wanted, ()))
        others = frozenset(
            path for name, owned in managed.items() if name != manager for path in owned
        )
        dropped = managed.get(manager, frozenset()) - paths - others
        old = self.get(place.collection, place.namespace, place.name)
        if old is None:
            if conditions.get("uid"):
                raise api_error(409, "Conflict", "uid mismatch: no existing object was found")
            managed[manager] = paths
            return self.create(place.collection, wanted)
        self._expect(old, conditions)
        new: Any = _copied(old)
        for path in dropped:
            _drop(new, path)
        new = _overlaid(new, wanted)
        managed[manager] = paths
        for name in managed.keys() - {manager}:
            managed[name] -= paths
        return self._update(place, old, new)


def partial(item: Manifest) -> Manifest:
    """The object as PartialObjectMetadata."""
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": item["metadata"],
    }


def event(change: Change, selector: Selector, *, metadata_only: bool) -> bytes:
    """The event of a watch with this selector; empty for an object that it doesn't select."""
    before, after = selector.matches(change.old), selector.matches(change.new)
    if not (before or after):
        return b""
    kind = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
    raw = msgspec.json.encode(partial(change.object)) if metadata_only else change.raw
    return b'{"type":"%s","object":%s}' % (kind.encode(), raw)


def place_of(path: str) -> Place:
    """What a request's path names. Raises ValueError for a path that isn't one of the API."""
    parts = path.strip("/").split("/")
    head = 2 if parts[0] == "api" else 3
    group, rest = "/" + "/".join(parts[:head]), parts[head:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    if len(rest) > 3:
        raise ValueError(path)
    return Place(f"{group}/{plural}", namespace, name, subresource)


def _copied(value: Any) -> Any:
    """A copy of what JSON can say; many times faster than `copy.deepcopy`."""
    return msgspec.json.decode(msgspec.json.encode(value))


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386, sharing what stays."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def json_patched(old: Manifest, operations: Iterable[Mapping[str, Any]]) -> Manifest:
    """RFC 6902: add, replace, remove and test. Raises Invalid for a test that fails or a path that
    doesn't exist.
    """
    new: Any = _copied(old)
    for operation in operations:
        *way, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        try:
            at = functools.reduce(
                lambda item, part: item[int(part) if isinstance(item, list) else part], way, new
            )
            spot: Any = last if isinstance(at, dict) else len(at) if last == "-" else int(last)
            match operation["op"]:
                case "test" if at[spot] != operation["value"]:
                    raise KeyError(last)
                case "add" if isinstance(at, list):
                    at.insert(spot, operation["value"])
                case "add" | "replace":
                    at[spot] = operation["value"]
                case "remove":
                    del at[spot]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise api_error(
                422, "Invalid", f"{operation['op']} {operation['path']}: {error!r}"
            ) from None
    return dict(new)


def _kept(old: Manifest) -> dict[str, Any]:
    """What no update changes."""
    names = (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    )
    metadata = old["metadata"]
    return {name: metadata[name] for name in (*names, "resourceVersion") if name in metadata}


def _spec(item: Manifest) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in {"metadata", "status"}}


def _key(item: Manifest) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _with_status(collection: str) -> bool:
    return definitions.GROUP in collection or collection.rpartition("/")[2] in _WITH_STATUS


def _generated(collection: str) -> bool:
    return definitions.GROUP in collection or collection.rpartition("/")[2] in _GENERATED


def _terms(text: str) -> tuple[Term, ...]:
    found = []
    for term in filter(None, re.split(r",(?![^(]*\))", text)):
        if match := re.fullmatch(r"(\S+) in \(([^()]*)\)", term):
            found.append((match[1], True, frozenset(match[2].split(","))))
        elif match := re.fullmatch(r"([^=! ]+)(==|=|!=)([^=!]*)", term):
            found.append((match[1], match[2] != "!=", frozenset({match[3]})))
        else:
            raise ValueError(f"selector {term!r}")
    return tuple(found)


def _field(item: Any, path: str) -> str:
    for part in path.split("."):
        item = (item or {}).get(part)
    return "" if item is None else str(item)


def _leaves(value: Any, path: Path) -> Iterable[Path]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif path == _OWNERS:
        yield from ((*path, owner["uid"]) for owner in value)
    elif (path[:1] == ("metadata",) and path[1:] not in {("name",), ("namespace",)}) or path[
        :1
    ] != ("metadata",):
        yield path


def _drop(item: Any, path: Path) -> None:
    if path[:2] == _OWNERS:
        owners = [
            owner
            for owner in item["metadata"].get("ownerReferences", [])
            if owner["uid"] != path[2]
        ]
        item["metadata"]["ownerReferences"] = owners
        return
    *way, last = path
    for part in way:
        if not isinstance(item, dict) or part not in item:
            return
        item = item[part]
    if isinstance(item, dict):
        item.pop(last, None)


def _overlaid(old: Any, wanted: Any, path: Path = ()) -> Any:
    if path == _OWNERS:
        rest = [owner for owner in old or [] if owner["uid"] not in {it["uid"] for it in wanted}]
        return [*rest, *wanted]
    if isinstance(wanted, dict) and isinstance(old, dict):
        return {
            **old,
            **{key: _overlaid(old.get(key), value, (*path, key)) for key, value in wanted.items()},
        }
    return wanted


@functools.cache
def _schemas() -> dict[str, Any]:
    return {
        f"/apis/{definitions.GROUP}/{definitions.VERSION}/{crd['spec']['names']['plural']}": crd[
            "spec"
        ]["versions"][0]["schema"]["openAPIV3Schema"]
        for crd in definitions.custom_resource_definitions()
    }


def _defaulted(collection: str, item: Manifest) -> Manifest:
    schema = _schemas().get(collection)
    if schema is not None:
        item = _copied(item)
        _default(schema, item)
    elif collection.startswith("/apis/apps/") and "spec" in item and "replicas" not in item["spec"]:
        item = {**item, "spec": {**item["spec"], "replicas": 1}}
    return item


def _default(schema: Any, value: Any) -> None:
    if isinstance(value, dict):
        for name, inner in (schema.get("properties") or {}).items():
            if name not in value and "default" in inner:
                value[name] = _copied(inner["default"])
            if name in value:
                _default(inner, value[name])
        if isinstance(schema.get("additionalProperties"), dict):
            for each in value.values():
                _default(schema["additionalProperties"], each)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            _default(schema["items"], each)


__all__ = [
    "Api",
    "ApiError",
    "Change",
    "Place",
    "Selector",
    "event",
    "json_patched",
    "merged",
    "partial",
    "place_of",
]
