"""The ResourceClaims of a pod."""

from typing import Any

import msgspec
import pytest

from sidecars.bridge.core import claims
from sidecars.bridge.core.claim_manifests import DeviceClass, ResourceClaim
from sidecars.bridge.core.claims import FINALIZER, PodClaims, claims_of
from sidecars.bridge.core.devices import NO_RULES, Device, Granted, Wish
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.shape import ShapeError
from tests.support.bridge_devices import DRIVER, NIC, PARSED, claim_spec, device_class, with_gpu

GPU = Device(DRIVER, "k1", "gpu-2")
GRANTED = (Granted("gpu", GPU),)


def pod(**spec: Any) -> Pod:
    item = with_gpu("team", "p")
    item["metadata"]["uid"] = "u"
    item["spec"] |= spec
    item["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]
    return msgspec.convert(item, Pod)


def claim(spec: Any = None, status: Any = None, owner: str = "u", **metadata: Any) -> ResourceClaim:
    owners = [{"kind": "Pod", "name": "p", "uid": owner, "controller": True}]
    found = {
        "name": "p-gpu-x",
        "namespace": "team",
        "uid": "c",
        "resourceVersion": "7",
        "ownerReferences": owners,
    }
    item = {"metadata": {**found, **metadata}, "spec": spec or claim_spec(), "status": status or {}}
    return msgspec.convert(item, ResourceClaim)


def allocated(*pods: str, device: str = "gpu-2") -> dict[str, Any]:
    results = [{"request": "gpu", "driver": DRIVER, "pool": "k1", "device": device}]
    return {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"uid": it} for it in pods],
    }


def found(
    it: ResourceClaim | None, this: Pod | None = None, **planned: tuple[Granted, ...]
) -> PodClaims:
    return claims_of(
        this or pod(), {} if it is None else {it.metadata.name: it}, PARSED, planned, {}
    )


def test_a_pod_without_claims_has_none() -> None:
    assert claims_of(pod(resourceClaims=[]), {}, NO_RULES, {}, {}) == claims.NONE


def test_the_claims_of_a_pod_are_requested_together() -> None:
    it = found(claim(claim_spec(2)))
    assert it.gres == (("gpu:h100", 2),)
    assert it.claims is not None
    assert [one.wishes for one in it.claims] == [(Wish("gpu", "gpu:h100", 2),)]


def test_devices_that_were_taken_back_are_so_until_the_claim_has_changed() -> None:
    for version, returned in (("7", True), ("6", False)):
        it = claims_of(pod(), {"p-gpu-x": claim(status=allocated("u"))}, PARSED, {}, {"c": version})
        assert [(one.granted, one.returned) for one in it.claims or ()] == [(GRANTED, returned)]


def test_a_claim_that_does_not_exist_yet_is_waited_for() -> None:
    for it in (found(None), found(claim(owner="another"))):
        assert it.claims is None
        assert "doesn't exist yet" in it.missing
        assert not it.problem


def test_a_device_class_that_does_not_exist_is_waited_for() -> None:
    """It may have settings for the driver, without which a pod would get its devices otherwise."""
    it = claims_of(pod(), {"p-gpu-x": claim()}, PARSED, {}, {}, classes=frozenset({"another"}))
    assert it.claims is None
    assert it.missing == f"DeviceClass {DRIVER} doesn't exist: an administrator creates it"
    assert claims_of(
        pod(), {"p-gpu-x": claim()}, PARSED, {}, {}, classes=frozenset({DRIVER})
    ).claims


def test_claims_without_a_rule_for_a_driver_are_refused() -> None:
    assert "mapped no DeviceClass" in claims_of(pod(), {}, NO_RULES, {}, {}).problem


def test_a_claim_that_several_pods_can_share_is_refused() -> None:
    shared = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "p-gpu-x"}])
    assert "use resourceClaimTemplateName" in found(claim(), shared).problem


UNMANAGED = [
    claim_spec(name=NIC),
    claim_spec(name=NIC, selectors=[{"cel": {"expression": "true"}}], allocationMode="All"),
    claim_spec(name=NIC)["devices"] | {"constraints": [{"matchAttribute": "a/b"}]},
    {"requests": [{"name": "nic", "firstAvailable": [{"name": "a", "deviceClassName": NIC}]}]},
]


