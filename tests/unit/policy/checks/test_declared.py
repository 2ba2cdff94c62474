"""Declared checks, their quantities and their limits."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.policy.checks.declared import Strategy, declared
from sidecars.policy.checks.measures import UNITS, Limit, fault, quantity

LEAST: dict[str, Any] = {"name": "disk", "script": "#!/bin/sh\n"}


def test_a_check_needs_a_name_and_a_script_alone() -> None:
    found = declared(json.dumps(LEAST))
    assert (found.name, found.strategy, found.timeout, found.drain, found.undrain) == (
        "disk",
        Strategy.NODES,
        60,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"name": "Disk"}, "name is 'Disk'"),
        ({"script": "true"}, "begin it with a line such as #!/bin/sh"),
        ({"script": None}, "script is missing"),
        ({"script": "#!/bin/sh\n" + "x" * 70_000}, "65536 are allowed"),
        ({"strategy": "ring"}, "choose from nodes, pairs"),
        ({"timeoutSeconds": 0}, "timeoutSeconds is 0"),
        ({"timeoutSeconds": "60"}, "timeoutSeconds is '60'"),
        ({"timeoutSeconds": 60, "windowSeconds": 30}, "no test could end in time"),
        ({"strategy": "pairs", "maxNodes": 1}, "a pair has 2 nodes"),
        ({"limits": {"rate": {"min": "10"}}}, "limits.rate.min is '10' is no quantity"),
        ({"limits": {"rate": {"min": 10}}}, "give a number with a unit"),
        ({"limits": {"rate": {}}}, "give min, max or both"),
        ({"limits": {"Rate": {"min": "1s"}}}, "use a-z"),
        ({"env": {"PATH": "/"}}, "not PATH"),
        ({"env": {"COUNT": 3}}, "put it in quotes"),
        ({"features": "a"}, "features is no list"),
        ({"drain": "yes"}, "give true or false"),
        ({"scirpt": ""}, "scirpt: unknown key"),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy(more: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        declared(json.dumps({**LEAST, **more}))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "no JSON"),
        ("[]", "no object"),
        ('{"name": "a", "name": "b", "script": "#!/bin/sh"}', "name is given twice"),
        ('{"name": "a", "script": "#!/bin/sh", "limits": {"x": {"min": "1s"}, "x": {}}}', "x is given twice"),
    ],
)
def test_a_text_that_is_no_check_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        declared(text)


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
