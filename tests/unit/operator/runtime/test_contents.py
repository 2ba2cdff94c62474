"""Secrets and ConfigMaps that custom resources refer to: watched by metadata, read by name."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import REGISTRY

from sidecars import objects
from sidecars.custom_resources import IN_USE
from sidecars.kube import CONFIG_MAPS, Client, Forbidden, Manifest, NotFound, Resource, Unreachable
from sidecars.operator.main import kinds
from sidecars.operator.runtime.caches import Caches
from sidecars.operator.runtime.contents import Contents, NotReadError
from sidecars.workloads.references import Reference
from tests.support.builders import KEYS
from tests.support.operator_parts import Parts as OperatorParts
from tests.support.virtual_time import run
from tests.support.world.world import CONTROLLER, World, world

PATH = CONFIG_MAPS.path()
SITE = Reference("ConfigMap", "slurm", "site")


def config_map(name: str, text: str, labels: dict[str, str] | None = None) -> Manifest:
    metadata = {"name": name, "namespace": "slurm", "labels": labels or {}}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"site.conf": text},
    }


class Server:
    """In place of a client: answers GET of one object, and counts."""

    def __init__(self) -> None:
        self.stored: dict[str, Manifest] = {}
        self.refusal: Exception | None = None
        self.asked: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str, kind: Any) -> Any:
        await asyncio.sleep(0)
        self.asked.append(name)
        if self.refusal is not None:
            raise self.refusal
        if name not in self.stored:
            raise NotFound(404, "NotFound", f"{resource.kind} {name}")
        return msgspec.convert(self.stored[name], kind)


class Parts:
    """A server, caches that nothing fills but the test, and the contents."""

    def __init__(self) -> None:
        self.server = Server()
        client = cast("Client", self.server)
        self.caches = Caches.of(client, ())
        self.contents = Contents(client, self.caches)

    def store(
        self, name: str, text: str, version: int, *, uid: str = "u", seen: bool = True
    ) -> None:
        """Have the server keep it, and unless the watch is late, the cache its metadata."""
        metadata = {"name": name, "namespace": "slurm", "uid": uid, "resourceVersion": str(version)}
        self.server.stored[name] = {"metadata": metadata, "data": {"site.conf": text}}
        if seen:
            partial = msgspec.convert({"metadata": metadata}, objects.PartialObjectMetadata)
            self.caches.other_config_maps.store.put(partial)

    def refer(self, *names: str) -> None:
        """Have a Controller refer to these ConfigMaps."""
        metadata = {
            "name": "slurm",
            "namespace": "slurm",
            "uid": "c",
            "resourceVersion": str(len(names)),
        }
        spec = {"configFileRefs": [{"name": name} for name in names]}
        self.caches.controllers.store.put(
            {"kind": "Controller", "metadata": metadata, "spec": spec}
        )

    def text(self) -> str | bytes | None:
        found = self.contents.config_map("slurm", "site")
        return None if found is None else found["site.conf"]


@pytest.fixture
def parts() -> Parts:
    parts = Parts()
    parts.refer("site")
    return parts


async def test_what_does_not_exist_is_none_and_is_not_asked_for(parts: Parts) -> None:
    await parts.contents.read([SITE])
    assert parts.text() is None
    assert not parts.contents.exists(SITE)
    assert parts.server.asked == []


async def test_contents_that_were_not_read_are_never_taken_for_missing_or_empty(
    parts: Parts,
) -> None:
    parts.store("site", "a", 7)
    assert parts.contents.exists(SITE)
    with pytest.raises(NotReadError, match="site"):
        parts.text()
    await parts.contents.read([SITE])
    assert parts.text() == "a"


async def test_contents_are_read_once_per_version(parts: Parts) -> None:
    parts.store("site", "a", 7)
    for _ in range(3):
        await parts.contents.read([SITE])
    assert parts.server.asked == ["site"]
    parts.store("site", "b", 8)
    assert parts.text() == "a"
    for _ in range(3):
        await parts.contents.read([SITE])
    assert (parts.text(), parts.server.asked) == ("b", ["site", "site"])


async def test_a_read_newer_than_the_watch_needs_no_other_read_when_the_watch_has_caught_up(
    parts: Parts,
) -> None:
    parts.store("site", "a", 7)
    parts.store("site", "b", 8, seen=False)
    await parts.contents.read([SITE])
    parts.store("site", "b", 8)
    await parts.contents.read([SITE])
    assert (parts.text(), parts.server.asked) == ("b", ["site"])


async def test_the_contents_of_a_former_object_of_the_same_name_are_not_those_of_its_successor(
    parts: Parts,
) -> None:
    parts.store("site", "a", 7)
    await parts.contents.read([SITE])
    parts.store("site", "b", 9, uid="another")
    with pytest.raises(NotReadError):
        parts.text()
    await parts.contents.read([SITE])
    assert parts.text() == "b"


async def test_what_is_deleted_between_the_watch_and_the_read_is_waited_for(parts: Parts) -> None:
    parts.store("site", "a", 7)
    del parts.server.stored["site"]
    await parts.contents.read([SITE])
    with pytest.raises(NotReadError):
        parts.text()
    store = parts.caches.other_config_maps.store
    store.discard(store.known()[0])
    assert parts.text() is None


async def test_a_failed_read_is_raised_and_the_former_contents_serve_on(parts: Parts) -> None:
    parts.store("site", "a", 7)
    await parts.contents.read([SITE])
    parts.store("site", "b", 8)
    parts.server.refusal = Unreachable("down")
    with pytest.raises(Unreachable):
        await parts.contents.read([SITE])
    assert parts.text() == "a"


async def test_a_forbidden_read_names_the_object_and_what_is_lacking(parts: Parts) -> None:
    parts.store("site", "a", 7)
    parts.server.refusal = Forbidden(403, "Forbidden", "no get")
    with pytest.raises(
        NotReadError, match=r"ConfigMap 'site': the operator may not read it: .*no get"
    ):
        await parts.contents.read([SITE])


async def test_an_answer_that_arrives_late_does_not_replace_a_newer_one(parts: Parts) -> None:
    parts.store("site", "a", 7)
    late, asked = asyncio.Event(), asyncio.Event()
    get = parts.server.get

    async def slow(*arguments: Any) -> Any:
        found = await get(*arguments)
        asked.set()
        await late.wait()
        return found

    parts.server.get = slow  # type: ignore[method-assign, assignment]
    first = asyncio.create_task(parts.contents.read([SITE]))
    await asked.wait()
    parts.server.get = get  # type: ignore[method-assign]
    parts.store("site", "b", 9, uid="another")
    await parts.contents.read([SITE])
    late.set()
    await first
    assert parts.text() == "b"


async def test_a_reference_that_may_not_be_read_does_not_prevent_the_others_from_being_read(
    parts: Parts,
) -> None:
    parts.refer("site", "refused")
    parts.store("site", "a", 7)
    parts.store("refused", "a", 8)
    get = parts.server.get

    async def refuse(resource: Resource, namespace: str, name: str, kind: Any) -> Any:
        if name == "refused":
            raise Forbidden(403, "Forbidden", "no get")
        await asyncio.sleep(0)
        return await get(resource, namespace, name, kind)

    parts.server.get = refuse  # type: ignore[method-assign]
    with pytest.raises(NotReadError, match="refused"):
        await parts.contents.read([Reference("ConfigMap", "slurm", "refused"), SITE])
    assert parts.text() == "a"


SPECS: dict[str, Manifest] = {
    "Controller": {},
    "RestApi": {"controllerRef": {"name": "slurm"}, "slurmrestd": {}},
    "LoginSet": {"controllerRef": {"name": "slurm"}},
    "Accounting": KEYS
    | {
        "storageConfig": {
            "host": "db",
            "database": "d",
            "username": "u",
            "passwordKeyRef": {"name": "db", "key": "p"},
        }
    },
    "Token": {
        "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
        "username": "ann",
        "lifetime": "1h",
    },
    "NodeSet": {"controllerRef": {"name": "slurm"}, "replicas": 1},
}


@pytest.mark.parametrize("kind", SPECS)
async def test_a_custom_resource_whose_reference_may_not_be_read_reports_it_and_is_retried(
    kind: str,
) -> None:
    parts = OperatorParts()
    parts.keys()
    parts.secret("slurm-login-ssh-host-keys", {}, own=True)
    parts.controller()
    if kind != "Controller":
        parts.custom(kind, "slurm", SPECS[kind])
    parts.requests.refusals["get Secret"] = Forbidden(403, "Forbidden", "no get")
    reconcile = next(each.reconcile for each in kinds(parts.operator) if each.name == kind)
    with pytest.raises(NotReadError, match="no get"):
        await reconcile(("slurm", "slurm"))
    assert parts.condition(kind)["reason"] == "ReferenceUnread"
    parts.requests.refusals.clear()
    await reconcile(("slurm", "slurm"))
    assert parts.condition(kind)["reason"] != "ReferenceUnread"


async def test_a_terminating_controller_with_an_unreadable_key_is_released_and_retried() -> None:
    parts = OperatorParts()
    parts.keys()
    metadata: dict[str, Any] = {"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": [IN_USE]}
    parts.custom("Controller", "slurm", KEYS, **metadata)
    parts.requests.refusals["get Secret"] = Forbidden(403, "Forbidden", "no get")
    reconcile = next(each.reconcile for each in kinds(parts.operator) if each.name == "Controller")
    with pytest.raises(NotReadError, match="no get"):
        await reconcile(("slurm", "slurm"))
    [patch] = parts.requests.of("patch", "Controller")
    assert patch["metadata"]["finalizers"] == []


async def test_what_nothing_refers_to_any_more_is_not_kept(parts: Parts) -> None:
    parts.store("site", "a", 7)
    await parts.contents.read([SITE])
    parts.refer("other", "more")
    await parts.contents.read([])
    with pytest.raises(NotReadError):
        parts.text()


def passes() -> dict[str, float]:
    """How many passes each kind has had."""
    kinds = ("Controller", "RestApi", "LoginSet", "Accounting", "Token", "NodeSet", "Node", "Pod")
    metric = "slurm_operator_pass_seconds_count"
    return {kind: REGISTRY.get_sample_value(metric, {"kind": kind}) or 0.0 for kind in kinds}


def slurm_conf(w: World) -> str:
    """The published slurm.conf and its includes."""
    data = (w.api.get(PATH, "slurm", "slurm-config") or {}).get("data") or {}
    return "\n".join(data.values())


def test_a_config_map_that_nothing_refers_to_wakes_nothing_and_is_never_read() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset("idle", 2)
            await w.run(30)
            before = passes()
            await w.run(10)
            quiet = {kind: count - before[kind] for kind, count in passes().items()}
            w.api.create(PATH, config_map("leader-lock", "0"))
            before = passes()
            for number in range(10):
                w.api.change(PATH, "slurm", "leader-lock", {"data": {"site.conf": str(number)}})
                await w.run(1)
            assert {kind: count - before[kind] for kind, count in passes().items()} == quiet
            with pytest.raises(NotReadError):
                w.operator().runtime.contents.config_map("slurm", "leader-lock")

    run(scenario())


def test_a_config_map_that_a_controller_refers_to_is_published_when_it_appears_or_changes() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            await w.run(10)
            w.api.change(
                CONTROLLER, "slurm", "slurm", {"spec": {"configFileRefs": [{"name": "site"}]}}
            )

            def reason() -> str:
                status = (w.api.get(CONTROLLER, "slurm", "slurm") or {}).get("status") or {}
                return str(
                    next((it["reason"] for it in status["conditions"] if it["type"] == "Ready"), "")
                )

            await w.until("the wait", lambda: reason() == "ReferenceMissing", 10)
            w.api.create(PATH, config_map("site", "# one\n"))
            await w.until("the file", lambda: "# one" in slurm_conf(w), 10)
            w.api.change(PATH, "slurm", "site", {"data": {"site.conf": "# two\n"}})
            await w.until("the change", lambda: "# two" in slurm_conf(w), 10)
            assert "# one" not in slurm_conf(w)
            w.api.delete(PATH, "slurm", "site")
            await w.until("the wait again", lambda: reason() == "ReferenceMissing", 10)

    run(scenario())


def test_a_key_that_is_replaced_reaches_the_connection_to_slurm() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            await w.run(10)
            lookup = w.operator().runtime.lookup
            before = lookup.jwt_key(("slurm", "slurm"))
            name = (w.api.get(CONTROLLER, "slurm", "slurm") or {})["spec"]["jwtKeyRef"]["name"]
            w.api.change("/api/v1/secrets", "slurm", name, {"data": {"jwt.key": "b3RoZXI="}})
            await w.run(3)
            assert before not in (None, b"other")
            assert lookup.jwt_key(("slurm", "slurm")) == b"other"

    run(scenario())