@pytest.mark.parametrize("spec", UNMANAGED)
@pytest.mark.parametrize("shared", [False, True], ids=["its own", "shared"])
def test_what_kube_scheduler_gives_is_neither_requested_of_slurm_nor_refused(
    spec: Any, *, shared: bool
) -> None:
    spec = spec if "devices" in spec else {"devices": spec}
    named = [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]
    this = pod(resourceClaims=named) if shared else pod()
    assert found(claim(spec, owner="another" if shared else "u"), this) == PodClaims((), ())


def test_a_claim_for_devices_of_slurm_and_of_kube_scheduler_is_refused() -> None:
    both = claim_spec()["devices"]["requests"] + [
        {"name": "nic", "exactly": {"deviceClassName": NIC}}
    ]
    it = found(claim({"devices": {"requests": both}}))
    assert "use a claim for each" in it.problem


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            claim_spec(name="other"),
            "DeviceClass other is no GRES of Slurm; those that are: gpu.example.com, mig",
        ),
        (claim_spec(selectors=[{"cel": {"expression": "true"}}]), "selectors"),
        (claim_spec(allocationMode="All"), "allocationMode All"),
        (claim_spec(adminAccess=True), "adminAccess"),
        (claim_spec(capacity={"requests": {"memory": "1Gi"}}), "capacity"),
        (
            {"devices": {"requests": [{"name": "gpu", "firstAvailable": [{"name": "a"}]}]}},
            "firstAvailable",
        ),
        ({"devices": {"requests": [], "constraints": [{"matchAttribute": "a/b"}]}}, "constraints"),
        (claim_spec(33), "more than 32"),
    ],
)
def test_what_slurm_can_not_be_asked_for_is_refused_with_the_reason(spec: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        claims.wishes_of(claim(spec), PARSED)
    assert words.partition(";")[0] in found(claim(spec)).problem


def test_a_claim_has_what_it_shows_and_else_what_was_sent_to_it() -> None:
    [shown] = found(claim(status=allocated("u"))).claims or ()
    assert (shown.granted, shown.shown, shown.others) == (GRANTED, True, False)
    [sent] = found(claim(), c=GRANTED).claims or ()
    assert (sent.granted, sent.shown) == (GRANTED, False)
    [foreign] = found(claim(status=allocated("u", "another"))).claims or ()
    assert foreign.others


def test_a_device_belongs_to_the_claims_that_show_it_and_to_those_it_was_sent_to() -> None:
    other = claim(status=allocated(), uid="d", name="other")
    assert claims.holders([claim(), other], {"c": GRANTED}) == {GPU: {"c", "d"}}


def test_a_claim_with_access_of_an_administrator_has_no_device() -> None:
    """Monitoring looks at devices that others have."""
    status = allocated()
    status["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert claims.holders([claim(status=status)], {}) == {}


def test_an_allocation_is_for_the_pod_on_its_node_and_has_the_settings_of_the_class() -> None:
    spec = claim_spec()
    spec["devices"]["config"] = [
        {"requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
    ]
    classes = {DRIVER: msgspec.convert(device_class(), DeviceClass)}
    *tests, write = claims.allocation_patch(claim(spec), GRANTED, pod(), "k1", classes)
    assert [it["op"] for it in tests] == ["test", "test"]
    allocation = write["value"]["allocation"]
    assert allocation["devices"]["results"] == [
        {"request": "gpu", "driver": DRIVER, "pool": "k1", "device": "gpu-2"},
    ]
    assert [it["source"] for it in allocation["devices"]["config"]] == ["FromClass", "FromClaim"]
    [term] = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["k1"]}]
    assert write["value"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "u"}]


def test_the_finalizer_is_added_once() -> None:
    assert claims.finalizer_patch(claim())[-1]["value"] == [FINALIZER]
    assert claims.finalizer_patch(claim(finalizers=["a/b"]))[-1]["value"] == FINALIZER
    assert claims.finalizer_patch(claim(finalizers=[FINALIZER])) == []


def test_devices_are_taken_back_with_the_reservation() -> None:
    paths = [
        it["path"]
        for it in claims.deallocation_patch(claim(status=allocated("u")))
        if it["op"] == "remove"
    ]
    assert paths == ["/status/allocation", "/status/reservedFor"]
    paths = [
        it["path"]
        for it in claims.deallocation_patch(claim(status=allocated()))
        if it["op"] == "remove"
    ]
    assert paths == ["/status/allocation"]
