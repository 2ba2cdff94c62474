"""Other owners of `replicas`."""

from typing import Any

from sidecars.autoscaling import applied
from sidecars.autoscaling.applied import MANAGER, Owner
from sidecars.contract.autoscaling import Applied

RECORD = Applied(3, ("a",), 10.0)


def metadata(*managers: tuple[str, str, str]) -> dict[str, Any]:
    """Managers of spec.replicas: name, subresource, time."""
    return {
        "managedFields": [
            {
                "manager": name,
                "subresource": part,
                "time": time,
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
            }
            for name, part, time in managers
        ]
        + [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:template": {}}}}]
    }


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
    found = applied.other_owner(
        metadata(("helm", "", "1970-01-01T00:00:10Z"), ("hpa", "scale", "")), 4, RECORD
    )
    assert found == Owner("hpa", None, scales=True)


def test_an_autoscaler_is_no_person_and_is_named_as_what_it_is() -> None:
    found = applied.other_owner(
        metadata(("kube-controller-manager", "scale", "1970-01-01T00:00:20Z")), 4, RECORD
    )
    assert found is not None
    assert not found.person
    assert "HorizontalPodAutoscaler" in str(found)


def test_a_number_of_unknown_origin_has_an_unknown_owner_which_is_named_as_what_it_may_be() -> None:
    owner = applied.other_owner({}, 4, RECORD)
    assert owner == Owner("", None, scales=False)
    assert "kubectl scale, a HorizontalPodAutoscaler or another" in str(owner)


def test_autoscaling_begins_with_the_number_that_stands_there_unless_a_program_scales() -> None:
    assert applied.other_owner({}, 4, None) is None
    assert (
        applied.other_owner(metadata(("kubectl", "scale", "1970-01-01T00:00:20Z")), 4, None) is None
    )
    assert applied.other_owner(metadata(("helm", "", "1970-01-01T00:00:20Z")), 4, None) is None
    assert (
        applied.other_owner(metadata(("kube-controller-manager", "scale", "")), 4, None) is not None
    )
