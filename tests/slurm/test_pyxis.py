"""The values `pyxis` with a stand-in for Pyxis instead of SchedMD's images, and Slurm as plain
processes.

The stand-in is a SPANK plugin with the option --container-image, which starts no container: tasks
see the name of the image in a variable. It is in the files of slurmd and of the login node. It is
not in those of slurmctld, which sends plugstack.conf to both.
"""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster.tools import tool
from tests.support.real import daemons, outside, ports
from tests.support.real.daemons import ALL, Daemons
from tests.support.real.harness import until_equal

ROOT = Path(__file__).parents[2]
PORT = ports.PYXIS
USER = 2001
LOOK = ("sh", "-c", "echo image=$STAND_IN_IMAGE")

STAND_IN = r"""
#include <stdlib.h>
#include <string.h>
#include <slurm/spank.h>

SPANK_PLUGIN(stand_in_for_pyxis, 1)

static char *image;

static int given(int which, const char *value, int remote)
{
	image = strdup(value);
	return image ? 0 : -1;
}

static struct spank_option option = {
	"container-image", "IMAGE", "[stand-in] the name of an image", 1, 0, given};

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	spank_context_t context = spank_context();

	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return 0;
	return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
	return image && spank_setenv(spank, "STAND_IN_IMAGE", image, 1) != ESPANK_SUCCESS ? -1 : 0;
}
"""
CONF = "usr/share/pyxis/pyxis.conf"
PLUGIN = "usr/local/lib/stand_in_for_pyxis.so"
SERVER = f"--conf-server=127.0.0.1:{PORT}"
PREPARE = f"""\
mount -t sysfs sysfs /sys
useradd --create-home --uid={USER} alice
mkdir -p /run/slurm
"""
SLURMD = f"{PREPARE}exec slurmd -D -N worker {SERVER}"
SACKD = f"""\
{PREPARE}
chown slurm:slurm /run/slurm /etc/slurm/slurm.key
exec setpriv --reuid=slurm --regid=slurm --init-groups --pdeathsig=KILL /usr/sbin/sackd -D {SERVER}
"""


def plugstack() -> bytes:
    """plugstack.conf with pyxis.enabled."""
    only = "--show-only=templates/config/configmap-extra.yaml"
    sets = "--set=pyxis.enabled=true,loginsets.a.replicas=1,nodesets.a.replicas=1"
    command = (tool("helm"), "template", "slurm", str(ROOT / "charts/slurm"), only, sets)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    content: str = yaml.safe_load(done.stdout)["data"]["plugstack.conf"]
    return content.encode()


class PyxisSlurm:
    """The daemons."""

    def __init__(self, found: Daemons) -> None:
        """All run."""
        self._daemons = found

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node as a user."""
        return self._daemons.run("login", *words, user=USER, check=check)

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Within the block, the files of this daemon have no Pyxis."""
        path = self._daemons.root(name) / CONF
        away = path.parents[1] / path.name
        path.rename(away)
        try:
            yield
        finally:
            away.rename(path)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyxisSlurm]:
    """slurmctld with the rendered plugstack.conf, which a worker and a login node get from it."""
    home = tmp_path_factory.mktemp("pyxis")
    plugin = outside.compiled(home / "compiled", "stand_in_for_pyxis", STAND_IN)
    for name in ("slurmd", "login"):
        for path in (CONF, PLUGIN):
            (home / name / "upper" / path).parent.mkdir(parents=True)
        (home / name / "upper" / CONF).write_text(f"required /{PLUGIN}\n")
        shutil.copy(plugin, home / name / "upper" / PLUGIN)
    lines = daemons.nodes(PORT, ("worker",), "CPUs=1 State=UNKNOWN")
    with closing(Daemons(home, PORT, f"{ALL}{lines}")) as found:
        found.slurmctld(files={"plugstack.conf": plugstack()})
        key = {"slurm.key": found.files["slurm.key"]}
        found.add("slurmd", "slurmd", 0, ["sh", "-euc", SLURMD], key)
        found.add("login", "login", 0, ["sh", "-euc", SACKD], key)
        found.until_idle()
        until_equal(
            "the login node to know Slurm", lambda: found.run("login", "sinfo").returncode, 0, 300
        )
        yield PyxisSlurm(found)


def test_the_option_of_the_images_reaches_a_task_from_a_login_node(slurm: PyxisSlurm) -> None:
    assert (
        slurm.run("srun", "--container-image=ubuntu:24.04", *LOOK).stdout == "image=ubuntu:24.04\n"
    )
    assert "[stand-in] the name of an image" in slurm.run("srun", "--help").stdout
    assert slurm.run("srun", *LOOK).stdout == "image=\n"


def test_a_step_of_a_batch_job_has_the_option_on_the_worker(slurm: PyxisSlurm) -> None:
    script = f"srun --container-image=debian:13 {shlex.join(LOOK)}"
    slurm.run("sbatch", "--wait", "--output=/home/alice/out", f"--wrap={script}")
    assert slurm.run("srun", "cat", "/home/alice/out").stdout == "image=debian:13\n"


def test_commands_of_a_login_node_without_pyxis_refuse_the_option_and_run_other_jobs(
    slurm: PyxisSlurm,
) -> None:
    with slurm.without("login"):
        refused = slurm.run("srun", "--container-image=ubuntu:24.04", *LOOK, check=False)
        assert refused.returncode != 0
        assert "container-image" in refused.stderr
        assert slurm.run("srun", *LOOK).stdout == "image=\n"


def test_a_worker_without_pyxis_runs_jobs_and_ignores_the_option(slurm: PyxisSlurm) -> None:
    with slurm.without("slurmd"):
        assert slurm.run("srun", "--container-image=ubuntu:24.04", *LOOK).stdout == "image=\n"
