"""Quantities as Kubernetes writes them."""

import contextlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.workloads.quantities import mebibytes, quantity, whole
from sidecars.workloads.resources import ResourceError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", "2"),
        (2, "2"),
        ("1500m", "1.5"),
        ("0.1", "0.1"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("2Gi", str(2 << 30)),
        ("1Ki", "1024"),
        ("1k", "1000"),
        ("1M", "1000000"),
        ("1E", str(10**18)),
        ("5u", "0.000005"),
        ("7n", "7e-9"),
    ],
)
def test_a_quantity_is_read(text: Any, value: str) -> None:
    assert quantity(text, "x") == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two",
        "1 Gi",
        "1gi",
        "1Gib",
        "--1",
        "1e",
        True,
        None,
        [],
        "1e9999",
        "1e99",
        "10E",
        "-8Ei",
        "9" * 400,
        "1" * 100 + "x",
        "1" * 260_000 + "x",
    ],
)
def test_what_is_no_quantity_is_refused_with_its_field(text: Any) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.slurmd\.resources\.limits\.cpu: "):
        quantity(text, "spec.slurmd.resources.limits.cpu")


@pytest.mark.parametrize(("text", "cpus"), [("1500m", 2), ("1", 1), ("0", 0), ("1m", 1)])
def test_processors_are_rounded_up(text: str, cpus: int) -> None:
    assert whole(text, "x") == cpus


@pytest.mark.parametrize(
    ("text", "mib"), [("2Gi", 2048), ("2G", 1907), ("1048575", 0), (1 << 20, 1)]
)
def test_memory_is_counted_in_whole_mebibytes(text: Any, mib: int) -> None:
    assert mebibytes(text, "x") == mib


@given(
    st.decimals(min_value=0, max_value=10**6, places=3), st.sampled_from(["", "m", "k", "Ki", "Gi"])
)
def test_rounding_up_never_makes_less(number: Decimal, suffix: str) -> None:
    assert whole(f"{number:f}{suffix}", "x") >= quantity(f"{number:f}{suffix}", "x")


ALMOST = st.from_regex(
    r"[+-]?[0-9]{0,40}\.?[0-9]{0,40}([eE][+-]?[0-9]{0,4}|[KMGTPE]i|[numkMGTPE])?", fullmatch=True
)


@given(ALMOST | st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans())
def test_anything_is_a_quantity_or_a_resource_error(value: Any) -> None:
    with contextlib.suppress(ResourceError):
        assert abs(quantity(value, "x")) < 1 << 63
    with contextlib.suppress(ResourceError):
        assert abs(whole(value, "x")) <= 1 << 63
    with contextlib.suppress(ResourceError):
        assert abs(mebibytes(value, "x")) <= 1 << 43


@given(st.text(max_size=8).filter(lambda text: not any(character.isdigit() for character in text)))
def test_a_text_without_a_digit_is_refused(text: str) -> None:
    with pytest.raises(ResourceError, match=r"^x: "):
        quantity(text, "x")
