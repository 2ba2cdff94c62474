"""NVIDIA's GPUs as this container sees them: by NVML, else by /proc/driver/nvidia, else by
`nvidia-smi -L`.

| source | reports | doesn't report |
|---|---|---|
| NVML (nvidia-ml-py) | product, uuid, MIG devices with their memory, device node | |
| /proc/driver/nvidia/gpus/*/information | product, uuid, device node | MIG devices, owners |
| nvidia-smi -L | product, uuid, MIG profiles | device node |

The first one that reports a device is used. Each runs in a separate process, which is abandoned if
the driver doesn't answer in time: a process that hangs in a driver can't be killed, and this one
must continue and report it. Formats: https://docs.nvidia.com/deploy/nvml-api,
https://docs.nvidia.com/datacenter/tesla/mig-user-guide.
"""

import contextlib
import importlib
import json
import os
import re
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sidecars.register.gpus import Device, Found, allocated, names_mig_devices

DRIVER_SECONDS = 60.0
"""Time limit of all sources together: without persistence mode a driver starts its GPUs one by one.
"""

PROC = Path("/proc/driver/nvidia")
GKE = Path("/usr/local/nvidia")
"""Where GKE mounts its driver. No loader and no PATH looks there."""

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_VOLUME_MOUNTS = "/var/run/nvidia-container-devices"
"""The value of NVIDIA_VISIBLE_DEVICES that stands for the names of the entries of this folder."""

_NVML = "libnvidia-ml.so.1"
_MOST_OUTPUT = 2**20
_SMI_GPU = re.compile(r"GPU\s+[0-9]+:\s+(\S.*?)\s+\(UUID:\s+(\S+)\)")
_SMI_MIG = re.compile(r"MIG\s+(\S+)\s+Device\s+[0-9]+:\s+\(UUID:\s+(\S+)\)")
_MIG_ENABLED = 1


class UnreadableError(Exception):
    """A source reports nothing usable. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source reported; `seconds` is how long the driver took to start."""

    devices: tuple[Device, ...]
    complaints: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Source:
    """A way to learn of devices. `read` raises UnreadableError and OSError."""

    name: str
    read: Callable[[], Reading]


