"""That a run begins clean, prints what a former one has left, and doesn't begin on a full disk or
beside another.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.waiting import until
from tests.run import place
from tests.run.processes import with_environment


def test_a_nearly_full_disk_is_named_before_anything_begins() -> None:
    with pytest.raises(
        ClusterError, match=r"the disk is nearly full:\n- 0\.5 GiB are free at .*, 1 are needed"
    ):
        place.demand_room(real=False, free=lambda _: 0.5)
    place.demand_room(real=False, free=lambda _: 2.0)
    with pytest.raises(ClusterError, match=r"2\.0 GiB are free at .*, (4|15) are needed"):
        place.demand_room(real=True, free=lambda _: 2.0)
    place.demand_room(real=True, free=lambda _: 20.0)


def test_what_a_former_run_left_is_removed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CHARTS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "file").touch()
    left = subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, "TMPDIR": str(folder)}, start_new_session=True
    )
    lines: list[str] = []
    with place.taken(folder, ["never-started"], lines.append) as environment:
        assert lines == [
            "a former run left a process: ended sleep 1000",
            f"a former run left temporary files: removed {folder}",
        ]
        assert left.wait(60) == -9
        assert environment["TMPDIR"] == str(folder)
        assert [*folder.iterdir()] == []
        (folder / "own").touch()
    assert not folder.exists()
    lines.clear()
    with place.taken(folder, [], lines.append):
        assert lines == []


def test_a_second_run_of_a_checkout_names_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with place.taken(folder, [], print):
        with (
            pytest.raises(ClusterError, match=f"in progress: process {os.getpid()}"),
            place.taken(folder, [], print),
        ):
            pass
        assert folder.exists()


def test_a_run_of_another_checkout_with_the_same_local_cluster_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CHARTS_CACHE", str(tmp_path / "cache"))
    with place.taken(tmp_path / "one", ["lane"], print):
        message = f"another run with the local cluster lane is in progress: process {os.getpid()}"
        with (
            pytest.raises(ClusterError, match=message),
            place.taken(tmp_path / "two", ["lane"], print),
        ):
            pass
        assert not (tmp_path / "two").exists()
        with place.taken(tmp_path / "two", ["other"], print):
            assert (tmp_path / "two").exists()


def test_mounts_of_a_former_run_are_those_at_or_below_its_folder(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "36 35 0:1 / /tmp/charts-1 rw - tmpfs tmpfs rw\n"
        "37 35 0:2 / /tmp/charts-1/deep/er rw - overlay overlay rw\n"
        "38 35 0:3 / /tmp/charts-12 rw - tmpfs tmpfs rw\n"
    )
    assert place.mounts(Path("/tmp/charts-1"), table) == ["/tmp/charts-1", "/tmp/charts-1/deep/er"]  # noqa: S108
    assert place.mounts(Path("/tmp/charts-1"), tmp_path / "missing") == []  # noqa: S108


def test_processes_are_known_by_their_environment() -> None:
    process = subprocess.Popen(["sleep", "1000"], env={**os.environ, "MARK": "a b"})
    try:
        until(
            lambda: with_environment("MARK=a b").get(process.pid) == "sleep 1000",
            "the process to be found",
            30,
        )
        assert with_environment("MARK=a") == {}
    finally:
        process.kill()
        process.wait()
