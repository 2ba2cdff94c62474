"""One pass over one Token."""

import pytest

from sidecars.operator.token.reconcile import reconcile
from tests.support.operator_parts import EPOCH, NAMESPACE, Parts

pytestmark = pytest.mark.looptime
KEY = (NAMESPACE, "ann")
SPEC = {
    "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
    "username": "ann",
    "lifetime": "1h",
}


async def test_a_token_is_signed_and_looked_at_again_before_it_expires() -> None:
    parts = Parts()
    parts.keys()
    parts.custom("Token", "ann", SPEC)
    again = await reconcile(parts.runtime, KEY)
    assert [
        name for verb, kind, name in parts.requests.made if (verb, kind) == ("apply", "Secret")
    ] == ["ann-jwt-ann"]
    assert again is not None
    assert 0 < again < 3600
    assert parts.condition("Token")["status"] == "True"


async def test_without_its_key_no_secret_is_written_and_the_condition_names_the_key() -> None:
    parts = Parts()
    parts.custom("Token", "ann", SPEC)
    assert await reconcile(parts.runtime, KEY) is None
    assert "slurm-auth-jwt" in parts.condition("Token")["message"]
    assert not [verb for verb, _, _ in parts.requests.made if verb == "apply"]


async def test_no_token_is_signed_for_a_name_that_is_not_a_users() -> None:
    parts = Parts()
    parts.keys()
    parts.custom(
        "Token",
        "ann",
        SPEC | {"username": "@slurm-operator", "secretRef": {"name": "s", "key": "k"}},
    )
    assert await reconcile(parts.runtime, KEY) is None
    assert "spec.username: '@slurm-operator' must consist of" in parts.condition("Token")["message"]
    assert not [verb for verb, _, _ in parts.requests.made if verb == "apply"]


async def test_a_token_that_was_deleted_is_left_alone() -> None:
    parts = Parts()
    assert await reconcile(parts.runtime, KEY) is None
    assert parts.requests.made == []
    assert parts.now == EPOCH
