"""The pods fit SchedMD's images, which the chart's values name and the tests can't pull.

What the images do is recorded from their sources: https://github.com/SlinkyProject/containers,
Slurm 26.05.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pytest

from sidecars.workloads import accounting as accountings
from sidecars.workloads import controller as controllers
from sidecars.workloads import loginset as loginsets
from sidecars.workloads import nodeset as nodesets
from sidecars.workloads import restapi as restapis
from sidecars.workloads.assembly import find
from sidecars.workloads.resources import Manifest
from tests.support import builders
from tests.support.builders import controller, env, mounts, nodeset, part, pod_spec, restapi

ROOT, SLURM, NOBODY = 0, 401, 65534
TMP = "/tmp"  # noqa: S108


@dataclass(frozen=True)
class Image:
    """What an image needs of its container."""

    users: frozenset[int]
    """Users as which its entrypoint works."""

    writes: tuple[str, ...]
    """Folders in which the entrypoint or the daemon creates files."""

    port: int

    options: str
    """The variable whose text a shell expands before the container's arguments; "" if tini starts
    the daemon.
    """


IMAGES = {
    # supervisord writes /tmp/supervisord.pid, the entrypoint creates /run/slurmctld.
    "slurmctld": Image(
        frozenset({ROOT, SLURM}), (TMP, "/run", "/run/slurmctld"), 6817, "SLURMCTLD_OPTIONS"
    ),
    # The entrypoint also adds pam_slurm_adopt to /etc/pam.d/sshd and generates sshd's host keys.
    "slurmd": Image(
        frozenset({ROOT}),
        (TMP, "/run/slurm", "/run/sshd", "/var/spool/slurmd", "/etc/pam.d", "/etc/ssh"),
        6818,
        "SLURMD_OPTIONS",
    ),
    "slurmdbd": Image(frozenset({SLURM}), ("/run",), 6819, ""),
    "slurmrestd": Image(frozenset({NOBODY}), (), 6820, ""),
    # root starts sshd, and sackd as slurm.
    "login": Image(
        frozenset({ROOT}),
        (TMP, "/run/sshd", "/run/dbus", "/run/slurm", "/etc/ssh"),
        22,
        "SACKD_OPTIONS",
    ),
}


def workload(daemon: str) -> Manifest:
    """What the operator creates for a daemon, with the chart's defaults."""
    facts = builders.facts()
    match daemon:
        case "slurmctld":
            return find(controllers.objects(controller(), (), facts), "StatefulSet")
        case "slurmd":
            of = nodeset()
            return nodesets.pod(of, nodesets.pod_template(of, controller(), facts), 0, "hash")
        case "slurmdbd":
            return accounting()
        case "slurmrestd":
            return find(
                restapis.objects(restapi(), controller(), facts, {"slurm.conf": ""}), "Deployment"
            )
        case _:
            return find(loginsets.objects(builders.loginset(), controller(), facts), "Deployment")


def accounting() -> Manifest:
    """slurmdbd's StatefulSet."""
    storage = {
        "host": "db",
        "username": "slurm",
        "passwordKeyRef": {"name": "password", "key": "password"},
    }
    secrets = accountings.Secrets(password=b"password", slurm_key=b"key")
    rendered = accountings.objects(
        builders.accounting(storageConfig=storage), builders.facts(), secrets
    )
    return find(rendered, "StatefulSet")


def user(of: Manifest, container: dict[str, Any]) -> int:
    """As which user a container runs: root if nothing sets another."""
    pod = pod_spec(of).get("securityContext") or {}
    own = container.get("securityContext") or {}
    return int(own.get("runAsUser", pod.get("runAsUser", ROOT)))


def is_writable(of: Manifest, name: str, folder: str) -> bool:
    """Whether a container can create files in a folder: by its nearest mount, or by its root file
    system.
    """
    container = part(of, name)
    by_path = {mount["mountPath"]: mount for mount in container.get("volumeMounts", ())}
    for path in (PurePosixPath(folder), *PurePosixPath(folder).parents):
        if str(path) in by_path:
            return not by_path[str(path)].get("readOnly")
    return not (container.get("securityContext") or {}).get("readOnlyRootFilesystem")


@pytest.mark.parametrize("daemon", IMAGES)
def test_the_entrypoint_of_the_image_starts_the_daemon_as_a_user_that_it_expects(
    daemon: str,
) -> None:
    of, image = workload(daemon), IMAGES[daemon]
    container = part(of, daemon)
    assert "command" not in container
    assert user(of, container) in image.users
    assert {port["containerPort"] for port in container["ports"]} == {image.port}


@pytest.mark.parametrize("daemon", IMAGES)
def test_the_entrypoint_and_the_daemon_can_write_where_they_do(daemon: str) -> None:
    of = workload(daemon)
    assert [folder for folder in IMAGES[daemon].writes if not is_writable(of, daemon, folder)] == []


@pytest.mark.parametrize("daemon", [name for name, image in IMAGES.items() if not image.options])
def test_arguments_of_a_daemon_that_tini_starts_need_no_shell(daemon: str) -> None:
    assert not any(
        set('$`"\\') & set(argument) for argument in part(workload(daemon), daemon).get("args", ())
    )


def test_slurmrestd_gets_its_address_because_arguments_replace_those_of_the_image() -> None:
    assert part(workload("slurmrestd"), "slurmrestd")["args"][-1] == "0.0.0.0:6820"


def test_the_shell_of_slurmds_entrypoint_reads_the_files_of_register_as_one_word_each() -> None:
    arguments = part(workload("slurmd"), "slurmd")["args"]
    read = [argument for argument in arguments if "$" in argument]
    assert read
    assert all(
        argument.startswith('"$(cat /run/slurm-node/') and argument.endswith(')"')
        for argument in read
    )


def test_the_entrypoint_of_slurmd_adds_nothing_to_what_register_wrote() -> None:
    # It would add CoreSpecCount and MemSpecLimit for values above 0.
    variables = env(workload("slurmd"), "slurmd")
    assert (variables["POD_CPUS"], variables["POD_MEMORY"]) == ("0", "0")
    assert "POD_TOPOLOGY" not in variables


def test_sackd_gets_its_options_from_the_variable_that_the_image_of_login_reads() -> None:
    assert "--conf-server" in env(workload("login"), "login")[IMAGES["login"].options]


def test_slurms_own_folders_are_those_of_the_images() -> None:
    for daemon, folder in (
        ("slurmctld", "/etc/slurm"),
        ("slurmd", "/etc/slurm"),
        ("slurmrestd", "/etc/slurm"),
    ):
        assert folder in mounts(workload(daemon), daemon)
    assert mounts(workload("slurmctld"), "slurmctld").keys() >= {
        "/var/log/slurm",
        "/run",
        "/run/slurmctld",
    }
    assert "/run/slurm" in mounts(workload("login"), "login")


def test_the_container_check_needs_only_what_runs_without_the_slurmctld_images_entrypoint() -> None:
    check = part(workload("slurmctld"), "check")
    assert check["command"][:2] == ["sh", "-c"]
    assert user(workload("slurmctld"), check) == SLURM
    assert all(
        is_writable(workload("slurmctld"), "check", folder) for folder in ("/etc/slurm", "/run")
    )
