"""Tokens."""

import random

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm import tokens
from sidecars.slurm.tokens import TokenSource, sign

KEY = b"0123456789abcdef0123456789abcdef"
NOW = 1_800_000_000.7


def claims(token: str, key: bytes = KEY) -> dict[str, object]:
    decoded: dict[str, object] = jwt.decode(
        token,
        key,
        algorithms=["HS256"],
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )
    return decoded


def test_a_token_carries_the_claims_that_slurmctld_and_people_look_for() -> None:
    token = sign(KEY, "slurm", 900, NOW)
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    found = claims(token)
    assert found.pop("jti")
    assert found == {
        "iat": 1_800_000_000,
        "nbf": 1_800_000_000,
        "exp": 1_800_000_900,
        "sun": "slurm",
        "iss": "slurm-operator",
    }


@given(st.binary(min_size=32, max_size=64), st.from_regex(tokens.USERNAME, fullmatch=True))
def test_any_key_and_user_make_a_token_that_another_library_verifies(key: bytes, user: str) -> None:
    assert claims(sign(key, user, 60, NOW), key)["sun"] == user


def test_each_token_has_an_id_of_its_own() -> None:
    assert claims(sign(KEY, "slurm", 9, NOW))["jti"] != claims(sign(KEY, "slurm", 9, NOW))["jti"]


@pytest.mark.parametrize(
    ("key", "user", "lifetime"), [(b"", "slurm", 1), (KEY, "", 1), (KEY, "slurm", 0)]
)
def test_a_token_that_slurm_would_refuse_is_not_signed(
    key: bytes, user: str, lifetime: int
) -> None:
    with pytest.raises(ValueError, match=r"key is empty|user name|at least 1 s"):
        sign(key, user, lifetime, NOW)


@pytest.mark.parametrize(
    "user",
    ["@slurm-operator", "ann@example.org", "ann\n", "a b", "-ann", ".", "a/b", "änn", "a\0", "*"],
)
def test_no_token_is_signed_for_a_name_that_is_not_a_users(user: str) -> None:
    with pytest.raises(ValueError, match="user name"):
        sign(KEY, user, 60, NOW)


@pytest.mark.parametrize("user", ["slurm", "Jane_Doe", "j.doe-2", "_apt", "0day"])
def test_a_token_is_signed_for_names_of_users(user: str) -> None:
    assert claims(sign(KEY, user, 60, NOW))["sun"] == user


class KeyAndClock:
    """A key and a time that a test changes."""

    def __init__(self) -> None:
        self.key = KEY
        self.now = NOW

    def source(self, seed: int = 1) -> TokenSource:
        return TokenSource(
            lambda: self.key,
            clock=lambda: self.now,
            lifetime_seconds=1000,
            rng=random.Random(seed),  # noqa: S311 - a test
        )


def test_a_token_is_kept_until_it_is_renewed_well_before_it_expires() -> None:
    signing = KeyAndClock()
    source = signing.source()
    first = source.token()
    signing.now += 699
    assert source.token() == first
    signing.now += 102
    renewed = source.token()
    assert renewed != first
    assert claims(renewed)["iat"] == int(signing.now)


def test_renewal_is_spread_over_time() -> None:
    def renewed_after(seed: int) -> int:
        signing = KeyAndClock()
        source = signing.source(seed)
        first = source.token()
        while source.token() == first:
            signing.now += 1
        return int(signing.now - NOW)

    times = {renewed_after(seed) for seed in range(10)}
    assert len(times) > 3
    assert min(times) >= 700
    assert max(times) <= 801


def test_another_key_takes_effect_at_once() -> None:
    signing = KeyAndClock()
    source = signing.source()
    source.token()
    signing.key = b"another key another key another "
    assert claims(source.token(), signing.key)["sun"] == "slurm"


def test_a_clock_that_is_set_back_makes_a_new_token_not_one_from_the_future() -> None:
    signing = KeyAndClock()
    source = signing.source()
    source.token()
    signing.now -= 3600
    assert claims(source.token())["iat"] == int(signing.now)


def test_a_refused_token_is_not_used_again() -> None:
    source = KeyAndClock().source()
    first = source.token()
    source.forget()
    assert source.token() != first


def test_neither_key_nor_token_shows_in_a_repr() -> None:
    source = KeyAndClock().source()
    token = source.token()
    assert KEY.decode() not in repr(source)
    assert token not in repr(source)


def test_what_a_token_contains_can_be_read_whoever_signed_it() -> None:
    assert tokens.claims(sign(KEY, "root", 60, NOW)) == tokens.Claims(
        "root", 1_800_000_000, 1_800_000_060, "slurm-operator"
    )


@pytest.mark.parametrize(
    "text", ["", "a", "a.b", "a.b.c", "a.bnVsbA.c", "a.W10.c", "a.eyJzdW4iOiJ4In0.c", "ä.ö.ü"]
)
def test_what_is_no_token_reports_nothing(text: str) -> None:
    assert tokens.claims(text) is None
    assert not tokens.signed_by(text, KEY)


def test_a_token_is_known_by_the_key_that_signed_it() -> None:
    token = sign(KEY, "root", 60, NOW)
    assert tokens.signed_by(token, KEY)
    assert not tokens.signed_by(token, b"another")
    assert not tokens.signed_by(token, b"")
    assert not tokens.signed_by(token[:-2], KEY)
