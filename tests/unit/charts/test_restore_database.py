"""The two steps of the Job that restores the database: the check chooses a backup, and a shell
loads its dump.
"""

import gzip
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecars.__main__ import main
from sidecars.backup import volume
from tests.unit.backup.test_volume import NOW, made

SCRIPT = Path(__file__).parents[3] / "charts" / "slurm" / "files" / "restore-database.sh"
DAY = 86400.0


class Database:
    """A folder of backups of three days, and a program in place of MariaDB's client, which records
    what it is sent.
    """

    def __init__(self, folder: Path) -> None:
        self.volume, self._folder = folder / "backup", folder
        self.volume.mkdir()
        self.days = [made(self.volume, NOW + DAY * day, dump(day)).name for day in range(3)]
        (folder / "password").write_text("secret")
        client = folder / "bin" / "mariadb"
        client.parent.mkdir()
        client.write_text(
            f'#!/bin/sh\necho "$MYSQL_PWD $@" > {folder}/call\ncat > {folder}/loaded\n'
        )
        client.chmod(0o755)

    def restore(self, name: str = volume.LATEST, **tls: str) -> bytes | None:
        """Run both steps, the second only after the first; the dump that was loaded. `tls`: more of
        the environment.
        """
        chosen = self._folder / "chosen"
        if main(["backup", "check", f"--volume={self.volume}", f"--chosen={chosen}", name]) != 0:
            return None
        environment = {
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
            "CHOSEN_FILE": str(chosen),
            "PASSWORD_FILE": str(self._folder / "password"),
            "DATABASE_HOST": "db",
            "DATABASE_PORT": "3306",
            "DATABASE_USER": "slurm",
            "DATABASE_NAME": "acct",
            **tls,
        }
        subprocess.run(["sh", "-c", SCRIPT.read_text()], env=environment, check=True)
        options = "".join(f" --ssl-{key.split('_')[1].lower()}={it}" for key, it in tls.items())
        assert (
            self._folder / "call"
        ).read_text() == f"secret --sandbox --host=db --port=3306 --user=slurm{options} acct\n"
        return (self._folder / "loaded").read_bytes()


def dump(day: int) -> bytes:
    """The dump of that day's backup."""
    return b"INSERT INTO t VALUES (%d);\n-- Dump completed\n" % day


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path)


def set_aside(folder: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}.broken"))


def cut_description(folder: Path) -> None:
    (folder / volume.MANIFEST).write_bytes(b'{"na')


def copied(folder: Path) -> None:
    """By an administrator, under a name that sorts after all times."""
    other = folder.with_name("old-backups")
    other.mkdir()
    for name in (volume.MANIFEST, volume.DATABASE):
        (other / name).write_bytes(gzip.compress(dump(9)))


@pytest.mark.parametrize(("change", "day"), [(set_aside, 1), (cut_description, 1), (copied, 2)])
def test_the_dump_that_was_checked_is_loaded_whatever_else_is_on_the_volume(
    database: Database, change: Callable[[Path], None], day: int
) -> None:
    change(database.volume / database.days[2])
    assert database.restore() == dump(day)


def test_an_older_dump_is_loaded_by_its_name(database: Database) -> None:
    assert database.restore(database.days[0]) == dump(0)


def test_the_client_uses_tls_where_slurmdbd_does(database: Database) -> None:
    files = {"TLS_CA_FILE": "/tls/ca.crt", "TLS_CERT_FILE": "/tls/crt", "TLS_KEY_FILE": "/tls/key"}
    assert database.restore(**files) == dump(2)
    assert database.restore(TLS_CA_FILE="/tls/ca.crt") == dump(2)


def test_nothing_is_loaded_of_a_damaged_backup(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    (database.volume / database.days[2] / volume.DATABASE).write_bytes(gzip.compress(dump(7)))
    assert database.restore() is None
    assert "database.sql.gz isn't the file that was saved" in caplog.text
