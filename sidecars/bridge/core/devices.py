"""Which devices of Kubernetes are which GRES of Slurm, by the administrator's rules. Pure.

A rule names either an extended resource, whose devices a device plugin chooses and Slurm counts, or
the devices of a DRA driver, which Slurm chooses one by one. The indices of a GRES count the devices
of its name on a node, of all types.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from sidecars.bridge.core.claim_manifests import DeviceOfSlice, ResourceSlice

BUILT_IN = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
"""The extended resources that are GRES without a rule, as long as no rule has the name of their
GRES.
"""

OF_CLASS = "deviceclass.resource.kubernetes.io/"
"""Begins the extended resource that each DeviceClass has: kube-scheduler allocates devices of a DRA
driver for it.
"""

VENDORS = ("nvidia.com/", "amd.com/", "gpu.intel.com/", OF_CLASS)
"""Extended resources that begin so are devices: one that is no GRES would be given away without
Slurm.
"""

_GRES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(:[A-Za-z0-9_.-]+)?")
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


class DevicesError(ValueError):
    """The rules can't be used. The text names the rule and the remedy."""


class Device(NamedTuple):
    """One device of a DRA driver."""

    driver: str
    device_pool: str
    name: str


class Wish(NamedTuple):
    """One request of a ResourceClaim."""

    request: str
    gres: str
    number: int


class Granted(NamedTuple):
    """A device for a request of a ResourceClaim."""

    request: str
    device: Device


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim of a pod."""

    uid: str
    name: str
    wishes: tuple[Wish, ...]
    granted: tuple[Granted, ...] | None = None
    """What it shows, or what was sent to it; None: nothing."""
    shown: bool = False
    """Whether it shows that."""
    others: bool = False
    """Whether it is reserved for something else than the pod."""
    deleting: bool = False
    returned: bool = False
    """Whether its devices were taken back, which it doesn't show yet: nothing may start with them.
    """


Numbered = tuple[str, Device]
"""The GRES of a device, as `gpu:h100`, and the device."""


class _Rule(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    gres: str
    extended_resource: str = ""
    driver: str = ""
    device_classes: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices of a driver that are one GRES."""

    gres: str
    driver: str
    attributes: tuple[tuple[str, str], ...] = ()
    """What they have, as text."""


@dataclass(frozen=True)
class Rules:
    """All rules."""

    extended: Mapping[str, str]
    """The GRES of each extended resource."""
    classes: Mapping[str, str]
    """The GRES of each DeviceClass."""
    selections: tuple[Selection, ...] = ()
    unmanaged: frozenset[str] = frozenset()
    """The DeviceClasses whose devices kube-scheduler gives to pods, and Slurm doesn't count."""

    @property
    def claims(self) -> bool:
        """Whether pods can have devices by claims."""
        return bool(self.selections or self.unmanaged)


NO_RULES = Rules(BUILT_IN, {})


def parse(text: str, unmanaged: Iterable[str] = ()) -> Rules:
    """Return the rules in a JSON list, and the DeviceClasses that are kube-scheduler's. Raises
    DevicesError.
    """
    try:
        found = msgspec.json.decode(text, type=list[_Rule])
    except msgspec.MsgspecError as error:
        example = (
            '[{"gres": "gpu:h100", "driver": "gpu.nvidia.com", "deviceClasses": '
            '["gpu.nvidia.com"]}]'
        )
        raise DevicesError(f"devices: {error}; write a JSON list such as {example}") from None
    for index, rule in enumerate(found):
        _check(rule, f"devices[{index}]")
    _unique(
        [it.gres for it in found],
        "GRES",
        "one rule for each, because Slurm can't tell its devices apart",
    )
    _unique(
        [it.extended_resource for it in found if it.extended_resource],
        "extended resource",
        "name it once",
    )
    _unique(
        [name for it in found for name in it.device_classes], "DeviceClass", "name it in one rule"
    )
    both = min({*unmanaged} & {name for it in found for name in it.device_classes}, default="")
    if both:
        raise DevicesError(
            f"unmanagedDeviceClasses: {both} is in a rule of devices, too: either Slurm gives its "
            "devices, or kube-scheduler does"
        )
    names = {it.gres.partition(":")[0] for it in found}
    for name in names:
        if any(it.gres == name for it in found) and any(
            it.gres.startswith(f"{name}:") for it in found
        ):
            raise DevicesError(
                f"devices: GRES {name} has rules with and without a type: give each rule a type"
            )
    built_in = {resource: gres for resource, gres in BUILT_IN.items() if gres not in names}
    return Rules(
        {**built_in, **{it.extended_resource: it.gres for it in found if it.extended_resource}},
        {name: it.gres for it in found for name in it.device_classes},
        tuple(
            Selection(
                it.gres,
                it.driver,
                tuple(sorted((key, _text(value)) for key, value in it.attributes.items())),
            )
            for it in found
            if it.driver
        ),
        frozenset(unmanaged),
    )


