"""Jobs in images of a real registry, as users without rights, on plain daemons with three
workers.
"""

import base64
import json
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import pytest

from sidecars.containers.main import STEP
from tests.cluster import debian
from tests.support.real import contained as clusters
from tests.support.real import hostile, ports, registry
from tests.support.real.as_processes import Daemons
from tests.support.real.contained import CACHE, USERS, WORKERS, run_as
from tests.support.real.harness import CommandError, until, until_equal
from tests.support.real.registry import Addresses, Registry
from tests.support.real.rendered import Ports

pytestmark = pytest.mark.timeout(400)

PORTS = Ports(ports.CONTAINERS)
ADDRESSES = Addresses.on_this_host(PORTS.others)
OPEN, LOCKED, DOWN = ADDRESSES.open, ADDRESSES.locked, ADDRESSES.down
BOX = f"{OPEN}/team/box:1"
SECONDS_TO_FAIL = 45


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """The registries."""
    with registry.on_this_host(tmp_path_factory.mktemp("registry") / "home", PORTS.others) as found:
        yield found


@pytest.fixture(scope="module")
def contained(images: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """The cluster with its users, and the registries with the images."""
    with clusters.on_this_host(
        tmp_path_factory.mktemp("contained"), PORTS.first, ADDRESSES
    ) as found:
        yield found


def submit(slurm: Daemons, node: str, script: str) -> int:
    """Submit a batch script of alice in the image; its job id. Its output is in the user's home
    folder on the node.
    """
    options = ("--parsable", f"--nodelist={node}", f"--container={BOX}")
    return int(run_as(slurm, "alice", "sbatch", *options, stdin=f"#!/bin/sh\n{script}\n"))


def fails(slurm: Daemons, image: str, user: str = "alice", *options: str) -> str:
    """The error of a job in this image, which by Slurm's clock must come within seconds."""
    name = f"fails-{secrets.token_hex(4)}"
    with pytest.raises(CommandError) as caught:
        run_as(slurm, user, "srun", f"--job-name={name}", *options, f"--container={image}", "true")
    number = slurm.login(
        "squeue", "--noheader", "--states=all", "--format=%A", f"--name={name}"
    ).strip()
    began, ended = (
        datetime.fromisoformat(slurm.job(int(number))[key]) for key in ("StartTime", "EndTime")
    )
    assert (ended - began).total_seconds() < SECONDS_TO_FAIL
    assert "slurm-oci-run: error: " in str(caught.value)
    return str(caught.value)


def test_a_job_in_a_container_has_its_home_its_folder_and_its_exit_code(contained: Daemons) -> None:
    script = "echo $SLURM_JOB_ID >written; pwd; echo $HOME; exit 7"
    with pytest.raises(CommandError, match=r"rc 7\n/home/alice\n/home/alice\n"):
        run_as(
            contained, "alice", "srun", "-w", "slinky-1", f"--container={BOX}", "sh", "-c", script
        )
    assert contained.output("slinky-1", "cat", "/home/alice/written").strip().isdigit()


def test_what_a_task_writes_into_the_image_is_gone_with_it(contained: Daemons) -> None:
    write = run_as(
        contained, "alice", "srun", f"--container={BOX}", "sh", "-c", "echo x >/new; cat /new"
    )
    assert write == "x\n"
    assert (
        run_as(contained, "alice", "srun", f"--container={BOX}", "sh", "-c", "ls /new || echo none")
        == "none\n"
    )


def test_a_batch_script_runs_in_the_image(contained: Daemons) -> None:
    number = submit(contained, "slinky-2", "cat /which; id -u")
    until_equal("the batch job to complete", lambda: contained.job(number)["JobState"], "COMPLETED")
    assert (
        contained.output("slinky-2", "cat", f"/home/alice/slurm-{number}.out")
        == "the image\n2001\n"
    )


def test_an_image_by_its_digest_needs_no_registry_once_it_is_unpacked(contained: Daemons) -> None:
    inspect = (
        "skopeo",
        "inspect",
        "--tls-verify=false",
        "--format={{.Digest}}",
        f"docker://{OPEN}/team/box:1",
    )
    digest = contained.output("slinky-0", *inspect).strip()
    assert (
        run_as(contained, "alice", "srun", f"--container={BOX}", "cat", "/which") == "the image\n"
    )
    named = f"{DOWN}/team/box@{digest}"
    assert (
        run_as(contained, "alice", "srun", f"--container={named}", "cat", "/which") == "the image\n"
    )


def test_mounts_and_folder_of_the_user_are_those_of_the_container(contained: Daemons) -> None:
    found = run_as(
        contained,
        "alice",
        *(
            "env",
            "CONTAINER_MOUNTS=/etc:/node/etc",
            "CONTAINER_WORKDIR=/node",
            "srun",
            "-w",
            "slinky-0",
        ),
        *(f"--container={BOX}", "sh", "-c", "pwd; cat etc/hostname"),
    )
    assert found == "/node\nslinky-0\n"


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (f"{OPEN}/team/none:1", "the registry has no such image"),
        (f"{OPEN}/team/box:none", "the registry has no such image"),
        (f"{DOWN}/team/box:1", "doesn't answer on slinky-"),
        (f"{LOCKED}/secret/box:1", "the registry refuses you"),
        ("../../etc", "names no image"),
        ("--authfile=/etc/shadow", "names no image"),
        ("box\n:1", "names no image"),
    ],
)
def test_a_job_whose_image_can_not_be_had_fails_with_the_reason(
    contained: Daemons, image: str, reason: str
) -> None:
    assert reason in fails(contained, image)


