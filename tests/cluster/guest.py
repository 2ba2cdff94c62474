"""A node of a local cluster with a kernel of its own, and so with cgroup v2 whatever the host's
kernel mounts.

The kernel is user-mode Linux (tests.cluster.kernel). Its root file system is the host's own
below a tmpfs, so that it finds all programs of the cache and the node's configuration under the
paths that they have on the host. Nothing that it writes reaches the host, but for logs. Its
network is one end of a veth pair whose other end is in the cluster's bridge. The node has the taint
GUEST_TAINT: only pods that tolerate it run there.
"""

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

from tests.cluster import cache, debian
from tests.cluster.commands import run
from tests.cluster.control_plane import daemon_environment
from tests.cluster.errors import ClusterError
from tests.cluster.images import build_images
from tests.cluster.kernel import built, kernel
from tests.cluster.local import Cluster
from tests.cluster.nodes import Node, pause_archive
from tests.cluster.processes import Daemon
from tests.cluster.progress import Progress
from tests.cluster.waiting import until

NUMBER = 4
MEMORY_GIB = 6
CPUS = 2
IMAGES = ("slurmd", "sidecars")
_SHM = "/dev/shm"  # noqa: S108 - where user-mode Linux keeps the guest's memory
_BOOT = (
    "root=/dev/root",
    "rootfstype=hostfs",
    "rootflags=/",
    "rw",
    "con=null",
    "con0=null,fd:1",
    "quiet",
    "panic=-1",
)

_MOUNTS = """\
#!/bin/bash
# The first process of the node {name}. Its standard output is the log of the kernel.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root
set -e
mount -t tmpfs -o mode=755,size=90% tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mkdir -p /mnt/root/.host
pivot_root /mnt/root /mnt/root/.host
cd /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /run /var/log /var/lib/cni
mount -t devpts devpts /dev/pts
for folder in /dev/shm /run /var/log /var/lib/cni; do
  mount -t tmpfs -o mode=755,size=90% tmpfs $folder
done
ln -s /proc/self/fd /dev/fd
chmod 1777 /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
"""

_NODE = """\
# Files that the guest writes after the start are visible in its own tree only, not below the
# tmpfs.
mount --bind /.host{cache} {cache}
mount --make-rshared /
# The kubelet ends on a CPU without a clock rate.
awk '{{ print }} /^processor/ {{ print "cpu MHz : 2000.000" }}' /proc/cpuinfo > /run/cpuinfo
mount --bind /run/cpuinfo /proc/cpuinfo
# GPUs for jobs to be kept away from. 1:3 is /dev/null, which each job needs.
mknod -m 666 /dev/nvidia0 c 1 7
mknod -m 666 /dev/nvidia1 c 1 8
echo {name} > /proc/sys/kernel/hostname
ip link set lo up
ip link set vec0 name eth0
ip addr add {address} dev eth0
ip link set eth0 up
ip route add default via {gateway}
echo 1 > /proc/sys/net/ipv4/ip_forward
mkdir -p /run/lock /run/containerd /run/kubelet
export PATH={path}
{containerd} > {logs}/containerd-{number}.log 2>&1 &
until {ctr} version > /run/ctr.log 2>&1; do sleep 0.2; done
for archive in {archives}; do {ctr} images import --snapshotter=overlayfs $archive; done
{kubelet} > {logs}/kubelet-{number}.log 2>&1 &
{proxy} > {logs}/kube-proxy-{number}.log 2>&1 &
# Ended processes are reaped, whoever started them.
while true; do wait -n || true; sleep 1; done
"""


def node(cluster: Cluster) -> Node:
    """The node, started or not. Its images are in a tmpfs of its own."""
    return Node(
        number=NUMBER,
        plan=cluster.plan,
        plane=cluster.plane,
        images=Path("/run/containerd/images"),
        iptables=(debian.unpacked() / "iptables-nft",),
        own_kernel=True,
    )


def start(cluster: Cluster, progress: Progress) -> str:
    """Start the node unless it runs, and wait until it is Ready; its name. Raises ClusterError."""
    of = node(cluster)
    once = "" if built() else " (built once, some minutes)"
    with progress.step(f"a kernel with cgroup v2{once}"):
        program = kernel(progress.note)
    with progress.step("images of its node"):
        archives = [pause_archive(), build_images(cache.root(), progress.note, IMAGES)]
    with progress.step("the node with cgroup v2"):
        of.write_configuration()
        init = of.folder / "init"
        cache.write(init, _MOUNTS.format(name=of.name) + _node_script(of, archives), 0o755)
        daemon = _daemon(of, program, init)
        if daemon.pid() is None:
            demand_memory()
            device = cluster.network.attach(NUMBER)
            daemon = _daemon(of, program, init, f"vec0:transport=raw,ifname={device},depth=64")
            daemon.start()

        def ready() -> bool:
            if daemon.pid() is None:
                raise ClusterError(
                    f"the kernel of {of.name} ended while starting; {daemon.last_words()}"
                )
            return of.name in cluster.ready_nodes()

        # Most of the time it unpacks images, for which it needs minutes on a busy host.
        until(ready, f"{of.name} to be Ready", 600, daemon.last_words, pause=0.3)
    return of.name


