"""A state of slurmctld from its first start until all of it was saved once, on a real file
system.
"""

from pathlib import Path

import pytest

from sidecars.reconfigure.firststart import GONE, MARK, NEEDED, FirstStart

CLUSTER = "slurm_slurm|4711"
BEFORE_CHECKPOINT = (
    "job_state",
    "node_state",
    "last_tres",
    "assoc_mgr_state",
    "hash.1",
    "priority_last_decay_ran",
)
"""What a slurmctld of a few minutes may have written."""


class World:
    """A state, the looks at it, and the log."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.log: list[str] = []
        self.now = 100.0
        self.first_start = FirstStart(state, self.log.append)

    def write(self, *names: str) -> None:
        for name in names:
            (self.state / name).write_text(f"content of {name}")

    def started(self, *names: str) -> None:
        """slurmctld has started for the first time, and has written these files."""
        self.first_start.begin()
        (self.state / "clustername").write_text(CLUSTER)
        self.write(*names)

    def looks(
        self, answers: bool | None = False, *, accounting: bool = True, seconds: float = GONE
    ) -> None:
        """Looks for so long."""
        self.first_start.look(self.now, answers, lambda: accounting)
        self.now += seconds
        self.first_start.look(self.now, answers, lambda: accounting)

    def cluster(self) -> str:
        return (self.state / "clustername").read_text()

    def files(self) -> dict[str, str]:
        """Slurm's own."""
        return {
            it.name: it.read_text()
            for it in self.state.iterdir()
            if it.is_file() and not it.name.startswith(".")
        }


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("written", [(), BEFORE_CHECKPOINT, ("trigger_state",)])
def test_slurmctld_that_is_killed_before_it_saved_all_starts_again_with_the_files_that_exist(
    world: World, written: tuple[str, ...]
) -> None:
    world.started(*written)
    before = world.files()
    world.looks()
    assert world.cluster() == "slurm_slurm", "without the id, and still of this cluster"
    assert world.files() == before | {"clustername": "slurm_slurm"}
    assert [line for line in world.log if "4711" in line] == world.log != []


def test_it_is_killed_again_and_again(world: World) -> None:
    world.started("job_state")
    for _ in range(3):
        world.looks()
        assert world.cluster() == "slurm_slurm"
        (world.state / "clustername").write_text(CLUSTER)
        world.looks(answers=True)
        assert world.cluster() == CLUSTER, "it runs"


def test_the_mark_ends_when_all_was_saved_and_a_file_that_is_lost_later_stays_an_error(
    world: World,
) -> None:
    world.started(*NEEDED)
    world.looks(answers=True)
    assert not (world.state / MARK).exists()
    for lost in NEEDED:
        (world.state / lost).unlink()
        world.looks()
        assert world.cluster() == CLUSTER
        world.write(lost)


@pytest.mark.parametrize("saved", sorted(NEEDED))
def test_a_checkpoint_that_is_not_yet_whole_counts_as_none(world: World, saved: str) -> None:
    world.started("assoc_usage", "qos_usage", *NEEDED - {saved, "assoc_usage"})
    if saved == "assoc_usage":
        world.write("assoc_usage.old")
    world.looks()
    assert world.cluster() == (CLUSTER if saved == "assoc_usage" else "slurm_slurm")


def test_a_state_that_had_files_before_the_sidecar_first_saw_it_is_left_alone(world: World) -> None:
    (world.state / "clustername").write_text(CLUSTER)
    world.write("job_state")
    world.first_start.begin()
    world.looks()
    assert world.cluster() == CLUSTER
    assert not (world.state / MARK).exists()


@pytest.mark.parametrize(
    "trace",
    [
        "assoc_usage.old",
        "qos_usage",
        "fed_mgr_state",
        "last_tres.old",
        "assoc_mgr_state.old",
        "node_state.old",
    ],
)
def test_a_trace_of_a_file_that_is_missing_proves_a_loss(world: World, trace: str) -> None:
    world.started("job_state", trace)
    world.looks()
    assert world.cluster() == CLUSTER
    assert world.log == []


@pytest.mark.parametrize("answers", [True, None])
def test_nothing_is_done_while_slurmctld_runs_or_may(world: World, answers: bool | None) -> None:
    world.started("job_state")
    world.looks(answers, seconds=600)
    assert world.cluster() == CLUSTER


def test_slurmctld_counts_as_ended_only_after_a_while(world: World) -> None:
    world.started("job_state")
    world.looks(seconds=GONE / 2)
    assert world.cluster() == CLUSTER
    world.looks(answers=None)
    world.looks(seconds=GONE / 2)
    assert world.cluster() == CLUSTER


def test_without_accounting_the_id_stays_because_slurmctld_would_choose_another(
    world: World,
) -> None:
    world.started("job_state")
    world.looks(accounting=False)
    assert world.cluster() == CLUSTER


def test_a_damaged_clustername_stays_as_it_is_but_for_the_id(world: World) -> None:
    world.started("job_state")
    (world.state / "clustername").write_bytes(b"\xff\xfe|12")
    world.looks()
    assert (world.state / "clustername").read_bytes() == b"\xff\xfe"
    world.write(*NEEDED)
    world.looks(answers=True)
    assert (world.state / "clustername").read_bytes() == b"\xff\xfe|12"


@pytest.mark.parametrize("content", ["slurm_slurm", "slurm_slurm|", "slurm_slurm|0", "|4711", ""])
def test_a_clustername_without_an_id_stays_as_it_is(world: World, content: str) -> None:
    world.started("job_state")
    (world.state / "clustername").write_text(content)
    world.looks()
    assert world.cluster() == content


def test_the_id_comes_back_if_slurmctld_ran_without_being_seen(world: World) -> None:
    world.started("job_state")
    world.looks()
    world.write(*NEEDED)
    world.looks(answers=True)
    assert world.cluster() == CLUSTER
    assert not (world.state / MARK).exists()


def test_another_id_of_slurmdbd_is_reported(world: World) -> None:
    world.started("job_state")
    world.looks()
    (world.state / "clustername").write_text("slurm_slurm|12")
    world.write(*NEEDED)
    world.looks(answers=True)
    assert world.cluster() == "slurm_slurm|12"
    assert "'slurm_slurm|4711'" in world.log[-1]
    assert "'slurm_slurm|12'" in world.log[-1]


def test_the_mark_outlives_the_sidecar(world: World) -> None:
    world.started("job_state")
    second = World(world.state)
    second.first_start.begin()
    second.looks()
    assert second.cluster() == "slurm_slurm"


def test_a_new_volume_and_the_kept_configuration_are_no_state(world: World) -> None:
    (world.state / "lost+found").mkdir()
    (world.state / ".slurm-config").mkdir()
    world.first_start.begin()
    assert (world.state / MARK).exists()


def test_a_volume_that_can_not_be_read_is_reported_once(tmp_path: Path) -> None:
    world = World(tmp_path / "absent")
    world.first_start.begin()
    world.first_start.begin()
    assert len(world.log) == 1
    assert str(tmp_path / "absent") in world.log[0]
