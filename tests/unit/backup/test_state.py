"""Copies of slurmctld's StateSaveLocation, and the way back."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from sidecars.backup import state


def unexpected(_: float) -> None:
    raise AssertionError("nothing changes meanwhile, so nothing is repeated")


def statesave(folder: Path) -> dict[str, bytes]:
    """A state as slurmctld writes it: names and contents."""
    files = {
        "clustername": b"slurm_slurm 4711\n",
        "job_state": b"jobs",
        "job_state.old": b"former jobs",
        "node_state": b"nodes",
        "hash.7/job.17/script": b"#!/bin/sh\n",
        "hash.7/job.17/environment": b"A=1\0",
    }
    write(folder, files)
    return files


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as stream:
        return {
            member.name: reader.read()
            for member in stream
            if (reader := stream.extractfile(member))
        }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def found(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_all_files_are_copied_those_of_the_jobs_last(tmp_path: Path) -> None:
    files = statesave(tmp_path / "statesave")
    assert state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected) == len(files)
    assert contents(tmp_path / "a.tar.gz") == files
    assert [name.startswith("hash.") for name in contents(tmp_path / "a.tar.gz")] == [False] * 4 + [
        True
    ] * 2


def test_files_that_are_being_written_links_and_what_a_restore_has_left_are_not_copied(
    tmp_path: Path,
) -> None:
    source = tmp_path / "statesave"
    files = statesave(source)
    write(
        source,
        {
            "job_state.new": b"half",
            ".replaced-1/job_state": b"x",
            ".incoming/job_state": b"y",
            "lost+found/1": b"",
        },
    )
    (source / "link").symlink_to("/etc/passwd")
    (source / "hash.7" / "link").symlink_to("/etc/passwd")
    state.save(source, tmp_path / "a.tar.gz", unexpected)
    assert contents(tmp_path / "a.tar.gz") == files


def test_a_file_that_slurmctld_is_just_replacing_is_waited_for(tmp_path: Path) -> None:
    source = tmp_path / "statesave"
    files = statesave(source)
    (source / "job_state").unlink()
    pauses = []

    def written(seconds: float) -> None:
        pauses.append(seconds)
        (source / "job_state").write_bytes(files["job_state"])

    state.save(source, tmp_path / "a.tar.gz", written)
    assert contents(tmp_path / "a.tar.gz") == files
    assert pauses == [state.PAUSE_SECONDS]


def test_a_backup_with_the_script_of_a_first_job_waits_until_slurmctld_has_written_the_job(
    tmp_path: Path,
) -> None:
    source = tmp_path / "statesave"
    files = statesave(source)
    for name in ("job_state", "job_state.old"):
        (source / name).unlink(missing_ok=True)
    pauses: list[float] = []

    def written(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) > 5:
            (source / "job_state").write_bytes(files["job_state"])

    state.save(source, tmp_path / "a.tar.gz", written)
    assert contents(tmp_path / "a.tar.gz")["job_state"] == files["job_state"]


def test_a_slurmctld_that_never_had_a_job_needs_no_file_of_jobs(tmp_path: Path) -> None:
    source = tmp_path / "statesave"
    source.mkdir()
    (source / "assoc_usage").write_bytes(b"usage")
    state.save(source, tmp_path / "a.tar.gz", unexpected)
    assert contents(tmp_path / "a.tar.gz") == {"assoc_usage": b"usage"}


def test_a_state_that_stays_without_a_file_is_no_backup(tmp_path: Path) -> None:
    statesave(tmp_path / "statesave")
    (tmp_path / "statesave" / "job_state").unlink()
    pauses: list[float] = []
    with pytest.raises(state.StateError, match="statesave/job_state was missing"):
        state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", pauses.append)
    assert len(pauses) == state.ATTEMPTS - 1


def test_the_file_without_which_slurmctld_would_not_start_is_waited_for(tmp_path: Path) -> None:
    pauses = []

    def written(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) >= state.CHECKPOINT_SECONDS:
            (tmp_path / "assoc_usage").write_bytes(b"usage")

    state.until_complete(tmp_path, written)
    assert sum(pauses) == state.CHECKPOINT_SECONDS


def test_a_slurmctld_that_never_writes_all_of_its_state_is_reported(tmp_path: Path) -> None:
    with pytest.raises(state.StateError, match=r"hasn.t written .*/assoc_usage for 331 s"):
        state.until_complete(tmp_path, lambda _: None)


def test_an_empty_folder_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "statesave").mkdir()
    with pytest.raises(state.StateError, match="contains no state of slurmctld"):
        state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected)


def test_a_restore_replaces_all_files_and_keeps_the_former_ones(tmp_path: Path) -> None:
    files = statesave(tmp_path / "statesave")
    state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected)
    target = tmp_path / "target"
    former = {
        "clustername": b"slurm_slurm 4711\n",
        "job_state": b"newer",
        "hash.1/job.1/script": b"other",
    }
    write(target, former)

    replaced = state.restore(tmp_path / "a.tar.gz", target, "2026-11-24T023000Z")

    assert replaced == target / ".replaced-2026-11-24T023000Z"
    assert found(replaced) == former
    assert found(target) == files | {
        f"{replaced.name}/{name}": content for name, content in former.items()
    }


def test_a_restore_to_an_empty_volume_replaces_nothing(tmp_path: Path) -> None:
    files = statesave(tmp_path / "statesave")
    state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected)
    (tmp_path / "target" / "lost+found").mkdir(parents=True)
    assert state.restore(tmp_path / "a.tar.gz", tmp_path / "target", "1") is None
    assert found(tmp_path / "target") == files


@pytest.mark.parametrize("renames", range(1, 8))
def test_a_restore_that_is_killed_and_repeated_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    files = statesave(tmp_path / "statesave")
    state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected)
    target = tmp_path / "target"
    former = {
        "clustername": b"slurm_slurm 4711\n",
        "job_state": b"newer",
        "node_state": b"n",
        "last_conf_lite": b"l",
    }
    write(target, former)
    left = [renames]

    class Killed(BaseException):
        pass

    rename = Path.rename

    def counted(path: Path, to: Path) -> Path:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", counted)
        with pytest.raises(Killed):
            state.restore(tmp_path / "a.tar.gz", target, "1")
    state.restore(tmp_path / "a.tar.gz", target, "2")

    assert {
        name: content for name, content in found(target).items() if not name.startswith(".")
    } == files
    kept = {path.read_bytes() for path in target.glob(".replaced-*/*") if path.is_file()}
    assert set(former.values()) <= kept


def test_the_state_of_another_cluster_is_refused_before_anything_is_replaced(
    tmp_path: Path,
) -> None:
    statesave(tmp_path / "statesave")
    state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected)
    former = {"clustername": b"other 12\n", "job_state": b"newer"}
    write(tmp_path / "target", former)
    with pytest.raises(state.StateError, match=r"of the cluster `slurm_slurm`, and .* of `other`"):
        state.restore(tmp_path / "a.tar.gz", tmp_path / "target", "1")
    assert found(tmp_path / "target") == former


def test_a_damaged_archive_replaces_nothing(tmp_path: Path) -> None:
    statesave(tmp_path / "statesave")
    (tmp_path / "statesave" / "job_state").write_bytes(os.urandom(100_000))
    state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected)
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[: len(content) // 2])
    former = {"job_state": b"newer"}
    write(tmp_path / "target", former)
    with pytest.raises(state.StateError, match="can't be unpacked"):
        state.restore(tmp_path / "a.tar.gz", tmp_path / "target", "1")
    assert found(tmp_path / "target") == former


def test_an_archive_with_a_damaged_block_replaces_nothing(tmp_path: Path) -> None:
    statesave(tmp_path / "statesave")
    (tmp_path / "statesave" / "job_state").write_bytes(os.urandom(100_000))
    state.save(tmp_path / "statesave", tmp_path / "a.tar.gz", unexpected)
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[:20] + b"\xff" * 50_000 + content[50_020:])
    former = {"job_state": b"newer"}
    write(tmp_path / "target", former)
    with pytest.raises(state.StateError, match="can't be unpacked"):
        state.restore(tmp_path / "a.tar.gz", tmp_path / "target", "1")
    assert found(tmp_path / "target") == former


def test_an_archive_that_tar_has_made_of_the_folder_is_restored_with_modes_and_times(
    tmp_path: Path,
) -> None:
    files = statesave(tmp_path / "statesave")
    script = tmp_path / "statesave" / "hash.7" / "job.17" / "script"
    script.chmod(0o4766)
    os.utime(script, (1_700_000_000, 1_700_000_000))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "statesave", arcname=".")
    target = tmp_path / "target"
    target.mkdir()
    assert state.restore(tmp_path / "a.tar.gz", target, "1") is None
    assert found(target) == files
    restored = (target / "hash.7" / "job.17" / "script").stat()
    assert (restored.st_mode & 0o7777, restored.st_mtime) == (0o744, 1_700_000_000)


def outside(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = 1
    return member


def link(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("job_state")
    member.type, member.linkname = kind, "../outside"
    return member


@pytest.mark.parametrize(
    "member",
    [
        outside("../outside"),
        outside("hash.1/../../../outside"),
        outside("/outside-of-the-volume"),
        link(tarfile.SYMTYPE),
        link(tarfile.LNKTYPE),
        link(tarfile.CHRTYPE),
        link(tarfile.FIFOTYPE),
    ],
    ids=["above", "above a folder", "absolute", "link", "hard link", "device", "pipe"],
)
def test_an_archive_can_write_nothing_outside_of_the_volume_and_no_links(
    tmp_path: Path, member: tarfile.TarInfo
) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.addfile(member, io.BytesIO(b"x"))
    write(tmp_path, {"outside": b"former"})
    former = {"job_state": b"newer"}
    write(tmp_path / "target", former)
    with pytest.raises(state.StateError, match="can't be unpacked"):
        state.restore(tmp_path / "a.tar.gz", tmp_path / "target", "1")
    assert found(tmp_path / "target") == former
    assert (tmp_path / "outside").read_bytes() == b"former"
    assert not Path("/outside-of-the-volume").exists()
