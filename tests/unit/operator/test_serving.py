"""Who may read the operator's metrics: `sidecars.operator.serving`."""

from typing import Any, cast

import aiohttp
import pytest

from sidecars.kube import Client, Forbidden, Manifest, Resource
from sidecars.operator.serving import REMEMBER_SECONDS, Guard, serve
from sidecars.operator.settings import Settings
from tests.cluster.control_plane import free_ports


class Reviews:
    """An API server that knows one token, and whether its user may get /metrics; it counts the
    questions.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bodies: list[Manifest] = []
        self.allowed = True
        self.fault: Exception | None = None

    async def create(self, resource: Resource, body: Manifest) -> Any:
        self.asked.append(resource.kind)
        self.bodies.append(body)
        if self.fault is not None:
            raise self.fault
        if resource.kind == "TokenReview":
            known = body["spec"]["token"] == "known"
            return {
                "status": {
                    "authenticated": known,
                    "user": {"username": "prometheus", "groups": ["g"]},
                }
            }
        return {"status": {"allowed": self.allowed}}


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.reviews = Reviews()
        self.guard = Guard(cast("Client", self.reviews), lambda: self.now)


async def test_the_api_server_is_asked_whether_the_bearer_may_get_metrics() -> None:
    scene = Scene()
    assert await scene.guard.allows("known")
    access = scene.reviews.bodies[-1]["spec"]
    assert (access["user"], access["groups"]) == ("prometheus", ["g"])
    assert access["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


async def test_an_unknown_token_is_refused_without_a_question_about_its_rights() -> None:
    scene = Scene()
    assert not await scene.guard.allows("forged")
    assert scene.reviews.asked == ["TokenReview"]


async def test_an_answer_counts_for_a_minute_and_for_its_token_alone() -> None:
    scene = Scene()
    assert await scene.guard.allows("known")
    scene.reviews.allowed = False
    scene.now = REMEMBER_SECONDS - 1
    assert await scene.guard.allows("known")
    assert not await scene.guard.allows("forged")
    scene.now = REMEMBER_SECONDS
    assert not await scene.guard.allows("known")


async def test_an_api_server_that_does_not_answer_lets_nobody_in_and_is_asked_again() -> None:
    scene = Scene()
    scene.reviews.fault = Forbidden(403, "Forbidden", "no tokenreviews")
    assert not await scene.guard.allows("known")
    scene.reviews.fault = None
    assert await scene.guard.allows("known")


async def test_no_token_is_kept_in_memory() -> None:
    scene = Scene()
    await scene.guard.allows("known")
    assert "known" not in repr(vars(scene.guard))


async def test_without_metrics_secure_health_and_metrics_are_plain_and_0_serves_none() -> None:
    health, metrics = free_ports(2)
    for metrics_addr in (f"127.0.0.1:{metrics}", "0"):
        settings = Settings(health_addr=f"127.0.0.1:{health}", metrics_addr=metrics_addr)
        end = await serve(settings, cast("Client", Reviews()))
        try:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{health}/healthz") as answer:
                    assert (answer.status, await answer.text()) == (200, "ok\n")
                if metrics_addr == "0":
                    with pytest.raises(aiohttp.ClientConnectionError):
                        await session.get(f"http://127.0.0.1:{metrics}/metrics")
                    continue
                async with session.get(f"http://127.0.0.1:{metrics}/metrics") as answer:
                    assert answer.status == 200
                    assert "python_info" in await answer.text()
        finally:
            await end()
