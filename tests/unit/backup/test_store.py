"""Copies of the backups in a store outside, here in memory. What a real one refuses is tested in
tests/integration.
"""

import json
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from sidecars.backup import store, volume
from tests.unit.backup.test_state import names
from tests.unit.backup.test_volume import NOW, made

DAY = 86400.0


@pytest.fixture
def outside() -> store.Store:
    return store.Store(MemoryStore(), "s3://bucket/slurm")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """An empty volume."""
    return lost(tmp_path / "volume")


def lost(folder: Path) -> Path:
    folder.mkdir()
    return folder


def paths(outside: store.Store) -> list[str]:
    return sorted(meta["path"] for page in obstore.list(outside.client) for meta in page)


def days(disk: Path, count: int) -> list[str]:
    """Backups of so many days in a row, the oldest first."""
    return [made(disk, NOW + DAY * day).name for day in range(count)]


def test_a_backup_is_copied_whole_and_only_once(disk: Path, outside: store.Store) -> None:
    (name,) = days(disk, 1)
    assert store.copy(disk, outside, 5) == ([name], [])
    assert paths(outside) == [f"{name}/{file}" for file in names(disk / name)]
    assert store.copy(disk, outside, 5) == ([], [])


def test_what_a_former_copy_left_undone_is_copied_too(disk: Path, outside: store.Store) -> None:
    first, second = days(disk, 2)
    obstore.put(outside.client, f"{first}/{volume.STATE}", b"half")
    assert store.complete(outside) == []
    assert store.copy(disk, outside, 5)[0] == [second, first]
    assert obstore.get(outside.client, f"{first}/{volume.STATE}").bytes() == b"state"


def test_the_store_keeps_more_than_the_volume_and_no_more_than_it_should(
    disk: Path, outside: store.Store
) -> None:
    for day in range(6):
        made(disk, NOW + DAY * day)
        volume.delete_expired(disk, 2)
        store.copy(disk, outside, 4)
    there = store.complete(outside)
    assert len(there) == 4
    assert there[-2:] == names(disk)
    assert len(paths(outside)) == 4 * 3


def test_a_store_that_keeps_fewer_than_the_volume_isnt_sent_the_others_again(
    disk: Path, outside: store.Store
) -> None:
    oldest, *newest = days(disk, 3)
    assert store.copy(disk, outside, 2) == (newest[::-1], [])
    assert store.copy(disk, outside, 2) == ([], [])
    assert oldest in names(disk)


def test_a_backup_damaged_on_the_volume_isnt_copied_and_newer_ones_are(
    disk: Path, outside: store.Store
) -> None:
    first, second = days(disk, 2)
    (disk / first / volume.STATE).write_bytes(b"other")
    with pytest.raises(volume.BackupError, match="isn't the file that was saved"):
        store.copy(disk, outside, 5)
    assert store.complete(outside) == [second]


