"""What must be true before a local cluster is started: observed first, judged by a pure function,
nothing changed.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from tests.cluster import cache, cgroups, network
from tests.cluster.addresses import Plan
from tests.cluster.commands import run, succeeds
from tests.cluster.errors import ClusterError

GO = (1, 21)
COLD_DISK_GIB = 15.0
WARM_DISK_GIB = 4.0
MEMORY_GIB = 5.0
IMAGES_COLD_DISK_GIB = 6.0
IMAGES_WARM_DISK_GIB = 2.0
IMAGES_MEMORY_GIB = 1.5
PROGRAMS = {
    "apt-get": "apt",
    "dpkg": "dpkg",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "perl": "perl",
    "setpriv": "util-linux",
    "sysctl": "procps",
    "tar": "tar",
    "unshare": "util-linux",
}

IMAGES_PROGRAMS = ("apt-get", "dpkg", "mount", "perl", "setpriv", "tar", "unshare")
"""Those of PROGRAMS that the build of the images needs."""


@dataclass(frozen=True)
class Facts:
    """What was found on the host. `go` is None without Go; `kernel` shows of each feature
    whether it works.
    """

    system: str
    user: int
    python: tuple[int, int]
    go: tuple[int, int] | None
    missing_programs: Sequence[str]
    ports_taken: Sequence[tuple[str, int]]
    foreign_routes: Sequence[str]
    kernel: dict[str, bool]
    cgroup_controllers: frozenset[str]
    cold: bool
    disk_gib: float
    disk_at: str
    memory_gib: float
    images_alone: bool = False
    """Whether the images are built here, and the cluster is another one."""


def problems(facts: Facts) -> list[str]:
    """Everything that stands in the way, each with its remedy. Empty: go on."""
    found: list[str] = []
    if facts.system != "linux":
        what = "the build of the images" if facts.images_alone else "the local cluster"
        return [f"{what} needs Linux, this is {facts.system}: {_otherwise(facts)}"]
    if facts.user != 0:
        found.append(f"not root: run it as root (sudo -E make up), or {_otherwise(facts)}")
    if facts.python < (3, 11):
        found.append(
            f"Python {facts.python[0]}.{facts.python[1]} is too old: install Python 3.11 or newer"
        )
    if facts.go is None:
        found.append(
            "Go is missing: install Go 1.21 or newer (https://go.dev/dl) and put it on PATH"
        )
    elif facts.go < GO:
        found.append(
            f"Go {facts.go[0]}.{facts.go[1]} is too old: install Go 1.21 or newer "
            "(https://go.dev/dl)"
        )
    found += [
        f"the program {program} is missing: apt-get install {PROGRAMS[program]}"
        for program in facts.missing_programs
    ]
    found += [
        f"TCP port {port}, which {what} needs, is taken: end the program that listens there "
        f"(ss -ltnp 'sport = :{port}'), or choose another cluster name (--name)"
        for what, port in facts.ports_taken
    ]
    found += [
        f"the host has a route to {route}, which the cluster's addresses overlap: choose "
        "another --name"
        for route in facts.foreign_routes
    ]
    found += [
        f"the kernel doesn't offer {feature}: load its module, or run on a host (not a "
        "container) that has it"
        for feature, works in facts.kernel.items()
        if not works
    ]
    found += [
        f"no cgroup hierarchy has the controller {controller}: mount it, or enable it on the "
        "kernel's command line"
        for controller in sorted({"cpu", "memory", "pids"} - facts.cgroup_controllers)
    ]
    if facts.images_alone:
        wanted, memory = (
            IMAGES_COLD_DISK_GIB if facts.cold else IMAGES_WARM_DISK_GIB,
            IMAGES_MEMORY_GIB,
        )
    else:
        wanted, memory = COLD_DISK_GIB if facts.cold else WARM_DISK_GIB, MEMORY_GIB
    if facts.disk_gib < wanted:
        found.append(
            f"{facts.disk_gib:.1f} GiB are free at {facts.disk_at}, {wanted:.0f} are needed: free "
            "some, or set SLURM_CHARTS_CACHE to a folder on a larger disk"
        )
    if facts.memory_gib < memory:
        found.append(f"{facts.memory_gib:.1f} GiB of memory are available, {memory:.1f} are needed")
    return found


def _otherwise(facts: Facts) -> str:
    if facts.images_alone:
        return (
            "build and push the images with a container engine (docs/local.md), and run make up "
            "without REGISTRY"
        )
    return "name a cluster of your own by KUBECONFIG"


def demand(facts: Facts) -> None:
    """Raise ClusterError that lists every problem."""
    found = problems(facts)
    if found:
        what = "build the images" if facts.images_alone else "run the local cluster"
        raise ClusterError(
            "\n".join([f"this host can't {what}:", *(f"- {line}" for line in found)])
        )


def observe(plan: Plan, *, running: bool, cold: bool) -> Facts:
    """Look at the host. With `running` the cluster's own ports and routes are its own and not
    looked at.
    """
    folder = _present(cache.root())
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    able = sys.platform == "linux" and os.geteuid() == 0 and not missing
    usage = shutil.disk_usage(folder)
    return Facts(
        system=sys.platform,
        user=os.geteuid(),
        python=(sys.version_info.major, sys.version_info.minor),
        go=_go_version(),
        missing_programs=missing,
        ports_taken=[]
        if running
        else [(what, port) for what, port in plan.ports.items() if _taken(port)],
        foreign_routes=_overlaps(plan) if able and not running else [],
        kernel=_kernel(folder) if able else {},
        cgroup_controllers=_controllers() if able else frozenset({"cpu", "memory", "pids"}),
        cold=cold,
        disk_gib=usage.free / 2**30,
        disk_at=str(folder),
        memory_gib=_available_memory(),
    )


def observe_for_images(*, cold: bool) -> Facts:
    """Look at what the build of the images needs, and nothing else."""
    folder = _present(cache.root())
    missing = [program for program in IMAGES_PROGRAMS if shutil.which(program) is None]
    able = sys.platform == "linux" and os.geteuid() == 0 and not missing
    return Facts(
        system=sys.platform,
        user=os.geteuid(),
        python=(sys.version_info.major, sys.version_info.minor),
        go=_go_version(),
        missing_programs=missing,
        ports_taken=(),
        foreign_routes=(),
        kernel=_overlays(folder) if able else {},
        cgroup_controllers=frozenset({"cpu", "memory", "pids"}),
        cold=cold,
        disk_gib=shutil.disk_usage(folder).free / 2**30,
        disk_at=str(folder),
        memory_gib=_available_memory(),
        images_alone=True,
    )


def _present(folder: Path) -> Path:
    """The folder, or the next one above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _go_version() -> tuple[int, int] | None:
    try:
        message = subprocess.run(
            ["go", "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/"
        ).stdout
    except FileNotFoundError:
        return None
    numbers = re.match(r"go(\d+)\.(\d+)", message)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return True
    return False


def _overlaps(plan: Plan) -> list[str]:
    return [
        destination
        for family in plan.families
        for destination, device in network.routes(family.version)
        if destination != "default"
        and device != plan.bridge
        and ip_network(destination).overlaps(family.block)
    ]


_TRIAL = ("--mount", "--net", "--propagation", "private", "sh", "-ec")
"""Words of unshare for a trial in namespaces of its own, which vanish with it."""


def _overlays(folder: Path) -> dict[str, bool]:
    """Try what the build of the images needs of the kernel."""
    overlay = (
        'd=$(mktemp -d -p "$0"); trap \'rm -rf "$d"\' EXIT; mkdir "$d/l" "$d/u" "$d/w" "$d/m"; '
        'mount -t overlay overlay -o "lowerdir=$d/l,upperdir=$d/u,workdir=$d/w" "$d/m"; umount '
        '"$d/m"'
    )
    return {
        "network and mount namespaces": succeeds(["unshare", *_TRIAL, "true"]),
        f"overlayfs on the file system of {folder}": succeeds(
            ["unshare", *_TRIAL, overlay, folder]
        ),
    }


def _kernel(folder: Path) -> dict[str, bool]:
    """Try each feature that the nodes need as well."""
    return {
        **_overlays(folder),
        "bridge devices (module bridge)": succeeds(
            ["unshare", *_TRIAL, "ip link add name probe0 type bridge"]
        ),
        "veth devices (module veth)": succeeds(
            ["unshare", *_TRIAL, "ip link add name probe0 type veth peer name probe1"]
        ),
    }


def _controllers() -> frozenset[str]:
    hierarchies = cgroups.found()
    names = {name for path in hierarchies.v1 for name in path.name.split(",")}
    if hierarchies.unified is not None:
        names |= set((hierarchies.unified / "cgroup.controllers").read_text().split())
    return frozenset(names)


def _available_memory() -> float:
    try:
        found = re.search(
            r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE
        )
    except FileNotFoundError:
        return 0.0
    return int(found[1]) / 2**20 if found else 0.0


def python_and_go() -> str:
    """For reports: the versions in use."""
    return f"Python {sys.version.split()[0]}, {run(['go', 'version']).strip()}"
