"""The shared root of jobs on the cluster: its Job fills it from a tarball and from an image, and
is put back.
"""

import base64
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.cluster import debian
from tests.cluster.commands import run
from tests.support.real import registry
from tests.support.real.contained import USERS, run_as
from tests.support.real.harness import CHARTS, VALUES, Kubernetes, Slurm, until, until_equal
from tests.support.real.registry import OPEN

NAMESPACE = "jailed"
WORKER = "slurm-worker-slinky-0"
LOOK = ("srun", "cat", "/etc/os-release")
IMAGE = f"{OPEN}/team/jail:1"
MOUNTS = yaml.safe_load((CHARTS / "slurm/values.yaml").read_text())["jail"]["mounts"]
PROGRAMS = ("cat", "echo", "id", "ls", "pwd", "sh", "sleep", "test")

SSH = (
    *(
        "ssh",
        "-i",
        "/root/alice",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "LogLevel=ERROR",
    ),
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
)
ACCEPT = "install -d -o alice -g alice -m 700 ~alice/.ssh"
KEYS = (
    f"ssh-keygen -q -t ed25519 -N '' -f /root/alice; {ACCEPT}; cp /root/alice.pub "
    "~alice/.ssh/authorized_keys"
)

PUSH = f"""
set -eu
mkdir -p /tmp/jail/bin /tmp/jail/etc && cd /tmp/jail
base64 -d >bin/busybox
chmod 755 bin/busybox
for name in {" ".join(PROGRAMS)}; do ln -s busybox bin/$name; done
echo of the image >etc/os-release
cd /tmp
umoci init --layout layout
umoci new --image layout:jail
umoci insert --image layout:jail jail /
skopeo copy --quiet --dest-tls-verify=false oci:layout:jail docker://{IMAGE}
"""


class Site:
    """A release whose jobs have a shared root, on a folder of this host."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        """Installs nothing."""
        self.slurm = slurm
        self._folder = folder
        self.volume = folder / "volume"
        self.images = folder / "images"

    def upgrade(self, **jail: object) -> None:
        """Install or upgrade with these values of `jail`."""
        given = {
            "enabled": True,
            "login": True,
            "hostPath": str(self.volume),
            "insecureRegistries": [OPEN],
            "mounts": [*MOUNTS, "/scratch"],
            **jail,
        }
        file = self._folder / "values.yaml"
        scratch = {
            "slurmd": {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
            "podSpec": {"volumes": [{"name": "scratch", "emptyDir": {}}]},
        }
        values = {
            "nodesets": {"slinky": {"replicas": 1, "ssh": {"enabled": True}, **scratch}},
            "loginsetDefaults": {"login": {"securityContext": {"privileged": True}}},
            "jail": given,
            "containers": {
                "enabled": True,
                "cache": {"hostPath": str(self.images)},
                "insecureRegistries": [OPEN],
            },
        }
        file.write_text(yaml.safe_dump(values))
        self.slurm.kubernetes.helm(
            *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", NAMESPACE),
            *("-f", str(VALUES), "-f", str(file)),
        )

    def until_switched(self, version: str) -> None:
        """Wait until the Job has switched jobs to this version."""
        link = self.volume / "current"
        until(
            f"jobs to see {version}", lambda: link.is_symlink() and link.readlink().name == version
        )


@contextmanager
def without_complete(site: Site) -> Iterator[None]:
    """Version `one` isn't complete in the block."""
    complete = site.volume / "versions/one/complete"
    text = complete.read_text()
    complete.unlink()
    try:
        yield
    finally:
        complete.write_text(text)


def look_by_ssh(site: Site, host: str) -> str:
    """What alice sees as os-release on a host, or the errors."""
    return site.slurm.login("sh", "-c", '"$@" 2>&1 || true', "sh", *SSH, f"alice@{host}", *LOOK[1:])


def is_jailed(answer: str) -> bool:
    """Whether what alice saw by ssh is of the jail; other lines before it are of a login."""
    return answer.endswith("of the tarball\n")


