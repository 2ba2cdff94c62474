"""OpenLDAP's slapd of Debian as a process of this machine, with TLS: a site's directory beside the
cluster.
"""

import contextlib
import subprocess
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import debian
from tests.support.real.harness import until_equal

BASE = "dc=example,dc=com"
READER, PASSWORD = f"cn=slurm,{BASE}", "the password of the reader"
_ADMIN, _ADMIN_PASSWORD = f"cn=admin,{BASE}", "the password of the administrator"

# `sshPublicKey` is no part of OpenLDAP's schemas; directories add it under this number.
_SCHEMA = """
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey' EQUALITY octetStringMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY
  MAY ( sshPublicKey $ uid ) )
"""


@dataclass
class Directory:
    """The files of a slapd at `address`:`port`. `start` and `stop` can alternate."""

    home: Path
    address: str
    port: int
    size_limit: str = "unlimited"
    """Entries that it gives in one answer."""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        """Over TLS."""
        return f"ldaps://{self.address}:{self.port}"

    @property
    def ca(self) -> Path:
        """The certificate that clients must trust."""
        return self.home / "ca.crt"

    def prepare(self) -> None:
        """An empty directory with a reader that has a password; nothing can be read without one."""
        (self.home / "data").mkdir(parents=True)
        certificate = (
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        )
        subject = (
            "-subj",
            "/CN=ldap",
            "-addext",
            f"subjectAltName=IP:{self.address}",
            "-days",
            "2",
        )
        files = ("-keyout", str(self.home / "key"), "-out", str(self.ca))
        subprocess.run([*certificate, *subject, *files], check=True, capture_output=True)
        root = debian.directory() / "root"
        schemas = "\n".join(
            f"include {root}/etc/ldap/schema/{name}.schema" for name in ("core", "cosine", "nis")
        )
        (self.home / "schema").write_text(_SCHEMA)
        (self.home / "conf").write_text(
            textwrap.dedent(
                f"""\
                {schemas.replace(chr(10), chr(10) + " " * 16)}
                include {self.home}/schema
                modulepath {root}/usr/lib/ldap
                moduleload back_mdb
                pidfile {self.home}/pid
                TLSCertificateFile {self.ca}
                TLSCertificateKeyFile {self.home}/key
                sizelimit {self.size_limit}
                database mdb
                suffix "{BASE}"
                rootdn "{_ADMIN}"
                rootpw "{_ADMIN_PASSWORD}"
                directory {self.home}/data
                access to attrs=userPassword by anonymous auth by * none
                access to * by dn.exact="{READER}" read by * none
                """
            )
        )

    def start(self) -> None:
        """Returns when it answers."""
        command = [
            debian.directory() / "bin" / "slapd",
            "-f",
            self.home / "conf",
            "-h",
            self.uri,
            "-d",
            "0",
        ]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", *map(str, command)], stdout=log, stderr=log
            )
        until_equal("slapd to answer", lambda: self._change("ldapwhoami").returncode, 0)

    def stop(self) -> None:
        """End it without a warning, unless it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def add(self, *entries: str) -> None:
        """Add entries, each in LDIF."""
        done = self._change(
            "ldapadd", stdin="\n\n".join(textwrap.dedent(entry).strip() for entry in entries) + "\n"
        )
        assert done.returncode == 0, done.stderr

    def remove(self, *dns: str) -> None:
        """Remove these entries."""
        done = self._change("ldapdelete", *dns)
        assert done.returncode == 0, done.stderr

    def add_base(self) -> None:
        """The top, the reader, and the folders for users and groups."""
        self.add(
            f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: "
            "Example",
            f"dn: {READER}\nobjectClass: organizationalRole\nobjectClass: "
            "simpleSecurityObject\ncn: slurm\n"
            f"userPassword: {PASSWORD}",
            f"dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people",
            f"dn: ou=groups,{BASE}\nobjectClass: organizationalUnit\nou: groups",
        )

    def _change(
        self, program: str, *words: str, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        command = [
            debian.directory() / "bin" / program,
            "-x",
            "-H",
            self.uri,
            "-D",
            _ADMIN,
            "-w",
            _ADMIN_PASSWORD,
        ]
        environment = {"LDAPTLS_CACERT": str(self.ca), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            [*map(str, command), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=environment,
        )


def user(
    name: str, uid: int, *, gid: int | None = None, keys: Iterable[str] = (), where: str = "people"
) -> str:
    """The entry of a user, in LDIF."""
    lines = [
        f"dn: uid={name},ou={where},{BASE}",
        *(f"objectClass: {it}" for it in ("account", "posixAccount", "ldapPublicKey")),
        f"uid: {name}",
        f"cn: {name.title()} of the directory",
        f"uidNumber: {uid}",
        f"gidNumber: {uid if gid is None else gid}",
        f"homeDirectory: /home/{name}",
        "loginShell: /bin/bash",
        *(f"sshPublicKey: {key}" for key in keys),
    ]
    return "\n".join(lines)


def group(name: str, gid: int, members: Sequence[str] = ()) -> str:
    """The entry of a group, in LDIF."""
    lines = [
        f"dn: cn={name},ou=groups,{BASE}",
        "objectClass: posixGroup",
        f"cn: {name}",
        f"gidNumber: {gid}",
    ]
    return "\n".join([*lines, *(f"memberUid: {it}" for it in members)])


@contextlib.contextmanager
def running(
    home: Path, address: str, port: int, size_limit: str = "unlimited"
) -> Iterator[Directory]:
    """A directory with the reader and no users, until the end of the block."""
    found = Directory(home, address, port, size_limit)
    found.prepare()
    found.start()
    try:
        found.add_base()
        yield found
    finally:
        found.stop()