def numbered(slices: Iterable[ResourceSlice], rules: Rules) -> dict[str, tuple[Numbered, ...]]:
    """Return the devices by Kubernetes node in the order of their indices.

    Left out are devices that no rule selects, that a taint keeps pods away from, and those that
    several claims can share or that share something with others: Slurm would give away each of them
    alone. A pool of devices of which a slice is missing is left out as well.
    """
    device_pools: dict[tuple[str, str, str], list[ResourceSlice]] = {}
    for it in slices:
        if it.spec.node_name:
            device_pools.setdefault(
                (it.spec.node_name, it.spec.driver, it.spec.device_pool.name), []
            ).append(it)
    found: dict[str, list[Numbered]] = {}
    for (node, driver, device_pool), all_of_it in device_pools.items():
        newest = max(it.spec.device_pool.generation for it in all_of_it)
        its = [it for it in all_of_it if it.spec.device_pool.generation == newest]
        if len(its) != its[0].spec.device_pool.resource_slice_count:
            continue
        for device in (device for it in its for device in it.spec.devices):
            gres = _gres_of(device, driver, rules) if _alone(device) else ""
            if gres:
                found.setdefault(node, []).append((gres, Device(driver, device_pool, device.name)))
    return {node: tuple(sorted(its, key=_order)) for node, its in found.items()}


def by_index(devices: Iterable[Numbered], gres: str) -> list[Device | None]:
    """Return the devices of a node by the index of the GRES, whose type may be any, or None for
    those of other types.
    """
    name = gres.partition(":")[0]
    return [
        device if its == gres else None for its, device in devices if its.partition(":")[0] == name
    ]


def _alone(device: DeviceOfSlice) -> bool:
    shared = (
        device.allow_multiple_allocations or device.consumes_counters or device.binding_conditions
    )
    return not shared and not any(it.effect in _KEEPS_AWAY for it in device.taints)


def _gres_of(device: DeviceOfSlice, driver: str, rules: Rules) -> str:
    """Return the GRES of a device, by the first rule that selects it."""
    for it in rules.selections:
        if it.driver == driver and all(
            device.attribute(key, driver) == value for key, value in it.attributes
        ):
            return it.gres
    return ""


def _order(it: Numbered) -> tuple[object, ...]:
    """Order by GRES, driver, pool and name, with numbers in names as numbers."""
    gres, device = it
    words = tuple(
        (not word.isdecimal(), int(word) if word.isdecimal() else 0, word)
        for word in _words(device.name)
    )
    return gres, device.driver, device.device_pool, words


def _words(name: str) -> list[str]:
    return re.findall(r"[0-9]+|[^0-9]+", name)


def _check(rule: _Rule, place: str) -> None:
    if not _GRES.fullmatch(rule.gres):
        raise DevicesError(
            f"{place}: gres is {rule.gres!r}; write NAME or NAME:TYPE, such as gpu:h100"
        )
    if bool(rule.extended_resource) == bool(rule.driver):
        raise DevicesError(
            f"{place} ({rule.gres}): name either extendedResource, or driver and deviceClasses"
        )
    if rule.driver and not rule.device_classes:
        raise DevicesError(
            f"{place} ({rule.gres}): deviceClasses is empty; name the DeviceClasses of these "
            "devices"
        )
    if rule.extended_resource and (rule.device_classes or rule.attributes):
        raise DevicesError(
            f"{place} ({rule.gres}): deviceClasses and attributes belong to a driver, not to a "
            "resource"
        )
    for key, value in rule.attributes.items():
        if not isinstance(value, str | int | bool):
            raise DevicesError(
                f"{place} ({rule.gres}): attribute {key} is {value!r}; write a text, number or "
                "boolean"
            )


def _unique(names: list[str], what: str, remedy: str) -> None:
    double = next((it for it in names if names.count(it) > 1), None)
    if double is not None:
        raise DevicesError(f"devices: {what} {double} has two places; {remedy}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
