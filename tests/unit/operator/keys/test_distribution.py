"""What daemons are given of slurm.key, as a pass over a Controller meets it."""

import base64
import json
from typing import Any

import pytest

from sidecars.operator.keys.distribution import distribute, wait_for
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.conditions import Condition
from sidecars.slurm import jwks
from sidecars.slurm.jwks import Ring
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import Parts

pytestmark = pytest.mark.looptime
OLD, NEW = b"o" * 64, b"n" * 64
JWKS = "slurm-auth-slurm-jwks"


async def run(parts: Parts, **spec: Any) -> Condition:
    manifest = parts.controller(**spec)
    controller = read(Controller, manifest)
    facts = await parts.runtime.lookup.facts(controller)
    return await distribute(parts.runtime, parts.operator.controllers.walks, manifest, controller, facts)


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
