"""The objects of resource.k8s.io as the bridge reads them: only the fields that its decisions
need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sidecars.objects import ObjectMeta


class ExactRequest(msgspec.Struct, frozen=True, rename="camel"):
    """spec.devices.requests[*].exactly."""

    device_class_name: str = ""
    selectors: tuple[Any, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    capacity: Any = None


class SubRequest(msgspec.Struct, frozen=True, rename="camel"):
    """spec.devices.requests[*].firstAvailable[*]."""

    device_class_name: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """spec.devices.requests[*]."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[SubRequest, ...] = ()

    @property
    def device_classes(self) -> tuple[str, ...]:
        """The DeviceClass of each of its alternatives."""
        exactly = () if self.exactly is None else (self.exactly.device_class_name,)
        return (*exactly, *(it.device_class_name for it in self.first_available))


class Config(msgspec.Struct, frozen=True):
    """spec.devices.config[*] of a claim, and spec.config[*] of a class."""

    requests: tuple[str, ...] = ()
    opaque: Any = None


class ClaimDevices(msgspec.Struct, frozen=True):
    """spec.devices of a claim."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[Any, ...] = ()
    config: tuple[Config, ...] = ()


class ClaimSpec(msgspec.Struct, frozen=True):
    """spec of a claim. It never changes."""

    devices: ClaimDevices = ClaimDevices()


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """status.allocation.devices.results[*]."""

    request: str = ""
    driver: str = ""
    device_pool: str = msgspec.field(default="", name="pool")
    device: str = ""
    admin_access: bool | None = None
    """Whether it only looks at the device, which others have."""


class AllocatedDevices(msgspec.Struct, frozen=True):
    """status.allocation.devices."""

    results: tuple[Result, ...] = ()


class Allocation(msgspec.Struct, frozen=True):
    """status.allocation."""

    devices: AllocatedDevices = AllocatedDevices()


class Consumer(msgspec.Struct, frozen=True):
    """status.reservedFor[*]."""

    uid: str = ""


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """status of a claim."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(msgspec.Struct, frozen=True):
    """resource.k8s.io/v1 ResourceClaim."""

    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus | None = None


class DeviceTaint(msgspec.Struct, frozen=True):
    """spec.devices[*].taints[*]."""

    effect: str = ""


class DeviceOfSlice(msgspec.Struct, frozen=True, rename="camel"):
    """spec.devices[*] of a slice."""

    name: str
    attributes: Mapping[str, Mapping[str, Any]] = {}
    taints: tuple[DeviceTaint, ...] = ()
    consumes_counters: tuple[Any, ...] = ()
    allow_multiple_allocations: bool | None = None
    binding_conditions: tuple[str, ...] = ()

    def attribute(self, key: str, driver: str) -> str | None:
        """Return the attribute's value as text. One without a domain is the driver's."""
        found = self.attributes.get(key)
        if found is None:
            domain, slash, name = key.rpartition("/")
            found = self.attributes.get(name if slash and domain == driver else f"{driver}/{key}")
        value = next((it for it in (found or {}).values() if it is not None), None)
        return (
            None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        )


class DevicePool(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.pool` of a slice."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """spec of a slice."""

    driver: str = ""
    node_name: str | None = None
    device_pool: DevicePool = msgspec.field(default=DevicePool(), name="pool")
    devices: tuple[DeviceOfSlice, ...] = ()


class ResourceSlice(msgspec.Struct, frozen=True):
    """resource.k8s.io/v1 ResourceSlice."""

    metadata: ObjectMeta
    spec: SliceSpec = SliceSpec()


class ClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """spec of a class."""

    extended_resource_name: str | None = None
    config: tuple[Config, ...] = ()


class DeviceClass(msgspec.Struct, frozen=True):
    """resource.k8s.io/v1 DeviceClass."""

    metadata: ObjectMeta
    spec: ClassSpec = ClassSpec()
