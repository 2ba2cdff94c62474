"""The order of Slurm's daemons in an upgrade, and what can't go back."""

from dataclasses import replace

import pytest

from sidecars.policy import upgrades
from sidecars.policy.upgrades import NOTHING, Before, Daemon, Live

OLD, NEW = (
    "ghcr.io/slinkyproject/slurmctld:25.11-ubuntu24.04",
    "ghcr.io/slinkyproject/slurmctld:26.05-ubuntu24.04",
)


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmrestd", "login", "slurmd"])
def test_a_daemon_keeps_its_image_until_what_goes_before_it_is_done(daemon: str) -> None:
    blocked = upgrades.block(
        daemon, Live(OLD, ready=True), NEW, Before("Accounting 'slurm' is ready")
    )
    assert blocked is not None
    assert blocked.condition.reason == "WaitingForUpgrade"
    assert "Accounting 'slurm' is ready" in blocked.message
    assert upgrades.block(daemon, Live(OLD, ready=True), NEW, NOTHING) is None


def test_nothing_delays_a_daemon_that_is_new_or_broken_or_stays_as_it_is() -> None:
    assert upgrades.block("slurmctld", None, NEW, Before("x")) is None
    assert upgrades.block("slurmctld", Live(OLD, ready=False), NEW, Before("x")) is None
    assert upgrades.block("slurmctld", Live(NEW, ready=True), NEW, Before("x")) is None


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmdbd"])
def test_what_keeps_a_state_never_gets_older_than_it(daemon: str) -> None:
    for live in (
        Live(NEW, ready=True),
        Live(NEW, ready=False, ran=(26, 5)),
        Live(OLD, ready=True, ran=(26, 5)),
    ):
        blocked = upgrades.block(daemon, live, "slurmctld:25.05", NOTHING)
        assert blocked is not None
        assert blocked.reason == "OlderThanState"
        assert "25.05" in blocked.message
        assert "26.05" in blocked.message


def test_clients_and_workers_may_go_back() -> None:
    for daemon in ("slurmrestd", "login", "slurmd"):
        assert upgrades.block(daemon, Live(NEW, ready=True), OLD, NOTHING) is None


def test_a_version_that_never_came_up_is_no_reason_to_stay_with_it() -> None:
    assert (
        upgrades.block("slurmctld", Live("slurmctld:27.11", ready=False, ran=(26, 5)), NEW, NOTHING)
        is None
    )


def test_a_tag_without_a_version_refuses_nothing() -> None:
    assert upgrades.block("slurmctld", Live(NEW, ready=True), "slurmctld:mine", NOTHING) is None


@pytest.mark.parametrize(
    ("daemon", "leader"),
    [
        ("slurmctld", "slurmdbd"),
        ("slurmrestd", "slurmctld"),
        ("login", "slurmctld"),
        ("slurmd", "slurmctld"),
    ],
)
@pytest.mark.parametrize("live", [None, Live(OLD, ready=True), Live(OLD, ready=False)])
def test_no_daemon_gets_newer_than_the_one_before_it(
    daemon: str, leader: str, live: Live | None
) -> None:
    before = Before(daemon=leader, image=f"{leader}:25.11.3")
    blocked = upgrades.block(daemon, live, NEW, before)
    assert blocked is not None
    assert blocked.condition.reason == "NewerThanLeader"
    for words in (
        f"{daemon} 26.05",
        f"{leader} 25.11",
        f"{leader}:25.11.3",
        "give",
        "or newer first",
    ):
        assert words in blocked.message
    waits = upgrades.block(daemon, live, NEW, replace(before, waits="it is ready", moves=True))
    assert waits is not None
    assert waits.reason == "WaitingForUpgrade"
    other = upgrades.block(daemon, live, NEW, replace(before, waits="RestApi 'slurm' is ready"))
    assert other == blocked, "that another waits doesn't help"


@pytest.mark.parametrize("image", ["slurmctld:26.05.1", "slurmctld:26.11", "slurmctld:latest", ""])
def test_a_daemon_of_the_same_an_older_or_an_unknown_release_is_taken(image: str) -> None:
    for live in (None, Live(OLD, ready=True)):
        assert (
            upgrades.block(
                "slurmd", live, "slurmd:26.05.5", Before(daemon="slurmctld", image=image)
            )
            is None
        )
    unknown = Before(daemon="slurmctld", image="slurmctld:25.11")
    assert upgrades.block("slurmd", Live(OLD, ready=True), "slurmd:mine", unknown) is None


def counts(replicas: int, updated: int, ready: int, generation: int = 2) -> dict[str, int]:
    """A status of a Deployment of one pod, changed once."""
    return {
        "observedGeneration": generation,
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": ready,
    }


@pytest.mark.parametrize(
    ("status", "done"),
    [
        (counts(1, 1, 1, generation=1), False),
        (counts(1, 0, 1), False),
        (counts(2, 1, 1), False),
        (counts(1, 1, 0), False),
        (counts(1, 1, 1), True),
        ({}, True),
    ],
    ids=[
        "not looked at yet",
        "old alone",
        "new beside old",
        "new and not ready",
        "new",
        "nobody ever looked",
    ],
)
def test_a_deployment_is_rolled_out_when_only_new_pods_are_left_and_ready(
    status: dict[str, int], done: bool
) -> None:
    assert upgrades.rolled_out(status, 2, 1) is done


DBD, CTLD = (
    Daemon("Accounting slurm", "slurmdbd", "a:25.11", "a:26.05"),
    Daemon("C", "slurmctld", "a:25.11", "a:26.05"),
)
REST, LOGIN = (Daemon(it, it, "a:25.11", "a:26.05") for it in ("slurmrestd", "login"))
CPU, GPU = (Daemon(it, "slurmd", "a:25.11", "a:26.05") for it in ("cpu", "gpu"))


def test_an_upgrade_of_all_daemons_is_in_slurms_order() -> None:
    assert upgrades.plan([GPU, LOGIN, CPU, CTLD, REST, DBD]) == (
        [[DBD], [CTLD], [LOGIN, REST], [GPU, CPU]],
        [],
    )


def test_only_daemons_without_their_image_are_in_an_upgrade_and_new_ones_wait_for_older() -> None:
    done, created = replace(CTLD, image="a:26.05"), replace(CPU, image=None)
    assert upgrades.plan([done, replace(REST, wanted=""), created, GPU]) == ([[created, GPU]], [])
    # A worker that is created may not be newer than slurmctld.
    assert upgrades.plan([CTLD, created]) == ([[CTLD], [created]], [])


def test_an_upgrade_that_slurm_does_not_allow_keeps_the_images_and_all_that_waits_for_them() -> (
    None
):
    stays, older = replace(CTLD, wanted="a:25.11"), replace(DBD, image="a:26.05", wanted="a:25.11")
    steps, [refused] = upgrades.plan([stays, CPU])
    assert (steps, refused.reason) == ([], "NewerThanLeader")
    back = replace(CTLD, wanted="a:25.05")
    steps, blocks = upgrades.plan([older, back, replace(CPU, wanted="a:25.05")])
    assert (steps, [it.reason for it in blocks]) == (
        [],
        ["OlderThanState", "OlderThanState", "WaitingForUpgrade"],
    )


def test_an_external_slurmctld_keeps_no_client() -> None:
    assert upgrades.plan([DBD, REST]) == ([[DBD, REST]], [])
