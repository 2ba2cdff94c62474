"""A daemon as a plain process of this host, in the files of an image; and a slurmctld beside the
Kubernetes cluster.
"""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster.cache import root
from tests.cluster.images import stage_trees, trees
from tests.cluster.waiting import until
from tests.support.real import ports

PORT = ports.HYBRID
SLURM, NOBODY = 401, 65534

_START = r"""
set -eu
lower=$1 home=$2 user=$3 folders=$4
shift 4
mount -t overlay overlay "$home/root" -o "lowerdir=$lower,upperdir=$home/upper,workdir=$home/work"
mount -t proc proc "$home/root/proc"
mount --bind /dev "$home/root/dev"
mount -t tmpfs tmpfs "$home/root/run"
mkdir -p "$home/root/etc/slurm" "$home/root/state" "$home/root/run/slurmctld"
mount --bind "$home/etc" "$home/root/etc/slurm"
printf '%s' "$folders" | while read -r folder path; do
  mkdir -p "$home/root$path"
  mount --bind "$folder" "$home/root$path"
done
cp /etc/resolv.conf /etc/hosts "$home/root/etc/"
chown -R "$user:$user" "$home/etc" "$home/root/state" "$home/root/run/slurmctld"
# After a chroot, no process could create a user namespace.
cd "$home/root"
mkdir -p .host
pivot_root . .host
umount --lazy /.host
rmdir /.host
# Another user's process forgets by whose death it was to die.
exec setpriv "--reuid=$user" "--regid=$user" --clear-groups --pdeathsig=KILL "$@"
"""

_COMPILE = r"""
mount -t overlay overlay "$2/root" -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work"
cp "$2/$3.c" "$2/root/"
chroot "$2/root" gcc -O1 -fPIC -shared -Wall -Werror -o "/$3.so" "/$3.c"
cp "$2/root/$3.so" "$2/"
"""

CONF = """\
ClusterName=outside
SlurmUser=slurm
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmctldPidFile=/run/slurmctld/pid
StateSaveLocation=/state
SlurmdUser=root
SlurmdSpoolDir=/var/spool/slurmd
MaxNodeCount=16
AuthType=auth/slurm
CredType=cred/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
AuthInfo=use_client_ids
SlurmctldParameters=enable_configless
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectTypeParameters=CR_Core
ReturnToService=2
"""
_WORKERS = """\
SlurmdPort=6818
SlurmdLogFile=/var/log/slurm/slurmd.log
NodeSet=slinky Feature=slinky
PartitionName=all Nodes=ALL Default=YES State=UP
"""
"""What worker pods of the cluster need."""


def conf(address: str, port: int = PORT) -> str:
    """The slurm.conf of a slurmctld at `address`:`port`, without nodes and partitions. Lines that
    follow win.
    """
    return CONF.format(host=socket.gethostname(), address=address, port=port)


def compiled(home: Path, name: str, source: str) -> Path:
    """The library `home`/`name`.so from this C, by what compiles the plugins of the images. Needs
    root.
    """
    for folder in ("root", "upper", "work"):
        (home / folder).mkdir(parents=True)
    (home / f"{name}.c").write_text(source)
    lower = ":".join(map(str, stage_trees(root(), "slurmd", "/opt/slurm-containers/slurm_jail.so")))
    subprocess.run(
        ["unshare", "--mount", "sh", "-euc", _COMPILE, "sh", lower, str(home), name], check=True
    )
    return home / f"{name}.so"


def environment() -> dict[str, str]:
    """That of this process for one in an image, which doesn't have this run's folder for temporary
    files.
    """
    return {name: value for name, value in os.environ.items() if name != "TMPDIR"}


@contextmanager
def daemon(
    home: Path,
    image: str,
    user: int,
    files: Mapping[str, bytes],
    command: Sequence[str],
    folders: Mapping[str, Path] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """`command` as `user` in the image's own files, with these `files` in /etc/slurm, until the
    end.

    Needs root: it mounts, in a mount namespace that ends with it. Its log is in `home`/log. What it
    writes stays in `home`, for the next one there. `folders` of this host are mounted at the paths
    that are their keys. The process given is the parent of the daemon, which is gone after the
    block.
    """
    for folder in ("root", "upper", "work", "etc"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = home / "etc" / name
        path.write_bytes(content)
        path.chmod(0o700 if content.startswith(b"#!") else 0o600)
    lower = ":".join(map(str, trees(root(), image)))
    namespace = (
        "setpriv",
        "--pdeathsig=KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    )
    mounted = "".join(f"{folder} {path}\n" for path, folder in (folders or {}).items())
    start = ("sh", "-c", _START, image, lower, str(home), str(user), mounted, *command)
    with (home / "log").open("ab") as log:
        process = subprocess.Popen([*namespace, *start], stdout=log, stderr=log, env=environment())
        try:
            yield process
        finally:
            first = children(process.pid)
            process.kill()
            process.wait()
            # The first process of the namespace ends after all others, and their ports are free.
            until(lambda: not any(map(_runs, first)), f"{command[0]} to be gone", 60)


def children(pid: int) -> list[int]:
    """The processes that it has started; none when it is gone."""
    with suppress(OSError):
        return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _runs(pid: int) -> bool:
    """Whether a thread of it has not ended. A process that has can stay for a while, until it is
    waited for.
    """
    threads = Path(f"/proc/{pid}/task")
    states = []
    with suppress(OSError):
        for thread in list(threads.iterdir()):
            with suppress(OSError):
                states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return not set(states) <= {"Z", "X"}


@contextmanager
def slurmctld(
    home: Path, address: str, keys: Mapping[str, bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """A slurmctld at `address`:PORT with these keys (slurm.key, jwt.key); see `daemon`."""
    files = {
        "slurm.conf": f"{conf(address)}{_WORKERS}".encode(),
        "cgroup.conf": b"CgroupPlugin=disabled\n",
        **keys,
    }
    with daemon(home, "slurmctld", SLURM, files, ["/usr/sbin/slurmctld", "-D"]) as process:
        yield process