def test_a_backup_whose_description_cant_be_read_keeps_no_other_from_the_store(
    disk: Path, outside: store.Store, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = days(disk, 2)
    (disk / first / volume.MANIFEST).write_bytes(b"")
    assert store.copy(disk, outside, 5) == ([second], [])
    assert f"{first}/backup.json can't be read" in caplog.text
    assert store.fetch(disk, outside, second, "pod") is None
    assert store.fetch(disk, outside, volume.LATEST, "pod") is None


@pytest.mark.parametrize("latest", [True, False])
def test_a_copy_in_the_store_takes_no_name_of_a_folder_whose_description_cant_be_read(
    disk: Path, outside: store.Store, *, latest: bool
) -> None:
    (name,) = days(disk, 1)
    store.copy(disk, outside, 5)
    (disk / name / volume.MANIFEST).write_bytes(b"")
    with pytest.raises(
        volume.BackupError, match=rf"{name}/backup.json can't be read .* Move the folder off"
    ):
        store.fetch(disk, outside, volume.LATEST if latest else name, "pod")
    assert names(disk) == [name]

    (disk / name).rename(disk / f"{name}.broken")
    assert store.fetch(disk, outside, volume.LATEST, "pod") == name
    assert volume.choose(disk, volume.LATEST).name == name


def test_after_the_loss_of_the_volume_the_newest_of_the_store_is_the_latest(
    disk: Path, outside: store.Store, tmp_path: Path
) -> None:
    _, newest = days(disk, 2)
    store.copy(disk, outside, 5)
    saved = volume.choose(disk, newest)
    new = lost(tmp_path / "new")
    assert store.fetch(new, outside, volume.LATEST, "pod") == newest
    assert volume.choose(new, volume.LATEST) == saved
    assert names(new) == [newest]


def test_a_backup_that_is_on_the_volume_needs_no_store(disk: Path) -> None:
    (name,) = days(disk, 1)
    unreachable = store.opened("bucket", "slurm", "http://127.0.0.1:9", "us-east-1")
    assert store.fetch(disk, unreachable, name, "pod") is None
    assert store.fetch(disk, unreachable, volume.LATEST, "pod") is None


def test_an_older_backup_is_fetched_by_its_name(disk: Path, outside: store.Store) -> None:
    old, _ = days(disk, 2)
    store.copy(disk, outside, 5)
    volume.delete_expired(disk, 1)
    assert store.fetch(disk, outside, old, "pod") == old
    assert volume.choose(disk, old).name == old


@pytest.mark.parametrize("name", ["latest", "2026-01-01T000000Z", "../other"])
def test_a_backup_that_is_nowhere_is_refused(disk: Path, outside: store.Store, name: str) -> None:
    with pytest.raises(volume.BackupError, match=r"neither .* nor s3://bucket/slurm has a backup"):
        store.fetch(disk, outside, name, "pod")
    assert names(disk) == []


def test_of_two_pods_that_bring_the_same_backup_at_once_both_have_it(
    disk: Path, outside: store.Store, tmp_path: Path
) -> None:
    (name,) = days(disk, 1)
    store.copy(disk, outside, 5)
    new = lost(tmp_path / "new")
    slow = volume.begin_copy(new, "slow")
    for file in names(disk / name):
        (slow / file).write_bytes((disk / name / file).read_bytes())
    assert store.fetch(new, outside, name, "quick") == name
    assert volume.finish_copy(new, slow, name) == volume.choose(new, name)
    assert names(new) == [name]


def changed(outside: store.Store, name: str) -> None:
    obstore.put(outside.client, f"{name}/{volume.STATE}", b"other")


def removed(outside: store.Store, name: str) -> None:
    obstore.delete(outside.client, f"{name}/{volume.STATE}")


def hostile(outside: store.Store, name: str) -> None:
    files = {"../../etc/passwd": {"size": 1, "sha256": "00"}}
    obstore.put(
        outside.client,
        f"{name}/{volume.MANIFEST}",
        json.dumps({"name": name, "files": files}).encode(),
    )


def unreadable(outside: store.Store, name: str) -> None:
    obstore.put(outside.client, f"{name}/{volume.MANIFEST}", b"[]")


@pytest.mark.parametrize("harm", [changed, removed, hostile, unreadable])
def test_a_copy_that_was_damaged_in_the_store_never_gets_a_name_on_the_volume(
    disk: Path, outside: store.Store, tmp_path: Path, harm: Callable[[store.Store, str], None]
) -> None:
    (name,) = days(disk, 1)
    store.copy(disk, outside, 5)
    harm(outside, name)
    new = lost(tmp_path / "new")
    with pytest.raises(volume.BackupError):
        store.fetch(new, outside, name, "pod")
    assert volume.backups(new) == []


def test_others_objects_in_the_store_are_left_alone(disk: Path, outside: store.Store) -> None:
    strangers = ["2026-01-01T000000Z", "notes/backup.json", "2026-01-01T000000Z/more/backup.json"]
    for path in strangers[1:]:
        obstore.put(outside.client, path, b"theirs")
    days(disk, 2)
    store.copy(disk, outside, 1)
    assert set(strangers[1:]) <= set(paths(outside))