def demand_memory() -> None:
    """Raises ClusterError unless /dev/shm has room for the node's memory: the kernel ends where
    that is full.
    """
    free = shutil.disk_usage(_SHM).free
    if free < MEMORY_GIB * 2**30:
        raise ClusterError(
            f"{free // 2**20} MiB are free in {_SHM}, and the cgroup v2 node needs {MEMORY_GIB} "
            f"GiB there: mount -o remount,size={MEMORY_GIB + 1}G {_SHM}, or in a container "
            f"--shm-size={MEMORY_GIB + 1}g"
        )


def boot(folder: Path) -> str:
    """Boot the kernel alone, run one confined job in it, and switch it off; what the job
    printed.

    The job sees one of two CPUs and is killed at its memory limit. `folder` gets the script that
    runs inside. Raises ClusterError if the kernel doesn't end within a minute.
    """
    init = folder / "init"
    cache.write(init, _MOUNTS.format(name="boot") + _JOB, 0o755)
    words: list[str | Path] = [
        kernel(),
        "mem=512M",
        f"ncpus={CPUS}",
        "seccomp=on",
        "cgroup_no_v1=all",
        *_BOOT,
        f"init={init}",
    ]
    return run(words, env={**daemon_environment(), "TMPDIR": _SHM}, seconds=60)


def unconfined(output: str) -> str:
    """What in the output of `boot` shows that the job was not confined; empty if it was."""
    lines = output.splitlines()
    missing = [
        each
        for each in ("CPUs: 1", "exit code: 137", "oom_kill 1", "group removed")
        if each not in lines
    ]
    return f"not in its output: {', '.join(missing)}; it ends with {lines[-3:]}" if missing else ""


_JOB = """\
echo "+cpuset +memory" > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/job
echo 0 > /sys/fs/cgroup/job/cpuset.cpus
echo 64M > /sys/fs/cgroup/job/memory.max
set +e
(
  echo $BASHPID > /sys/fs/cgroup/job/cgroup.procs
  echo "CPUs: $(nproc)"
  exec python3 -S -E -c 'print(len(b"x" * 256 * 2**20))'
)
echo "exit code: $?"
grep oom_kill /sys/fs/cgroup/job/memory.events
rmdir /sys/fs/cgroup/job && echo "group removed"
echo o > /proc/sysrq-trigger
sleep 10
"""


def _process(number: int) -> str:
    return f"kernel-{number}"


def _daemon(of: Node, program: Path, init: Path, *network: str) -> Daemon:
    words: list[str | Path] = [
        program,
        f"mem={MEMORY_GIB}G",
        f"ncpus={CPUS}",
        "seccomp=on",
        "cgroup_no_v1=all",
    ]
    daemon = of.plane.daemon(_process(of.number), [*words, *_BOOT, f"init={init}", *network])
    # The guest's memory is a file there.
    return replace(daemon, env={**daemon.env, "TMPDIR": _SHM})


def _node_script(of: Node, archives: list[Path]) -> str:
    plan = of.plan
    folders = [*of.iptables, debian.unpacked() / "bin"]
    return _NODE.format(
        name=of.name,
        number=of.number,
        cache=shlex.quote(str(cache.root())),
        address=f"{plan.node_address(of.number)}/{plan.families[0].node_network.prefixlen}",
        gateway=plan.host_address,
        path=shlex.quote(":".join(map(str, folders))) + ":$PATH",
        logs=shlex.quote(str(of.plane.folder / "logs")),
        containerd=shlex.join(of.words("containerd")),
        kubelet=shlex.join(of.words("kubelet")),
        proxy=shlex.join(of.words("kube-proxy")),
        ctr=shlex.join(of.ctr_words()),
        archives=shlex.join(map(str, archives)),
    )


def stop(cluster: Cluster) -> None:
    """End the node's kernel, and all that runs on it. Kubernetes forgets the node."""
    cluster.plane.daemon(_process(NUMBER), []).kill()
    cluster.kubectl("delete", "node", node(cluster).name, "--ignore-not-found", "--wait=false")