def tarball(file: Path) -> None:
    """A root with the programs of busybox."""
    busybox = debian.program("busybox", "busybox-static").read_bytes()
    with tarfile.open(file, "w:gz") as archive:
        for name, content, mode in (
            ("bin/busybox", busybox, 0o755),
            ("etc/os-release", b"of the tarball\n", 0o644),
        ):
            item = tarfile.TarInfo(name)
            item.size, item.mode = len(content), mode
            archive.addfile(item, io.BytesIO(content))
        for name in PROGRAMS:
            item = tarfile.TarInfo(f"bin/{name}")
            item.type, item.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(item)


def volume_and_claim(folder: Path) -> list[dict[str, object]]:
    """A PersistentVolume `restored` with this folder, and its claim."""
    spec = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    volume = {
        "capacity": size,
        "hostPath": {"path": str(folder)},
        "persistentVolumeReclaimPolicy": "Retain",
        **spec,
    }
    claim = {"resources": {"requests": size}, "volumeName": "restored", **spec}
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "restored"}, "spec": found}
        for kind, found in (("PersistentVolume", volume), ("PersistentVolumeClaim", claim))
    ]


@pytest.fixture(scope="module")
def site(
    kubernetes: Kubernetes, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The cluster with one worker, version `one` from a tarball, and a user. `slurm` has the
    operator run.
    """
    folder = tmp_path_factory.mktemp("jailed")
    found = Site(Slurm(kubernetes, NAMESPACE), folder)
    found.volume.mkdir()
    tarball(found.volume / "jail.tar.gz")
    found.upgrade(version="one", tarball="jail.tar.gz")
    found.slurm.until_idle(1)
    found.until_switched("one")
    add = ("useradd", "--create-home", f"--uid={USERS['alice']}", "alice")
    found.slurm.login(*add)
    found.slurm.worker(WORKER, *add)
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", NAMESPACE, "--ignore-not-found")
    kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def image(site: Site, kubernetes: Kubernetes) -> Iterator[str]:
    """An image in a registry."""
    with registry.running(kubernetes):
        busybox = base64.b64encode(
            debian.program("busybox", "busybox-static").read_bytes()
        ).decode()
        push = ("-n", NAMESPACE, "exec", "-i", WORKER, "-c", "slurmd", "--", "sh", "-c", PUSH)
        kubernetes.kubectl(*push, stdin=busybox, timeout=180)
        yield IMAGE


def test_a_job_sees_the_jail_its_home_and_itself_and_nothing_of_the_worker(site: Site) -> None:
    assert run_as(site.slurm, "alice", *LOOK) == "of the tarball\n"
    look = "id -un; pwd; echo written >here; ls /; ls /etc/slurm 2>/dev/null || echo no key"
    user, folder, *names, key = run_as(site.slurm, "alice", "srun", "sh", "-c", look).splitlines()
    assert (user, folder, key) == ("alice", "/home/alice", "no key")
    assert names == [
        "bin",
        "dev",
        "etc",
        "home",
        "proc",
        "run",
        "scratch",
        "srv",
        "sys",
        "tmp",
        "var",
    ]
    assert site.slurm.worker(WORKER, "cat", "/home/alice/here") == "written\n"


def test_a_job_writes_to_a_volume_of_its_nodeset_and_the_jail_keeps_an_empty_folder(
    site: Site,
) -> None:
    look = "echo of the job >/scratch/file; ls -A /scratch"
    assert run_as(site.slurm, "alice", "srun", "sh", "-c", look) == "file\n"
    assert site.slurm.worker(WORKER, "cat", "/scratch/file") == "of the job\n"
    assert (site.volume / "versions/one/root/scratch").is_dir()
    assert not any((site.volume / "versions/one/root/scratch").iterdir())


def test_sessions_on_the_login_node_and_on_a_jobs_worker_are_in_the_jail_or_end_with_a_reason(
    site: Site,
) -> None:
    site.slurm.login("sh", "-c", KEYS)
    public = site.slurm.login("cat", "/root/alice.pub")
    site.slurm.worker(
        WORKER, "sh", "-c", f"{ACCEPT}; echo '{public.strip()}' >~alice/.ssh/authorized_keys"
    )
    address = site.slurm.pods()[WORKER]["status"]["podIP"]
    script = "#!/bin/sh\necho started\nsleep 300\n"
    number = run_as(site.slurm, "alice", "sbatch", "--parsable", stdin=script).strip()
    try:
        # A job that starts while the version isn't complete fails, and its worker then lets nobody
        # in.
        output = ("cat", f"/home/alice/slurm-{number}.out")
        until_equal("the job to start", lambda: site.slurm.worker(WORKER, *output), "started\n")
        for host in ("127.0.0.1", address):
            until(f"{host} to let alice in", partial(look_by_ssh, site, host), is_it=is_jailed)
            with without_complete(site):
                assert "slurm-jail: error: " in look_by_ssh(site, host)
    finally:
        run_as(site.slurm, "alice", "scancel", number)


def test_jobs_see_a_new_version_from_an_image_and_the_former_one_again_without_a_restart(
    site: Site, image: str
) -> None:
    pod = site.slurm.pods()[WORKER]["metadata"]["uid"]
    site.upgrade(version="two", image=image)
    site.until_switched("two")
    assert run_as(site.slurm, "alice", *LOOK) == "of the image\n"
    site.upgrade(version="one")
    site.until_switched("one")
    assert run_as(site.slurm, "alice", *LOOK) == "of the tarball\n"
    assert site.slurm.pods()[WORKER]["metadata"]["uid"] == pod


def test_jobs_see_a_folder_of_another_volume_that_was_copied(
    site: Site, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    root = tmp_path / "versions/old/root"
    root.mkdir(parents=True)
    tarball(tmp_path / "jail.tar.gz")
    run(["tar", "-xzf", tmp_path / "jail.tar.gz", "-C", root])
    (root / "etc/os-release").write_text("of the snapshot\n")
    kubernetes.kubectl(
        "-n", NAMESPACE, "apply", "-f", "-", stdin=yaml.safe_dump_all(volume_and_claim(tmp_path))
    )
    try:
        site.upgrade(version="three", claim={"name": "restored", "subPath": "versions/old/root"})
        site.until_switched("three")
        assert run_as(site.slurm, "alice", *LOOK) == "of the snapshot\n"
        site.upgrade(version="one")
        site.until_switched("one")
    finally:
        kubernetes.kubectl("delete", "persistentvolume", "restored", "--wait=false")
    assert run_as(site.slurm, "alice", *LOOK) == "of the tarball\n"


def test_a_container_of_a_job_is_started_in_the_jail(site: Site, image: str) -> None:
    """This version has the content of slurmd's image, in which containers can be started, and a
    file of its own.
    """
    folders = ("bin", "etc", "lib", "lib64", "sbin", "usr", "var/lib")
    pack = (
        "tar",
        "-C",
        "/",
        "--one-file-system",
        "-cf",
        "/var/cache/slurm-containers/root.tar",
        *folders,
    )
    site.slurm.worker(WORKER, *pack)
    root = site.volume / "root.tar"
    (site.images / "root.tar").rename(root)
    with tarfile.open(root, "a") as archive:
        item = tarfile.TarInfo("opt/which")
        item.size = len(b"of the jail\n")
        archive.addfile(item, io.BytesIO(b"of the jail\n"))
    site.upgrade(version="whole", tarball="root.tar")
    site.until_switched("whole")
    look = ("cat", "/etc/os-release", "/mnt/which")
    options = (f"--container-image={image}", "--container-mounts=/opt/which:/mnt/which")
    assert run_as(site.slurm, "alice", "srun", *options, *look) == "of the image\nof the jail\n"
