"""Slurm's daemons of one cluster with a slurm.conf of the test's own, as plain processes of this
host.

Needs root. Each file of tests has ten ports of its own, see `ports`; which daemon has which is in
`PORTS`.
"""

import contextlib
import secrets
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sidecars.slurm.client import Client
from sidecars.slurm.tokens import TokenSource
from tests.cluster.waiting import until
from tests.support.real import outside
from tests.support.real.harness import WILL_COME
from tests.support.real.outside import NOBODY, SLURM
from tests.support.real.processes import Processes

ADDRESS = "127.0.0.1"
PORTS = {"slurmctld": 0, "slurmrestd": 1, "slurmd": 2, "sackd": 7, "slurmdbd": 8, "mariadb": 9}
"""What is added to the first port. The first of several nodes has the port of slurmd, the next ones
the following ones.

A node without a Port in slurm.conf listens at that of sackd.
"""
ALL = "PartitionName=all Nodes=ALL Default=YES State=UP\n"
PATIENT = "MessageTimeout=60\n"
"""On a busy host, slurmctld doesn't answer within the usual 10 s."""
MEMORY = "SelectTypeParameters=CR_Core_Memory\n"
_MARIADB = (
    "mkdir -p /var/lib/mysql /run/mysqld &&"
    " MARIADB_DATABASE=acct MARIADB_USER=slurm MARIADB_PASSWORD_FILE=/etc/slurm/pw"
    " exec mariadb-entrypoint --user=root --port={port} --bind-address={address}"
)
_SLURMDBD_CONF = """\
DbdHost={host}
DbdAddr={address}
DbdPort={port}
SlurmUser=slurm
AuthType=auth/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
AuthInfo=use_client_ids
StorageType=accounting_storage/mysql
StorageHost={address}
StoragePort={storage}
StorageUser=slurm
StoragePass=pw
StorageLoc=acct
LogFile=/dev/null
PidFile=/run/slurmctld/slurmdbd.pid
"""
_CONFIGLESS = "SlurmctldParameters=enable_configless\n"


