"""Jobs in images of a real registry, as users without rights, in a Slurm cluster of its own with three workers."""

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from sidecars.containers.main import STEP
from tests.cluster import debian
from tests.support.real import contained as running
from tests.support.real import hostile, registry
from tests.support.real.check_runs import begin, ended, log_of, result
from tests.support.real.contained import BOX, USERS, WORKERS, run_as, worker
from tests.support.real.harness import CommandError, Kubernetes, Slurm, seconds, until, until_equal
from tests.support.real.registry import DOWN, LOCKED, OPEN, Registry

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def images(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Registry]:
    """The registries. The operator runs, because `slurm` does."""
    with registry.running(kubernetes) as found:
        yield found


@pytest.fixture(scope="module")
def contained(kubernetes: Kubernetes, images: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster with its users, and the registries with the images."""
    with running.running(kubernetes, tmp_path_factory.mktemp("contained")) as found:
        yield found


def submit(slurm: Slurm, node: str, script: str) -> int:
    """Submit a batch script of alice in the image; its job id. Its output is in her home folder on the node."""
    options = ("--parsable", f"--nodelist={node}", f"--container={BOX}")
    return int(run_as(slurm, "alice", "sbatch", *options, stdin=f"#!/bin/sh\n{script}\n"))


def fails(slurm: Slurm, image: str, user: str = "alice") -> str:
    """The error of a job in this image, which must come within seconds."""
    name = f"fails-{time.time_ns()}"
    with pytest.raises(CommandError) as caught:
        run_as(slurm, user, "srun", f"--job-name={name}", f"--container={image}", "true")
    assert lasted(slurm, name) < 45
    assert "slurm-oci-run: error: " in str(caught.value)
    return str(caught.value)


def lasted(slurm: Slurm, name: str) -> float:
    """The seconds from the start to the end of the only job of this name, by slurmctld's clock."""

    def ended() -> dict[str, str] | None:
        jobs = slurm.login("scontrol", "-o", "show", "jobs").splitlines()
        [text] = [line for line in jobs if f"JobName={name} " in line]
        found = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return None if found["JobState"] == "RUNNING" else found

    fields = until(f"the job {name} to end", ended)
    return seconds(fields["EndTime"] + "+00:00") - seconds(fields["StartTime"] + "+00:00")


def test_many_tasks_on_three_nodes_import_an_image_once_and_run_in_it_as_the_user(
    contained: Slurm, images: Registry
) -> None:
    out = run_as(
        contained,
        "alice",
        *("srun", "-N3", "-n32", "--overcommit", f"--container={BOX}"),
        *("sh", "-c", "echo $(id -u) $(id -g) $(cat /which) $SLURMD_NODENAME $COLOR"),
    )
    lines = Counter(out.splitlines())
    assert sum(lines.values()) == 32
    assert set(lines) == {f"2001 2001 the image slinky-{number} blue" for number in range(WORKERS)}
    layers = running.layers(contained)
    downloads = Counter(images.downloads())
    assert {layer: downloads[layer] for layer in layers} == dict.fromkeys(layers, 1)


def test_a_job_in_a_container_has_its_home_its_folder_and_its_exit_code(contained: Slurm) -> None:
    script = "echo $SLURM_JOB_ID >written; pwd; echo $HOME; exit 7"
    with pytest.raises(CommandError, match=r"rc 7\n/home/alice\n/home/alice\n"):
        run_as(contained, "alice", "srun", "-w", "slinky-1", f"--container={BOX}", "sh", "-c", script)
    assert contained.worker(worker(1), "cat", "/home/alice/written").strip().isdigit()


def test_what_a_task_writes_into_the_image_is_gone_with_it(contained: Slurm) -> None:
    write = run_as(contained, "alice", "srun", f"--container={BOX}", "sh", "-c", "echo x >/new; cat /new")
    assert write == "x\n"
    assert run_as(contained, "alice", "srun", f"--container={BOX}", "sh", "-c", "ls /new || echo none") == "none\n"


def test_a_batch_script_runs_in_the_image(contained: Slurm) -> None:
    number = submit(contained, "slinky-2", "cat /which; id -u")
    until_equal("the batch job to complete", lambda: contained.job(number)["JobState"], "COMPLETED")
    assert contained.worker(worker(2), "cat", f"/home/alice/slurm-{number}.out") == "the image\n2001\n"


def test_an_image_by_its_digest_needs_no_registry_once_it_is_unpacked(contained: Slurm) -> None:
    inspect = ("skopeo", "inspect", "--tls-verify=false", "--format={{.Digest}}", f"docker://{OPEN}/team/box:1")
    digest = contained.worker(worker(0), *inspect).strip()
    named = f"{DOWN}/team/box@{digest}"
    assert run_as(contained, "alice", "srun", f"--container={named}", "cat", "/which") == "the image\n"


def test_mounts_and_folder_of_the_user_are_those_of_the_container(contained: Slurm) -> None:
    found = run_as(
        contained,
        "alice",
        *("env", "CONTAINER_MOUNTS=/etc:/node/etc", "CONTAINER_WORKDIR=/node", "srun", "-w", "slinky-0"),
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
def test_a_job_whose_image_can_not_be_had_fails_with_the_reason(contained: Slurm, image: str, reason: str) -> None:
    assert reason in fails(contained, image)


def test_many_tasks_whose_image_does_not_exist_fail_with_one_request_and_the_same_error(
    contained: Slurm, images: Registry
) -> None:
    described = {line.split("=")[0] for line in run_as(contained, "alice", "srun", "env").splitlines()}
    assert described >= set(STEP)
    srun = ("srun", "--job-name=absent", "-N3", "-n32", "--overcommit")
    with pytest.raises(CommandError) as caught:
        run_as(contained, "alice", *srun, f"--container={OPEN}/team/absent:1", "true")
    assert lasted(contained, "absent") < 45
    errors = Counter(line for line in str(caught.value).splitlines() if "slurm-oci-run: error: " in line)
    assert list(errors.values()) == [32]
    assert images.requests("team/absent") == 1
    assert "the registry has no such image" in fails(contained, f"{OPEN}/team/absent:1")
    assert images.requests("team/absent") == 2


@pytest.mark.parametrize("size", ["500k", "1800k"])
def test_a_full_volume_fails_the_task_with_the_remedy_and_keeps_nothing(contained: Slurm, size: str) -> None:
    # The first has no space for the compressed image, the second for the unpacked one beside it.
    become = f"setpriv --reuid={USERS['alice']} --regid={USERS['alice']} --clear-groups"
    script = (
        f"mount -t tmpfs -o size={size},mode=1777 tmpfs /mnt; {become} slurm-oci-run --cache=/mnt --image={BOX} "
        f"--insecure-registry={OPEN} --environment=self -- true 2>&1; echo $?; ls -A /mnt/{USERS['alice']}/images"
    )
    error, *rest = contained.worker(worker(0), "unshare", "--mount", "sh", "-c", script).splitlines()
    assert rest == ["125"]
    assert error.startswith(f"slurm-oci-run: error: {BOX}: ")
    assert error.endswith("no space left on device: an administrator must enlarge the volume of the image cache")


def test_a_hostile_image_changes_nothing_outside_of_its_folder(contained: Slurm) -> None:
    victim = "rm -rf /tmp/victim; install -d -m 777 /tmp/victim; echo own >/tmp/victim/file; chmod 666 /tmp/victim/file"
    contained.worker(worker(0), "sh", "-c", victim)
    shell = debian.program("busybox", "busybox-static").read_bytes()
    names = ("contained", "refused", "parent")
    for name in names:
        running.push(contained, f"hostile/{name}:1", hostile.layer(name, shell, "/tmp/victim"))  # noqa: S108
    srun = ("srun", "-w", "slinky-0", f"--container={OPEN}/hostile/contained:1", "/bin/busybox")
    assert run_as(contained, "alice", *srun, "cat", "/bin/escaped", "/outside/escaped", "/file") == "hostile\n" * 3
    for name in names[1:]:
        with pytest.raises(CommandError, match=f"hostile/{name}:1: can't be unpacked: "):
            run_as(contained, "alice", "srun", "-w", "slinky-0", f"--container={OPEN}/hostile/{name}:1", "true")
    assert contained.worker(worker(0), "sh", "-c", "cd /tmp/victim; echo *; cat file") == "file\nown\n"
    cache = "/var/cache/slurm-containers"
    for look in (
        "find / -xdev -name escaped",
        f"find {cache} -name escaped -not -path '*/rootfs/*' -o -type b -o -type c",
        f"ls -A {cache}/{USERS['alice']}/images | grep '^[.]' || true",
    ):
        assert contained.worker(worker(0), "sh", "-c", look) == ""


def test_a_job_with_a_gpu_has_its_number_and_the_files_of_the_driver_and_another_job_has_none(
    contained: Slurm,
) -> None:
    driver = (
        "install -d /usr/local/nvidia/lib64; cd /usr/local/nvidia/lib64; echo driver >libcuda.so.570; "
        "ln -s libcuda.so.570 libcuda.so.1; echo other >libother.so.1; "
        "printf '#!/bin/sh\\necho smi of the node\\n' >/usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi"
    )
    contained.worker(worker(0), "sh", "-c", driver)
    look = (
        "echo GPU=$CUDA_VISIBLE_DEVICES; cat /usr/local/nvidia/lib64/* 2>/dev/null; nvidia-smi 2>/dev/null; "
        "echo ${LD_LIBRARY_PATH-none}"
    )
    srun = ("srun", "-w", "slinky-0", f"--container={BOX}")
    found = [run_as(contained, "alice", *srun, f"--gres=gpu:{number}", "sh", "-c", look) for number in (1, 2)]
    files = "driver\ndriver\nsmi of the node\n/usr/local/nvidia/lib64\n"
    assert found[0] in (f"GPU=0\n{files}", f"GPU=1\n{files}")
    assert found[1] == f"GPU=0,1\n{files}"
    assert run_as(contained, "alice", *srun, "sh", "-c", look) == "GPU=\nnone\n"


def test_a_private_image_is_for_those_with_its_password(contained: Slurm) -> None:
    image = f"{LOCKED}/secret/box:1"
    for user, password in (("alice", registry.PASSWORD), ("bob", "guess")):
        auth = base64.b64encode(f"{registry.USER}:{password}".encode()).decode()
        text = json.dumps({"auths": {LOCKED: {"auth": auth}}})
        write = f"umask 077; mkdir -p ~/.config/containers; echo '{text}' >~/.config/containers/auth.json"
        for number in range(WORKERS):
            become = ("setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups")
            contained.worker(worker(number), *become, "env", f"HOME=/home/{user}", "sh", "-c", write)
    assert run_as(contained, "alice", "srun", f"--container={image}", "cat", "/which") == "the image\n"
    error = fails(contained, image, "bob")
    assert "the registry refuses you" in error
    assert "guess" not in error


def test_no_user_can_read_the_images_of_another(contained: Slurm) -> None:
    listing = contained.worker(worker(0), "ls", "-ln", "/var/cache/slurm-containers")
    assert "drwx------" in next(line for line in listing.splitlines() if line.endswith(" 2001"))


def test_a_job_without_a_container_runs_on_the_worker(contained: Slurm) -> None:
    assert run_as(contained, "alice", "srun", "sh", "-c", "test -e /which || echo none") == "none\n"


def test_a_signal_reaches_the_program_itself(contained: Slurm) -> None:
    script = "trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 1; done"
    number = submit(contained, "slinky-1", script)
    out = f"/home/alice/slurm-{number}.out"
    until("the program to run", lambda: "ready" in contained.worker(worker(1), "sh", "-c", f"cat {out} || true"))
    contained.login("scancel", "--batch", "--signal=USR1", str(number))
    until_equal("the program to have ended", lambda: contained.job(number)["JobState"], "FAILED")
    assert contained.worker(worker(1), "cat", out).endswith("got it\n")
    assert contained.job(number)["ExitCode"] == "3:0"


def test_the_options_of_pyxis_start_a_task_in_the_image_with_its_mounts_folder_and_variables(contained: Slurm) -> None:
    found = run_as(
        contained,
        "alice",
        *("env", "COLOR=red", "srun", "-w", "slinky-0", f"--container-image={BOX}", "--container-env=COLOR"),
        *("--container-mounts=/etc:/node/etc", "--container-workdir=/node", "--container-readonly"),
        *("sh", "-c", "pwd; cat etc/hostname /which; echo $(id -u) $COLOR; echo x 2>/dev/null >/new || echo no"),
    )
    assert found == "/node\nslinky-0\nthe image\n2001 red\nno\n"


def test_the_home_folder_can_be_left_out(contained: Slurm) -> None:
    look = ("sh", "-c", "ls -d /home/alice 2>/dev/null || echo none")
    srun = ("srun", "-w", "slinky-0", f"--container-image={BOX}")
    assert run_as(contained, "alice", *srun, *look) == "/home/alice\n"
    assert run_as(contained, "alice", *srun, "--no-container-mount-home", *look) == "none\n"


def test_a_batch_script_names_its_image_in_its_first_lines(contained: Slurm) -> None:
    script = f"#!/bin/sh\n#SBATCH --container-image={BOX}\n#SBATCH --container-workdir=/bin\ncat /which; pwd; exit 7\n"
    number = int(run_as(contained, "alice", "sbatch", "--parsable", "--nodelist=slinky-2", stdin=script))
    until_equal("the batch job to end", lambda: contained.job(number)["JobState"], "FAILED")
    assert contained.job(number)["ExitCode"] == "7:0"
    assert contained.worker(worker(2), "cat", f"/home/alice/slurm-{number}.out") == "the image\n/bin\n"


def test_srun_in_an_allocation_has_the_image_that_salloc_was_given(contained: Slurm) -> None:
    assert run_as(contained, "alice", "salloc", f"--container-image={BOX}", "srun", "cat", "/which") == "the image\n"


def test_a_container_with_a_name_keeps_what_tasks_change_for_its_user(contained: Slurm) -> None:
    named = ("srun", "-w", "slinky-[0-2]", "-N3", "--container-name=own")
    with pytest.raises(CommandError, match="has no container of yours with the name own: add --container-image"):
        run_as(contained, "alice", *named, "true")
    write = "echo >/bin/node-$SLURM_NODEID; echo changed >/which"
    run_as(contained, "alice", *named, f"--container-image={BOX}", "sh", "-c", write)
    look = "ls -d /bin/node-*; cat /which; echo x 2>/dev/null >/new || echo no; id -u"
    found = run_as(contained, "alice", *named[:2], "slinky-0", named[-1], "--container-readonly", "sh", "-c", look)
    assert found == "/bin/node-0\n/bin/node-1\n/bin/node-2\nchanged\nno\n2001\n"
    assert run_as(contained, "alice", "srun", f"--container-image={BOX}", "cat", "/which") == "the image\n"
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
        (("--container-mounts=/etc:/etc:ro",), "a mount is SOURCE or SOURCE:TARGET"),
        (("--container-image=../../etc",), "names no image"),
    ],
)
def test_what_can_not_be_done_for_pyxis_options_is_refused(
    contained: Slurm, options: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(CommandError, match=reason):
        run_as(contained, "alice", "srun", f"--container-image={BOX}", *options, "true")


def test_options_of_a_container_without_an_image_are_refused(contained: Slurm) -> None:
    with pytest.raises(CommandError, match="--container-workdir needs --container-image"):
        run_as(contained, "alice", "sbatch", "--container-workdir=/work", "--wrap=true")


def test_the_check_of_containers_measures_on_each_worker_how_long_one_takes_to_start(contained: Slurm) -> None:
    begin(contained, "container", "container-1")
    assert ended(contained, "container-1") == "Complete", log_of(contained, "container-1")
    found = result(contained, "container")
    assert {name: it["result"] for name, it in found.items()} == {
        f"slinky-{number}": "passed" for number in range(WORKERS)
    }
    assert all(it["measured"]["start_time"].endswith("ms") for it in found.values())
