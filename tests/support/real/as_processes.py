"""The daemons of a `rendered.Release` as plain processes, with login node, database and workers,
instead of pods.

Each has the files of its image, a hostname, and a mount and a process namespace of its own, as a
container has. Needs root.
"""

import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sidecars.contract import manifest, podfiles
from tests.support.real import outside
from tests.support.real.gate import Gate
from tests.support.real.harness import WILL_COME, CommandError, until
from tests.support.real.processes import Processes
from tests.support.real.rendered import ADDRESS, PASSWORD, Release, shell

SLURMCTLD, SLURMDBD, MARIADB, LOGIN = (
    "slurm-controller-0",
    "slurm-accounting-0",
    "slurm-mariadb-0",
    "login",
)
STATE = "/var/spool/slurmctld"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWNER_OF_DATA = 402
"""The user of MariaDB's pod."""

PID = "/run/daemon"
"""A file with the process of the daemon."""

# A daemon that executes itself again, when slurmctld reconfigures, forgets by whose death it was to
# die.
_FIRST = f"""\
({{script}}) &
echo $! >{PID}
wait $!
"""
_BEGIN = """\
hostname {name}
echo {name} >/etc/hostname
echo {hosts} >>/etc/hosts
mount -t sysfs sysfs /sys
mkdir -p /run/slurm /var/log/slurm
"""
_WITHOUT_RIGHTS = (
    "exec setpriv --reuid={user} --regid={user} --clear-groups --bounding-set=-all --no-new-privs"
)
_AS_SLURM = _WITHOUT_RIGHTS.format(user=outside.SLURM)
_RUN = "chown -R slurm:slurm /run\n"
_SLURMCTLD = f"""\
mkdir -p {STATE}/{{cluster}} /run/slurmctld
chown -R slurm:slurm {STATE} /etc/slurm /run/slurmctld /var/log/slurm
{_AS_SLURM} slurmctld-entrypoint
"""
_AGAIN = """\
while true; do
({script}) || true
sleep 1
done
"""
"""As the kubelet starts slurmctld again, and the image's entrypoint slurmd."""
_SLURMDBD = f"""\
mkdir -p {{folder}}
chown -R slurm:slurm /etc/slurm /run/slurm {{folder}}
{_AS_SLURM} slurmdbd -D
"""
_SLURMRESTD = f"""\
chown -R {outside.NOBODY}:{outside.NOBODY} /etc/slurm
{_WITHOUT_RIGHTS.format(user=outside.NOBODY)} env {{environment}} slurmrestd {{arguments}}
"""
_MARIADB = f"""\
mkdir -p /var/lib/mysql /run/mysqld
chown -R {OWNER_OF_DATA}:{OWNER_OF_DATA} /etc/slurm /var/lib/mysql /run/mysqld
{_WITHOUT_RIGHTS.format(user=OWNER_OF_DATA)} env {{environment}} \
  MARIADB_PASSWORD_FILE=/etc/slurm/password \
  mariadb-entrypoint --port={{port}} --bind-address={ADDRESS}
"""
_SLURMD = f"""\
mkdir -p /var/spool/slurmd /run/slurm-oci {podfiles.FOLDER}
chmod 1733 /run/slurm-oci
(cd /etc/slurm && mv {podfiles.CONF} {podfiles.EXTRA} {podfiles.INSTANCE_ID} {podfiles.FOLDER}/)
{{prepare}}
"""
_SLURMD_STARTS = """\
export SLURMD_OPTIONS={arguments}
exec env {environment} slurmd-start
"""
_SACKD = f"""\
chown -R slurm:slurm /run/slurm /etc/slurm
{{prepare}}
exec setpriv --reuid=slurm --regid=slurm --init-groups \
  /usr/sbin/sackd -D --conf-server={ADDRESS}:{{port}}
"""
_OUTSIDE = """\
mkdir -p /var/spool/slurmd
exec /usr/sbin/slurmd -D -Z --conf-server={server} --conf={conf}
"""


@dataclass(frozen=True)
class Container:
    """A daemon before its start: the shell text that becomes it, and what it finds in /etc/slurm
    and elsewhere.
    """

    image: str
    script: str
    files: Mapping[str, bytes]
    folders: Mapping[str, Path] | None = None


