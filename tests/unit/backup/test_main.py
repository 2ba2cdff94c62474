"""The role's commands, as the pods of the chart run them."""

import socket
from pathlib import Path

import pytest

from sidecars.__main__ import main
from tests.unit.backup.test_state import found, names, statesave, write

DUMP = "-- Dump completed on 2026-11-24  2:30:00\n"


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    """The folders of the backups and of slurmctld's state, as options."""
    (tmp_path / "backup").mkdir()
    statesave(tmp_path / "statesave")
    return f"--volume={tmp_path / 'backup'}", f"--state={tmp_path / 'statesave'}"


def test_a_backup_is_made_listed_and_restored(
    tmp_path: Path, places: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    backups, state = places
    saved = found(tmp_path / "statesave")
    assert main(["backup", "state", backups, state, "--pod=a"]) == 0
    (tmp_path / "backup" / ".unfinished-a" / "database.sql").write_text(DUMP)
    assert main(["backup", "finish", backups, "--pod=a", "--database", "--keep=1"]) == 0
    (name,) = names(tmp_path / "backup")
    assert main(["backup", "list", backups]) == 0
    assert capsys.readouterr().out.split()[0] == name

    write(tmp_path / "statesave", {"job_state": b"lost"})
    assert main(["backup", "restore", backups, state, name]) == 0
    now = {
        path: content
        for path, content in found(tmp_path / "statesave").items()
        if not path.startswith(".")
    }
    assert now == saved


def test_only_the_database_is_saved_when_slurmctld_is_external(
    tmp_path: Path, places: tuple[str, str]
) -> None:
    backups, _ = places
    assert main(["backup", "state", backups, "--pod=a"]) == 0
    (tmp_path / "backup" / ".unfinished-a" / "database.sql").write_text(DUMP)
    assert main(["backup", "finish", backups, "--pod=a", "--database", "--keep=1"]) == 0
    (name,) = names(tmp_path / "backup")
    assert names(tmp_path / "backup" / name) == ["backup.json", "database.sql.gz"]


def test_a_backup_without_a_state_cant_restore_one(
    tmp_path: Path, places: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    test_only_the_database_is_saved_when_slurmctld_is_external(tmp_path, places)
    assert main(["backup", "restore", *places]) == 1
    assert "has no state.tar.gz" in caplog.text


def test_nothing_is_restored_while_slurmctld_answers(
    tmp_path: Path, places: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    backups, state = places
    assert main(["backup", "state", backups, state, "--pod=a"]) == 0
    assert main(["backup", "finish", backups, "--pod=a", "--keep=1"]) == 0
    before = found(tmp_path / "statesave")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["backup", "restore", backups, state, f"--stopped={address}"]) == 1
    assert f"{address} answers" in caplog.text
    assert found(tmp_path / "statesave") == before
    assert main(["backup", "restore", backups, state, f"--stopped={address}"]) == 0


def test_a_database_is_restored_from_a_whole_backup_that_has_one(
    tmp_path: Path, places: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    test_only_the_database_is_saved_when_slurmctld_is_external(tmp_path, places)
    backups, state = places
    assert main(["backup", "check", backups]) == 0
    (name,) = names(tmp_path / "backup")
    (tmp_path / "backup" / name / "database.sql.gz").write_bytes(b"damaged")
    assert main(["backup", "check", backups]) == 1
    assert "database.sql.gz isn't the file that was saved" in caplog.text
    assert main(["backup", "state", backups, state, "--pod=b"]) == 0
    (tmp_path / "backup" / name).rename(tmp_path / "damaged")
    assert main(["backup", "finish", backups, "--pod=b", "--keep=1"]) == 0
    assert main(["backup", "check", backups]) == 1
    assert "has no database.sql.gz" in caplog.text


def test_a_volume_that_is_not_there_is_named(
    tmp_path: Path, places: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["backup", "state", f"--volume={tmp_path / 'missing'}", places[1], "--pod=a"]) == 1
    assert str(tmp_path / "missing") in caplog.text


@pytest.mark.parametrize("keep", ["0", "-1"])
def test_at_least_one_backup_is_kept(
    places: tuple[str, str], capsys: pytest.CaptureFixture[str], keep: str
) -> None:
    with pytest.raises(SystemExit):
        main(["backup", "finish", places[0], "--pod=a", f"--keep={keep}"])
    assert "must be 1 or more" in capsys.readouterr().err
