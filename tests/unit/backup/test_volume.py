"""The volume of the backups."""

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.backup import volume
from tests.unit.backup.test_state import names

NOW = datetime(2026, 11, 24, 2, 30, tzinfo=UTC).timestamp()
NAME = "2026-11-24T023000Z"
DUMP = b"-- MariaDB dump\nCREATE TABLE t (i INT);\n-- Dump completed on 2026-11-24  2:30:00\n"


def made(folder: Path, now: float = NOW, dump: bytes | None = DUMP) -> volume.Backup:
    """A backup as its pod writes it."""
    new = volume.begin(folder, "pod", now, 3600)
    (new / volume.STATE).write_bytes(b"state")
    if dump is not None:
        (new / volume.DUMP).write_bytes(dump)
    return volume.finish(folder, "pod", dump is not None, now)


def test_a_backup_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    backup = made(tmp_path)
    assert backup.name == NAME
    assert names(tmp_path) == [NAME]
    assert names(tmp_path / NAME) == ["backup.json", "database.sql.gz", "state.tar.gz"]
    assert gzip.decompress((tmp_path / NAME / volume.DATABASE).read_bytes()) == DUMP
    assert volume.backups(tmp_path) == [backup]


def test_a_backup_without_a_database_has_the_state_alone(tmp_path: Path) -> None:
    assert list(made(tmp_path, dump=None).files) == [volume.STATE]


@pytest.mark.parametrize("dump", [DUMP[:-30], b""])
def test_a_dump_that_was_interrupted_makes_no_backup(tmp_path: Path, dump: bytes) -> None:
    with pytest.raises(volume.BackupError, match="mariadb-dump was interrupted"):
        made(tmp_path, dump=dump)
    assert volume.backups(tmp_path) == []


def test_the_end_of_a_dump_is_found_across_the_pieces_in_which_it_is_read(tmp_path: Path) -> None:
    end = DUMP.index(b"-- Dump completed")
    content = b"x" * ((1 << 20) - 5) + DUMP[end:]
    made(tmp_path, dump=content)
    assert gzip.decompress((tmp_path / NAME / volume.DATABASE).read_bytes()) == content


def test_a_missing_dump_makes_no_backup(tmp_path: Path) -> None:
    (volume.begin(tmp_path, "pod", NOW, 3600) / volume.STATE).write_bytes(b"state")
    with pytest.raises(volume.BackupError, match="Read the log of the container `database`"):
        volume.finish(tmp_path, "pod", True, NOW)


def test_an_empty_backup_is_none(tmp_path: Path) -> None:
    volume.begin(tmp_path, "pod", NOW, 3600)
    with pytest.raises(volume.BackupError, match="contains no file"):
        volume.finish(tmp_path, "pod", False, NOW)


def test_unfinished_backups_are_deleted_when_no_pod_can_still_make_them(tmp_path: Path) -> None:
    for name, age in (("old", 3601), ("running", 3599), ("pod", 5)):
        folder = tmp_path / f".unfinished-{name}"
        folder.mkdir()
        (folder / "database.sql").write_bytes(b"half")
        os.utime(folder, (NOW - age, NOW - age))
    volume.begin(tmp_path, "pod", NOW, 3600)
    assert names(tmp_path) == [".unfinished-pod", ".unfinished-running"]
    assert names(tmp_path / ".unfinished-pod") == []


@given(st.lists(st.integers(0, 10**9), unique=True, max_size=12), st.integers(1, 9))
def test_the_newest_backups_are_kept(times: list[int], keep: int) -> None:
    names = [volume.name_at(time) for time in times]
    gone = volume.expired(names, keep)
    left = set(names) - set(gone)
    assert len(left) == min(keep, len(names))
    assert all(old < new for old in gone for new in left)


def test_only_complete_backups_are_counted_and_deleted(tmp_path: Path) -> None:
    for day in range(4):
        made(tmp_path, NOW + day * 86400)
    (tmp_path / "2020-01-01T000000Z").mkdir()
    (tmp_path / "of-the-site").write_text("kept")
    assert volume.delete_expired(tmp_path, 2) == ("2026-11-24T023000Z", "2026-11-25T023000Z")
    left = ["2020-01-01T000000Z", "2026-11-26T023000Z", "2026-11-27T023000Z", "of-the-site"]
    assert names(tmp_path) == left


def test_a_backup_is_chosen_by_its_name_or_as_the_newest(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path, NOW + 60)
    assert volume.choose(tmp_path, first.name) == first
    assert volume.choose(tmp_path, "latest") == second


def test_an_unknown_backup_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(volume.BackupError, match="The newest there: none"):
        volume.choose(tmp_path, "latest")
    made(tmp_path)
    with pytest.raises(volume.BackupError, match=f"no backup `x`. The newest there: {NAME}"):
        volume.choose(tmp_path, "x")


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(b"State"), lambda path: path.unlink()]
)
def test_a_file_that_was_changed_is_refused(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    made(tmp_path)
    damage(tmp_path / NAME / volume.STATE)
    with pytest.raises(volume.BackupError, match=r"state.tar.gz isn't the file that was saved"):
        volume.choose(tmp_path, "latest")


UNREADABLE = ["", "[]", "{}", '{"files": {"a": {}}}', '{"files": []}', '{"name": "2026']


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_backup_whose_description_cant_be_read_is_refused_by_its_name(
    tmp_path: Path, text: str
) -> None:
    made(tmp_path)
    made(tmp_path, NOW + 60)
    (tmp_path / NAME / volume.MANIFEST).write_text(text)
    with pytest.raises(
        volume.BackupError, match=rf"{NAME}/backup.json can't be read .* Move the folder off"
    ):
        volume.choose(tmp_path, NAME)


@pytest.mark.parametrize("text", UNREADABLE)
@pytest.mark.parametrize("day", [0, 2])
def test_a_backup_whose_description_cant_be_read_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, day: int
) -> None:
    sound = [made(tmp_path, NOW + 86400), made(tmp_path, NOW + 2 * 86400)]
    unreadable = made(tmp_path, NOW + (day + day // 2) * 86400).name
    (tmp_path / unreadable / volume.MANIFEST).write_text(text)
    assert volume.choose(tmp_path, "latest") == sound[1]
    assert f"{unreadable}/backup.json can't be read" in caplog.text
    assert volume.choose(tmp_path, sound[0].name) == sound[0]
    assert volume.backups(tmp_path) == sound
    assert volume.delete_expired(tmp_path, 2) == ()
    assert volume.delete_expired(tmp_path, 1) == (sound[0].name,)
    assert names(tmp_path) == sorted([sound[1].name, unreadable])


def test_a_description_that_is_a_folder_is_skipped_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sound = made(tmp_path)
    (tmp_path / "2026-11-25T023000Z" / volume.MANIFEST).mkdir(parents=True)
    assert volume.choose(tmp_path, "latest") == sound
    assert "2026-11-25T023000Z/backup.json can't be read" in caplog.text


def test_the_description_lists_sizes_and_digests(tmp_path: Path) -> None:
    made(tmp_path, dump=None)
    described = json.loads((tmp_path / NAME / volume.MANIFEST).read_text())
    assert described["name"] == NAME
    assert described["files"]["state.tar.gz"]["size"] == len(b"state")
    assert described["files"]["state.tar.gz"]["sha256"] == hashlib.sha256(b"state").hexdigest()
