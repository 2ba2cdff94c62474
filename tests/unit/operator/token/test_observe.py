"""What a pass over a Token looks at: `sidecars.operator.token.observe`."""

from typing import Any

import pytest

from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.token import observe
from sidecars.workloads import references
from sidecars.workloads import token as render
from sidecars.workloads.resources import Token, read
from tests.support.operator_parts import Parts

pytestmark = pytest.mark.looptime
SPEC = {"jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"}, "username": "ann"}


async def token(parts: Parts) -> Token:
    """A Token whose references have been read."""
    manifest = parts.custom("Token", "ann", SPEC)
    await parts.runtime.contents.read(references.of(manifest))
    return read(Token, manifest)


@pytest.mark.parametrize(
    ("data", "why"),
    [(None, "doesn't exist"), ({}, "has no key 'jwt.key'"), ({"jwt.key": b""}, "or an empty one")],
)
async def test_without_a_key_nothing_can_be_signed_and_the_message_names_the_secret(
    data: Any, why: str
) -> None:
    parts = Parts()
    if data is not None:
        parts.secret("slurm-auth-jwt", data)
    with pytest.raises(NotUsableError, match="Secret 'slurm-auth-jwt'") as caught:
        observe.signing_key(parts.runtime, await token(parts))
    assert caught.value.reason == "ReferenceMissing"
    assert why in str(caught.value)


async def test_the_key_is_the_one_that_is_referred_to() -> None:
    parts = Parts()
    parts.secret("slurm-auth-jwt", {"jwt.key": b"k" * 32, "other": b"o"})
    assert observe.signing_key(parts.runtime, await token(parts)) == b"k" * 32


async def test_the_present_secret_is_read_with_its_owner_so_that_no_foreign_one_is_lost() -> None:
    parts = Parts()
    mine = await token(parts)
    assert observe.present_secret(parts.runtime, mine) is None
    owner = {
        "apiVersion": "v1",
        "kind": "Deployment",
        "name": "d",
        "uid": "theirs",
        "controller": True,
    }
    parts.secret(
        render.secret_name(mine),
        {render.secret_key(mine): b"t.o.k"},
        own=True,
        ownerReferences=[owner],
    )
    present = observe.present_secret(parts.runtime, mine)
    assert present is not None
    assert (present.text, present.owner_kind, present.owner_uid) == (
        "t.o.k",
        "Deployment",
        "theirs",
    )
    assert present.keys == {render.secret_key(mine)}


async def test_a_secret_without_the_token_s_key_has_no_text() -> None:
    parts = Parts()
    mine = await token(parts)
    parts.secret(render.secret_name(mine), {"another": b"x"}, own=True)
    present = observe.present_secret(parts.runtime, mine)
    assert present is not None
    assert (present.text, present.owner_kind) == (None, "")
