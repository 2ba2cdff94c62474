"""NVIDIA's sources, over the fixtures of tests/fixtures/gpu and over what a broken driver does."""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.register.gpus import Device, Wanted, decide
from sidecars.register.nvidia import (
    Nvidia,
    Reading,
    Source,
    UnreadableError,
    apart,
    default_sources,
    parse_smi,
    read_nvml,
    read_proc,
    read_smi,
)

FIXTURES = Path(__file__).parents[2] / "fixtures/gpu"
GRES = {
    "l4": "gpu:nvidia_l4:1",
    "a100-mig": (
        "gpu:nvidia_a100-sxm4-40gb:4,gpu:nvidia_a100_1g.5gb:9,gpu:nvidia_a100_2g.10gb:4,gpu:nvidia_a100_3g.20gb:3"
    ),
    "h100": "gpu:nvidia_h100_80gb_hbm3:8",
    "h200": "gpu:nvidia_h200:8",
    "gb200": "gpu:nvidia_gb200:4",
    "gb200-mig": "gpu:nvidia_gb200_1g.24gb:1",
    "mixed": "gpu:nvidia_geforce_gtx_1050_ti:1,gpu:nvidia_l4:1",
}


class NVMLError(Exception):
    """As pynvml's."""


def fake(gpus: list[dict[str, Any]], broken: str = "", lost: int = -1) -> SimpleNamespace:
    """A pynvml that answers as in a fixture; the call `broken` fails, and the GPU `lost` has no
    handle.
    """

    def answer(name: str, value: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name == broken:
                raise NVMLError("Unknown Error")
            return value(*arguments)

        return call

    def mig_mode(gpu: dict[str, Any]) -> list[int]:
        if gpu["mig_mode"] is None:
            raise NVMLError("Not Supported")
        return [gpu["mig_mode"], gpu["mig_mode"]]

    def handle(index: int) -> dict[str, Any]:
        if index == lost:
            raise NVMLError("GPU is lost")
        return gpus[index]

    def mig_device(gpu: dict[str, Any], index: int) -> dict[str, Any]:
        if index >= len(gpu["mig"]):
            raise NVMLError("Not Found")
        return dict(gpu["mig"][index])

    calls: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetName": lambda gpu: gpu["name"].encode(),
        "nvmlDeviceGetUUID": lambda gpu: gpu["uuid"],
        "nvmlDeviceGetMinorNumber": lambda gpu: gpu["minor"],
        "nvmlDeviceGetMigMode": mig_mode,
        "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7 if gpu["mig_mode"] else 0,
        "nvmlDeviceGetMigDeviceHandleByIndex": mig_device,
        "nvmlDeviceGetAttributes": lambda gpu: SimpleNamespace(
            gpuInstanceSliceCount=gpu["slices"], memorySizeMB=gpu["memory_mib"]
        ),
    }
    return SimpleNamespace(
        NVMLError=NVMLError, **{name: answer(name, value) for name, value in calls.items()}
    )


def nvml(name: str, **options: Any) -> SimpleNamespace:
    """The NVML of a fixture."""
    return fake(json.loads((FIXTURES / f"nvml/{name}.json").read_text())["gpus"], **options)


def smi(name: str) -> Reading:
    return parse_smi((FIXTURES / f"nvidia-smi/{name}.txt").read_text())


def gres(reading: Reading) -> str:
    """The Gres item that the devices become."""
    return decide(
        Nvidia({}, sources=[Source("x", lambda: reading)], exists=lambda _: True).find(), Wanted()
    ).gres


@pytest.mark.parametrize("name", GRES)
def test_nvml_reports_the_host(name: str) -> None:
    assert gres(read_nvml(nvml(name))) == GRES[name]


@pytest.mark.parametrize("name", GRES)
def test_nvidia_smi_reports_the_host(name: str) -> None:
    reading = smi(name)
    assert gres(reading) == GRES[name]
    assert reading.complaints == ()


@pytest.mark.parametrize("name", ["l4", "h100", "h200", "gb200", "mixed"])
def test_the_kernel_module_reports_the_host(name: str) -> None:
    assert gres(read_proc(FIXTURES / "proc" / name)) == GRES[name]


@pytest.mark.parametrize("name", ["l4", "h100", "h200", "gb200", "mixed"])
def test_the_sources_agree_on_device_nodes(name: str) -> None:
    received = {device.uuid: device.file for device in read_nvml(nvml(name)).devices}
    assert {
        device.uuid: device.file for device in read_proc(FIXTURES / "proc" / name).devices
    } == received


