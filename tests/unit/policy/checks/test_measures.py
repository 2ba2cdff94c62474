"""Quantities and limits."""

from hypothesis import given
from hypothesis import strategies as st

from sidecars.policy.checks.measures import UNITS, Limit, fault, quantity


@given(st.integers(0, 10**9), st.sampled_from(sorted(UNITS)))
def test_a_quantity_has_the_value_of_its_unit(number: int, unit: str) -> None:
    found = quantity(f"{number}{unit}")
    assert (found.kind, found.value) == (UNITS[unit][0], number * UNITS[unit][1])


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_value_passes_exactly_from_its_least_to_its_most(bound: float, value: float) -> None:
    measured = {"rate": f"{value:.3f}MB/s"}
    found, limit = float(f"{value:.3f}"), quantity(f"{bound:.3f}MB/s")
    exact = float(f"{bound:.3f}")
    assert (fault({"rate": Limit(least=limit)}, measured) == "") == (found >= exact)
    assert (fault({"rate": Limit(most=limit)}, measured) == "") == (found <= exact)


def test_a_value_that_is_missing_or_of_another_kind_is_not_within_its_limit() -> None:
    limits = {"rate": Limit(least=quantity("1Gbit/s"))}
    assert fault(limits, {}) == "the check reported no rate"
    assert fault(limits, {"rate": "5ms"}) == "rate is 5ms, which can't be compared with 1Gbit/s"
    assert fault(limits, {"rate": "5"}) == "rate is 5, which has no known unit"
    assert fault(limits, {"rate": "999Mbit/s"}) == "rate is 999Mbit/s, less than 1Gbit/s"
    assert fault(limits, {"rate": "125MB/s"}) == ""