class Nvidia:
    """The Vendor. `environment` is the container's; `seconds` bounds all sources together."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        sources: Sequence[Source] | None = None,
        exists: Callable[[str], bool] = os.path.exists,
        seconds: float = DRIVER_SECONDS,
    ) -> None:
        self._visible = _visible(environment)
        self._sources = default_sources(self._visible) if sources is None else sources
        self._exists = exists
        self._seconds = seconds

    def find(self) -> Found:
        """Return the devices of this container. Raises nothing: a failure is a complaint."""
        complaints: list[str] = []
        deadline = time.monotonic() + self._seconds
        for source in self._sources:
            try:
                reading = apart(source.read, deadline - time.monotonic())
            except (UnreadableError, OSError) as fault:
                complaints.append(f"{source.name}: {fault}")
                continue
            complaints += [f"{source.name}: {complaint}" for complaint in reading.complaints]
            devices = allocated(reading.devices, self._visible, self._exists)
            if devices:
                return Found(devices, source.name, reading.seconds, tuple(complaints))
            if not reading.complaints:
                seen = f", {len(reading.devices)} of other containers" if reading.devices else ""
                complaints.append(f"{source.name}: no device{seen}")
        return Found((), complaints=tuple(complaints))


def default_sources(visible: str) -> tuple[Source, ...]:
    """Return the sources of a real host, in their order. `visible` is NVIDIA_VISIBLE_DEVICES."""
    return (
        Source("NVML", lambda: read_nvml(_pynvml())),
        Source("/proc", lambda: read_proc(PROC, names_mig_devices(visible))),
        Source("nvidia-smi", read_smi),
    )


def _pynvml() -> Any:
    """Import pynvml where it is of any use: to import it takes as long as all else that `register`
    does.
    """
    import ctypes

    try:
        ctypes.CDLL(_NVML)
    except OSError as error:
        # pynvml loads the library by its name, for which the loader returns the one that is loaded.
        try:
            ctypes.CDLL(str(GKE / "lib64" / _NVML))
        except OSError:
            raise UnreadableError(str(error)) from error
    return importlib.import_module("pynvml")


def _visible(environment: Mapping[str, str]) -> str:
    value = environment.get(VISIBLE, "")
    if value.rstrip("/") == _VOLUME_MOUNTS:
        try:
            return ",".join(sorted(os.listdir(_VOLUME_MOUNTS)))  # noqa: PTH208 (names alone)
        except OSError:
            return ""
    return value


def read_nvml(nvml: Any) -> Reading:
    """Read the devices that NVML reports. `nvml` is the module pynvml. Raises UnreadableError."""
    start = time.monotonic()
    try:
        nvml.nvmlInit()
        seconds = time.monotonic() - start
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise UnreadableError(str(error)) from error
    devices: list[Device] = []
    complaints: list[str] = []
    for index in range(count):
        try:
            devices += _nvml_devices(nvml, index)
        except nvml.NVMLError as error:
            complaints.append(f"GPU {index}: {error}")
    return Reading(tuple(devices), tuple(complaints), seconds)


def _nvml_devices(nvml: Any, index: int) -> list[Device]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    product, uuid = _text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlDeviceGetUUID(handle))
    try:
        mig = nvml.nvmlDeviceGetMigMode(handle)[0] == _MIG_ENABLED
    except nvml.NVMLError:
        mig = False  # a product without MIG
    if not mig:
        return [Device(product, uuid, file=f"/dev/nvidia{nvml.nvmlDeviceGetMinorNumber(handle)}")]
    devices = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError:
            continue  # places without a device, and those of other containers
        attributes = nvml.nvmlDeviceGetAttributes(part)
        # As Slurm's AutoDetect=nvml counts: the memory of 1g.5gb is 4864 MiB.
        profile = (
            f"{attributes.gpuInstanceSliceCount}g.{int(attributes.memorySizeMB / 1024 + 0.5)}gb"
        )
        devices.append(Device(product, _text(nvml.nvmlDeviceGetUUID(part)), profile))
    return devices


def read_proc(folder: Path, mig: bool = False) -> Reading:
    """Read the devices that the kernel module reports. Raises UnreadableError, for MIG devices too,
    and OSError.
    """
    devices: list[Device] = []
    complaints: list[str] = []
    try:
        places = sorted((folder / "gpus").iterdir())
    except FileNotFoundError as error:
        raise UnreadableError(
            f"{folder / 'gpus'} doesn't exist: no driver is loaded, or it isn't for this pod"
        ) from error
    if mig or any((folder / "capabilities").glob("gpu*/mig/gi*")):
        raise UnreadableError("it doesn't show the profiles of MIG devices")
    for place in places:
        text = (place / "information").read_bytes()[:_MOST_OUTPUT].decode(errors="replace")
        facts = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in text.splitlines())
        }
        product, minor = facts.get("Model", ""), facts.get("Device Minor", "")
        if facts.get("GPU Excluded", "No") != "No":
            complaints.append(f"GPU {place.name} is excluded by the driver")
        elif not product or product == "Unknown" or not (minor.isascii() and minor.isdecimal()):
            complaints.append(
                f"GPU {place.name} has no Model or Device Minor: the driver couldn't start it"
            )
        else:
            devices.append(
                Device(product, facts.get("GPU UUID", ""), file=f"/dev/nvidia{int(minor)}")
            )
    return Reading(tuple(devices), tuple(complaints))


def read_smi(command: Sequence[str] = ("nvidia-smi", "-L"), gke: Path = GKE) -> Reading:
    """Read the devices that nvidia-smi reports. It and its libraries can be in the folder of GKE's
    driver. Raises UnreadableError and OSError.
    """
    import subprocess

    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=_with_driver(os.environ, gke),
        )
    except FileNotFoundError as error:
        raise UnreadableError(f"{command[0]} doesn't exist") from error
    text = done.stdout[:_MOST_OUTPUT].decode(errors="replace")
    errors = done.stderr[:_MOST_OUTPUT].decode(errors="replace")
    reading = parse_smi(f"{text}\n{errors}")
    if done.returncode and not reading.devices:
        words = "; ".join(reading.complaints) or "no output"
        raise UnreadableError(f"exit status {done.returncode}: {words}")
    return Reading(reading.devices, reading.complaints, time.monotonic() - start)


def _with_driver(environment: Mapping[str, str], driver: Path) -> dict[str, str]:
    """Return the environment with the driver's folders after all others."""
    found = dict(environment)
    for name, folder, otherwise in (
        ("PATH", "bin", os.defpath),
        ("LD_LIBRARY_PATH", "lib64", ""),
    ):
        before = found.get(name) or otherwise
        # An empty entry would be the current folder.
        found[name] = f"{before}:{driver / folder}" if before else str(driver / folder)
    return found