class Daemons(Processes):
    """The daemons from `port` on."""

    def __init__(self, home: Path, port: int, lines: str = ALL) -> None:
        """Starts none. `lines`: those of slurm.conf with nodes, partitions, and what differs from
        the usual ones.
        """
        super().__init__(home)
        self.first_port = port
        self.key = secrets.token_bytes(32)
        self.url = f"http://{ADDRESS}:{self.port('slurmrestd')}"
        conf = f"{outside.conf(ADDRESS, port)}{PATIENT}SlurmdPort={self.port('sackd')}\n{lines}"
        self.files = {
            "slurm.conf": conf.encode(),
            "cgroup.conf": b"CgroupPlugin=disabled\n",
            "slurm.key": secrets.token_bytes(1024),
            "jwt.key": self.key,
        }
        """What each daemon has in /etc/slurm."""

    def port(self, daemon: str) -> int:
        """That of a daemon of `PORTS`."""
        return self.first_port + PORTS[daemon]

    # --- daemons

    def slurmctld(self, files: Mapping[str, bytes] | None = None) -> None:
        """Start it, with these files as well."""
        self.add(
            "slurmctld",
            "slurmctld",
            SLURM,
            ["/usr/sbin/slurmctld", "-D"],
            {**self.files, **(files or {})},
        )

    def slurmrestd(self, *environment: str, plugins: str = "slurmctld") -> None:
        """Start it with these variables as well. `plugins`: what it serves."""
        common = (
            "SLURM_JWT=daemon",
            "SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv",
        )
        listens = f"{ADDRESS}:{self.port('slurmrestd')}"
        command = ["env", *common, *environment, "slurmrestd", "-s", plugins, listens]
        self.add("slurmrestd", "slurmrestd", NOBODY, command, self.files)

    def slurmd(
        self,
        name: str,
        *options: str,
        files: Mapping[str, bytes] | None = None,
        prepare: str = "true",
    ) -> None:
        """Start that of the node `name` with these options, after the shell script `prepare`, with
        these files as well.

        A node that slurm.conf doesn't have needs the option -Z.
        """
        own = {**self.files, **(files or {})}
        if "-Z" in options:
            own["slurm.conf"] = own["slurm.conf"].replace(_CONFIGLESS.encode(), b"")
        words = shlex.join(["/usr/sbin/slurmd", "-D", "-N", name, *options])
        # The user of a batch job reads slurm.conf.
        readable = "chmod 755 /etc/slurm; chmod 644 /etc/slurm/*.conf"
        self.add(name, "slurmd", 0, ["sh", "-euc", f"{readable}\n{prepare}\nexec {words}"], own)

    def slurmdbd(self) -> None:
        """Start MariaDB, and slurmdbd when it listens. Returns when slurmdbd listens.

        A slurmctld that uses it needs the lines `accounting`.
        """
        self.mariadb()
        self.slurmdbd_alone()
        until(lambda: self.listens("slurmdbd"), "slurmdbd to listen", WILL_COME, self.log)

    def mariadb(self, *options: str, files: Mapping[str, bytes] | None = None) -> None:
        """Start MariaDB with these options and files. Returns when it listens."""
        command = _MARIADB.format(address=ADDRESS, port=self.port("mariadb"))
        words = f"{command} {shlex.join(options)}"
        self.add("mariadb", "mariadb", 0, ["sh", "-c", words], {"pw": b"pw", **(files or {})})
        until(lambda: self.listens("mariadb"), "MariaDB to listen", WILL_COME, self.log)

    def slurmdbd_alone(self, lines: str = "", files: Mapping[str, bytes] | None = None) -> None:
        """Start slurmdbd with these lines of slurmdbd.conf and these files as well."""
        ports = {
            "address": ADDRESS,
            "port": self.port("slurmdbd"),
            "storage": self.port("mariadb"),
            "host": socket.gethostname(),
        }
        keys = {name: self.files[name] for name in ("slurm.key", "jwt.key")}
        conf = {"slurmdbd.conf": f"{_SLURMDBD_CONF.format(**ports)}{lines}".encode()}
        own = {**conf, **keys, **(files or {})}
        self.add("slurmdbd", "slurmdbd", SLURM, ["slurmdbd", "-D"], own)

    def listens(self, name: str) -> bool:
        """Whether the daemon of `PORTS` accepts connections."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((ADDRESS, self.port(name)), timeout=1),
        ):
            return True
        return False

    # --- what is inside of them

    def scontrol(self, *words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run `scontrol` as an administrator."""
        return self.run("slurmctld", "scontrol", *words, check=check)

    def client(self, user: str = "slurm") -> Client:
        """A client of slurmrestd with tokens of this user."""
        return Client(self.url, TokenSource(lambda: self.key, clock=time.time, username=user))

    def until_idle(self) -> None:
        """Wait until slurmctld answers, has nodes, and all of them are idle."""

        def idle() -> bool:
            states = self.run(
                "slurmctld", "sinfo", "--noheader", "--Node", "--format=%t"
            ).stdout.split()
            return set(states) == {"idle"}

        until(idle, "all nodes to be idle", WILL_COME, self.log)


@contextlib.contextmanager
def started(home: Path, port: int, lines: str = ALL) -> Iterator[Daemons]:
    """slurmctld, slurmrestd, and what the block adds; all end with it."""
    with contextlib.closing(Daemons(home, port, lines)) as found:
        found.slurmctld()
        found.slurmrestd()
        yield found


def nodes(port: int, names: Sequence[str], options: str) -> str:
    """The lines of slurm.conf of nodes with these options, whose slurmds are those of `Daemons`
    from `port` on.
    """
    host, first = socket.gethostname(), port + PORTS["slurmd"]
    return "".join(
        f"NodeName={name} NodeHostname={host} NodeAddr={ADDRESS} Port={first + at} {options}\n"
        for at, name in enumerate(names)
    )


def accounting(port: int) -> str:
    """The lines of slurm.conf of a slurmctld that uses the slurmdbd of `Daemons` from `port` on."""
    return (
        "AccountingStorageType=accounting_storage/slurmdbd\n"
        f"AccountingStorageHost={ADDRESS}\nAccountingStoragePort={port + PORTS['slurmdbd']}\n"
    )
