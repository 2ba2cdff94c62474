"""The PAM module by which sessions of ssh have the shared root of jobs, in the sshd of the login
image.
"""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.waiting import until
from tests.support.real import jailed, ports
from tests.support.real.daemons import ADDRESS, Daemons

PORT = ports.JAIL_SESSIONS
VOLUME, AT = "/var/lib/slurm-jail", "/var/lib/slurm-jail-session"
LOOK = "cat /etc/os-release"
MOUNTS = "/usr\n/home\n/etc/passwd\n/etc/group\n/srv/missing\n"
START = f"""
mount -t devpts -o ptmxmode=666,mode=620,gid=5 devpts /dev/pts
mkdir -p /run/sshd {AT} /root/.ssh
useradd --uid 2001 --create-home --shell /bin/sh alice
groupadd --gid 2002 team && usermod --append --groups team alice
ssh-keygen -q -t ed25519 -N '' -f /root/key
ssh-keygen -A
for home in /root /home/alice; do
  mkdir -p $home/.ssh
  cp /root/key.pub $home/.ssh/authorized_keys
done
cp /root/key /home/alice/key && chown -R alice /home/alice
cat >/etc/ssh/sshd_config <<'END'
Port {PORT}
ListenAddress {ADDRESS}
UsePAM yes
PerSourcePenalties no
PermitRootLogin yes
PermitUserEnvironment yes
Subsystem sftp internal-sftp
Match User *,!root
ChrootDirectory {AT}
END
sed -i 's/^\\(session *\\)required\\( *pam_loginuid.so\\)/\\1optional\\2/' /etc/pam.d/sshd
module=/usr/local/lib/slurm-containers/pam_slurm_jail.so
echo "session required $module root={VOLUME} at={AT}" >>/etc/pam.d/sshd
exec /usr/sbin/sshd -D -e
"""
OPTIONS = (
    *("-F", "none", "-i", "/root/key", "-o", "BatchMode=yes"),
    *(
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "LogLevel=ERROR",
    ),
)


