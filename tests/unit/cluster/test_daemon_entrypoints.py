"""The entrypoints of the images slurmctld and login, run by bash with programs that stand in for
the daemons.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.images import REPOSITORY
from tests.unit.cluster.test_entrypoints import lines, program, session

SLURMCTLD = REPOSITORY / "images/slurmctld/rootfs/usr/local/bin/slurmctld-entrypoint"
LOGIN = REPOSITORY / "images/login/rootfs/usr/local/bin/login-entrypoint"
LIBRARY = REPOSITORY / "images/ssh/rootfs/usr/local/lib"
FOLDERS = ("/etc", "/run", "/usr/sbin", "/usr/share", "/var/lib")


class Image:
    """A folder that has the place of the image's root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in (*FOLDERS, "/bin", "/etc/ssh", "/etc/sssd", "/etc/pam.d"):
            (root / folder[1:]).mkdir(parents=True, exist_ok=True)
        (root / "etc/pam.d/sshd").touch()
        self.puts("/bin/chown", 'echo "chown $*" >>$CALLS')
        self.puts("/bin/ssh-keygen", 'echo "ssh-keygen $*" >>$CALLS')
        self.puts("/bin/mountpoint", "exit 1")
        self.puts("/bin/id", "echo 0")
        # The options of setpriv, and then the command as it is.
        self.puts(
            "/bin/setpriv",
            'for it; do case $it in --*) as="$as $it"; shift;; *) break;; esac; done; AS=$as exec '
            '"$@"',
        )

    def puts(self, path: str, text: str) -> None:
        """A program of the image."""
        program(self.root / path[1:], f"#!/bin/bash\n{text}\n")

    def daemon(self, path: str) -> None:
        """A daemon that prints its process id, who it runs as, and its arguments."""
        self.puts(
            path,
            f'echo $$ >>$CALLS.pids; echo "{Path(path).name} as=${{AS:-root}} $(printf "[%s]" '
            '"$@")"; exec sleep 60',
        )

    @property
    def calls(self) -> list[str]:
        """What was called of the programs that do nothing else."""
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @contextlib.contextmanager
    def started(
        self, script: Path, *arguments: str, **environment: str
    ) -> Iterator[subprocess.Popen[str]]:
        """The entrypoint, until the end of the test."""
        text = script.read_text().replace("/usr/local/lib/", f"{self.library()}/")
        for folder in FOLDERS:
            text = text.replace(f"{folder}/", f"{self.root}{folder}/")
        env = {
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "CALLS": str(self.root / "calls"),
            **environment,
        }
        words = ["env", "--default-signal=INT", "bash", "-c", text, script.name, *arguments]
        with session(words, env=env) as process:
            yield process

    def library(self) -> Path:
        """The scripts that the entrypoints source."""
        folder = self.root / "library"
        folder.mkdir(exist_ok=True)
        for path in LIBRARY.glob("*.bash"):
            text = path.read_text()
            for place in ("/etc/pam.d", "/var/lib"):
                text = text.replace(place, f"{self.root}{place}")
            (folder / path.name).write_text(text)
        return folder


@pytest.fixture
def image(tmp_path: Path) -> Image:
    found = Image(tmp_path)
    for daemon in ("slurmctld", "sackd", "sshd"):
        found.daemon(f"/usr/sbin/{daemon}")
    return found


def ended(image: Image, process: subprocess.Popen[str]) -> None:
    """TERM ends the entrypoint, once all of its daemons have ended."""
    process.terminate()
    assert process.wait(60) == 0
    daemons = (image.root / "calls.pids").read_text().split()
    assert [pid for pid in daemons if Path("/proc", pid).exists()] == []


def test_slurmctld_replaces_the_shell_and_its_arguments_are_expanded_as_a_shell_would(
    image: Image,
) -> None:
    image.puts("/usr/sbin/slurmctld", 'echo $$; printf "[%s]" "$@"; echo')
    options = "-v -f '/etc/a b.conf'"
    with image.started(
        SLURMCTLD, "-i", '"$NAME"', SLURMCTLD_OPTIONS=options, NAME="x y"
    ) as process:
        assert lines(process.stdout, 2) == [
            str(process.pid),
            "[-D][-v][-f][/etc/a b.conf][-i][x y]",
        ]
        assert process.wait(60) == 0
        assert lines(process.stderr, 1) == [f"""slurmctld -D {options} -i "$NAME\""""]


