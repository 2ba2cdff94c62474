"""The bridge with a real slurmctld, kube-apiserver and kube-scheduler, while much fails.

The kubelets are simulated. That no core, byte or device has two owners is checked all the time.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.support.bridge_disturbances import LEAST_COMPARED, prepared
from tests.support.bridge_run import lose_state
from tests.support.bridge_world import control_plane
from tests.support.real import ports


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Without controllers."""
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


async def test_no_core_byte_or_device_has_two_owners_in_a_random_run_and_nothing_is_left_at_its_end(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """The short form of `make soak`: each disturbance once, then random ones, then a minute without
    slurmctld.
    """
    async with prepared(tmp_path, plane, ports.BRIDGE_RUN, seed=7) as run:
        await run.run(25, outage=65)
    assert run.stays.counts["compared"] >= LEAST_COMPARED


async def test_pods_of_jobs_that_slurm_has_lost_run_on_beside_new_jobs_with_the_same_ids(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with prepared(tmp_path, plane, ports.BRIDGE_RUN, seed=7) as run, run.watched(finishes=0):
        await lose_state(run)