def test_mig_devices_are_no_matter_for_the_kernel_modules_files(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "capabilities/gpu0/mig/gi3").mkdir(parents=True)
    with pytest.raises(UnreadableError, match="MIG"):
        read_proc(tmp_path)
    with pytest.raises(UnreadableError, match="MIG"):
        read_proc(FIXTURES / "proc/h100", mig=True)


def test_a_gpu_that_the_driver_could_not_start_is_reported() -> None:
    reading = read_proc(FIXTURES / "proc/h100-unknown-model")
    assert len(reading.devices) == 1
    assert "0000:2a:00.0 has no Model" in reading.complaints[0]


def test_an_excluded_gpu_does_not_count(tmp_path: Path) -> None:
    place = tmp_path / "gpus/0000:01:00.0"
    place.mkdir(parents=True)
    (place / "information").write_text("Model: NVIDIA L4\nDevice Minor: 0\nGPU Excluded: Yes\n")
    assert read_proc(tmp_path) == Reading((), ("GPU 0000:01:00.0 is excluded by the driver",))


def test_no_driver_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no driver is loaded"):
        read_proc(tmp_path)


def test_a_gpu_that_fell_off_the_bus_is_missing_and_reported() -> None:
    by_nvml = read_nvml(nvml("h100", lost=3))
    assert len(by_nvml.devices) == 7
    assert by_nvml.complaints == ("GPU 3: GPU is lost",)
    by_smi = smi("h100-one-lost")
    assert len(by_smi.devices) == 7
    assert "Unable to determine the device handle for GPU3" in by_smi.complaints[0]


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
def test_an_nvml_that_does_not_answer_is_no_source(call: str) -> None:
    with pytest.raises(UnreadableError, match="Unknown Error"):
        read_nvml(nvml("h100", broken=call))


