"""The GPUs of a worker pod: pure functions from what a vendor's software reports to a Gres item and
a verdict.

How devices get into a pod (https://github.com/NVIDIA/k8s-device-plugin): the device plugin names
those allocated to the container in NVIDIA_VISIBLE_DEVICES, or the container runtime creates only
their device nodes (CDI). A plain init container that asks for as many devices as the app container
gets the very same ones; so what this one sees is what slurmd may use, although a privileged slurmd
sees all devices of the Kubernetes node.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from sidecars.contract import reasons
from sidecars.contract.text import printable
from sidecars.slurm import gres

_WITHOUT_NAMES = frozenset({"", "all", "none", "void"})
_MIG_UUID = re.compile(r"MIG-.+")


class GpuMismatchError(ValueError):
    """The pod does not have the expected GPUs and must not register. The message has what was found
    and how.
    """


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG device when `mig` names its profile. `file` is its device node, "" where that
    isn't known.
    """

    product: str
    uuid: str = ""
    mig: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found, as reported by `source` after the driver's `seconds`; `complaints` of all
    sources.
    """

    devices: tuple[Device, ...]
    source: str = ""
    seconds: float = 0.0
    complaints: tuple[str, ...] = ()


class Vendor(Protocol):
    """A maker of GPUs: all that this product needs to know of one."""

    def find(self) -> Found:
        """Return the devices of this container, within bounded time. Raises nothing: a failure is a
        complaint.
        """
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """The NodeSet's settings: `expected` devices, None for any number; `type` instead of the
    product's, or "".

    With another number than expected the node registers drained, or with `refuse` not at all.
    """

    expected: int | None = None
    type: str = ""
    refuse: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`gres` is the value of the Gres item, or ""; `drain` the reason for which the node takes no
    jobs, or "".
    """

    gres: str
    drain: str
    summary: str


def allocated(
    devices: Iterable[Device], visible: str, exists: Callable[[str], bool]
) -> tuple[Device, ...]:
    """Select the devices that are this container's: named by NVIDIA_VISIBLE_DEVICES, and with a
    device node.

    `visible` is that variable: uuids, indices in the order of `devices`, or CDI names
    (`nvidia.com/gpu=0`). Without any of them it means nothing. Indices count on the Kubernetes
    node, so they mean nothing where only these are seen.
    """
    found = tuple(device for device in devices if not device.file or exists(device.file))
    names = [name.strip().rpartition("=")[2] for name in visible.split(",")]
    names = [name for name in names if name not in _WITHOUT_NAMES]
    if not names or "all" in visible.split(",") or len(found) <= len(names):
        return found
    picked = [
        device
        for index, device in enumerate(found)
        if any(name == str(index) or (name and device.uuid.startswith(name)) for name in names)
    ]
    return tuple(picked) if picked else found


def names_mig_devices(visible: str) -> bool:
    """Return whether NVIDIA_VISIBLE_DEVICES names MIG devices."""
    return any(_MIG_UUID.fullmatch(name.strip().rpartition("=")[2]) for name in visible.split(","))


def decide(found: Found, wanted: Wanted) -> Verdict:
    """Decide how to register. Raises GpuMismatchError when the pod must not register."""
    items: list[gres.Gres] = []
    complaints = list(found.complaints)
    for device in found.devices:
        try:
            name = wanted.type or gres.type_name(device.product, device.mig)
        except gres.GresError as error:
            complaints.append(str(error))
            name = ""
        items.append(gres.Gres("gpu", name, 1))
    text = gres.render(items)
    why = printable("; ".join(complaints))
    how = (
        f"{found.source}, driver answered in {found.seconds:.2f} s"
        if found.source
        else "no source reported any"
    )
    summary = f"GPUs: {text or 'none'} ({how}{f'; {why}' if why else ''})"
    wrong = _mismatch(len(items), wanted.expected, found.source, why)
    if wrong and wanted.refuse:
        raise GpuMismatchError(
            f"{wrong}; the NodeSet's gpu.onMismatch is Refuse, so this pod doesn't register"
        )
    reason = reasons.of_pod(wrong)
    return Verdict(text, reason, summary)


def _mismatch(count: int, expected: int | None, source: str, why: str) -> str:
    if expected is None or count == expected:
        return ""
    by = f" by {source}" if source else ""
    return f"{count} of {expected} expected GPUs found{by}{f': {why}' if why else ''}"