def test_many_tasks_whose_image_does_not_exist_fail_with_one_request_and_the_same_error(
    contained: Daemons, images: Registry
) -> None:
    described = {
        line.split("=")[0] for line in run_as(contained, "alice", "srun", "env").splitlines()
    }
    assert described >= set(STEP)
    message = fails(contained, f"{OPEN}/team/absent:1", "alice", "-N3", "-n32", "--overcommit")
    errors = Counter(line for line in message.splitlines() if "slurm-oci-run: error: " in line)
    assert list(errors.values()) == [32]
    assert images.requests("team/absent") == 1
    assert "the registry has no such image" in fails(contained, f"{OPEN}/team/absent:1")
    assert images.requests("team/absent") == 2


@pytest.mark.parametrize("size", ["500k", "1800k"])
def test_a_full_volume_fails_the_task_with_the_remedy_and_keeps_nothing(
    contained: Daemons, size: str
) -> None:
    # The first has no space for the compressed image, the second for the unpacked one beside it.
    become = f"setpriv --reuid={USERS['alice']} --regid={USERS['alice']} --clear-groups"
    script = (
        f"mount -t tmpfs -o size={size},mode=1777 tmpfs /mnt; {become} slurm-oci-run --cache=/mnt "
        f"--image={BOX} --insecure-registry={OPEN} --environment=self -- true 2>&1; echo $?; ls "
        f"-A /mnt/{USERS['alice']}/images"
    )
    error, *rest = contained.output(
        "slinky-0", "unshare", "--mount", "sh", "-c", script
    ).splitlines()
    assert rest == ["125"]
    assert error.startswith(f"slurm-oci-run: error: {BOX}: ")
    assert error.endswith(
        "no space left on device: an administrator must enlarge the volume of the image cache"
    )


