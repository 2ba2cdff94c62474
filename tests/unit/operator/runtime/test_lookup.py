"""What refers to what."""

import pytest

from sidecars.operator.runtime.errors import NotUsableError
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts

pytestmark = pytest.mark.looptime
REFERENCE = {"controllerRef": {"name": "slurm"}}


async def test_a_controller_that_is_missing_is_none_or_an_error_that_names_it() -> None:
    parts = Parts()
    assert parts.runtime.lookup.controller(*CONTROLLER) is None
    with pytest.raises(NotUsableError, match="no Controller 'slurm' exists in 'slurm'") as caught:
        parts.runtime.lookup.needed_controller(*CONTROLLER)
    assert caught.value.reason == "ControllerMissing"


async def test_a_controller_is_read_once_per_version() -> None:
    parts = Parts()
    parts.controller()
    first = parts.runtime.lookup.controller(*CONTROLLER)
    assert parts.runtime.lookup.controller(*CONTROLLER) is first
    parts.controller(clusterName="other")
    changed = parts.runtime.lookup.controller(*CONTROLLER)
    assert changed is not None
    assert changed.spec.cluster_name == "other"


async def test_nodesets_of_a_controller_come_by_name_and_unreadable_ones_count_as_users() -> None:
    parts = Parts()
    for name in ("b", "a"):
        parts.custom("NodeSet", name, REFERENCE)
    parts.custom("NodeSet", "elsewhere", {"controllerRef": {"name": "other"}})
    parts.custom("NodeSet", "unreadable", REFERENCE | {"replicas": "many"})
    lookup = parts.runtime.lookup
    assert [nodeset.name for nodeset in lookup.nodesets_of(*CONTROLLER)] == ["a", "b"]
    assert lookup.users_of(*CONTROLLER) == ["a", "b", "unreadable"]


async def test_of_several_restapis_the_oldest_serves_the_controller() -> None:
    parts = Parts()
    parts.custom("RestApi", "a", REFERENCE, creationTimestamp="2026-02-01T00:00:00Z")
    parts.custom("RestApi", "b", REFERENCE, creationTimestamp="2026-01-01T00:00:00Z")
    served_by = parts.runtime.lookup.restapi_of(*CONTROLLER)
    assert served_by is not None
    assert served_by.name == "b"
    assert parts.runtime.lookup.restapi_of(NAMESPACE, "other") is None


async def test_one_address_for_all_controllers_replaces_that_of_the_service() -> None:
    services, one = Parts(), Parts(slurmrestd_url="http://127.0.0.1:6820")
    for parts in (services, one):
        parts.restapi()
    urls = [
        parts.runtime.lookup.url(parts.runtime.lookup.restapi_of(*CONTROLLER))
        for parts in (services, one)
    ]
    assert urls == ["http://slurm-restapi.slurm:6820", "http://127.0.0.1:6820"]
    assert one.runtime.lookup.url(None) is None


async def test_facts_contain_what_the_controller_and_its_user_refer_to() -> None:
    parts = Parts()
    parts.keys()
    parts.secret("sssd", {"sssd.conf": b"a"})
    parts.secret("unrelated", {"a": b"b"})
    parts.controller()
    login = parts.custom(
        "LoginSet", "login", REFERENCE | {"sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}
    )
    facts = await parts.runtime.lookup.facts(
        parts.runtime.lookup.needed_controller(*CONTROLLER), login
    )
    for name in ("slurm-auth-slurm", "slurm-auth-jwt", "slurm-auth-slurm-jwks", "sssd"):
        assert name in facts.secrets
    assert "missing" not in facts.secrets
    assert {name for verb, _, name in parts.requests.made if verb == "get"} == {
        "slurm-auth-slurm",
        "slurm-auth-jwt",
        "sssd",
    }


async def test_the_jwt_key_of_a_controller_that_cannot_be_read_is_none() -> None:
    parts = Parts()
    parts.keys()
    parts.controller(ha="yes")
    assert parts.runtime.lookup.jwt_key(CONTROLLER) is None


async def test_the_jwt_key_is_none_until_it_was_read() -> None:
    parts = Parts()
    parts.controller()
    assert parts.runtime.lookup.jwt_key(CONTROLLER) is None
    parts.keys()
    assert parts.runtime.lookup.jwt_key(CONTROLLER) is None
    await parts.runtime.lookup.facts(parts.runtime.lookup.needed_controller(*CONTROLLER))
    assert parts.runtime.lookup.jwt_key(CONTROLLER) == b"k" * 32
