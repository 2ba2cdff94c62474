"""What a pod reports of its GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.register.gpus import (
    Device,
    Found,
    GpuMismatchError,
    Wanted,
    allocated,
    decide,
    names_mig_devices,
)

H100 = Device("NVIDIA H100 80GB HBM3")


def node(count: int) -> tuple[Device, ...]:
    """A host's GPUs with device nodes."""
    return tuple(
        Device("NVIDIA H200", f"GPU-{number:04}", file=f"/dev/nvidia{number}")
        for number in range(count)
    )


def everything(path: str) -> bool:
    return bool(path)


@pytest.mark.parametrize("visible", ["", "all", "void", "none", "GPU-0000,all"])
def test_a_variable_that_names_no_device_reports_nothing(visible: str) -> None:
    assert allocated(node(4), visible, everything) == node(4)


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        ("GPU-0001,GPU-0003", [1, 3]),
        ("nvidia.com/gpu=GPU-0002", [2]),
        ("nvidia.com/gpu=0,nvidia.com/gpu=1", [0, 1]),
        ("2,3", [2, 3]),
    ],
)
def test_the_devices_that_are_named_are_the_containers(visible: str, numbers: list[int]) -> None:
    assert allocated(node(4), visible, everything) == tuple(node(4)[number] for number in numbers)


def test_indices_of_the_host_report_nothing_where_only_the_containers_own_are_seen() -> None:
    assert allocated(node(2), "6,7", everything) == node(2)


def test_a_device_without_its_node_is_another_containers() -> None:
    assert (
        allocated(node(4), "void", lambda path: path in {"/dev/nvidia1", "/dev/nvidia2"})
        == node(4)[1:3]
    )


def test_names_that_fit_no_device_leave_all_to_the_expected_count() -> None:
    assert allocated(node(4), "GPU-beef", everything) == node(4)


def test_mig_devices_are_reported_by_their_names() -> None:
    assert names_mig_devices("GPU-1, MIG-2")
    assert names_mig_devices("nvidia.com/gpu=MIG-2")
    assert not names_mig_devices("GPU-1,all")


def test_devices_become_one_typed_item() -> None:
    verdict = decide(Found((H100,) * 8, "NVML", 0.4), Wanted(expected=8))
    assert verdict.gres == "gpu:nvidia_h100_80gb_hbm3:8"
    assert verdict.drain == ""
    assert verdict.summary == "GPUs: gpu:nvidia_h100_80gb_hbm3:8 (NVML, driver answered in 0.40 s)"


def test_several_products_in_one_host_are_items_of_their_own() -> None:
    found = Found((H100, Device("NVIDIA L4"), H100), "NVML")
    assert decide(found, Wanted()).gres == "gpu:nvidia_h100_80gb_hbm3:2,gpu:nvidia_l4:1"


def test_a_type_of_the_nodesets_own_takes_the_place_of_the_products() -> None:
    assert decide(Found((H100, Device("x,y")), "NVML"), Wanted(type="h100")).gres == "gpu:h100:2"


def test_a_missing_gpu_drains_with_the_reason() -> None:
    verdict = decide(
        Found((H100,) * 7, "nvidia-smi", complaints=("nvidia-smi: GPU3: Unknown Error",)), Wanted(8)
    )
    assert verdict.gres == "gpu:nvidia_h100_80gb_hbm3:7"
    assert verdict.drain == (
        "slurm-node: 7 of 8 expected GPUs found by nvidia-smi: nvidia-smi: GPU3: Unknown Error"
    )


def test_a_gpu_too_many_drains_too() -> None:
    assert "9 of 8 expected" in decide(Found((H100,) * 9, "NVML"), Wanted(8)).drain


def test_no_gpu_at_all_leaves_no_empty_item() -> None:
    verdict = decide(Found((), complaints=("NVML: no driver", "/proc: none")), Wanted(8))
    assert verdict.gres == ""
    assert verdict.drain == "slurm-node: 0 of 8 expected GPUs found: NVML: no driver; /proc: none"


def test_a_pod_that_is_not_to_register_reports_why() -> None:
    with pytest.raises(
        GpuMismatchError, match=r"7 of 8 expected GPUs found by NVML; .*onMismatch is Refuse"
    ):
        decide(Found((H100,) * 7, "NVML"), Wanted(8, refuse=True))


def test_a_product_without_a_name_for_slurm_is_counted_untyped_and_reported() -> None:
    verdict = decide(Found((Device("bad:name"),), "NVML"), Wanted(1))
    assert verdict.gres == "gpu:1"
    assert "'bad:name' gives no type" in verdict.summary


@given(
    st.lists(st.builds(Device, st.text(), st.text(), st.text(), st.text())),
    st.lists(st.text()),
    st.integers(0, 9),
)
def test_whatever_is_found_the_words_stay_within_one_line(
    devices: list[Device], complaints: list[str], expected: int
) -> None:
    verdict = decide(Found(tuple(devices), "NVML", 0.0, tuple(complaints)), Wanted(expected))
    assert verdict.summary.isprintable()
    assert verdict.drain.isprintable()
    assert len(verdict.drain) <= 200
    assert bool(verdict.drain) == (len(devices) != expected)
    assert not any(character in verdict.gres for character in " \"'\\\n")


@given(st.lists(st.builds(Device, st.text(), st.text())), st.text())
def test_any_value_of_the_variable_leaves_some_of_the_devices(
    devices: list[Device], visible: str
) -> None:
    found = allocated(devices, visible, everything)
    assert set(found) <= set(devices)
    assert bool(found) == bool(devices)