def test_a_hostile_image_changes_nothing_outside_of_its_folder(contained: Daemons) -> None:
    victim = (
        "rm -rf /tmp/victim; install -d -m 777 /tmp/victim; echo own >/tmp/victim/file; chmod "
        "666 /tmp/victim/file"
    )
    contained.output("slinky-0", "sh", "-c", victim)
    shell = debian.program("busybox", "busybox-static").read_bytes()
    names = ("contained", "refused", "parent")
    for name in names:
        clusters.push(
            contained,
            f"{OPEN}/hostile/{name}:1",
            hostile.layer(name, shell, "/tmp/victim"),  # noqa: S108
        )
    srun = ("srun", "-w", "slinky-0", f"--container={OPEN}/hostile/contained:1", "/bin/busybox")
    assert (
        run_as(contained, "alice", *srun, "cat", "/bin/escaped", "/outside/escaped", "/file")
        == "hostile\n" * 3
    )
    for name in names[1:]:
        with pytest.raises(CommandError, match=f"hostile/{name}:1: can't be unpacked: "):
            run_as(
                contained,
                "alice",
                "srun",
                "-w",
                "slinky-0",
                f"--container={OPEN}/hostile/{name}:1",
                "true",
            )
    assert (
        contained.output("slinky-0", "sh", "-c", "cd /tmp/victim; echo *; cat file")
        == "file\nown\n"
    )
    cache = CACHE
    for look in (
        "find / -xdev -name escaped",
        f"find {cache} -name escaped -not -path '*/rootfs/*' -o -type b -o -type c",
        f"ls -A {cache}/{USERS['alice']}/images | grep '^[.]' || true",
    ):
        assert contained.output("slinky-0", "sh", "-c", look) == ""


def test_a_private_image_is_for_those_with_its_password(contained: Daemons) -> None:
    image = f"{LOCKED}/secret/box:1"
    for user, password in (("alice", registry.PASSWORD), ("bob", "guess")):
        auth = base64.b64encode(f"{registry.USER}:{password}".encode()).decode()
        text = json.dumps({"auths": {LOCKED: {"auth": auth}}})
        write = (
            f"umask 077; mkdir -p ~/.config/containers; echo '{text}' "
            ">~/.config/containers/auth.json"
        )
        for number in range(WORKERS):
            become = (
                "setpriv",
                f"--reuid={USERS[user]}",
                f"--regid={USERS[user]}",
                "--clear-groups",
            )
            contained.output(
                f"slinky-{number}", *become, "env", f"HOME=/home/{user}", "sh", "-c", write
            )
    assert (
        run_as(contained, "alice", "srun", f"--container={image}", "cat", "/which") == "the image\n"
    )
    error = fails(contained, image, "bob")
    assert "the registry refuses you" in error
    assert "guess" not in error


def test_no_user_can_read_the_images_of_another(contained: Daemons) -> None:
    listing = contained.output("slinky-0", "ls", "-ln", CACHE)
    assert "drwx------" in next(line for line in listing.splitlines() if line.endswith(" 2001"))


def test_a_job_without_a_container_runs_on_the_worker(contained: Daemons) -> None:
    assert run_as(contained, "alice", "srun", "sh", "-c", "test -e /which || echo none") == "none\n"


def test_a_signal_reaches_the_program_itself(contained: Daemons) -> None:
    script = "trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 1; done"
    number = submit(contained, "slinky-1", script)
    out = f"/home/alice/slurm-{number}.out"
    until(
        "the program to run",
        lambda: "ready" in contained.output("slinky-1", "sh", "-c", f"cat {out} || true"),
    )
    contained.login("scancel", "--batch", "--signal=USR1", str(number))
    until_equal("the program to have ended", lambda: contained.job(number)["JobState"], "FAILED")
    assert contained.output("slinky-1", "cat", out).endswith("got it\n")
    assert contained.job(number)["ExitCode"] == "3:0"


def test_the_options_of_pyxis_start_a_task_in_the_image_with_its_mounts_folder_and_variables(
    contained: Daemons,
) -> None:
    found = run_as(
        contained,
        "alice",
        *(
            "env",
            "COLOR=red",
            "srun",
            "-w",
            "slinky-0",
            f"--container-image={BOX}",
            "--container-env=COLOR",
        ),
        *("--container-mounts=/etc:/node/etc", "--container-workdir=/node", "--container-readonly"),
        *(
            "sh",
            "-c",
            (
                "pwd; cat etc/hostname /which; echo $(id -u) $COLOR; echo x 2>/dev/null >/new || "
                "echo no"
            ),
        ),
    )
    assert found == "/node\nslinky-0\nthe image\n2001 red\nno\n"


