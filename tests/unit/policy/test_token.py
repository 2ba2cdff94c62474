"""When a token is signed, kept, or left alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.policy.token import PresentSecret, plan, renewal
from sidecars.slurm.tokens import claims, sign
from sidecars.workloads.resources import ResourceError, Token, read
from sidecars.workloads.token import secret

KEY = b"k" * 32
NOW = 1_800_000_000.0
UID = "uid-of-api"


def token(**spec: Any) -> Token:
    """Token `api` of user root."""
    base = {"username": "root", "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"}}
    return read(
        Token, {"metadata": {"name": "api", "namespace": "slurm", "uid": UID}, "spec": base | spec}
    )


def blocked(text: str | None, **more: Any) -> PresentSecret:
    """A Secret of this Token."""
    known = {"keys": frozenset(["SLURM_JWT"]), "owner_kind": "Token", "owner_uid": UID}
    return PresentSecret(**{"text": text, **known, **more})


def root(seconds: int = 900, user: str = "root", key: bytes = KEY) -> str:
    """A token signed at NOW."""
    return sign(key, user, seconds, NOW)


def test_the_first_token_is_signed() -> None:
    assert plan(token(), None, KEY, NOW).sign


def test_a_good_token_is_kept_and_reported_as_good() -> None:
    decision = plan(token(), blocked(root()), KEY, NOW + 60)
    assert not decision.sign
    assert (decision.condition.status, decision.condition.reason) == ("True", "Issued")
    assert "2027-01-15T08:15:00Z" in decision.condition.message


@given(st.integers(30, 10**6), st.floats(0, 1.5))
def test_a_token_is_renewed_between_seven_and_eight_tenths_of_its_life(
    seconds: int, part: float
) -> None:
    text = root(seconds)
    decision = plan(token(lifetime=f"{seconds}s"), blocked(text), KEY, NOW + part * seconds)
    if part < 0.7:
        assert not decision.sign
        assert decision.again is not None
        assert 0.69 <= part + decision.again / seconds <= 0.81
    if part > 0.8:
        assert decision.sign
        assert not decision.why, "a renewal is nothing to tell"


def test_tokens_made_together_are_not_renewed_together() -> None:
    times = {
        renewal(text, found)
        for text in (root() for _ in range(20))
        if (found := claims(text)) is not None
    }
    assert len(times) == 20


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (root(key=b"o" * 32), "the key that signs tokens has changed"),
        (root(user="else"), "the token was of 'else'"),
        (root(60), "the token had another lifetime (60 s)"),
        ("nonsense", "the Secret contained no token"),
        (None, "the Secret contained no token"),
    ],
)
def test_a_token_that_is_not_the_wanted_one_is_signed_anew(text: str | None, why: str) -> None:
    decision = plan(token(), blocked(text), KEY, NOW + 1)
    assert (decision.sign, decision.replace, decision.why) == (True, False, why)


def test_a_token_from_the_future_is_signed_anew() -> None:
    assert plan(token(), blocked(root()), KEY, NOW - 5).sign


def test_without_refresh_an_old_token_is_reported_as_expired_and_left() -> None:
    of = token(refresh=False)
    for text, later, reason in ((root(), 1000, "Expired"), (root(key=b"o" * 32), 1, "Outdated")):
        decision = plan(of, blocked(text, immutable=True), KEY, NOW + later)
        assert (decision.sign, decision.keep, decision.condition.reason) == (False, False, reason)
        assert "delete Secret 'api-jwt-root'" in decision.condition.message
    assert plan(of, blocked(root(), immutable=True), KEY, NOW + 1).again == 899


def test_refresh_can_be_turned_off_and_on() -> None:
    off = plan(token(refresh=False), blocked(root()), KEY, NOW + 1)
    assert (off.keep, off.sign) == (True, False)
    on = plan(token(), blocked(root(), immutable=True), KEY, NOW + 1)
    assert (on.sign, on.replace) == (True, True)


@pytest.mark.parametrize(
    "foreign",
    [
        {"owner_uid": "another", "owner_kind": "Token"},
        {"owner_uid": "", "owner_kind": "", "text": "password"},
        {"owner_uid": "", "owner_kind": "", "keys": frozenset(["SLURM_JWT", "more"])},
    ],
)
def test_a_secret_of_somebody_else_is_never_written(foreign: dict[str, Any]) -> None:
    decision = plan(token(), blocked(**{"text": root(), **foreign}), KEY, NOW + 1)
    assert (decision.sign, decision.replace, decision.keep) == (False, False, False)
    assert decision.condition.reason == "SecretTaken"


def test_a_token_that_schedmds_operator_left_is_taken_over() -> None:
    decision = plan(
        token(), blocked(root(), owner_uid="uid-of-key", owner_kind="Secret"), KEY, NOW + 1
    )
    assert (decision.sign, decision.replace) == (True, True)


@pytest.mark.parametrize("lifetime", ["0", "29s", "600000h"])
def test_a_lifetime_out_of_bounds_is_refused(lifetime: str) -> None:
    with pytest.raises(
        ResourceError, match=r"^spec\.lifetime: .* at least 30s and at most 2147483646s"
    ):
        plan(token(lifetime=lifetime), None, KEY, NOW)


def test_the_secret_belongs_to_the_token_and_is_named_as_asked() -> None:
    manifest = secret(token(), "text")
    assert manifest["metadata"]["name"] == "api-jwt-root"
    assert manifest["metadata"]["ownerReferences"][0] == {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "Token",
        "name": "api",
        "uid": UID,
        "blockOwnerDeletion": True,
        "controller": True,
    }
    assert (manifest["data"], "immutable" in manifest) == ({"SLURM_JWT": "dGV4dA=="}, False)
    named = secret(token(secretRef={"name": "mine", "key": "jwt"}, refresh=False), "text")
    assert (named["metadata"]["name"], named["data"], named["immutable"]) == (
        "mine",
        {"jwt": "dGV4dA=="},
        True,
    )