@dataclass(frozen=True)
class Site:
    """A pod with sshd. `root` is its root on this machine, and `volume` the folder of the jails."""

    daemons: Daemons

    @property
    def root(self) -> Path:
        return self.daemons.root("login")

    @property
    def volume(self) -> Path:
        return self.root / VOLUME.removeprefix("/")

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command there as root."""
        return self.daemons.run("login", *words, stdin=stdin)

    def ssh(
        self, *words: str, user: str = "alice", stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Options and the command of an ssh."""
        return self.run("ssh", *OPTIONS, "-p", str(PORT), "-l", user, ADDRESS, *words, stdin=stdin)

    def fill(self, name: str) -> Path:
        """Create a complete version, and switch to it; its root."""
        root = jailed.fill(self.volume, name, f"jail {name}")
        self.switch(name)
        return root

    def switch(self, name: str) -> None:
        """Have `current` name this version."""
        (self.volume / "current").unlink(missing_ok=True)
        (self.volume / "current").symlink_to(f"versions/{name}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with closing(Daemons(tmp_path_factory.mktemp("sessions"), PORT)) as daemons:
        daemons.add("login", "login", 0, ["sh", "-euc", START], {})
        found = Site(daemons)
        until(
            lambda: found.ssh("true", user="root").returncode == 0,
            "sshd to answer",
            300,
            daemons.log,
        )
        found.volume.mkdir()
        for name in ("second", "first"):
            found.fill(name)
        (found.volume / "mounts").write_text(MOUNTS)
        yield found


@contextmanager
def moved(place: Path) -> Iterator[None]:
    """Without this file or folder."""
    place.rename(f"{place}.moved")
    try:
        yield
    finally:
        place.with_name(f"{place.name}.moved").rename(place)


def test_a_session_has_the_jail_as_its_root_and_all_groups_of_its_user(site: Site) -> None:
    done = site.ssh(
        "cat /etc/os-release; id -un; id -Gn; pwd; ls /; echo $HOME; ls /root 2>&1 || true"
    )
    release, user, groups, folder, *names, home, _ = done.stdout.splitlines()
    assert (release, user, folder, home) == ("jail first", "alice", "/home/alice", "/home/alice"), (
        done
    )
    assert set(groups.split()) == {"alice", "team"}
    assert names == [
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib64",
        "proc",
        "run",
        "sbin",
        "sys",
        "tmp",
        "usr",
        "var",
    ]


def test_a_session_with_a_terminal_is_in_the_jail(site: Site) -> None:
    done = site.ssh("-tt", f"tty; {LOOK}")
    assert done.returncode == 0, done
    *_, terminal, release = done.stdout.splitlines()
    assert terminal.startswith("/dev/pts/"), done
    assert release == "jail first"


def test_files_are_copied_from_and_to_the_jail(site: Site) -> None:
    get = site.run("scp", *OPTIONS, "-P", str(PORT), f"alice@{ADDRESS}:/etc/os-release", "/tmp/got")  # noqa: S108
    assert get.returncode == 0, get
    assert (site.root / "tmp/got").read_text() == "jail first\n"
    batch = "put /tmp/got /home/alice/put\nls /versions\n"
    sftp = site.run("sftp", *OPTIONS, "-P", str(PORT), "-b", "-", f"alice@{ADDRESS}", stdin=batch)
    assert "/versions" in sftp.stderr, sftp
    assert (site.root / "home/alice/put").read_text() == "jail first\n"


def test_what_a_user_configures_runs_in_the_jail(site: Site) -> None:
    folder = site.root / "home/alice/.ssh"
    keys = folder / "authorized_keys"
    key = keys.read_text()
    (folder / "rc").write_text("cat /etc/os-release >/home/alice/rc\n")
    (folder / "environment").write_text(f"LD_LIBRARY_PATH=/tmp\nroot=/\nat={AT}\n")
    keys.write_text(f'command="{LOOK}; echo forced" {key}')
    site.run("chown", "-R", "alice", "/home/alice/.ssh")
    try:
        assert site.ssh("true").stdout == "jail first\nforced\n"
        assert (site.root / "home/alice/rc").read_text() == "jail first\n"
    finally:
        keys.write_text(key)
        (folder / "rc").unlink()
        (folder / "environment").unlink()


def test_what_a_connection_mounts_is_not_seen_outside_of_it_and_the_next_one_has_the_new_version(
    site: Site,
) -> None:
    before = site.run("cat", "/proc/1/mountinfo").stdout
    assert site.ssh(LOOK).stdout == "jail first\n"
    site.switch("second")
    try:
        assert site.ssh(LOOK).stdout == "jail second\n"
    finally:
        site.switch("first")
    assert site.run("cat", "/proc/1/mountinfo").stdout == before


def test_set_user_id_programs_of_the_jail_have_no_effect(site: Site) -> None:
    site.run(
        "sh",
        "-c",
        f"cp /usr/bin/id {VOLUME}/versions/first/root/id; chmod 4755 "
        f"{VOLUME}/versions/first/root/id",
    )
    assert site.ssh("/id -u").stdout == "2001\n"


def refused(site: Site, reason: str) -> None:
    """No session, no copy and no forwarding, and the reason in a line."""
    for words in ((LOOK,), ("-tt", LOOK), ("-s", "sftp")):
        done = site.ssh(*words)
        assert done.returncode != 0, done
        [line] = [
            line for line in done.stdout.splitlines() if line.startswith("slurm-jail: error: ")
        ]
        assert reason in line, done
    forward = site.ssh("-W", f"{ADDRESS}:{PORT}")
    assert forward.returncode != 0
    assert "SSH-" not in forward.stdout, forward


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("current", "the jail isn't filled"),
        ("versions/first", "No such file"),
        ("versions/first/complete", "this version isn't complete"),
        ("mounts", "see the Job that fills the jail"),
    ],
)
def test_without_a_complete_jail_users_get_the_reason_and_root_gets_in(
    site: Site, path: str, reason: str
) -> None:
    with moved(site.volume / path):
        refused(site, reason)
        assert site.ssh(LOOK, user="root").stdout not in ("", "jail first\n")
    assert site.ssh(LOOK).stdout == "jail first\n"


def test_mounts_that_others_can_change_or_that_are_no_paths_are_refused(site: Site) -> None:
    mounts = site.volume / "mounts"
    mounts.chmod(0o666)
    try:
        refused(site, "it must belong to root, and no one else may write to it")
    finally:
        mounts.chmod(0o644)
    mounts.write_text("home\n")
    try:
        refused(site, "aren't absolute paths")
    finally:
        mounts.write_text(MOUNTS)


def test_without_the_module_a_user_gets_no_session(site: Site) -> None:
    rules = site.root / "etc/pam.d/sshd"
    text = rules.read_text()
    rules.write_text(
        "".join(line for line in text.splitlines(keepends=True) if "pam_slurm_jail" not in line)
    )
    try:
        done = site.ssh(LOOK)
        assert done.returncode != 0, done
        assert done.stdout == "", done
    finally:
        rules.write_text(text)
    assert site.ssh(LOOK).stdout == "jail first\n"
