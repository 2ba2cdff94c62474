"""docs/jupyterhub.md: its values and its configuration, with the real JupyterHub, batchspawner and
JupyterLab, on real daemons of Slurm.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from postrender.expand import objects
from tests.support import pages
from tests.support.real import as_processes, jupyter, ports, rendered
from tests.support.real.as_processes import Container, Daemons
from tests.support.real.harness import REPOSITORY, VALUES, CommandError, until, until_equal
from tests.support.real.rendered import Ports, Release

pytestmark = pytest.mark.timeout(400)

PORTS = Ports(ports.JUPYTER)
PUBLIC, HUB, PROXY = PORTS.others
URL = f"http://127.0.0.1:{PUBLIC}"
USER, NUMBER = "ada", 10001
LOGINSET = "slurm-login-jupyter"
PAGE = (REPOSITORY / "docs/jupyterhub.md").read_text(encoding="utf-8")
[VALUES_OF_PAGE] = [it.text for it in pages.fenced(PAGE, "yaml") if it.title == "values.yaml"]
[CONFIGURATION] = [it.text for it in pages.fenced(PAGE, "python")]
ADD = f"id -u {USER} 2>/dev/null || useradd --no-create-home --uid={NUMBER} {USER}\n"
WHERE = "import os, socket; print(os.environ['SLURM_JOB_ID'], os.getuid(), socket.gethostname())"


def configuration(provider: str) -> str:
    """That of the page, with the ports of this file, and the addresses of this host."""
    text = CONFIGURATION.replace("https://login.example.com", provider)
    text = text.replace("https://jupyter.example.com", URL)
    for port, own in ((8000, PUBLIC), (8081, HUB)):
        assert f":{port}" in text
        text = text.replace(f":{port}", f":{own}")
    return f'{text}c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{PROXY}"\n'


def hub_of(release: Release) -> dict[str, Any]:
    """The container of the page in the pod of its LoginSet."""
    loginset = release.cluster.loginsets[LOGINSET]
    found = objects.of_loginset(release.cluster, loginset, release.configuration)
    [deployment] = [it for it in found if it["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    hub = rendered.container(spec, "hub")
    assert {it["name"] for it in hub["volumeMounts"]} <= {it["name"] for it in spec["volumes"]}
    return hub


def folder(parent: Path, name: str) -> Path:
    """A new folder that all may enter."""
    found = parent / name
    found.mkdir(mode=0o755)
    return found


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Two workers with the image of the page, and the hub, which finds the socket of sackd as a
    container of the login pod does.
    """
    home = tmp_path_factory.mktemp("jupyterhub")
    run, state, users = (folder(home, name) for name in ("run-slurm", "state", "home"))
    own = folder(users, USER)
    own.chmod(0o700)
    values = home / "values.yaml"
    values.write_text(VALUES_OF_PAGE)
    keys = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": f"{LOGINSET}-ssh-host-keys"}}
    extra = [*yaml.safe_load(VALUES_OF_PAGE)["extraObjects"], keys]
    release = rendered.release("jupyter", PORTS.first, [VALUES, values], {"extraObjects": extra})
    hub = hub_of(release)
    with (
        jupyter.provider(USER) as provider,
        as_processes.running(
            folder(home, "daemons"),
            release,
            prepare=ADD,
            folders={"/home": users},
            others=["hub", "jupyterhub"],
            login_folders={"/run/slurm": run},
        ) as found,
    ):
        os.chown(own, NUMBER, NUMBER)
        given = {it["name"]: it.get("value", "test") for it in hub["env"]}
        command = shlex.join(hub["command"])
        found.begin(
            "hub",
            Container(
                rendered.image(hub["image"]),
                f"{ADD}chmod 755 /etc/slurm\nchmod 644 /etc/slurm/jupyterhub_config.py\n"
                "ln -sfn slurm /etc/jupyterhub\n"
                f"exec env {rendered.shell(given)} {command}\n",
                {"jupyterhub_config.py": configuration(provider).encode()},
                {"/run/slurm": run, "/srv/jupyterhub": state},
            ),
        )

        until_healthy(found)
        yield found


def until_healthy(slurm: Daemons) -> None:
    """Wait until the hub answers at its public port."""

    def healthy() -> bool:
        slurm.assert_running()
        with contextlib.suppress(OSError), urlopen(f"{URL}/hub/health") as answer:  # noqa: S310
            return bool(answer.status == 200)
        return False

    until("the hub to answer", healthy)


def jobs(slurm: Daemons) -> list[str]:
    """The ids of the user's jobs in the queue."""
    return slurm.login("squeue", "--noheader", f"--user={USER}", "--format=%A").split()


async def test_a_notebook_runs_in_a_job_of_its_user_also_while_the_hub_restarts(
    slurm: Daemons,
) -> None:
    async with jupyter.logged_in(URL, USER) as browser:
        await browser.start()
        [number] = jobs(slurm)
        where = slurm.job(int(number))["NodeList"]
        assert await browser.printed(WHERE) == f"{number} {NUMBER} {where}\n"
        slurm.kill("hub")
        slurm.start("hub")
        until_healthy(slurm)
        await browser.until_reached()
        assert await browser.printed(WHERE) == f"{number} {NUMBER} {where}\n"
        await browser.stop()
        until_equal("the job to end", lambda: jobs(slurm), [])


@pytest.mark.parametrize(
    ("user", "program"),
    [("root", "sbatch"), ("slurm", "scancel"), (USER, "id"), (USER, "sacctmgr")],
)
def test_the_hub_is_neither_an_administrator_nor_runs_other_programs_of_users(
    slurm: Daemons, user: str, program: str
) -> None:
    become = ("setpriv", "--reuid=jupyterhub", "--regid=jupyterhub", "--init-groups")
    sudo = (*become, "sudo", "--non-interactive", "-E", "-u")
    assert "JOBID" in slurm.output("hub", *sudo, USER, "squeue")
    with pytest.raises(CommandError, match=r"password is required|not allowed"):
        slurm.output("hub", *sudo, user, program)
