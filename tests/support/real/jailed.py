"""slurmctld and a slurmd whose jobs have a shared root, outside of the Kubernetes cluster."""

import contextlib
import json
import secrets
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cluster.waiting import until
from tests.support.real import outside

ADDRESS = "127.0.0.1"
VOLUME = "/var/lib/slurm-jail"
PLUGIN = "/usr/local/lib/slurm-containers/slurm_jail.so"
USER = 2001
_SECONDS = 120

_NODE = """\
NodeName={node} NodeHostname={host} NodeAddr={address} CPUs=1 State=UNKNOWN
"""
_START = f"""\
mount -t sysfs sysfs /sys
useradd --create-home --uid={USER} alice
chmod 644 /etc/slurm/*.conf
mkdir -p /run/slurm
exec slurmd -D -N worker
"""

_FORGED = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <slurm/slurm.h>

/* srun calls it to create a step. The request contains a slurm_step_id_t, whose place no header names. */
int slurm_job_step_create(uint32_t *request, void **answer)
{
	int (*create)(uint32_t *, void **) = (int (*)(uint32_t *, void **))dlsym(RTLD_NEXT, "slurm_job_step_create");

	for (int word = 40; word < 60; word++) {
		if (request[word] && request[word] < 100000 && request[word + 1] == NO_VAL && request[word + 2] == NO_VAL) {
			request[word + 2] = SLURM_BATCH_SCRIPT;
			return create(request, answer);
		}
	}
	abort();
}
"""


def forged(home: Path) -> Path:
    """A library with which an srun that preloads it gives its step the number of a batch script. Needs root."""
    return outside.compiled(home, "forged", _FORGED)


def fill(volume: Path, name: str, release: str) -> Path:
    """Create a complete version on the volume with an os-release of its own. It needs the worker's /usr; its root."""
    version = volume / "versions" / name
    root = version / "root"
    (root / "etc").mkdir(parents=True)
    for link in ("bin", "lib", "lib64", "sbin"):
        (root / link).symlink_to(f"usr/{link}")
    (root / "etc/os-release").write_text(f"{release}\n")
    (version / "complete").write_text(json.dumps({"digest": "sha256:0"}))
    return root


class JailedSlurm:
    """The daemons. `root` is the root of the worker on this machine, and `volume` the folder of the jails."""

    def __init__(self, home: Path, root: Path, process: "subprocess.Popen[bytes]") -> None:
        """Both run."""
        self._home = home
        self.root = root
        self.volume = root / VOLUME.removeprefix("/")
        self._process = process

    def plugstack(self, *words: str) -> None:
        """Have plugstack.conf load the plugin with these words more. The next step reads it."""
        line = f"required {PLUGIN} root={VOLUME} {' '.join(words)}\n"
        (self.root / "etc/slurm/plugstack.conf").write_text(line)

    def fill(self, name: str, release: str) -> Path:
        """Create a complete version with an os-release of its own. It needs the worker's /usr; its root."""
        return fill(self.volume, name, release)

    def switch(self, target: str) -> None:
        """Have `current` name this."""
        link = self.volume / "current"
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def run(self, *words: str, user: int = USER, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command on the worker as this user, in /tmp."""
        child = _child(self._process.pid)
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "env", "--chdir=/tmp")
        enter = ("nsenter", f"--target={child}", "--mount", "--pid", f"--root=/proc/{child}/root")
        done = subprocess.run([*enter, *become, *words], capture_output=True, text=True, check=False, timeout=_SECONDS)
        assert not check or done.returncode == 0, done
        return done

    def log(self) -> str:
        """The logs of both."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._home.glob("*/log")))


@contextlib.contextmanager
def running(home: Path, port: int) -> Iterator[JailedSlurm]:
    """slurmctld at `port` and slurmd at the next one, until the end of the block."""
    conf = outside.conf(ADDRESS, port).replace("SlurmdPort=6818", f"SlurmdPort={port + 1}")
    conf = conf.replace("SlurmdLogFile=/var/log/slurm/slurmd.log\n", "")
    conf += _NODE.format(node="worker", host=socket.gethostname(), address=ADDRESS)
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    files = {"slurm.conf": conf.encode(), "cgroup.conf": b"CgroupPlugin=disabled\n", **keys}
    line = {"plugstack.conf": f"required {PLUGIN} root={VOLUME}\n".encode()}
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            outside.daemon(home / "slurmctld", "slurmctld", outside.SLURM, files, ["/usr/sbin/slurmctld", "-D"])
        )
        start: Sequence[str] = ["sh", "-euc", _START]
        process = stack.enter_context(outside.daemon(home / "slurmd", "slurmd", 0, files | line, start))
        until(lambda: bool(_child(process.pid)), "slurmd to start", _SECONDS)
        root = Path(f"/proc/{_child(process.pid)}/root")
        found = JailedSlurm(home, root, process)

        def is_idle() -> bool:
            return found.run("sinfo", "-h", "-o%t", check=False).stdout.strip() == "idle"

        until(is_idle, "the worker to be idle", _SECONDS, found.log)
        yield found


def _child(pid: int) -> str:
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return found[0] if found else ""
    return ""
