"""What daemons are given of slurm.key, as a pass over a Controller meets it."""

import asyncio
import base64
import json
from typing import Any, TypeVar

import pytest

from sidecars.kube import DEPLOYMENTS
from sidecars.operator.keys.distribution import distribute, wait_for
from sidecars.operator.main import kinds, work
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.conditions import Condition, timestamp
from sidecars.simulate import ModelCarrier
from sidecars.slurm import jwks
from sidecars.slurm.errors import Unreachable
from sidecars.slurm.jwks import Ring
from sidecars.slurm.protocol import Request
from sidecars.workloads import names
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import EPOCH, NAMESPACE, Parts, SlurmConnection

pytestmark = pytest.mark.looptime
T = TypeVar("T")
OLD, NEW = b"o" * 64, b"n" * 64
JWKS = "slurm-auth-slurm-jwks"


async def run(parts: Parts, **spec: Any) -> Condition:
    manifest = parts.controller(**spec)
    controller = read(Controller, manifest)
    facts = await parts.runtime.lookup.facts(controller)
    return await distribute(
        parts.runtime, parts.operator.controllers.distributions, manifest, controller, facts
    )


def with_key() -> Parts:
    parts = Parts()
    parts.secret("slurm-auth-slurm", {"slurm.key": OLD})
    return parts


def written(parts: Parts) -> Ring:
    """The keys in the Secret that was applied."""
    [secret] = parts.requests.of("apply", "Secret")
    return jwks.parse(base64.b64decode(secret["data"]["slurm.jwks"]))


async def test_the_first_ring_is_the_key_that_is_named_and_daemons_wait_until_it_is_seen() -> None:
    parts = with_key()
    with pytest.raises(NotUsableError) as caught:
        await run(parts)
    assert caught.value.reason == "WaitingForKeys"
    assert written(parts) == Ring(OLD)


async def test_keys_that_daemons_have_are_not_written_again() -> None:
    parts = with_key()
    parts.secret(JWKS, {"slurm.jwks": jwks.render(Ring(OLD))}, own=True)
    assert (await run(parts)).status == "True"
    assert parts.requests.of("apply", "Secret") == []


async def test_another_key_begins_by_adding_it_beside_the_one_that_signs() -> None:
    parts = with_key()
    parts.secret(JWKS, {"slurm.jwks": jwks.render(Ring(OLD))}, own=True)
    parts.secret("next", {"slurm.key": NEW})
    await run(parts, nextSlurmKeyRef={"name": "next", "key": "slurm.key"})
    ring = written(parts)
    assert (ring.default, ring.others) == (OLD, (NEW,))


async def test_each_step_of_a_rotation_is_an_event_and_the_first_keys_are_none() -> None:
    parts = with_key()
    with pytest.raises(NotUsableError):
        await run(parts)
    parts.secret(JWKS, {"slurm.jwks": jwks.render(Ring(OLD))}, own=True)
    await run(parts)
    await parts.woken()
    assert parts.requests.of("create", "Event") == []
    parts.secret("next", {"slurm.key": NEW})
    condition = await run(parts, nextSlurmKeyRef={"name": "next", "key": "slurm.key"})
    await parts.woken()
    [event] = parts.requests.of("create", "Event")
    assert (event["type"], event["reason"], event["note"]) == (
        "Normal",
        "SlurmKey",
        condition.message,
    )
    assert event["regarding"]["kind"] == "Controller"


async def test_a_next_key_that_is_missing_changes_nothing_and_is_shown() -> None:
    parts = with_key()
    parts.secret(JWKS, {"slurm.jwks": jwks.render(Ring(OLD))}, own=True)
    condition = await run(parts, nextSlurmKeyRef={"name": "next", "key": "slurm.key"})
    assert (condition.status, condition.reason) == ("False", "ReferenceMissing")
    assert parts.requests.of("apply", "Secret") == []


async def test_of_controllers_with_one_key_the_first_by_name_distributes_it() -> None:
    parts = with_key()
    parts.secret(JWKS, {"slurm.jwks": jwks.render(Ring(OLD))}, own=True)
    key = {"slurmKeyRef": {"name": "slurm-auth-slurm", "key": "slurm.key"}}
    parts.custom("Controller", "another", key)
    condition = await run(parts)
    assert (condition.status, condition.reason) == ("True", "Shared")
    assert "'another'" in condition.message


async def test_nothing_starts_before_the_secret_with_the_daemons_keys_exists() -> None:
    parts = with_key()
    selector = slurm_key(read(Controller, parts.controller()))
    with pytest.raises(NotUsableError, match=JWKS):
        wait_for(parts.runtime, "slurm", selector)
    parts.secret(JWKS, {"slurm.jwks": json.dumps({}).encode()}, own=True)
    wait_for(parts.runtime, "slurm", selector)


class Slurm(SlurmConnection):
    """A Slurm whose slurmrestd takes `seconds` for a reconfigure, and then fails if `fails`."""

    def __init__(self, seconds: float, *, fails: bool = False) -> None:
        super().__init__()
        self.seconds = seconds
        self.fails = fails

    @property
    def reconfigured(self) -> int:
        """How often it was asked for."""
        return self.sent.count("GET reconfigure/")

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        if request.path != "reconfigure/":
            return await super().call(request, timeout=timeout)
        self.sent.append(str(request))
        limit = 15.0 if timeout is None else timeout
        await asyncio.sleep(min(self.seconds, limit))
        if self.seconds > limit:
            raise Unreachable(str(request), f"no answer in {limit:g} s")
        if self.fails:
            raise Unreachable(str(request), "no answer")
        return await ModelCarrier.call(self, request, timeout=timeout)


