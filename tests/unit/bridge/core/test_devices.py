"""Which devices of Kubernetes are which GRES, and in which order."""

import json
from typing import Any

import msgspec
import pytest

from sidecars.bridge.core.claim_manifests import ResourceSlice
from sidecars.bridge.core.devices import BUILT_IN, Device, DevicesError, by_index, numbered, parse
from tests.support.bridge_devices import DRIVER, PARSED, RULES, device, resource_slice

GPU = {"gres": "gpu:h100", "driver": DRIVER, "deviceClasses": [DRIVER]}


def rules(*found: dict[str, Any]) -> str:
    return json.dumps(found)


def slices(*items: dict[str, Any]) -> list[ResourceSlice]:
    return [msgspec.convert(item, ResourceSlice) for item in items]


def names(*items: dict[str, Any]) -> list[str]:
    return [it.name for _, it in numbered(slices(*items), PARSED).get("k1", ())]


def test_without_a_rule_gpus_of_device_plugins_are_counted() -> None:
    assert parse("[]").extended == BUILT_IN
    assert not parse("[]").claims


def test_a_rule_for_gpus_replaces_what_is_counted_without_one() -> None:
    found = parse(json.dumps(RULES))
    assert found.extended == {"nvidia.com/gpu.shared": "shard"}
    assert found.classes == {DRIVER: "gpu:h100", "mig.example.com": "gpu:1g.5gb"}
    assert found.claims
    own = {"gres": "gpu:any", "extendedResource": "nvidia.com/gpu"}
    assert parse(rules(own)).extended == {"nvidia.com/gpu": "gpu:any"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "write a JSON list"),
        (rules({**GPU, "more": 1}), "more"),
        (rules({**GPU, "gres": "gpu:h100:2"}), "NAME or NAME:TYPE"),
        (rules({"gres": "gpu"}), "either extendedResource, or driver"),
        (
            rules({**GPU, "extendedResource": "nvidia.com/gpu"}),
            "either extendedResource, or driver",
        ),
        (rules({**GPU, "deviceClasses": []}), "deviceClasses is empty"),
        (
            rules({"gres": "gpu", "extendedResource": "a/b", "attributes": {"a": "b"}}),
            "belong to a driver",
        ),
        (rules({**GPU, "attributes": {"a": [1]}}), "write a text"),
        (rules(GPU, {**GPU, "deviceClasses": ["other"]}), "GRES gpu:h100 has two places"),
        (rules(GPU, {**GPU, "gres": "gpu:a100"}), "DeviceClass gpu.example.com has two places"),
        (
            rules(
                {"gres": "a", "extendedResource": "x/y"}, {"gres": "b", "extendedResource": "x/y"}
            ),
            "x/y has two places",
        ),
        (
            rules(GPU, {"gres": "gpu", "extendedResource": "nvidia.com/gpu"}),
            "with and without a type",
        ),
    ],
)
def test_a_rule_that_can_not_be_used_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(DevicesError, match=words):
        parse(text)


def test_devices_are_numbered_by_gres_and_by_the_numbers_in_their_names() -> None:
    gpus = [device(f"gpu-{index}") for index in (10, 2, 0)]
    found = numbered(
        slices(resource_slice("k1", *gpus, device("part-0", profile="1g.5gb"))), PARSED
    )["k1"]
    assert [(gres, it.name) for gres, it in found] == [
        ("gpu:1g.5gb", "part-0"),
        ("gpu:h100", "gpu-0"),
        ("gpu:h100", "gpu-2"),
        ("gpu:h100", "gpu-10"),
    ]


def test_the_indices_of_a_gres_count_all_of_its_types() -> None:
    part, whole = Device(DRIVER, "k1", "part-0"), Device(DRIVER, "k1", "gpu-0")
    found = (("gpu:1g.5gb", part), ("gpu:h100", whole), ("nic", part))
    assert by_index(found, "gpu:h100") == [None, whole]
    assert by_index(found, "gpu:1g.5gb") == [part, None]
    assert by_index(found, "nic") == [part]


def test_a_device_that_no_rule_selects_is_left_out() -> None:
    assert names(resource_slice("k1", device("gpu-0"), device("part-0", profile="7g.80gb"))) == [
        "gpu-0"
    ]
    other = resource_slice("k1", device("gpu-0"))
    other["spec"]["driver"] = "nic.example.com"
    assert names(other) == []


@pytest.mark.parametrize(
    "more",
    [
        {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        {"taints": [{"key": "a", "effect": "NoExecute"}]},
        {"allowMultipleAllocations": True},
        {"consumesCounters": [{"counterSet": "gpu-0", "counters": {}}]},
        {"bindingConditions": ["attached"]},
    ],
)
def test_a_device_that_is_not_to_be_used_or_is_shared_is_left_out(more: dict[str, Any]) -> None:
    assert names(resource_slice("k1", {**device("gpu-0"), **more}, device("gpu-1"))) == ["gpu-1"]


def test_a_taint_without_effect_on_scheduling_changes_nothing() -> None:
    assert names(
        resource_slice("k1", {**device("gpu-0"), "taints": [{"key": "a", "effect": "None"}]})
    ) == ["gpu-0"]


def test_devices_count_when_all_slices_of_the_newest_generation_exist() -> None:
    first, second = resource_slice("k1", device("gpu-0")), resource_slice("k1", device("gpu-1"))
    for it in (first, second):
        it["spec"]["pool"] = {"name": "k1", "generation": 2, "resourceSliceCount": 2}
    assert names(first) == []
    assert names(first, second) == ["gpu-0", "gpu-1"]
    assert names(resource_slice("k1", device("gpu-7")), first, second) == ["gpu-0", "gpu-1"]


def test_devices_that_belong_to_no_single_node_are_left_out() -> None:
    item = resource_slice("k1", device("gpu-0"))
    del item["spec"]["nodeName"]
    assert numbered(slices(item), PARSED) == {}
