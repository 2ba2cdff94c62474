"""Names of worker pods and their hosts."""

import pytest

from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import ResourceError
from tests.support.builders import nodeset, pod_spec
from tests.unit.workloads.nodeset.making import hostnamed, pod


def test_ordinals_are_padded_in_name_index_and_hostname() -> None:
    metadata = pod(hostnamed("gpu-", ordinalPadding=3), 7)["metadata"]
    assert metadata["name"] == "slurm-worker-slinky-007"
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-index"] == "007"
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-hostname"] == "gpu-007"


def test_without_a_prefix_the_pods_name_is_the_hostname() -> None:
    assert pod_spec(pod(nodeset(), 2))["hostname"] == "slurm-worker-slinky-2"


@pytest.mark.parametrize("prefix", ["GPU-", "gpu.a-", "a b-", "-", "a" * 63, "gpu\n"])
def test_a_prefix_that_makes_no_hostnames_is_refused(prefix: str) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.template\.spec\.hostname: "):
        pod(hostnamed(prefix))


@pytest.mark.parametrize("prefix", ["9" * 18, "w" + "1234567890" * 2, "rack-1" + "0" * 18])
def test_a_prefix_whose_digits_slurm_could_not_read_as_a_number_is_refused(prefix: str) -> None:
    """slurmctld 26.05.5 gives all nodes the one name w18446744073709551615."""
    with pytest.raises(ResourceError, match="at most 18 digits at its end, which Slurm reads as"):
        pod(hostnamed(prefix))


@pytest.mark.parametrize("prefix", ["w" + "1" * 17, "w" + "0" * 30, "w" + "1" * 30 + "-"])
def test_digits_that_slurm_can_read_and_those_before_a_hyphen_are_no_problem(prefix: str) -> None:
    assert pod_spec(pod(hostnamed(prefix), 1))["hostname"] == f"{prefix}1"


def test_the_name_of_a_daemon_pod_fits_a_label_however_long_the_names_are() -> None:
    assert len(render.daemon_pod_name(nodeset("n" * 57), "x" * 253)) == 63


def test_an_ordinal_is_found_by_its_hostname_and_by_no_other_name() -> None:
    padded = hostnamed("gpu-", ordinalPadding=3)
    assert [render.ordinal_of(padded, name) for name in ("gpu-007", "gpu-1234", "gpu-0")] == [
        7,
        1234,
        None,
    ]
    assert [
        render.ordinal_of(padded, name) for name in ("gpu-7", "gpu-", "gpu-x", "cpu-007", "007")
    ] == [None] * 5
    assert render.ordinal_of(nodeset(), "slurm-worker-slinky-12") == 12
    for number in ("9" * 5000, "\u0663", "\xb2", "-1", "1\n"):
        assert render.ordinal_of(nodeset(), f"slurm-worker-slinky-{number}") is None
