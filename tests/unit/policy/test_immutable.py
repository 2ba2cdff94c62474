"""What of a changed StatefulSet can be applied."""

from collections.abc import Mapping
from typing import Any

import pytest

from sidecars.policy.immutable import Claim, Plan, Resize, claim_names, differences, plan

NAME = "statesave-slurm-controller-0"


def stateful_set(
    size: str = "4Gi", *, template: str = "statesave", image: str = "a", **spec: Any
) -> dict[str, Any]:
    """slurmctld's, as the API server has it. `spec`: fields of the claim template's spec."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "slurm-controller"},
        "spec": {
            "replicas": 1,
            "serviceName": "slurm-controller-internal",
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "slurmctld", "image": image}]}},
            "volumeClaimTemplates": [{"metadata": {"name": template}, "spec": claim}],
        },
    }


def with_defaults(live: dict[str, Any]) -> dict[str, Any]:
    """With what the API server adds."""
    [template] = live["spec"]["volumeClaimTemplates"]
    spec = {**template["spec"], "volumeMode": "Filesystem"}
    added = {
        "metadata": {**template["metadata"], "creationTimestamp": None},
        "status": {"phase": "Pending"},
    }
    changed = {**template, **added, "spec": spec}
    return {
        **live,
        "spec": {
            **live["spec"],
            "podManagementPolicy": "OrderedReady",
            "volumeClaimTemplates": [changed],
        },
    }


def planned(
    before: str | dict[str, Any],
    after: str | dict[str, Any],
    *claims: Claim,
    refused: Mapping[str, str] | None = None,
) -> Plan:
    """A change, of sizes alone or of whole StatefulSets."""
    live, wanted = (it if isinstance(it, dict) else stateful_set(it) for it in (before, after))
    return plan(with_defaults(live), wanted, {it.name: it for it in claims}, refused or {})


def test_nothing_is_done_for_what_is_as_it_is_to_be() -> None:
    wanted = stateful_set(image="b")
    found = planned(stateful_set(), wanted, Claim(NAME, "4Gi", "4Gi"))
    assert found == Plan((), wanted, recreate=False, kept=())


def test_a_size_that_is_written_in_another_way_is_the_same_size() -> None:
    assert planned("4Gi", "4096Mi", Claim(NAME, "4Gi")).kept == ()
    assert not planned("4Gi", "4096Mi", Claim(NAME, "4Gi")).recreate


def test_a_larger_size_resizes_the_claim_and_creates_the_statefulset_again() -> None:
    found = planned("4Gi", "8Gi", Claim(NAME, "4Gi", "4Gi"))
    assert found.resize == (Resize(NAME, "4Gi", "8Gi"),)
    assert (found.recreate, found.kept) == (True, ())
    assert str(found.resize[0]) == f"claim {NAME}: 4Gi → 8Gi"


def test_a_claim_that_has_been_resized_before_the_operator_ended_is_not_resized_again() -> None:
    found = planned("4Gi", "8Gi", Claim(NAME, "8Gi", "4Gi"))
    assert (found.resize, found.recreate) == ((), True)


def test_what_the_api_server_takes_has_the_former_claim_templates_and_the_new_pod_template() -> (
    None
):
    found = planned(stateful_set(), stateful_set("8Gi", image="b"), Claim(NAME, "4Gi"))
    assert differences(with_defaults(stateful_set()), found.manifest) == []
    assert found.manifest["spec"]["template"]["spec"]["containers"][0]["image"] == "b"


def test_each_claim_of_its_pods_is_resized_and_no_other() -> None:
    live, wanted = stateful_set(), stateful_set("8Gi")
    for it in (live, wanted):
        it["spec"]["replicas"] = 2
    names = [f"statesave-slurm-controller-{ordinal}" for ordinal in range(3)]
    assert claim_names(wanted) == names[:2]
    found = planned(live, wanted, *(Claim(name, "4Gi") for name in names))
    assert [it.claim for it in found.resize] == names[:2]


def test_a_claim_of_an_earlier_installation_grows_too() -> None:
    found = planned("8Gi", "8Gi", Claim(NAME, "4Gi"))
    assert (found.resize, found.recreate) == ((Resize(NAME, "4Gi", "8Gi"),), False)


def test_a_claim_that_someone_has_made_larger_stays_so() -> None:
    for before, after in (("4Gi", "4Gi"), ("4Gi", "6Gi")):
        found = planned(before, after, Claim(NAME, "16Gi"))
        assert (found.resize, found.kept) == ((), ())


def test_without_a_claim_the_next_one_has_the_new_size_also_a_smaller_one() -> None:
    for after in ("8Gi", "2Gi"):
        found = planned("4Gi", after)
        assert (found.resize, found.recreate, found.kept) == ((), True, ())


@pytest.mark.parametrize("capacity", ["4Gi", "", "2Gi"])
def test_a_smaller_size_is_not_applied_and_the_message_names_both_and_the_remedy(
    capacity: str,
) -> None:
    found = planned("4Gi", "2Gi", Claim(NAME, "4Gi", capacity))
    assert (found.resize, found.recreate) == ((), False)
    [text] = found.kept
    assert text == (
        "spec.persistence.resources.requests.storage: 4Gi → 2Gi is not applied: a volume can't "
        "shrink. Set it to 4Gi or more"
    )


def test_a_size_that_the_volume_never_reached_can_be_taken_back() -> None:
    found = planned("100Ti", "8Gi", Claim(NAME, "100Ti", "4Gi"))
    assert found.resize == (Resize(NAME, "100Ti", "8Gi"),)
    assert found.recreate


def test_a_refused_size_is_named_with_the_answer_and_nothing_is_created_again() -> None:
    found = planned(
        "4Gi", "8Gi", Claim(NAME, "4Gi"), refused={NAME: "the class must support resize"}
    )
    assert (found.resize, found.recreate) == ((), False)
    [text] = found.kept
    assert text.startswith(
        "spec.persistence.resources.requests.storage: 4Gi → 8Gi is not applied: "
    )
    for part in (
        NAME,
        "the class must support resize",
        "Set it back to 4Gi",
        "allowVolumeExpansion",
    ):
        assert part in text


def test_a_claim_without_a_volume_grows_when_it_has_one() -> None:
    found = planned("4Gi", "8Gi", Claim(NAME, "4Gi", bound=False))
    assert (found.resize, found.recreate) == ((), False)
    [text] = found.kept
    assert f"kubectl describe pvc {NAME}" in text


def test_another_field_of_a_claim_stays_is_named_and_the_claim_grows_all_the_same() -> None:
    wanted = stateful_set("8Gi", storageClassName="fast", accessModes=["ReadWriteMany"])
    found = planned(stateful_set(storageClassName="slow"), wanted, Claim(NAME, "4Gi"))
    assert found.resize == (Resize(NAME, "4Gi", "8Gi"),)
    assert not found.recreate
    modes, storage_class = found.kept
    assert modes.startswith(
        'spec.persistence.accessModes: ["ReadWriteOnce"] → ["ReadWriteMany"] is not applied: '
    )
    assert storage_class == (
        "spec.persistence.storageClassName: slow → fast is not applied: a claim keeps what it "
        "was created with. Set it back to slow"
    )


def test_a_claim_template_of_another_name_stays_and_is_named() -> None:
    found = planned(stateful_set(template="data"), stateful_set(template="more"))
    assert not found.recreate
    assert [text.partition(" after")[0] for text in found.kept] == [
        "claim template data can't be removed",
        "claim template more can't be added",
    ]


def test_a_claim_template_of_no_field_is_named_itself() -> None:
    claim = Claim("data-slurm-controller-0", "4Gi")
    [text] = planned(
        stateful_set(template="data"), stateful_set("2Gi", template="data"), claim
    ).kept
    assert text.startswith(
        "volumeClaimTemplates[data].spec.resources.requests.storage: 4Gi → 2Gi is not applied: "
    )


def test_another_service_name_is_applied_by_creating_the_statefulset_again() -> None:
    wanted = stateful_set()
    wanted["spec"] |= {"serviceName": "other", "podManagementPolicy": "Parallel"}
    found = planned(stateful_set(), wanted, Claim(NAME, "4Gi"))
    assert (found.recreate, found.kept) == (True, ())
    assert found.manifest["spec"]["serviceName"] == "slurm-controller-internal"


def test_another_selector_would_lose_the_pods_so_it_stays() -> None:
    for kind in ("StatefulSet", "Deployment"):
        live, wanted = stateful_set() | {"kind": kind}, stateful_set(image="b") | {"kind": kind}
        wanted["spec"]["selector"] = {"matchLabels": {"a": "c"}}
        found = planned(live, wanted, Claim(NAME, "4Gi"))
        assert found.manifest["spec"]["selector"] == {"matchLabels": {"a": "b"}}
        assert not found.recreate
        [text] = found.kept
        assert f"selector of {kind} slurm-controller" in text


@pytest.mark.parametrize(
    "size", ["many", "1e30Gi", "", " 8Gi", "NaN", "8Ei", "99999Pi", "1e999", "9" * 5000, "8gi"]
)
def test_what_is_no_size_is_not_applied_and_the_message_names_it_and_the_remedy(size: str) -> None:
    """The API server takes sizes beyond its numbers, and shows them as the largest one."""
    found = planned("4Gi", size, Claim(NAME, "4Gi", "4Gi"))
    assert (found.resize, found.recreate) == ((), False)
    [text] = found.kept
    assert text.startswith("spec.persistence.resources.requests.storage: 4Gi → ")
    assert size[:20] in text
    assert len(text) < 300
    assert text.endswith("Set it to a size such as 4Gi")


def test_a_claim_template_whose_size_is_removed_stays_and_is_named() -> None:
    wanted = stateful_set(resources={"limits": {"storage": "8Gi"}})
    found = planned("4Gi", wanted, Claim(NAME, "4Gi", "4Gi"))
    assert (found.resize, found.recreate) == ((), False)
    assert any("requests.storage: 4Gi → unset is not applied" in text for text in found.kept)


@pytest.mark.parametrize("size", ["0", "-1", "-8Gi", "1n", "1e-30", "3.999Gi", ".5Gi", "1E-9"])
def test_a_size_of_nothing_or_less_is_a_smaller_one(size: str) -> None:
    found = planned("4Gi", size, Claim(NAME, "4Gi", "4Gi"))
    assert (found.resize, found.recreate) == ((), False)
    [text] = found.kept
    assert f"4Gi → {size} is not applied: a volume can't shrink. Set it to 4Gi or more" in text
