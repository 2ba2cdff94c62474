"""The pod's facts in a Slurm node's Extra."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.contract.extra import PodFacts, encode, pod_facts
from sidecars.custom_resources import NODESETS
from sidecars.kube.resources import NAMESPACES, PODS

HOSTILE = [
    "../kube-system/secrets",
    "a/b",
    "a?watch=true",
    "a#b",
    "%2e%2e",
    ".",
    "..",
    "a b",
    "a\n",
    "a\x00",
    "\ud800",
    "é",
    "UPPER",
    "-a",
    "a" * 254,
]
"""What no object of Kubernetes has as its name."""


def test_what_a_pod_reports_is_read_back() -> None:
    facts = PodFacts("3e0c", "slurm-worker-slinky-0", "slurm", "77aa")
    assert pod_facts(encode(facts)) == facts


def test_an_unset_fact_is_not_written() -> None:
    assert encode(PodFacts("3e0c")) == '{"podUid":"3e0c"}'


@pytest.mark.parametrize(
    "extra", ["", "rack 7", "[]", "{}", '{"podUid":7}', '{"podUid"', "[" * 100_000, "9" * 5000]
)
def test_an_extra_of_somebody_else_names_no_pod(extra: str) -> None:
    assert pod_facts(extra) is None


@pytest.mark.parametrize("extra", ["[" * 100_000, '{"podUid":' * 100_000, "1" * 100_000, "NaN"])
def test_json_that_no_parser_can_take_names_no_pod(extra: str) -> None:
    assert pod_facts(extra) is None


@pytest.mark.parametrize("field", ["pod", "namespace"])
@pytest.mark.parametrize("name", HOSTILE)
def test_an_extra_with_a_name_that_no_object_has_names_no_pod(field: str, name: str) -> None:
    assert pod_facts(json.dumps({"podUid": "3e0c", "nodeSetUid": "77aa", field: name})) is None


TEXTS = st.sampled_from([*HOSTILE, "slurm", ""]) | st.text(max_size=9)
VALUES = TEXTS | st.integers() | st.none() | st.floats() | st.lists(TEXTS, max_size=2)
FIELDS = st.sampled_from(["podUid", "pod", "namespace", "nodeSetUid", "namespaceUid", "rack"])


@given(st.dictionaries(FIELDS, VALUES))
def test_whatever_an_extra_has_the_names_in_it_can_be_asked_for(fields: dict[str, object]) -> None:
    facts = pod_facts(json.dumps(fields))
    if facts is not None and facts.pod and facts.namespace:
        paths = (PODS.path(facts.namespace, facts.pod), NAMESPACES.path(None, facts.namespace))
        for path in (*paths, NODESETS.path(facts.namespace)):
            assert path.isascii()
            assert path.isprintable()
