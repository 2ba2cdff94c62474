"""Requests between sidecars: who may send them, and that each counts once."""

import dataclasses

import pytest

from sidecars.contract.signature import LIFETIME, Request, Verifier, authorization
from sidecars.slurm import tokens

NOW = 1_700_000_000.5
KEY = b"k" * 32
POD = "slurm-controller-0"
YIELD = Request("POST", "/yield", POD)


def accepts(header: str, verifier: Verifier | None = None, now: float = NOW) -> bool:
    return (verifier or Verifier(POD)).accepts("POST", "/yield", header, KEY, now)


def test_a_request_is_accepted_once() -> None:
    verifier = Verifier(POD)
    header = authorization(YIELD, KEY, NOW)
    assert accepts(header, verifier)
    assert not accepts(header, verifier)
    assert accepts(authorization(YIELD, KEY, NOW), verifier)


def test_a_request_is_not_accepted_again_until_it_has_expired() -> None:
    verifier = Verifier(POD)
    header = authorization(YIELD, KEY, NOW)
    assert accepts(header, verifier)
    times = [NOW + second for second in range(-2 * LIFETIME, 3 * LIFETIME)]
    # In this order, too: the clock of the pod may be set back.
    assert not any(accepts(header, verifier, now) for now in [*times, *reversed(times)])


@pytest.mark.parametrize(
    "change", [{"method": "GET"}, {"path": "/status"}, {"pod": "slurm-controller-1"}]
)
def test_a_request_is_good_for_one_method_path_and_pod(change: dict[str, str]) -> None:
    assert not accepts(authorization(dataclasses.replace(YIELD, **change), KEY, NOW))


@pytest.mark.parametrize("age", [-LIFETIME - 2, LIFETIME + 2])
def test_a_request_of_another_time_is_refused(age: int) -> None:
    assert not accepts(authorization(YIELD, KEY, NOW - age))


def test_a_token_of_slurm_is_no_request_whoever_it_names() -> None:
    token = tokens.sign(KEY, "slurm", 60, NOW)
    assert not accepts(f"Bearer {token}")
    assert not accepts(f"SlurmSidecar {token}")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "SlurmSidecar",
        "SlurmSidecar ..",
        "SlurmSidecar ²..",
        f"SlurmSidecar {'9' * 5000}.a.b",
        "SlurmSidecar 1.é.é",
    ],
)
def test_a_header_that_is_no_signature_is_refused(header: str) -> None:
    assert not accepts(header)


def test_another_key_or_none_is_refused() -> None:
    assert not accepts(authorization(YIELD, b"other", NOW))
    assert not Verifier(POD).accepts("POST", "/yield", authorization(YIELD, KEY, NOW), b"", NOW)
    with pytest.raises(ValueError, match="jwtKeyRef"):
        authorization(YIELD, b"", NOW)
