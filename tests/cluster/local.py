"""The local cluster as a whole: start it, say how it is, take it down without a trace.

Installs nothing into it: tests.cluster.install does.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import cache, cgroups, debian, network, preconditions
from tests.cluster.addresses import INDEXES, IPV4, NODES, Plan, valid_name
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane, Place, daemon_environment, decoded
from tests.cluster.errors import ClusterError
from tests.cluster.images import build_images
from tests.cluster.network import Network
from tests.cluster.nodes import CNI_CACHE, Node, pause_archive
from tests.cluster.processes import Daemon
from tests.cluster.progress import Progress
from tests.cluster.tools import built, tool
from tests.cluster.waiting import until

# The kubelet sets the first ones on its host, the network needs ip_forward, and several clusters
# need more inotify instances than the 128 of a new host; `down` sets them back.
_SYSCTLS: tuple[str, ...] = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/panic_on_oom",
)
_SYSCTLS += ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward")
_SYSCTLS += ("fs/inotify/max_user_instances",)
_INOTIFY_INSTANCES = 1024
PRIVILEGED = "privileged"
ImageBuilder = Callable[[Path, Callable[[str], None]], Path]


def default_name() -> str:
    """Name of the cluster that is meant when none is given."""
    return os.environ.get("SLURM_CHARTS_CLUSTER") or "slurm"


def clusters() -> Path:
    """The folder with one folder per cluster."""
    return cache.root() / "clusters"


def named_by(kubeconfig: str) -> str | None:
    """Name of the local cluster, running or not, whose kubeconfig this is. None: it is not one of a
    local cluster.
    """
    path = Path(kubeconfig).absolute()
    state = path.parent
    return (
        state.parent.name
        if path == clusters() / state.parent.name / "state" / "kubeconfig"
        else None
    )


@dataclass(frozen=True)
class Cluster:
    """A local cluster that is started, half started or ended. `iptables` is where its programs find
    iptables.
    """

    plan: Plan
    iptables: tuple[Path, ...]
    pod_security: str = PRIVILEGED
    """The level of Pod Security that namespaces without labels of their own enforce."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.plan.name

    @property
    def home(self) -> Path:
        """Everything of it: `state` is deleted with the cluster, `images` stays."""
        return clusters() / self.name

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of its administrator."""
        return self.plane.kubeconfig

    @property
    def plane(self) -> ControlPlane:
        """Its control plane."""
        plan = self.plan
        hierarchies = cgroups.found()
        options = []
        if self.pod_security != PRIVILEGED:
            path = self.home / "state" / "admission.json"
            cache.write(path, json.dumps(admission(self.pod_security)))
            options.append(f"--admission-control-config-file={path}")
        place = Place(
            name=self.name,
            address=str(plan.host_address),
            ports=plan.ports,
            service_network=",".join(str(it.service_network) for it in plan.families),
            hosts=[
                *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
                *("kubernetes.default.svc.cluster.local", "127.0.0.1"),
                *(str(plan.host_address), str(plan.kubernetes_service)),
            ],
            cgroup=hierarchies.tracking / plan.cgroup / "daemons" / "cgroup.procs",
        )
        return ControlPlane(
            self.home / "state",
            place,
            # An autoscaler may scale to zero, as KEDA does without it.
            options=["--feature-gates=HPAScaleToZero=true", *options],
            manager_options=["--horizontal-pod-autoscaler-sync-period=5s"],
        )

    @property
    def nodes(self) -> list[Node]:
        """Its nodes."""
        return [
            Node(number, self.plan, self.plane, self.home / "images" / str(number), self.iptables)
            for number in NODES
        ]

    @property
    def network(self) -> Network:
        """Its network."""
        return Network(self.plan, daemon_environment(*self.iptables))

    @property
    def coredns(self) -> Daemon:
        """Its DNS, a process of the host that answers at the bridge."""
        plane = self.plane
        who = plane.client("coredns", "local-cluster:coredns")
        path = plane.folder / "Corefile"
        cache.write(path, corefile(self.plan, who, Path("/etc/resolv.conf").read_text()))
        return plane.daemon("coredns", [tool("coredns"), "-conf", path])

    @property
    def provisioner(self) -> Daemon:
        """Creates a volume for every claim."""
        plane = self.plane
        certificate, key = plane.authority.issue("provisioner", "local-cluster:provisioner")
        words: list[str | Path] = [sys.executable, "-P", Path(__file__).with_name("provisioner.py")]
        words += [f"--address={plane.place.address}", f"--port={self.plan.apiserver_port}"]
        words += [
            f"--authority={plane.authority.certificate}",
            f"--certificate={certificate}",
            f"--key={key}",
        ]
        return plane.daemon("provisioner", [*words, f"--root={plane.folder / 'volumes'}"])

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Output of kubectl as the administrator."""
        return run(
            [tool("kubectl"), "--kubeconfig", self.kubeconfig, *words], stdin=stdin, seconds=seconds
        )

    def images(self) -> str:
        """Names the set of images that the nodes have."""
        try:
            return (self.home / "images" / "1" / "imported.json").read_text()
        except FileNotFoundError:
            return ""

    def running(self) -> bool:
        """Whether every process of it runs and the apiserver is ready."""
        if not self.kubeconfig.exists():
            return False
        return (
            all(each.pid() is not None for each in self.daemons())
            and self.plane.get("/readyz")[0] == 200
        )

    def ready_nodes(self) -> set[str]:
        """Names of the nodes that are Ready."""
        items = decoded(self.plane.get("/api/v1/nodes")).get("items", [])
        return {
            node["metadata"]["name"]
            for node in (items if isinstance(items, list) else [])
            if any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in node["status"].get("conditions", [])
            )
        }

    def daemons(self) -> list[Daemon]:
        """Every daemon: those that start others first."""
        plane = self.plane
        of_nodes = [daemon for node in self.nodes for daemon in node.daemons()]
        return [
            *of_nodes,
            self.coredns,
            self.provisioner,
            plane.scheduler,
            plane.controller_manager,
            plane.apiserver,
            plane.etcd,
        ]

    def restart_kubelet(self, node: int) -> None:
        """End the kubelet of a node and start it again; its pods go on."""
        self.nodes[node - 1].restart_kubelet()