def test_a_mount_is_read_only_if_the_user_asks_for_it(contained: Daemons) -> None:
    task = ("srun", "-w", "slinky-0", f"--container-image={BOX}")
    run_as(contained, "alice", *task, "sh", "-c", "mkdir -p in && echo data >in/file")
    script = "cat /in/file; id -u; echo x >/in/new || echo no; echo y >beside && cat beside"
    found = run_as(
        contained,
        "alice",
        *(*task, "--container-mounts=/home/alice/in:/in:ro", "sh", "-c", f"({script}) 2>/dev/null"),
    )
    assert found == "data\n2001\nno\ny\n"


def test_the_home_folder_can_be_left_out(contained: Daemons) -> None:
    look = ("sh", "-c", "ls -d /home/alice 2>/dev/null || echo none")
    srun = ("srun", "-w", "slinky-0", f"--container-image={BOX}")
    assert run_as(contained, "alice", *srun, *look) == "/home/alice\n"
    assert run_as(contained, "alice", *srun, "--no-container-mount-home", *look) == "none\n"


def test_a_batch_script_names_its_image_in_its_first_lines(contained: Daemons) -> None:
    script = (
        f"#!/bin/sh\n#SBATCH --container-image={BOX}\n#SBATCH --container-workdir=/bin\ncat "
        "/which; pwd; exit 7\n"
    )
    number = int(
        run_as(contained, "alice", "sbatch", "--parsable", "--nodelist=slinky-2", stdin=script)
    )
    until_equal("the batch job to end", lambda: contained.job(number)["JobState"], "FAILED")
    assert contained.job(number)["ExitCode"] == "7:0"
    assert (
        contained.output("slinky-2", "cat", f"/home/alice/slurm-{number}.out")
        == "the image\n/bin\n"
    )


def test_srun_in_an_allocation_has_the_image_that_salloc_was_given(contained: Daemons) -> None:
    assert (
        run_as(contained, "alice", "salloc", f"--container-image={BOX}", "srun", "cat", "/which")
        == "the image\n"
    )


def test_a_container_with_a_name_keeps_what_tasks_change_for_its_user(contained: Daemons) -> None:
    named = ("srun", "-w", "slinky-[0-2]", "-N3", "--container-name=own")
    with pytest.raises(
        CommandError, match="has no container of yours with the name own: add --container-image"
    ):
        run_as(contained, "alice", *named, "true")
    write = "echo >/bin/node-$SLURM_NODEID; echo changed >/which"
    run_as(contained, "alice", *named, f"--container-image={BOX}", "sh", "-c", write)
    look = "ls -d /bin/node-*; cat /which; echo x 2>/dev/null >/new || echo no; id -u"
    found = run_as(
        contained,
        "alice",
        *named[:2],
        "slinky-0",
        named[-1],
        "--container-readonly",
        "sh",
        "-c",
        look,
    )
    assert found == "/bin/node-0\n/bin/node-1\n/bin/node-2\nchanged\nno\n2001\n"
    assert (
        run_as(contained, "alice", "srun", f"--container-image={BOX}", "cat", "/which")
        == "the image\n"
    )
    with pytest.raises(CommandError, match="has no container of yours"):
        run_as(contained, "bob", *named, "true")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--container-name=../box",), "use up to 63 letters"),
        (("--container-save=/tmp/box.sqsh",), "--container-save isn't available"),
        (("--container-remap-root",), "--container-remap-root isn't available"),
        (("--container-writable", "--container-readonly"), "exclude each other"),
        (("--container-image=",), "needs a value"),
        (("--container-mounts=/etc:/etc:rslave",), "a mount is SOURCE, SOURCE:TARGET or"),
        (("--container-image=/shared/box.sqsh",), "is a squashfs file.*unsquashfs"),
        (("--container-image=../../etc",), "names no image"),
    ],
)
def test_what_can_not_be_done_for_pyxis_options_is_refused(
    contained: Daemons, options: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(CommandError, match=reason):
        run_as(contained, "alice", "srun", f"--container-image={BOX}", *options, "true")


def test_options_of_a_container_without_an_image_are_refused(contained: Daemons) -> None:
    with pytest.raises(CommandError, match="--container-workdir needs --container-image"):
        run_as(contained, "alice", "sbatch", "--container-workdir=/work", "--wrap=true")