class Daemons(Processes):
    """All of them, until `running` ends."""

    def __init__(self, home: Path, release: Release, others: Sequence[str] = ()) -> None:
        """Starts none. `others`: names of hosts that each daemon finds as well."""
        super().__init__(home)
        self.release = release
        self._hosts = " ".join([ADDRESS, *release.host_names, LOGIN, *others])

    def begin(self, name: str, container: Container, hostname: str = "") -> None:
        """Start the daemon `name` of this container, with that or another hostname."""
        text = _BEGIN.format(name=hostname or name, hosts=self._hosts) + container.script
        command = ("unshare", "--uts", "sh", "-euc", _FIRST.format(script=text))
        self.add(name, container.image, 0, command, container.files, container.folders)

    def ask_to_end(self, name: str) -> None:
        """Ask the daemon `name` to end. Returns when it has, and forgets it."""
        self.output(name, "sh", "-c", f"kill -TERM $(cat {PID})")
        until(f"{name} to end", lambda: not self.runs(name))
        self.forget(name)

    @property
    def url(self) -> str:
        """Where slurmrestd answers."""
        return f"http://{ADDRESS}:{self.release.ports.slurmrestd}"

    @property
    def jwt_key(self) -> bytes:
        """The key that signs Slurm's tokens."""
        return self.release.keys[manifest.JWT_KEY]

    def output(
        self, place: str, *words: str, stdin: str | None = None, timeout: float = WILL_COME
    ) -> str:
        """Standard output of a command of root, where the daemon of this name runs. Raises
        CommandError.
        """
        there = ("env", "--chdir=/", f"PATH={PATH}", "HOME=/root")
        done = self.run(place, *there, *words, stdin=stdin or "", seconds=timeout)
        if done.returncode != 0:
            raise CommandError(
                f"{' '.join(words[:8])}: rc {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def login(self, *words: str, stdin: str | None = None, timeout: float = WILL_COME) -> str:
        """Run a command on the login node."""
        return self.output(LOGIN, *words, stdin=stdin, timeout=timeout)

    def job(self, number: int) -> dict[str, str]:
        """`scontrol show job` as fields."""
        text = self.login("scontrol", "-o", "show", "job", str(number))
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def assert_running(self) -> None:
        """Fail if a daemon has ended."""
        ended = self.ended()
        assert not ended, f"{ended} ended\n{self.logs()}"

    def until_idle(self) -> None:
        """Wait until Slurm has all workers, idle."""
        workers = {it["spec"]["hostname"]: "idle" for it in self.release.pods}

        def states() -> dict[str, str]:
            self.assert_running()
            lines = self.login("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
            return dict(line.split() for line in lines)

        until("the workers to be idle", states, is_it=lambda found: found == workers)

    def logs(self) -> str:
        """The end of each log."""
        found = [*self.home.glob("*/log"), *self.home.glob("*/upper/var/log/slurm/*.log")]
        return "\n".join(f"{it}:\n{it.read_text(errors='replace')[-3000:]}" for it in sorted(found))


@contextmanager
def running(
    home: Path,
    release: Release,
    *,
    prepare: str = "",
    folders: Mapping[str, Path] | None = None,
    gate: Gate | None = None,
    again: bool = False,
    others: Sequence[str] = (),
    login_folders: Mapping[str, Path] | None = None,
) -> Iterator[Daemons]:
    """The daemons, with all workers idle.

    Workers and login node run the shell text `prepare` before their daemon. Workers share `folders`
    of this host by the paths at which they have them, and the login node has `login_folders`.
    slurmctld gets its configuration through the `gate`, if one is given. With `again`, slurmctld
    and slurmd are started again when they end. All find the hosts `others`, which the block begins.
    """
    slurm_key = _slurm_key(release)
    with closing(Daemons(home, release, others)) as found:
        start = found.begin

        if release.storage is not None:
            # slurmdbd waits for its database, and slurmctld for slurmdbd.
            start(MARIADB, _mariadb(release))
            text = _SLURMDBD.format(folder=release.archive)
            start(
                SLURMDBD,
                Container(
                    "slurmdbd", text, {**release.keys, "slurmdbd.conf": release.slurmdbd_conf}
                ),
            )

        def kept(script: str) -> str:
            return _AGAIN.format(script=script) if again else script

        slurmctld = kept(_SLURMCTLD.format(cluster=release.controller.cluster_name))
        if gate is None:
            start(SLURMCTLD, Container("slurmctld", slurmctld, {**release.files, **release.keys}))
        else:
            gate.publish(release)
            start(
                "check",
                Container("slurmctld", f"{_RUN}{_AS_SLURM} {gate.check}", {}, gate.of_check),
                SLURMCTLD,
            )
            text = f"{_AS_SLURM} env {gate.environment} slurm-sidecars reconfigure"
            start("reconfigure", Container("sidecars", text, {}, gate.of_reconfigure), SLURMCTLD)

            def has_started() -> bool:
                found.assert_running()
                return gate.has_started()

            until("slurmctld to have its configuration", has_started)
            start(SLURMCTLD, Container("slurmctld", slurmctld, {}, gate.of_slurmctld))
        rest = release.slurmrestd
        text = _SLURMRESTD.format(environment=rest.environment, arguments=rest.arguments)
        start("slurmrestd", Container("slurmrestd", text, {**release.files, **slurm_key}))
        for number, pod in enumerate(release.pods):
            with tempfile.TemporaryDirectory() as folder:
                written = release.registration(pod, number, Path(folder))
            slurmd = release.slurmd(pod)
            begin = _SLURMD.format(prepare=prepare)
            text = begin + kept(
                _SLURMD_STARTS.format(arguments=slurmd.arguments, environment=slurmd.environment)
            )
            start(
                pod["spec"]["hostname"],
                Container(slurmd.image, text, {**written, **slurm_key}, folders),
            )
        start(LOGIN, replace(login_host(release, prepare), folders=login_folders))
        try:
            found.until_idle()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{found.logs()}") from error
        yield found


def login_host(release: Release, prepare: str = "") -> Container:
    """A host whose sackd has the key of the cluster, and nothing else."""
    text = _SACKD.format(prepare=prepare, port=release.ports.slurmctld)
    return Container("login", text, _slurm_key(release))


def outside_worker(release: Release, conf: str) -> Container:
    """A host whose slurmd has the key of the cluster, and nothing else, with these fields of its
    node.
    """
    server = f"{ADDRESS}:{release.ports.slurmctld}"
    text = _OUTSIDE.format(server=server, conf=shlex.quote(conf))
    return Container("slurmd", text, _slurm_key(release))


def _slurm_key(release: Release) -> dict[str, bytes]:
    return {manifest.SLURM_KEY: release.keys[manifest.SLURM_KEY]}


def _mariadb(release: Release) -> Container:
    storage = release.storage
    assert storage is not None
    environment = shell({"MARIADB_DATABASE": storage.database, "MARIADB_USER": storage.username})
    text = _MARIADB.format(environment=environment, port=release.ports.mariadb)
    return Container("mariadb", text, {"password": PASSWORD})