def corefile(plan: Plan, kubeconfig: Path, resolv_conf: str) -> str:
    """CoreDNS' configuration. The cluster's zone is not cached: a new pod's name is known at
    once.
    """
    here = f"bind {plan.host_address}\n    errors"
    zones = f"""\
cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {{
    {here}
    health 127.0.0.1:{plan.ports["coredns health"]}
    ready 127.0.0.1:{plan.ports["coredns ready"]}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
}}
"""
    if any(line.split()[:1] == ["nameserver"] for line in resolv_conf.splitlines()):
        zones += f".:53 {{\n    {here}\n    cache 30\n    forward . /etc/resolv.conf\n}}\n"
    return zones


def admission(level: str) -> dict[str, Any]:
    """AdmissionConfiguration of an API server whose namespaces enforce this level of Pod Security
    by default.
    """
    pod_security = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": level, "enforce-version": "latest"},
    }
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "PodSecurity", "configuration": pod_security}],
    }


def load(name: str) -> Cluster | None:
    """The cluster of that name as its last start left it. None without one."""
    try:
        record = json.loads((clusters() / name / "state" / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    iptables = tuple(Path(path) for path in record["iptables"])
    plan = Plan(name, record["index"], tuple(record.get("versions", (IPV4,))))
    return Cluster(plan, iptables, record.get("pod_security", PRIVILEGED))


def existing(name: str) -> Cluster:
    """The cluster of that name. Raises ClusterError without one."""
    cluster = load(name)
    if cluster is None:
        raise ClusterError(f"no local cluster {name!r} exists: make up starts it")
    return cluster


def cluster_up(
    name: str | None = None,
    progress: Progress | None = None,
    images: ImageBuilder | None = build_images,
    check: Callable[[Progress], object] | None = None,
    pod_security: str = PRIVILEGED,
    versions: tuple[int, ...] = (IPV4,),
) -> Cluster:
    """Start the cluster, or what is missing of it, and wait until its nodes are Ready and have the
    images.

    `images` builds the archive of images that every node gets; None for a cluster without. `check`
    is called once the programs exist and before anything on the host is changed. `versions`
    are those of IP, the preferred one first. A cluster that exists keeps its `pod_security` and
    `versions`. Raises ClusterError.
    """
    name = default_name() if name is None else name
    progress = progress or Progress()
    if not valid_name(name):
        raise ClusterError(
            f"{name!r} can't be a cluster's name: lower-case letters, digits and dashes, at most 20"
        )
    with _alone(name, progress):
        return _up(name, progress, images, check, (pod_security, versions))


def cluster_down(name: str | None = None, progress: Progress | None = None) -> bool:
    """End the cluster and remove all of it but its images. False without one."""
    name = default_name() if name is None else name
    progress = progress or Progress()
    with _alone(name, progress):
        return _down(name, progress)


def _alone(name: str, progress: Progress) -> AbstractContextManager[None]:
    message = f"another run is at work on the cluster {name!r}: waiting for its end"
    return cache.locked(clusters() / f".{name}.lock", lambda: progress.note(message))


def _up(
    name: str,
    progress: Progress,
    images: ImageBuilder | None,
    check: Callable[[Progress], object] | None,
    wanted: tuple[str, tuple[int, ...]],
) -> Cluster:
    cluster = load(name)
    pod_security, versions = wanted
    with progress.step("preconditions"):
        plan = cluster.plan if cluster else Plan(name, _index(name), versions)
        preconditions.demand(
            preconditions.observe(plan, running=cluster is not None, cold=not built("kube"))
        )
    with progress.step("programs of the distribution"):
        debian.unpacked()
    with ThreadPoolExecutor(1) as beside:
        # Downloads and unpacking fill the gaps of the compiler.
        archive = beside.submit(_images, images, progress) if images is not None else None
        once = "" if built("kube") else " (built once, some minutes)"
        with progress.step(f"Kubernetes programs{once}"):
            tool("kube")
            tool("kubectl")
        if check is not None:
            check(progress)
        archives = [pause_archive()]
        if archive is not None:
            with progress.step("images"):
                archives.append(archive.result())
    if cluster is None:
        for leftover in (clusters() / name / "state", clusters() / name / "gone"):
            shutil.rmtree(leftover, ignore_errors=True)
        with progress.step("packet filter"):
            cluster = Cluster(plan, _iptables(plan.versions), pod_security)
        _remember_sysctls()
        _allow_inotify()
        record = {
            "index": plan.index,
            "versions": plan.versions,
            "iptables": [str(path) for path in cluster.iptables],
            "pod_security": pod_security,
        }
        cache.write(cluster.home / "state" / "cluster.json", json.dumps(record))
    with progress.step("control plane"):
        _start_control_plane(cluster)
    with progress.step("three nodes"):
        with ThreadPoolExecutor(len(NODES)) as nodeset:
            list(
                nodeset.map(
                    lambda node: _start_node(cluster, node, archives, progress), cluster.nodes
                )
            )
        names = {node.name for node in cluster.nodes}
        until(
            lambda: names <= cluster.ready_nodes(),
            "all nodes to be Ready",
            120,
            lambda: _why_not_ready(cluster),
            pause=0.3,
        )
    return cluster


def _images(build: ImageBuilder, progress: Progress) -> Path:
    found = build(cache.root(), progress.announce)
    if not built("kube"):
        progress.announce("images: all are built, and the programs are still being compiled")
    return found


def _start_control_plane(cluster: Cluster) -> None:
    plan, plane = cluster.plan, cluster.plane
    CNI_CACHE.mkdir(parents=True, exist_ok=True)
    hierarchies = cgroups.found()
    cgroups.make(hierarchies, plan.cgroup, tuple(f"node-{node}" for node in NODES))
    _end_strangers(cluster, hierarchies)
    cluster.network.up()
    plane.start()
    plane.controller_manager.start()
    plane.scheduler.start()
    manifests = Path(__file__).with_name("manifests.yaml").read_text()
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
    cluster.provisioner.start()
    coredns = cluster.coredns
    coredns.start()

    def answers() -> bool:
        if coredns.pid() is None:
            raise ClusterError(f"coredns ended while starting; {coredns.last_words()}")
        return _answers(plan.ports["coredns ready"], "/ready")

    until(answers, "coredns to be ready", 60, coredns.last_words)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _start_node(cluster: Cluster, node: Node, archives: list[Path], progress: Progress) -> None:
    node.start(cluster.network)
    if node.import_images(*archives):
        progress.announce(f"{node.name} has the images")
    node.start_kubelet()


def _end_strangers(cluster: Cluster, hierarchies: cgroups.Hierarchies) -> None:
    """End daemons that an interrupted run started but could not write down: they use ports and
    sockets.
    """
    if any(each.pid() is not None for each in cluster.daemons()):
        known = {each.pid() for each in cluster.daemons()}
        daemons = hierarchies.tracking / cluster.plan.cgroup / "daemons" / "cgroup.procs"
        ours = {int(pid) for pid in daemons.read_text().split()}
        for pid in ours - known:
            if _is_own_program(pid):
                os.kill(pid, signal.SIGKILL)
    else:
        cgroups.kill(hierarchies, cluster.plan.cgroup)


def _is_own_program(pid: int) -> bool:
    """Whether the process runs one of our daemons' programs; what runs in pods has another root."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return program.is_relative_to(cache.root()) and program.name in {"kube", "etcd", "containerd"}


def _down(name: str, progress: Progress) -> bool:
    cluster = load(name)
    if cluster is None:
        return False
    hierarchies = cgroups.found()
    with progress.step("end every process"):
        # Only containerd has anything to lose: the images, which stay.
        keepers = [daemon for daemon in cluster.daemons() if daemon.name.startswith("containerd-")]
        for daemon in cluster.daemons():
            if daemon not in keepers and not daemon.name.startswith("node-"):
                daemon.signal(signal.SIGKILL)
        for daemon in keepers:
            daemon.signal(signal.SIGTERM)
        with contextlib.suppress(ClusterError):
            until(lambda: all(daemon.pid() is None for daemon in keepers), "containerd to end", 5)
        cgroups.kill(hierarchies, cluster.plan.cgroup)
    with progress.step("remove network and cgroups"):
        cluster.network.down()
        cgroups.remove(hierarchies, cluster.plan.cgroup)
    with progress.step("remove state"):
        # Renamed first: a half removed state must not be taken for a cluster.
        (cluster.home / "state").rename(cluster.home / "gone")
        shutil.rmtree(cluster.home / "gone")
        if not _others(name):
            _restore_sysctls()
            with contextlib.suppress(OSError):
                CNI_CACHE.rmdir()
    return True


def _others(name: str) -> bool:
    return any(path.parent.parent.name != name for path in clusters().glob("*/state/cluster.json"))


def _index(name: str) -> int:
    """The number of the cluster of that name: the lowest that no other has, kept for good.

    A bridge of that number that is not the cluster's own belongs to one of another cache folder.
    """
    with cache.locked(clusters() / ".index.lock"):
        chosen = clusters() / name / "index"
        devices = network.links() if shutil.which("ip") else set()
        if chosen.exists():
            index = int(chosen.read_text())
            if Plan(name, index).bridge not in devices:
                return index
            chosen.unlink()
        used = {int(path.read_text()) for path in clusters().glob("*/index")}
        free = (
            each for each in INDEXES if each not in used and Plan(name, each).bridge not in devices
        )
        found = next(free, None)
        if found is None:
            raise ClusterError(
                f"all {len(INDEXES)} numbers of clusters are in use: delete old folders of "
                f"{clusters()}"
            )
        cache.write(chosen, str(found))
        return found


def _iptables(versions: tuple[int, ...]) -> tuple[Path, ...]:
    """Folders with the iptables programs to use: none for the host's own, which are
    preferred.
    """
    unpacked = debian.unpacked()
    candidates: dict[str, tuple[Path, ...]] = {
        "nft": (unpacked / "iptables-nft",),
        "legacy": (unpacked / "iptables-legacy",),
    }
    if shutil.which("iptables"):
        candidates = {"own": (), **candidates}
    found = network.usable_iptables(
        {name: daemon_environment(*paths) for name, paths in candidates.items()}, versions
    )
    if found is None:
        raise ClusterError(
            "the kernel takes no packet filter rules, neither by iptables-nft nor by "
            "iptables-legacy: load the modules nf_tables, nft_compat, xt_nat, xt_MASQUERADE, "
            "xt_comment, xt_conntrack, xt_statistic and xt_addrtype"
        )
    return candidates[found]


def _remember_sysctls() -> None:
    path = clusters() / "sysctls.json"
    if not path.exists():
        values = {
            name: _sysctl(name).read_text().strip() for name in _SYSCTLS if _sysctl(name).exists()
        }
        cache.write(path, json.dumps(values))


def _allow_inotify() -> None:
    """Kubelets and API servers watch their files. Where the limit can't be changed, few clusters
    still have enough.
    """
    limit = _sysctl("fs/inotify/max_user_instances")
    with contextlib.suppress(OSError):
        if int(limit.read_text()) < _INOTIFY_INSTANCES:
            limit.write_text(str(_INOTIFY_INSTANCES))


def _restore_sysctls() -> None:
    path = clusters() / "sysctls.json"
    if path.exists():
        for name, value in json.loads(path.read_text()).items():
            with contextlib.suppress(OSError):
                _sysctl(name).write_text(value)
        path.unlink()


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name


def _why_not_ready(cluster: Cluster) -> str:
    missing = [node for node in cluster.nodes if node.name not in cluster.ready_nodes()]
    return "\n".join(node.daemons()[0].last_words() for node in missing)
