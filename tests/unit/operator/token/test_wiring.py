"""Which change wakes which Token."""

from typing import Any

import pytest

from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
ANN = {(NAMESPACE, "ann")}


def token(parts: Parts, name: str = "ann", key: str = "slurm-auth-jwt", **metadata: Any) -> None:
    parts.custom(
        "Token", name, {"jwtKeyRef": {"name": key, "key": "jwt.key"}, "username": name}, **metadata
    )


async def test_a_changed_spec_wakes_its_token_alone() -> None:
    parts = Parts()
    token(parts)
    token(parts, "bob")
    await parts.woken()
    token(parts, generation=2)
    assert await parts.woken() == {"tokens": ANN}


async def test_its_key_wakes_each_token_that_refers_to_it_and_another_secret_none() -> None:
    parts = Parts()
    token(parts)
    token(parts, "bob", key="another")
    await parts.woken()
    parts.secret("slurm-auth-jwt", {"jwt.key": b"n" * 32})
    assert (await parts.woken())["tokens"] == ANN
    parts.secret("unrelated", {"jwt.key": b"n" * 32})
    assert await parts.woken() == {}


async def test_an_unchanged_token_that_the_watch_shows_again_wakes_nothing() -> None:
    parts = Parts()
    token(parts)
    await parts.woken()
    token(parts)
    assert await parts.woken() == {}
