"""A slurmctld as a plain process of this machine, outside of the Kubernetes cluster: what a site has beside it."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cache import root
from tests.cluster.images import plan

PORT = 7817

_START = r"""
set -eu
lower=$1 home=$2
mount -t overlay overlay "$home/root" -o "lowerdir=$lower,upperdir=$home/upper,workdir=$home/work"
mount -t proc proc "$home/root/proc"
mount --bind /dev "$home/root/dev"
mount -t tmpfs tmpfs "$home/root/run"
mkdir -p "$home/root/etc/slurm" "$home/root/state" "$home/root/run/slurmctld"
mount --bind "$home/etc" "$home/root/etc/slurm"
cp /etc/resolv.conf /etc/hosts "$home/root/etc/"
chown -R 401:401 "$home/etc" "$home/root/state" "$home/root/run/slurmctld"
exec chroot "$home/root" setpriv --reuid=401 --regid=401 --clear-groups /usr/sbin/slurmctld -D
"""

CONF = """\
ClusterName=outside
SlurmUser=slurm
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmctldPidFile=/run/slurmctld/pid
StateSaveLocation=/state
SlurmdUser=root
SlurmdPort=6818
SlurmdSpoolDir=/var/spool/slurmd
SlurmdLogFile=/var/log/slurm/slurmd.log
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
NodeSet=slinky Feature=slinky
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextmanager
def slurmctld(home: Path, address: str, keys: dict[str, bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A slurmctld at `address`:PORT with these keys (slurm.key, jwt.key), from the image's own files, until the end.

    Needs root: it mounts, in a mount namespace that ends with it. Its log is in `home`/log.
    """
    for folder in ("root", "upper", "work", "etc"):
        (home / folder).mkdir()
    conf = CONF.format(host=socket.gethostname(), address=address, port=PORT)
    (home / "etc" / "slurm.conf").write_text(conf)
    (home / "etc" / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    for name, key in keys.items():
        path = home / "etc" / name
        path.write_bytes(key)
        path.chmod(0o600)
    [image] = [image for image in plan() if "/slurmctld:" in image.reference]
    layers = root() / "images" / "layers"
    lower = ":".join(str(layers / layer.key / "tree") for layer in reversed(image.top.chain))
    namespace = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*namespace, "sh", "-c", _START, "slurmctld", lower, str(home)], stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