def rotating(parts: Parts, name: str) -> None:
    """A Controller with a RestApi whose daemons have had both keys for long, and now read them."""
    for key, data in (
        ("key", {"slurm.key": OLD}),
        ("next", {"slurm.key": NEW}),
        ("jwt", {"jwt.key": b"k" * 32}),
    ):
        parts.secret(f"{name}-{key}", data)
    since = {names.KEYS_SINCE: timestamp(EPOCH - 1000)}
    both = {"slurm.jwks": jwks.render(Ring(OLD, (NEW,)))}
    parts.secret(names.slurm_jwks(f"{name}-key"), both, own=True, annotations=since)
    spec = {
        "slurmKeyRef": {"name": f"{name}-key", "key": "slurm.key"},
        "nextSlurmKeyRef": {"name": f"{name}-next", "key": "slurm.key"},
        "jwtKeyRef": {"name": f"{name}-jwt", "key": "jwt.key"},
        "slurmctld": {"image": "slurmctld:26.05"},
    }
    parts.custom("Controller", name, spec)
    parts.custom("RestApi", name, {"controllerRef": {"name": name}, "slurmrestd": {}})
    parts.workload(DEPLOYMENTS, names.restapi(name), "slurmrestd", "slurmrestd:26.05")


async def test_four_controllers_whose_slurmrestd_hangs_delay_no_fifth() -> None:
    parts = Parts(connect=lambda *_: Slurm(15.0, fails=True))
    controllers = kinds(parts.operator)[0]
    working = asyncio.create_task(work(controllers))
    for name in ("a", "b", "c", "d"):
        rotating(parts, name)
        controllers.queue.add((NAMESPACE, name))
    await asyncio.sleep(0.1)
    parts.keys()
    parts.controller()
    controllers.queue.add((NAMESPACE, "slurm"))
    await asyncio.sleep(0.5)
    assert ("patch status", "Controller", "slurm") in parts.requests.made
    working.cancel()
    await parts.runtime.clusters.close()


async def test_daemons_are_asked_once_to_read_their_keys_and_the_answer_wakes_the_controller() -> (
    None
):
    slurm = Slurm(15.0)
    parts = Parts(connect=lambda *_: slurm)
    rotating(parts, "a")
    controllers = kinds(parts.operator)[0]
    for _ in range(3):
        await controllers.reconcile((NAMESPACE, "a"))
    assert slurm.reconfigured == 1
    assert "all daemons are asked" in parts.condition("Controller", "SlurmKey")["message"]
    await parts.woken()
    assert controllers.name not in await parts.woken(10.0)
    assert (await parts.woken(5.0))["controllers"] == {(NAMESPACE, "a")}
    await controllers.reconcile((NAMESPACE, "a"))
    assert slurm.reconfigured == 1
    assert "all daemons read them" in parts.condition("Controller", "SlurmKey")["message"]
    parts.now += 10
    await controllers.reconcile((NAMESPACE, "a"))
    assert parts.condition("Controller", "SlurmKey")["reason"] == "Switching"
    await parts.runtime.clusters.close()


async def test_a_request_that_fails_is_shown_and_sent_again() -> None:
    slurm = Slurm(1.0, fails=True)
    parts = Parts(connect=lambda *_: slurm)
    rotating(parts, "a")
    reconcile = kinds(parts.operator)[0].reconcile
    await reconcile((NAMESPACE, "a"))
    await asyncio.sleep(1.1)
    for _ in range(2):
        await reconcile((NAMESPACE, "a"))
        assert "could not be asked" in parts.condition("Controller", "SlurmKey")["message"]
    assert slurm.reconfigured == 1
    parts.now += 60
    await reconcile((NAMESPACE, "a"))
    assert slurm.reconfigured == 2
    await parts.runtime.clusters.close()


async def test_a_slurmctld_that_never_answers_is_reconfigured_at_most_twice_in_two_minutes() -> (
    None
):
    slurm = Slurm(1.0, fails=True)
    parts = Parts(connect=lambda *_: slurm)
    rotating(parts, "a")
    reconcile = kinds(parts.operator)[0].reconcile
    for _ in range(120):
        await reconcile((NAMESPACE, "a"))
        await asyncio.sleep(1.0)
        parts.now += 1
    assert slurm.reconfigured == 2
    await parts.runtime.clusters.close()


async def test_a_reconfigure_that_takes_a_minute_is_waited_for() -> None:
    slurm = Slurm(60.0)
    parts = Parts(connect=lambda *_: slurm)
    rotating(parts, "a")
    reconcile = kinds(parts.operator)[0].reconcile
    for _ in range(70):
        await reconcile((NAMESPACE, "a"))
        await asyncio.sleep(1.0)
        parts.now += 1
    assert slurm.reconfigured == 1
    assert parts.condition("Controller", "SlurmKey")["reason"] == "Switching"
    await parts.runtime.clusters.close()


@pytest.mark.parametrize(
    ("conditions", "delays"),
    [
        (None, False),
        ([], False),
        ([{"type": "Ready", "status": "True"}], False),
        ([{"type": "Ready", "status": "Unknown"}], True),
    ],
)
async def test_keys_wait_for_workers_on_kubernetes_nodes_that_are_not_ready_and_for_no_others(
    conditions: list[dict[str, str]] | None, delays: bool
) -> None:
    parts = Parts(connect=lambda *_: Slurm(0.0))
    rotating(parts, "slurm")
    parts.pod("slinky-0")
    if conditions is not None:
        parts.kube_node("kube-1", status={"conditions": conditions})
    await kinds(parts.operator)[0].reconcile((NAMESPACE, "slurm"))
    message = parts.condition("Controller", "SlurmKey")["message"]
    assert ("Kubernetes node 'kube-1' is not Ready" in message) is delays
    await parts.runtime.clusters.close()
