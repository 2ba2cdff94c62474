"""GPUs of a DRA driver, and pods that claim them."""

from typing import Any

import msgspec

from sidecars.bridge.claimed_devices import CLASSES, SLICES
from sidecars.bridge.core.devices import parse
from sidecars.kube import Manifest, Resource
from tests.support.bridge import pod

DRIVER = "gpu.example.com"
RULES = [
    {
        "gres": "gpu:h100",
        "driver": DRIVER,
        "deviceClasses": [DRIVER],
        "attributes": {"type": "gpu"},
    },
    {
        "gres": "gpu:1g.5gb",
        "driver": DRIVER,
        "deviceClasses": ["mig.example.com"],
        "attributes": {"type": "mig", "profile": "1g.5gb"},
    },
    {"gres": "shard", "extendedResource": "nvidia.com/gpu.shared"},
]
NIC = "nic.example.com"
"""A DeviceClass, and its driver, whose devices kube-scheduler gives to pods."""
PARSED = parse(msgspec.json.encode(RULES).decode(), [NIC])
TEMPLATES = Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")


def device(name: str, **attributes: str) -> dict[str, Any]:
    """A GPU; with a profile, a part of one."""
    kind = "mig" if "profile" in attributes else "gpu"
    values = {
        "type": {"string": kind},
        **{key: {"string": value} for key, value in attributes.items()},
    }
    return {"name": name, "attributes": values}


def resource_slice(node: str, *devices: dict[str, Any], driver: str = DRIVER) -> Manifest:
    """What the driver on a node publishes."""
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
    }
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {"name": f"{node}-{driver.partition('.')[0]}"},
        "spec": spec,
    }


def device_class(name: str = DRIVER, kind: str = "gpu") -> Manifest:
    """A class of the driver, with a setting for it."""
    selector = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "{kind}"'
    opaque = {"driver": DRIVER, "parameters": {"apiVersion": "example.com/v1", "kind": "GpuConfig"}}
    spec = {"selectors": [{"cel": {"expression": selector}}], "config": [{"opaque": opaque}]}
    return {
        "apiVersion": CLASSES.api_version,
        "kind": CLASSES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def nic_class() -> Manifest:
    """A class of all devices of NIC's driver."""
    selectors = [{"cel": {"expression": f'device.driver == "{NIC}"'}}]
    return device_class(NIC) | {"spec": {"selectors": selectors}}


def claim_spec(count: int = 1, name: str = DRIVER, **more: Any) -> dict[str, Any]:
    """The spec of a claim for so many devices of a class."""
    exactly = {"deviceClassName": name, "allocationMode": "ExactCount", "count": count, **more}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(namespace: str, name: str, spec: dict[str, Any]) -> Manifest:
    """A template of such claims."""
    metadata = {"namespace": namespace, "name": name}
    return {
        "apiVersion": TEMPLATES.api_version,
        "kind": TEMPLATES.kind,
        "metadata": metadata,
        "spec": {"spec": spec},
    }


def claiming(item: dict[str, Any], template_name: str = "gpu") -> dict[str, Any]:
    """The pod with a claim by a template."""
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template_name}]
    item["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return item


def with_gpu(namespace: str, name: str, **values: Any) -> dict[str, Any]:
    """A pod that waits, with a claim."""
    return claiming(pod(namespace, name, **values))
