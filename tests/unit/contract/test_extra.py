"""The pod's facts in a Slurm node's Extra."""

import pytest

from sidecars.contract.extra import PodFacts, encode, pod_facts


def test_what_a_pod_reports_is_read_back() -> None:
    facts = PodFacts("3e0c", "slurm-worker-slinky-0", "slurm", "77aa")
    assert pod_facts(encode(facts)) == facts


def test_an_unset_fact_is_not_written() -> None:
    assert encode(PodFacts("3e0c")) == '{"podUid":"3e0c"}'


@pytest.mark.parametrize("extra", ["", "rack 7", "[]", "{}", '{"podUid":7}', '{"podUid"'])
def test_an_extra_of_somebody_else_names_no_pod(extra: str) -> None:
    assert pod_facts(extra) is None
