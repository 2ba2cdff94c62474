"""The Secret of a Token: `sidecars.workloads.token`."""

import base64
from typing import Any

import pytest

from sidecars.workloads.resources import ResourceError, Token, read
from sidecars.workloads.token import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    jwt_key,
    lifetime,
    secret,
    username,
)
from tests.support import builders

KEY = {"name": "slurm-auth-jwt", "key": "jwt.key"}


def token(**spec: Any) -> Token:
    return read(
        Token,
        {
            "metadata": builders.metadata("ann"),
            "spec": {"username": "ann", "jwtKeyRef": KEY} | spec,
        },
    )


def test_the_secret_has_the_token_and_can_be_changed_only_if_the_token_is_renewed() -> None:
    found = secret(token(), "a.b.c")
    assert found["metadata"]["name"] == "ann-jwt-ann"
    assert base64.b64decode(found["data"]["SLURM_JWT"]) == b"a.b.c"
    assert "immutable" not in found
    assert secret(token(refresh=False), "a.b.c")["immutable"] is True


def test_the_secret_that_the_token_names_is_used() -> None:
    found = secret(token(secretRef={"name": "mine", "key": "jwt"}), "a.b.c")
    assert (found["metadata"]["name"], list(found["data"])) == ("mine", ["jwt"])


def test_the_key_that_signs_has_to_be_named() -> None:
    assert jwt_key(token()).name == "slurm-auth-jwt"
    assert jwt_key(token(jwtKeyRef=None, jwtHs256KeyRef={"name": "old", "key": "k"})).name == "old"
    with pytest.raises(ResourceError, match=r"spec\.jwtKeyRef"):
        jwt_key(token(jwtKeyRef=None))


@pytest.mark.parametrize("name", ["", "a b", "@slurm-operator", "a/b"])
def test_a_name_that_no_user_has_is_refused(name: str) -> None:
    with pytest.raises(ResourceError, match=r"spec\.username"):
        username(token(username=name))


def test_a_lifetime_out_of_bounds_is_refused() -> None:
    assert lifetime(token(lifetime=f"{SHORTEST_SECONDS}s")) == SHORTEST_SECONDS
    assert lifetime(token(lifetime=f"{LONGEST_SECONDS}s")) == LONGEST_SECONDS
    for seconds in (SHORTEST_SECONDS - 1, LONGEST_SECONDS + 1):
        with pytest.raises(ResourceError, match=r"spec\.lifetime"):
            lifetime(token(lifetime=f"{seconds}s"))