@pytest.mark.parametrize(
    ("user", "calls"), [("0", ["chown slurm:slurm {}/run/slurmctld"]), ("401", [])]
)
def test_the_folder_of_slurmctlds_process_id_is_slurms_when_root_creates_it(
    image: Image, user: str, calls: list[str]
) -> None:
    image.puts("/bin/id", f"echo {user}")
    with image.started(SLURMCTLD) as process:
        assert lines(process.stdout, 1) == ["slurmctld as=root [-D]"]
        assert (image.root / "run/slurmctld").is_dir()
        assert image.calls == [call.format(image.root) for call in calls]


def test_slurmctld_is_not_started_beside_a_folder_that_it_could_not_write(image: Image) -> None:
    image.puts("/bin/chown", "echo refused >&2; exit 1")
    with image.started(SLURMCTLD) as process:
        assert process.wait(60) == 1
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_sackd_runs_as_slurm_and_sshd_with_the_configuration_of_the_image_where_none_is_mounted(
    image: Image,
) -> None:
    options = {"SACKD_OPTIONS": "--conf-server 'a b'", "SSHD_OPTIONS": "-o 'Banner none'"}
    with image.started(LOGIN, "-v", **options) as process:
        found = sorted(lines(process.stdout, 2))
        ended(image, process)
    assert found == [
        "sackd as= --reuid=slurm --regid=slurm --init-groups [-D][--conf-server][a b][-v]",
        f"sshd as=root [-D][-e][-f][{image.root}/usr/share/openssh/sshd_config][-o][Banner none]",
    ]
    assert image.calls == [f"chown slurm:slurm {image.root}/run/slurm", "ssh-keygen -A"]


def test_sshd_reads_the_configuration_and_the_host_keys_that_are_mounted(image: Image) -> None:
    for name in ("sshd_config", "ssh_host_ed25519_key"):
        (image.root / "etc/ssh" / name).touch()
    with image.started(LOGIN) as process:
        assert "sshd as=root [-D][-e]" in lines(process.stdout, 2)
        ended(image, process)
    assert "ssh-keygen -A" not in image.calls, "a key of another type would be a new identity"


@pytest.mark.parametrize("conf", [None, "", "[sssd]\n"])
def test_sssd_runs_beside_them_if_the_pod_configures_it(image: Image, conf: str | None) -> None:
    image.puts("/bin/sssd", 'echo "sssd $*" >>$CALLS; echo sssd; exec sleep 60')
    if conf is not None:
        (image.root / "etc/sssd/sssd.conf").write_text(conf)
    with image.started(LOGIN, SSSD_OPTIONS="-d 3") as process:
        found = sorted(line.partition(" ")[0] for line in lines(process.stdout, 3 if conf else 2))
        ended(image, process)
    assert found == ["sackd", "sshd", *(["sssd"] if conf else [])]
    assert [call for call in image.calls if call.startswith("sssd ")] == (
        ["sssd -i --logger=stderr -d 3"] if conf else []
    )


def test_users_can_log_in_although_the_image_has_no_sssd_for_the_configuration(
    image: Image,
) -> None:
    (image.root / "etc/sssd/sssd.conf").write_text("[sssd]\n")
    with image.started(LOGIN) as process:
        found = sorted(line.partition(" ")[0] for line in lines(process.stdout, 2))
        assert "this image has no sssd" in lines(process.stderr, 1)[0]
        ended(image, process)
    assert found == ["sackd", "sshd"]


def test_a_sackd_that_ends_is_started_again_beside_the_sessions_of_sshd(image: Image) -> None:
    image.puts(
        "/usr/sbin/sackd",
        "echo sackd; [ -e died ] || { : >died; exit 3; }; exec sleep 60".replace(
            "died", f"{image.root}/died"
        ),
    )
    with image.started(LOGIN) as process:
        assert sorted(line.partition(" ")[0] for line in lines(process.stdout, 3)) == [
            "sackd",
            "sackd",
            "sshd",
        ]
        ended(image, process)
