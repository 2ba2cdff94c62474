"""slurmctld and a slurmd whose jobs have a shared root, outside of the Kubernetes cluster."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.real import daemons, outside
from tests.support.real.daemons import ALL, Daemons

VOLUME = "/var/lib/slurm-jail"
PLUGIN = "/usr/local/lib/slurm-containers/slurm_jail.so"
USER = 2001
WORKER = "worker"

_PREPARE = f"""\
mount -t sysfs sysfs /sys
useradd --create-home --uid={USER} alice
mkdir -p /run/slurm
"""

_FORGED = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <slurm/slurm.h>

/* srun calls it to create a step. The request contains a slurm_step_id_t, whose place no header
   names. */
int slurm_job_step_create(uint32_t *request, void **answer)
{
	int (*create)(uint32_t *, void **) =
		(int (*)(uint32_t *, void **))dlsym(RTLD_NEXT, "slurm_job_step_create");

	for (int word = 40; word < 60; word++) {
		if (request[word] && request[word] < 100000 && request[word + 1] == NO_VAL &&
			request[word + 2] == NO_VAL) {
			request[word + 2] = SLURM_BATCH_SCRIPT;
			return create(request, answer);
		}
	}
	abort();
}
"""


def forged(home: Path) -> Path:
    """A library with which an srun that preloads it gives its step the number of a batch script.
    Needs root.
    """
    return outside.compiled(home, "forged", _FORGED)


def fill(volume: Path, name: str, release: str) -> Path:
    """Create a complete version on the volume with an os-release of its own. It needs the worker's
    /usr; its root.
    """
    version = volume / "versions" / name
    root = version / "root"
    (root / "etc").mkdir(parents=True)
    for link in ("bin", "lib", "lib64", "sbin"):
        (root / link).symlink_to(f"usr/{link}")
    (root / "etc/os-release").write_text(f"{release}\n")
    (version / "complete").write_text(json.dumps({"digest": "sha256:0"}))
    return root


class JailedSlurm:
    """The daemons. `root` is the root of the worker on this host, and `volume` the folder of the
    jails.
    """

    def __init__(self, found: Daemons) -> None:
        """All run."""
        self._daemons = found
        self.root = found.root(WORKER)
        self.volume = self.root / VOLUME.removeprefix("/")
        self.log = found.log

    def plugstack(self, *words: str) -> None:
        """Have plugstack.conf load the plugin with these words more. The next step reads it."""
        line = f"required {PLUGIN} root={VOLUME} {' '.join(words)}\n"
        (self.root / "etc/slurm/plugstack.conf").write_text(line)

    def fill(self, name: str, release: str) -> Path:
        """Create a complete version with an os-release of its own. It needs the worker's /usr; its
        root.
        """
        return fill(self.volume, name, release)

    def switch(self, target: str) -> None:
        """Have `current` name this."""
        link = self.volume / "current"
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def run(
        self, *words: str, user: int = USER, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the worker as this user, in /tmp."""
        return self._daemons.run(WORKER, *words, user=user, check=check)


@contextlib.contextmanager
def running(home: Path, port: int) -> Iterator[JailedSlurm]:
    """slurmctld and slurmd from this port on, until the end of the block."""
    lines = daemons.nodes(port, (WORKER,), "CPUs=1 State=UNKNOWN")
    line = {"plugstack.conf": f"required {PLUGIN} root={VOLUME}\n".encode()}
    with contextlib.closing(Daemons(home, port, f"{ALL}{lines}")) as found:
        found.slurmctld()
        found.slurmd(WORKER, files=line, prepare=_PREPARE)
        found.until_idle()
        yield JailedSlurm(found)
