"""`helm test` names what is missing from a cluster. test_chart_testing.py runs it on healthy
ones.
"""

from collections.abc import Iterator

import pytest

from tests.support.real.harness import CHARTS, CommandError, Slurm, until

PATIENT, IMPATIENT = 180, 20


@pytest.fixture(scope="module")
def tested(slurm: Slurm) -> Iterator[Slurm]:
    """The cluster, without the test's pod at the end."""
    yield slurm
    slurm.kubernetes.kubectl(
        "-n", slurm.namespace, "delete", "pod", "slurm-helm-test", "--ignore-not-found"
    )


def have_it_wait(slurm: Slurm, seconds: int) -> None:
    """Change how long the test waits for the cluster and its job. That concerns no object that is
    installed.
    """
    upgrade = (
        "upgrade",
        "slurm",
        str(CHARTS / "slurm"),
        "-n",
        slurm.namespace,
        "--reuse-values",
        "--set",
    )
    slurm.kubernetes.helm(*upgrade, f"helmTest.timeoutSeconds={seconds}")


def helm_test(slurm: Slurm) -> str:
    """The log of the test. Raises CommandError, with what Helm prints, if the test fails."""
    slurm.kubernetes.helm("test", "slurm", "-n", slurm.namespace)
    return slurm.kubernetes.kubectl("-n", slurm.namespace, "logs", "slurm-helm-test", "-c", "job")


def left_behind(slurm: Slurm) -> set[str]:
    """Objects of the test, except its pod."""
    kinds = ("tokens.slinky.slurm.net", "secrets")
    names = [
        it["metadata"]["name"]
        for kind in kinds
        for it in slurm.kubernetes.items("-n", slurm.namespace, kind)
    ]
    return {name for name in names if "helm-test" in name}


def test_a_cluster_without_workers_fails_and_names_why_until_it_has_some_and_the_token_is_deleted(
    tested: Slurm,
) -> None:
    have_it_wait(tested, IMPATIENT)
    tested.scale(0)
    try:
        until("Slurm to have no nodes", lambda: not tested.nodes())
        with pytest.raises(
            CommandError, match="FAILED: No worker can run a job: no node has registered"
        ):
            helm_test(tested)
    finally:
        tested.scale(2)
        have_it_wait(tested, PATIENT)
    tested.until_idle(2)
    assert "and its output is right. Slurm works." in helm_test(tested)
    until("the token and its Secret to be deleted", lambda: not left_behind(tested))
