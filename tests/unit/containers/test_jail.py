"""The volume with the shared roots of jobs: a version is complete or doesn't exist, and jobs see
the chosen one.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecars.containers import jail
from sidecars.containers.errors import ContainerError
from sidecars.containers.jail import ALWAYS, Volume
from sidecars.containers.mounts import SCRATCH

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """An empty one, with the permissions that some volumes of Kubernetes have."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume").chmod(0o777)
    return Volume(tmp_path / "volume", os.geteuid())


def with_file(name: str) -> Callable[[Path], str]:
    """Unpacks one file."""

    def unpack(root: Path) -> str:
        (root / name).write_text(name)
        return f"sha256:{name}"

    return unpack


def filled(volume: Volume, *names: str) -> None:
    """Complete versions, the first one the oldest."""
    with volume.locked():
        for age, name in enumerate(reversed(names)):
            volume.fill(name, f"registry/{name}", with_file(name))
            place = folder(volume) / "versions" / name
            os.utime(place, (1_000_000 - age, 1_000_000 - age))


def folder(volume: Volume) -> Path:
    return volume._folder


def versions(volume: Volume) -> list[str]:
    return sorted(item.name for item in (folder(volume) / "versions").iterdir())


def test_a_volume_without_locks_is_named_with_the_remedy(
    volume: Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(lock: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refused)
    with (
        pytest.raises(
            ContainerError, match=rf"^{tmp_path}.*/\.lock: the file system has no locks .*flock"
        ),
        volume.locked(),
    ):
        pass


def test_a_version_is_filled_once_and_only_root_can_write_to_it(volume: Volume) -> None:
    with volume.locked():
        assert volume.fill("v1", "registry/box", with_file("a"))
        assert not volume.fill("v1", "registry/box", with_file("b"))
    place = folder(volume) / "versions/v1"
    assert [item.name for item in (place / "root").iterdir()] == ["a"]
    assert volume.facts("v1") == {"source": "registry/box", "digest": "sha256:a"}
    for item in (
        folder(volume),
        folder(volume) / "versions",
        place,
        place / "root",
        place / "complete",
    ):
        assert item.stat().st_mode & 0o022 == 0, item


def test_users_outside_of_a_jail_can_not_reach_the_set_user_id_programs_of_a_version(
    volume: Volume,
) -> None:
    filled(volume, "v1")
    assert (folder(volume) / "versions").stat().st_mode & 0o777 == 0o700
    assert (folder(volume) / "versions/v1/root").stat().st_mode & 0o777 == 0o755, (
        "what jobs have as their root"
    )


def test_a_version_that_can_not_be_filled_leaves_nothing(volume: Volume) -> None:
    def unpack(root: Path) -> str:
        (root / "half").write_text("")
        raise ContainerError("no space left")

    filled(volume, "v1")
    with volume.locked():
        volume.switch("v1")
        with pytest.raises(ContainerError, match="no space left"):
            volume.fill("v2", "registry/v2", unpack)
        with pytest.raises(ContainerError, match="is empty"):
            volume.fill("v2", "registry/v2", lambda _: "sha256:a")
    assert versions(volume) == ["v1"]
    assert volume.current() == "v1"


def test_what_a_killed_process_left_is_deleted(volume: Volume) -> None:
    filled(volume, "v1")
    (folder(volume) / "versions/.v2.abc/root").mkdir(parents=True)
    with volume.locked():
        assert versions(volume) == ["v1"]


def test_a_version_of_another_source_is_not_used_under_its_name(volume: Volume) -> None:
    filled(volume, "v1")
    with (
        volume.locked(),
        pytest.raises(
            ContainerError, match=r"v1 was filled from registry/v1, and not from registry/v2"
        ),
    ):
        volume.fill("v1", "registry/v2", with_file("a"))


@pytest.mark.parametrize("text", [None, "", "{}", "[]"])
def test_a_version_that_is_not_complete_is_neither_filled_nor_seen(
    volume: Volume, text: str | None
) -> None:
    filled(volume, "v1")
    complete = folder(volume) / "versions/v1/complete"
    complete.unlink() if text is None else complete.write_text(text)
    with volume.locked():
        with pytest.raises(ContainerError, match="this version isn't complete"):
            volume.fill("v1", "registry/v1", with_file("a"))
        with pytest.raises(ContainerError, match="this version isn't complete"):
            volume.switch("v1")
    assert volume.current() is None


def test_jobs_are_switched_forth_and_back(volume: Volume) -> None:
    filled(volume, "v1", "v2")
    with volume.locked():
        assert volume.switch("v1") is None
        assert volume.switch("v2") == "v1"
        assert volume.switch("v1") == "v2"
    assert (folder(volume) / "current").readlink() == Path("versions/v1")


def test_the_oldest_versions_are_deleted_but_never_the_current_one_nor_a_protected_one(
    volume: Volume,
) -> None:
    filled(volume, "v1", "v2", "v3", "v4", "v5", "v6")
    with volume.locked():
        volume.switch("v1")
        assert volume.prune(2, {"v3"}) == ["v2", "v4"]
        assert volume.prune(2, {"v3"}) == []
    assert versions(volume) == ["v1", "v3", "v5", "v6"]


def test_the_version_that_jobs_have_just_seen_is_not_deleted_however_old_it_is(
    volume: Volume,
) -> None:
    filled(volume, "v1", "v2", "v3", "v4")
    with volume.locked():
        volume.switch("v4")
        volume.switch("v1")
        volume.switch("v1")
        volume.fill("v5", "registry/v5", with_file("a"))
        assert volume.switch("v5") == "v1"
        assert volume.prune(2, ()) == ["v2", "v3"]
    assert versions(volume) == ["v1", "v4", "v5"]


@pytest.mark.parametrize("name", ["", "none", "..", ".hidden", "-x", "a/b", "V1", "a" * 64, "v1\n"])
def test_names_that_the_plugin_does_not_know_are_refused(volume: Volume, name: str) -> None:
    with volume.locked(), pytest.raises(ContainerError, match="isn't the name of a version"):
        volume.fill(name, "registry/box", with_file("a"))


def test_mount_points_are_created_where_the_jail_has_none(volume: Volume) -> None:
    def unpack(root: Path) -> str:
        (root / "etc").mkdir()
        (root / "etc/resolv.conf").symlink_to("../run/resolv.conf")
        (root / "etc/hosts").write_text("kept")
        return "sha256:a"

    with volume.locked():
        volume.fill("v1", "registry/box", unpack)
        for _ in range(2):
            volume.prepare("v1", ["/home", "/etc/passwd", "/shared/data"])
    root = folder(volume) / "versions/v1/root"
    assert all((root / path.removeprefix("/")).exists() for path in (*ALWAYS, SCRATCH))
    assert not (root / "etc/resolv.conf").is_symlink()
    assert (root / "etc/hosts").read_text() == "kept"
    assert (root / "etc/passwd").is_file()
    assert (root / "shared/data").is_dir()


def test_sessions_get_the_mounts_of_the_last_run_and_keep_the_former_ones_when_one_fails(
    volume: Volume,
) -> None:
    listed = folder(volume) / "mounts"
    with volume.locked():
        volume.fill("v1", "registry/box", with_file("file"))
        volume.prepare("v1", ["/data"])
        volume.prepare("v1", ["/home", "/scratch"])
        with pytest.raises(ContainerError, match="can't be created in the jail"):
            volume.prepare("v1", ["/file/data"])
    assert listed.read_text() == "/home\n/scratch\n"
    assert listed.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("path", ["/link/data", "/link/../../data", "/file/data"])
def test_no_mount_point_is_created_outside_of_the_jail(
    volume: Volume, tmp_path: Path, path: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def unpack(root: Path) -> str:
        (root / "link").symlink_to(outside)
        (root / "file").write_text("")
        return "sha256:a"

    with volume.locked():
        volume.fill("v1", "registry/box", unpack)
        with pytest.raises(ContainerError, match="can't be created in the jail"):
            volume.prepare("v1", [path])
    assert list(outside.iterdir()) == []


def test_one_process_changes_the_volume_at_a_time(volume: Volume) -> None:
    done: list[str] = []

    def other() -> None:
        with volume.locked():
            done.append("other")

    with volume.locked():
        thread = threading.Thread(target=other)
        thread.start()
        volume.fill("v1", "registry/box", with_file("a"))
        done.append("first")
    thread.join(60)
    assert done == ["first", "other"]


def test_a_volume_that_is_not_mounted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="mount the volume of the jail here"):
        Volume(tmp_path / "missing")


def test_the_plugin_and_the_chart_know_the_same_mounts(volume: Volume) -> None:
    plugin = (REPOSITORY / "images/plugin/jail.c").read_text()
    listed = plugin.split("jail_always[] = {")[1].split(", NULL,")[0]
    assert tuple(part.strip().strip('"') for part in listed.split(",") if part.strip()) == ALWAYS
    template = (REPOSITORY / "charts/slurm/templates/_jail.tpl").read_text()
    assert " ".join(ALWAYS) in template
    assert jail.check("v1") == "v1"
