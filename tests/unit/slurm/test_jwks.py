"""slurm.jwks, as Slurm's own page describes it."""

import json

import pytest

from sidecars.slurm import jwks
from sidecars.slurm.jwks import Ring

OLD, NEW = b"o" * 64, bytes(range(256))


def test_a_file_has_the_same_content_when_it_is_read() -> None:
    for ring in (Ring(OLD), Ring(OLD, (NEW,)), Ring(NEW, (OLD,))):
        assert jwks.parse(jwks.render(ring)) == ring


def test_one_key_is_the_default_and_each_has_what_slurm_asks_for() -> None:
    entries = json.loads(jwks.render(Ring(NEW, (OLD,))))["keys"]
    assert [entry.get("use") for entry in entries] == ["default", None]
    assert len({entry["kid"] for entry in entries}) == 2
    for entry in entries:
        assert (entry["alg"], entry["kty"]) == ("HS256", "oct")


def test_no_key_shows() -> None:
    assert "o" * 8 not in repr(Ring(OLD, (NEW,)))
    with pytest.raises(ValueError, match="one default key") as caught:
        jwks.parse(b'{"keys": [{"k": "b29vb29vb28="}]}')
    assert "b29v" not in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"keys": 3}', b'{"keys": ["x"]}', b"\xff"])
def test_what_is_no_such_file_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a slurm\.jwks"):
        jwks.parse(text)