def parse_smi(text: str) -> Reading:
    """Parse the devices that `nvidia-smi -L` lists. A GPU with MIG devices stands for those
    alone.
    """
    devices: list[Device] = []
    complaints: list[str] = []
    whole: Device | None = None
    for line in filter(None, map(str.strip, text.splitlines())):
        gpu, mig = _SMI_GPU.fullmatch(line), _SMI_MIG.fullmatch(line)
        if gpu is not None:
            whole = Device(gpu[1], gpu[2])
            devices.append(whole)
        elif mig is not None and whole is not None:
            if devices[-1] == whole:
                devices.pop()
            devices.append(Device(whole.product, mig[2], mig[1]))
        elif len(complaints) < 4:
            complaints.append(line[:120])
    return Reading(tuple(devices), tuple(complaints))


def apart(read: Callable[[], Reading], seconds: float) -> Reading:
    """Return the reading, done in a separate process within this time in seconds. Raises
    UnreadableError and OSError.
    """
    if seconds <= 0:
        raise UnreadableError("not asked: no time is left")
    reading_end, writing_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading_end)
        os.setsid()
        _answer(read, writing_end)
    os.close(writing_end)
    try:
        answer = _receive(reading_end, time.monotonic() + seconds)
    finally:
        os.close(reading_end)
    if answer is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        raise UnreadableError(f"no answer within {seconds:.0f} s: the driver hangs")
    _, status = os.waitpid(child, 0)
    try:
        answered = json.loads(answer)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        raise UnreadableError(f"it ended without an answer ({how})") from None
    if "fault" in answered:
        raise UnreadableError(answered["fault"])
    return Reading(
        tuple(Device(*device) for device in answered["devices"]),
        tuple(answered["complaints"]),
        answered["seconds"],
    )


def _answer(read: Callable[[], Reading], end: int) -> None:
    """Live the child's life: read, write one JSON text, end. Whatever a broken library does, no
    exit handler runs.
    """
    status = 1
    try:
        try:
            found = read()
            answered: dict[str, Any] = {
                "devices": [
                    (device.product, device.uuid, device.mig, device.file)
                    for device in found.devices
                ],
                "complaints": found.complaints,
                "seconds": found.seconds,
            }
        except (
            UnreadableError,
            OSError,
            ImportError,
            AttributeError,
            TypeError,
            ValueError,
        ) as fault:
            answered = {"fault": str(fault) or type(fault).__name__}
        with os.fdopen(end, "wb") as pipe:
            pipe.write(json.dumps(answered).encode())
        status = 0
    finally:
        os._exit(status)


def _receive(end: int, deadline: float) -> bytes | None:
    """Return all that the other side writes until it ends, or None when the deadline comes
    first.
    """
    answer = b""
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([end], [], [], left)
        if ready:
            piece = os.read(end, 65536)
            if not piece:
                return answer
            answer += piece
    return None


def _text(value: Any) -> str:
    return (
        value.decode(errors="replace") if isinstance(value, bytes) else str(cast("object", value))
    )
