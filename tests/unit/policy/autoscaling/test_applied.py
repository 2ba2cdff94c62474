"""The record of what was applied, and other owners of `replicas`: `sidecars.policy.autoscaling.applied`."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecars.policy.autoscaling import applied
from sidecars.policy.autoscaling.applied import MANAGER, Applied, Owner
from sidecars.workloads import names

RECORD = Applied(3, ("a",), 10.0)


def metadata(*managers: tuple[str, str, str]) -> dict[str, Any]:
    """Managers of spec.replicas: name, subresource, time."""
    return {
        "managedFields": [
            {"manager": name, "subresource": part, "time": time, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
            for name, part, time in managers
        ]
        + [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:template": {}}}}]
    }


times = st.none() | st.floats(0, 2e9)


@given(
    st.builds(Applied, st.integers(0, 65536), st.tuples() | st.tuples(st.text()), times, times, st.text(), st.text())
)
def test_the_annotation_reads_as_it_was_written(record: Applied) -> None:
    assert applied.read({names.AUTOSCALING: applied.text(record)}) == record


def test_an_annotation_that_cannot_be_read_counts_as_none() -> None:
    for text in ("", "{", "[]", '{"replicas": "3"}', "{}"):
        assert applied.read({names.AUTOSCALING: text}) is None
    assert applied.read({}) is None


def test_the_number_that_we_have_written_has_no_other_owner() -> None:
    hpa = metadata(("kube-controller-manager", "scale", "2026-01-01T00:00:00Z"))
    assert applied.other_owner(hpa, 3, RECORD) is None


def test_the_newest_of_the_other_owners_is_named() -> None:
    found = applied.other_owner(
        metadata(
            ("helm", "", "1970-01-01T00:00:10Z"),
            ("kubectl", "scale", "1970-01-01T00:00:20Z"),
            (MANAGER, "", "1970-01-01T00:00:30Z"),
        ),
        4,
        RECORD,
    )
    assert found == Owner("kubectl", 20.0, scales=True)
    assert found.person


def test_who_scales_is_named_before_others_because_the_api_server_gives_no_time_to_it() -> None:
    found = applied.other_owner(metadata(("helm", "", "1970-01-01T00:00:10Z"), ("hpa", "scale", "")), 4, RECORD)
    assert found == Owner("hpa", None, scales=True)


def test_an_autoscaler_is_no_person_and_is_named_as_what_it_is() -> None:
    found = applied.other_owner(metadata(("kube-controller-manager", "scale", "1970-01-01T00:00:20Z")), 4, RECORD)
    assert found is not None
    assert not found.person
    assert "HorizontalPodAutoscaler" in str(found)


def test_a_number_of_unknown_origin_has_an_unknown_owner_which_is_named_as_what_it_may_be() -> None:
    owner = applied.other_owner({}, 4, RECORD)
    assert owner == Owner("", None, scales=False)
    assert "kubectl scale, a HorizontalPodAutoscaler or another" in str(owner)


def test_autoscaling_begins_with_the_number_that_stands_there_unless_a_program_scales() -> None:
    assert applied.other_owner({}, 4, None) is None
    assert applied.other_owner(metadata(("kubectl", "scale", "1970-01-01T00:00:20Z")), 4, None) is None
    assert applied.other_owner(metadata(("helm", "", "1970-01-01T00:00:20Z")), 4, None) is None
    assert applied.other_owner(metadata(("kube-controller-manager", "scale", "")), 4, None) is not None
