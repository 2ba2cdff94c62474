"""What is reported of a namespace in which the bridge may not change pods."""

import asyncio
import logging
from typing import Any, cast

import pytest

from sidecars.bridge.rights import AGAIN_SECONDS, ASK_SECONDS, LACKING_SECONDS, Installation, Rights
from sidecars.contract import bridge
from sidecars.kube import PODS, ApiError, Forbidden, Invalid, KubeError, Manifest, Resource
from tests.support.bridge import live, pod
from tests.unit.bridge.world import World

COMMAND = (
    "kubectl create rolebinding slurm-bridge-tenant --namespace physics "
    "--clusterrole=slurm-bridge-tenant --serviceaccount=slurm:slurm-bridge"
)
DENIED = Forbidden(
    403,
    "Forbidden",
    'pods "p" is forbidden: User "system:serviceaccount:slurm:slurm-bridge" cannot patch resource '
    '"pods" in API group "" in the namespace "physics"',
)


class Bench:
    """Records the Events."""

    def __init__(self) -> None:
        self.time = 0.0
        self.events: list[tuple[Any, ...]] = []
        installation = Installation(
            "slurm", "slurm-bridge-tenants", "slurm-bridge-tenant", "slurm-bridge"
        )
        self.lacks: set[tuple[str, str, str]] = set()
        self.failure: KubeError | None = None
        self.asked: list[tuple[str, str, str]] = []
        self.woken = asyncio.Event()
        fake = cast("Any", self)
        self.rights = Rights(
            fake, fake, installation, lambda: self.time, self.woken.set, claims=True
        )

    def emit(self, *event: Any) -> None:
        self.events.append(event)

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        it = manifest["spec"]["resourceAttributes"]
        assert (resource.plural, it["namespace"]) == ("selfsubjectaccessreviews", "physics")
        assert it.get("group", "") == (
            "resource.k8s.io" if it["resource"] == "resourceclaims" else ""
        )
        self.asked.append((it["verb"], it["resource"], it.get("subresource", "")))
        if self.failure is not None:
            raise self.failure
        return {"status": {"allowed": self.asked[-1] not in self.lacks}}

    async def answered(self) -> dict[str, str]:
        self.woken.clear()
        self.rights.read({"physics"})
        await self.woken.wait()
        return self.rights.unwritable({"physics"})


def test_a_missing_rolebinding_is_reported_with_the_command_that_creates_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        text = bench.rights.explained("physics", DENIED)
    assert text.endswith(COMMAND)
    assert "may not change the pods of namespace physics" in text
    assert [it.getMessage() for it in caplog.records] == [text]
    [(regarding, kind, reason, _, note)] = bench.events
    assert regarding["metadata"] == {"namespace": "slurm", "name": "slurm-bridge-tenants"}
    assert (kind, reason.value, note) == ("Warning", "NoRoleBinding", text)


def test_a_namespace_is_reported_again_after_a_while_alone() -> None:
    bench = Bench()
    for time, events in ((0.0, 1), (AGAIN_SECONDS - 1, 1), (AGAIN_SECONDS, 2)):
        bench.time = time
        bench.rights.explained("physics", DENIED)
        assert len(bench.events) == events
    bench.rights.explained("chemistry", DENIED)
    assert len(bench.events) == 3


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", "exceeded quota: cannot be more"),
        Invalid(422, "Invalid", "too long"),
    ],
)
def test_another_refusal_is_quoted_and_is_no_missing_rolebinding(error: ApiError) -> None:
    bench = Bench()
    assert bench.rights.explained("physics", error) == error.message
    assert bench.events == []


async def test_a_namespace_is_unwritable_until_every_right_is_seen() -> None:
    bench = Bench()
    assert bench.rights.unwritable({"physics"}) == {"physics": ""}
    assert await bench.answered() == {}
    assert sorted(bench.asked) == [
        ("delete", "pods", ""),
        ("patch", "pods", ""),
        ("patch", "pods", "status"),
        ("patch", "resourceclaims", ""),
        ("patch", "resourceclaims", "status"),
    ]
    assert bench.events == []


@pytest.mark.parametrize("right", [("delete", "pods", ""), ("patch", "resourceclaims", "status")])
async def test_one_right_that_lacks_is_shown_on_the_pods_with_the_command(
    right: tuple[str, str, str],
) -> None:
    bench = Bench()
    bench.lacks = {right}
    [(namespace, text)] = (await bench.answered()).items()
    assert (namespace, text.endswith(COMMAND)) == ("physics", True)
    assert [it[2].value for it in bench.events] == ["NoRoleBinding"]


async def test_nothing_is_written_on_pods_where_conditions_may_not_be_written() -> None:
    bench = Bench()
    bench.lacks = {("patch", "pods", "status")}
    assert await bench.answered() == {"physics": ""}
    assert len(bench.events) == 1


@pytest.mark.parametrize(
    "failure", [KubeError("no answer"), Forbidden(403, "Forbidden", "cannot create resource")]
)
async def test_rights_that_can_not_be_found_out_count_as_none(
    failure: KubeError, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.failure = failure
    assert await bench.answered() == {"physics": ""}
    assert "namespace physics: it isn't known whether the bridge may change them" in caplog.text
    bench.failure, bench.time = None, LACKING_SECONDS
    assert await bench.answered() == {}


async def test_the_api_server_is_asked_again_after_a_while() -> None:
    bench = Bench()
    await bench.answered()
    asked = len(bench.asked)
    bench.time = ASK_SECONDS - 1
    bench.rights.read({"physics"})
    await asyncio.sleep(0)
    assert len(bench.asked) == asked
    bench.time, bench.lacks = ASK_SECONDS, {("patch", "pods", "")}
    assert set(await bench.answered()) == {"physics"}
    bench.time, bench.lacks = ASK_SECONDS + LACKING_SECONDS, set()
    assert await bench.answered() == {}


async def test_a_change_that_is_refused_for_a_missing_right_stops_submissions_at_once() -> None:
    bench = Bench()
    assert await bench.answered() == {}
    bench.rights.explained("physics", DENIED)
    assert bench.rights.unwritable({"physics"}) == {"physics": ""}


async def test_no_job_is_submitted_for_pods_that_the_bridge_may_not_change(world: World) -> None:
    world.kube.closed.add("team")
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, pod("team", "p"))
        await world.until("the Event with the command", lambda: "NoRoleBinding" in world.reasons())
        asked = len(world.slurm.calls)
        await world.until("several passes", lambda: len(world.slurm.calls) > asked + 9)
        assert live(world.slurm) == []
        refused = [
            it
            for it in world.kube.calls
            if it.method == "PATCH" and it.path.startswith("/api/v1/namespaces/team")
        ]
        assert refused == []
        world.kube.closed.clear()
        job = await world.job()
    assert world.pod()["metadata"]["labels"][bridge.JOB_LABEL] == str(job.job_id)
