"""Which tokens a simulated slurmctld believes."""

import jwt
import pytest

from sidecars.simulate.tokens import user_of
from sidecars.slurm.tokens import sign

KEY = b"0123456789abcdef0123456789abcdef"
CLAIMS = {"iat": 900, "exp": 1100, "sun": "slurm"}


def test_a_signed_token_names_its_user() -> None:
    assert user_of(sign(KEY, "alice", 60, 1000.0), KEY, 1000.0) == "alice"
    assert user_of(jwt.encode(CLAIMS, KEY, algorithm="HS256"), KEY, 1000.0) == "slurm"


@pytest.mark.parametrize("now", [899.0, 1100.0])
def test_a_token_is_valid_only_in_its_time(now: float) -> None:
    assert user_of(jwt.encode(CLAIMS, KEY, algorithm="HS256"), KEY, now) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        "é.é.é",
        jwt.encode(CLAIMS, b"another key of thirty-two bytes!", algorithm="HS256"),
        jwt.encode(CLAIMS, "", algorithm="none"),
        jwt.encode({"iat": 900, "exp": 1100}, KEY, algorithm="HS256"),
        jwt.encode({"iat": "900", "exp": 1100, "sun": "slurm"}, KEY, algorithm="HS256"),
        jwt.encode(CLAIMS | {"sun": 3}, KEY, algorithm="HS256"),
        jwt.encode(CLAIMS, KEY * 2, algorithm="HS512"),
    ],
)
def test_anything_else_names_nobody(token: str) -> None:
    assert user_of(token, KEY, 1000.0) is None