def script(folder: Path, text: str) -> list[str]:
    """A stub of nvidia-smi."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


def test_without_the_drivers_library_nothing_is_spent_on_its_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> NoReturn:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    with pytest.raises(UnreadableError, match=r"libnvidia-ml\.so\.1: cannot open"):
        default_sources("")[0].read()
    assert "pynvml" not in sys.modules


def test_a_driver_at_gkes_path_is_loaded_where_the_loader_finds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The module loads the library by its name. The loader then answers with the one that is loaded
    already, whatever its path.
    """
    loaded: list[str] = []

    def load(name: str) -> None:
        if "/" not in name:
            raise OSError(f"{name}: cannot open shared object file")
        loaded.append(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setitem(sys.modules, "pynvml", nvml("a100-mig"))
    reading = default_sources("")[0].read()
    assert gres(reading) == GRES["a100-mig"]
    assert loaded == ["/usr/local/nvidia/lib64/libnvidia-ml.so.1"]


def test_the_loaders_own_driver_comes_before_that_of_gke(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    monkeypatch.setitem(sys.modules, "pynvml", nvml("h100"))
    default_sources("")[0].read()
    assert loaded == ["libnvidia-ml.so.1"]


def test_nvidia_smi_is_found_with_its_libraries_at_gkes_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [stub] = script(
        tmp_path,
        f"case $LD_LIBRARY_PATH in /opt/lib:{tmp_path}/lib64) ;; *) exit 12 ;; esac; "
        f"cat {FIXTURES}/nvidia-smi/a100-mig.txt",
    )
    (tmp_path / "bin").mkdir()
    Path(stub).rename(tmp_path / "bin/nvidia-smi")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert gres(read_smi(gke=tmp_path)) == GRES["a100-mig"]


def test_nvidia_smi_is_run_and_read(tmp_path: Path) -> None:
    reading = read_smi(script(tmp_path, f"cat {FIXTURES}/nvidia-smi/gb200.txt"))
    assert gres(reading) == GRES["gb200"]


def test_an_nvidia_smi_that_fails_is_quoted(tmp_path: Path) -> None:
    command = script(tmp_path, f"cat {FIXTURES}/nvidia-smi/no-driver.txt; exit 9")
    with pytest.raises(UnreadableError, match="exit status 9: NVIDIA-SMI has failed"):
        read_smi(command)


def test_a_missing_nvidia_smi_is_reported() -> None:
    with pytest.raises(UnreadableError, match=r"nvidia-smi doesn.t exist"):
        read_smi(["/nonexistent/nvidia-smi"])


def test_garbage_is_no_device_and_is_reported(tmp_path: Path) -> None:
    reading = read_smi(
        script(tmp_path, "head -c 3000 /dev/urandom; echo; echo 'GPU x: NVIDIA (UUID: '")
    )
    assert reading.devices == ()
    assert reading.complaints


def hangs() -> Reading:
    time.sleep(600)
    return Reading(())


def crashes() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def is_half_a_driver() -> NoReturn:
    raise AttributeError("undefined symbol: nvmlInitWithFlags")


def test_a_driver_that_hangs_is_left_behind() -> None:
    start = time.monotonic()
    with pytest.raises(UnreadableError, match="the driver hangs"):
        apart(hangs, 0.2)
    assert time.monotonic() - start < 60


def test_a_library_that_crashes_takes_nobody_along() -> None:
    with pytest.raises(UnreadableError, match="signal 9"):
        apart(crashes, 60)


def test_half_a_driver_is_reported() -> None:
    with pytest.raises(UnreadableError, match="undefined symbol"):
        apart(is_half_a_driver, 60)


def test_no_time_is_no_question() -> None:
    with pytest.raises(UnreadableError, match="no time is left"):
        apart(hangs, 0)


def test_the_next_source_is_asked_when_one_fails_and_all_complaints_are_kept() -> None:
    found = Nvidia(
        {},
        sources=[
            Source("NVML", is_half_a_driver),
            Source("/proc", lambda: Reading(())),
            Source("nvidia-smi", lambda: smi("h100-one-lost")),
        ],
        exists=lambda _: True,
    ).find()
    assert found.source == "nvidia-smi"
    assert len(found.devices) == 7
    assert [complaint.partition(":")[0] for complaint in found.complaints] == [
        "NVML",
        "/proc",
        "nvidia-smi",
    ]


def test_all_sources_share_one_deadline() -> None:
    start = time.monotonic()
    found = Nvidia({}, sources=[Source("a", hangs), Source("b", hangs)], seconds=0.2).find()
    assert time.monotonic() - start < 60
    assert found.devices == ()
    assert found.complaints == (
        "a: no answer within 0 s: the driver hangs",
        "b: not asked: no time is left",
    )


def test_only_the_devices_of_this_container_count() -> None:
    def all_of_them() -> Reading:
        return read_proc(FIXTURES / "proc/h100")

    uuids = [device.uuid for device in all_of_them().devices]
    source = [Source("/proc", all_of_them)]
    named = Nvidia(
        {"NVIDIA_VISIBLE_DEVICES": f"{uuids[1]},{uuids[6]}"}, sources=source, exists=lambda _: True
    ).find()
    assert [device.uuid for device in named.devices] == [uuids[1], uuids[6]]
    with_nodes = Nvidia(
        {"NVIDIA_VISIBLE_DEVICES": "void"},
        sources=source,
        exists=lambda path: path == "/dev/nvidia5",
    )
    assert [device.file for device in with_nodes.find().devices] == ["/dev/nvidia5"]
    nobodys = Nvidia({}, sources=source, exists=lambda _: False).find()
    assert nobodys.complaints == ("/proc: no device, 8 of other containers",)


def test_this_host_without_a_gpu_is_reported_by_every_source() -> None:
    found = Nvidia({}).find()
    assert {complaint.partition(":")[0] for complaint in found.complaints} == {
        "NVML",
        "/proc",
        "nvidia-smi",
    }


@given(st.text())
def test_any_output_is_read(text: str) -> None:
    for device in parse_smi(text).devices:
        assert device.product
        assert device.uuid


@given(st.binary(max_size=400))
def test_any_content_of_the_kernel_modules_file_is_read(content: bytes) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        place = Path(folder) / "gpus/0000:01:00.0"
        place.mkdir(parents=True)
        (place / "information").write_bytes(content)
        reading = read_proc(Path(folder))
    assert len(reading.devices) + len(reading.complaints) == 1


@given(st.permutations(range(3)), st.integers(0, 2))
def test_lines_of_a_mig_host_cut_anywhere_give_whole_devices(order: list[int], cut: int) -> None:
    text = (FIXTURES / "nvidia-smi/a100-mig.txt").read_text()
    third = len(text) // 3
    parts = [text[:third], text[third : 2 * third], text[2 * third :]]
    for device in parse_smi("\n".join(parts[index] for index in order[: cut + 1])).devices:
        assert device == Device(device.product, device.uuid, device.mig)
        assert device.product == "NVIDIA A100-SXM4-40GB"
