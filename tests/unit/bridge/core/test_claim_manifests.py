"""Objects of resource.k8s.io."""

from typing import Any

import pytest

from sidecars.bridge.core.claim_manifests import DeviceOfSlice


@pytest.mark.parametrize(
    ("attributes", "key", "value"),
    [
        ({"type": {"string": "gpu"}}, "type", "gpu"),
        ({"type": {"string": "gpu"}}, "driver.example/type", "gpu"),
        ({"driver.example/type": {"string": "gpu"}}, "type", "gpu"),
        ({"other.example/type": {"string": "gpu"}}, "type", None),
        ({"other.example/type": {"string": "gpu"}}, "other.example/type", "gpu"),
        ({"index": {"int": 3}}, "index", "3"),
        ({"old": {"bool": False}}, "old", "false"),
        ({"version": {"version": "1.2.3"}}, "version", "1.2.3"),
        ({}, "type", None),
    ],
)
def test_an_attribute_without_a_domain_is_the_drivers(
    attributes: Any, key: str, value: str | None
) -> None:
    assert DeviceOfSlice("d", attributes).attribute(key, "driver.example") == value
