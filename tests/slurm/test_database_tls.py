"""TLS to slurmdbd's database, for slurmdbd and backups, with a real slurmdbd and MariaDB."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sidecars.slurm import conf
from sidecars.workloads.accounting import slurmdbd_conf
from tests.cluster.certificates import Authority
from tests.cluster.waiting import until
from tests.support import builders
from tests.support.real import ports
from tests.support.real.daemons import ADDRESS, Daemons
from tests.support.real.harness import CHARTS, WILL_COME

TLS = {"caKeyRef": {"name": "ca", "key": "ca.crt"}, "clientSecretRef": {"name": "client"}}
STORAGE = {"host": "db", "passwordKeyRef": {"name": "p", "key": "p"}, "tls": TLS}
ENCRYPTED = (
    "--ssl-ca=/etc/slurm/ca.crt",
    "--ssl-cert=/etc/slurm/db.crt",
    "--ssl-key=/etc/slurm/db.key",
    "--require-secure-transport=ON",
)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with closing(Daemons(tmp_path / "daemons", ports.DATABASE_TLS)) as found:
        yield found


def slurmdbd(daemons: Daemons, authority: Authority) -> None:
    """Start one that trusts the authority."""
    rendered = conf.parse(slurmdbd_conf(builders.accounting(storageConfig=STORAGE), b"pw"))
    certificate, key = authority.issue("slurmdbd", "slurmdbd")
    files = {
        "database-ca.crt": authority.certificate.read_bytes(),
        "database.crt": certificate.read_bytes(),
        "database.key": key.read_bytes(),
    }
    daemons.slurmdbd_alone(f"StorageParameters={rendered.get('StorageParameters')}\n", files)


def dump(daemons: Daemons) -> subprocess.CompletedProcess[str]:
    """Save the database as a backup does."""
    script = (CHARTS / "slurm" / "files" / "backup-database.sh").read_text()
    assert script.count("/backup/.unfinished-$POD/") == 1
    where = {"HOST": ADDRESS, "PORT": daemons.port("mariadb"), "USER": "slurm", "NAME": "acct"}
    variables = (
        *(f"DATABASE_{key}={value}" for key, value in where.items()),
        "PASSWORD_FILE=/etc/slurm/pw",
        "TLS_CA_FILE=/etc/slurm/ca.crt",
    )
    words = script.replace("/backup/.unfinished-$POD/", "./")
    return daemons.run("mariadb", "env", *variables, "sh", "-c", words)


def test_slurmdbd_uses_a_database_with_a_certificate_of_its_authority_alone(
    daemons: Daemons, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path / "authority"), Authority(tmp_path / "other")
    certificate, key = authority.issue("db", "db", hosts=[ADDRESS])
    files = {
        "ca.crt": authority.certificate.read_bytes(),
        "db.crt": certificate.read_bytes(),
        "db.key": key.read_bytes(),
    }
    daemons.mariadb(*ENCRYPTED, files=files)
    slurmdbd(daemons, other)
    until(
        lambda: "mysql_real_connect failed" in daemons.log("slurmdbd"),
        "slurmdbd to refuse its database",
        WILL_COME,
        daemons.log,
    )
    assert not daemons.listens("slurmdbd")
    assert "certificate" in daemons.log("slurmdbd")
    daemons.forget("slurmdbd")
    slurmdbd(daemons, authority)
    until(lambda: daemons.listens("slurmdbd"), "slurmdbd to listen", WILL_COME, daemons.log)
    done = dump(daemons)
    assert done.returncode == 0, done


def test_a_backup_refuses_a_database_without_tls(daemons: Daemons, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    daemons.mariadb("--skip-ssl", files={"ca.crt": authority.certificate.read_bytes()})
    done = dump(daemons)
    assert done.returncode != 0, done
    assert "SSL" in done.stderr
