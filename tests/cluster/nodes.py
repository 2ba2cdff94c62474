"""A node of a local cluster: containerd, kubelet, kube-proxy and the enforcer of NetworkPolicies.

They run in a network and a mount namespace of their own. The namespaces belong to a holder process,
so that links and mounts vanish with the node's processes, and nothing that a node writes below
/run, /var/log or /var/lib/cni reaches the host.
"""

import io
import json
import os
import shlex
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import cache, debian
from tests.cluster.addresses import Plan
from tests.cluster.commands import run, succeeds
from tests.cluster.control_plane import ControlPlane, daemon_environment
from tests.cluster.errors import ClusterError
from tests.cluster.network import Network
from tests.cluster.processes import Daemon
from tests.cluster.tools import tool
from tests.cluster.waiting import until

PAUSE = "slurm-charts.local/pause:1"
SOCKET = "/run/containerd/containerd.sock"
GUEST_TAINT = "slurm-charts.local/own-kernel"
"""Taint of the node with a kernel of its own."""
# The CNI library's own folder on the host; each node has one of its own mounted over it.
CNI_CACHE = Path("/var/lib/cni")


@dataclass(frozen=True)
class Node:
    """The node number `number`. `folder` has its state, `images` containerd's root, kept when the
    cluster is deleted.

    With `own_kernel` it is a guest of tests.cluster.guest, which starts its programs.
    """

    number: int
    plan: Plan
    plane: ControlPlane
    images: Path
    iptables: tuple[Path, ...]
    own_kernel: bool = False

    @property
    def name(self) -> str:
        """Kubernetes name."""
        return self.plan.node_name(self.number)

    @property
    def folder(self) -> Path:
        """The node's state."""
        return self.plane.folder / "nodes" / str(self.number)

    @property
    def registries(self) -> Path:
        """The folder with a folder HOST for each registry with settings of its own, which contains
        `hosts.toml`.
        """
        return self.folder / "registries"

    @property
    def holder(self) -> Daemon:
        """Keeps the namespaces."""
        folder = self.folder
        binds = {
            folder / "kubelet": Path("/run/kubelet"),
            folder / "log": Path("/var/log"),
            folder / "cni-cache": CNI_CACHE,
        }
        lines = ["mount --make-rshared /", "mount -t tmpfs -o mode=755 slurm-charts /run"]
        for source, target in binds.items():
            lines.append(f"mkdir -p {shlex.quote(str(source))} {target}")
            lines.append(f"mount --bind {shlex.quote(str(source))} {target}")
        lines += ["mkdir -p /run/lock /run/containerd", "touch /run/ready", "exec sleep infinity"]
        script = "\n".join(["set -e", *lines])
        words = ["unshare", "--net", "--mount", "--propagation=private", "sh", "-c", script]
        return self.plane.daemon(f"node-{self.number}", words)

    def start(self, network: Network) -> None:
        """Start everything of the node that doesn't run; returns before the node is Ready."""
        holder = self.holder
        if holder.start():
            # Whatever still runs of the node belongs to namespaces that can't be entered by now.
            for name in ("kubelet", "kube-proxy", "network-policies", "containerd"):
                self.plane.daemon(f"{name}-{self.number}", []).stop()
        pid = holder.pid()
        ready = Path(f"/proc/{pid}/root/run/ready")
        until(
            lambda: holder.pid() is None or ready.exists(),
            f"the namespaces of {self.name}",
            60,
            holder.last_words,
        )
        if pid is None or holder.pid() is None:
            raise ClusterError(
                f"the namespaces of {self.name} can't be created; {holder.last_words()}"
            )
        network.join(self.number, pid)
        self.write_configuration()
        containerd = self._daemon("containerd")
        if containerd.start():
            until(
                lambda: succeeds([*self.ctr(), "version"], seconds=10),
                f"containerd of {self.name}",
                60,
                containerd.last_words,
            )
            if self._daemon("kubelet").pid() is None:
                self._sweep()

    def start_kubelet(self) -> None:
        """Start kubelet, kube-proxy and the enforcer of NetworkPolicies; the images should be there
        by now.
        """
        self._daemon("network-policies").start()
        self._daemon("kubelet").start()
        self._daemon("kube-proxy").start()

    def restart_kubelet(self) -> None:
        """End the kubelet and start it again; pods go on."""
        kubelet = self._daemon("kubelet")
        kubelet.stop()
        kubelet.start()

    def import_images(self, *archives: Path) -> bool:
        """Import image archives into the node. False if it has them all already."""
        return self._import(self.images / "imported.json", archives)

    def import_more(self, archive: Path) -> bool:
        """Import an archive with images that not every cluster has. False if it has it already."""
        return self._import(self.images / "more.json", (archive,))

    def _import(self, marker: Path, archives: Iterable[Path]) -> bool:
        wanted = {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in archives}
        try:
            imported = json.loads(marker.read_text())
        except (FileNotFoundError, ValueError):
            imported = {}
        missing = [path for path in archives if imported.get(str(path)) != wanted[str(path)]]
        for path in missing:
            words = [*self.ctr(), "images", "import", "--snapshotter=overlayfs", path]
            # containerd collects garbage beside an import, and may take a layer that the import is
            # about to build on.
            if not succeeds(words, seconds=300):
                run(words, seconds=300)
        if missing:
            self._forget_untagged()
            cache.write(marker, json.dumps(wanted))
        return bool(missing)

    def _forget_untagged(self) -> None:
        """Let containerd collect images whose tag has moved on: it keeps a second name, the digest,
        for each.
        """
        refs = [line.split() for line in run([*self.ctr(), "images", "list"]).splitlines()[1:]]
        tagged = {digest for name, _, digest, *_ in refs if not name.startswith("sha256:")}
        stale = [
            name
            for name, _, digest, *_ in refs
            if name.startswith("sha256:") and digest not in tagged
        ]
        if stale:
            run([*self.ctr(), "images", "remove", *stale])

    def ctr(self) -> list[str | Path]:
        """Words that run containerd's client on the node."""
        pid = self.holder.pid()
        if pid is None:
            raise ClusterError(f"{self.name} doesn't run")
        enter = ["nsenter", f"--net=/proc/{pid}/ns/net", f"--mount=/proc/{pid}/ns/mnt"]
        return [*enter, *self.ctr_words()]

    def ctr_words(self) -> list[str]:
        """Words that run containerd's client, on the node itself."""
        return [str(tool("ctr")), "--address", SOCKET, "--namespace", "k8s.io"]

    def daemons(self) -> list[Daemon]:
        """Every daemon of the node, the kubelet first."""
        return [
            *map(self._daemon, ("kubelet", "kube-proxy", "network-policies", "containerd")),
            self.holder,
        ]

    def words(self, name: str) -> list[str]:
        """Words that run kubelet, kube-proxy or containerd, on the node itself."""
        if name == "kubelet":
            who = self.plane.client(
                f"kubelet-{self.number}", f"system:node:{self.name}", "system:nodes"
            )
            words: list[str | Path] = [tool("kubelet"), f"--config={self.folder / 'kubelet.yaml'}"]
            words += [
                f"--kubeconfig={who}",
                f"--hostname-override={self.name}",
                "--root-dir=/run/kubelet",
            ]
            addresses = [str(it.node_address(self.number)) for it in self.plan.families]
            words += [f"--node-ip={','.join(addresses)}", "--v=1"]
            # Nothing reads the statistics of containers, which take a good part of an idle
            # kubelet's CPU: each look reads all processes of the host.
            words.append("--housekeeping-interval=10m")
        elif name == "network-policies":
            certificate, key = self.plane.authority.issue(
                f"network-policies-{self.number}", "local-cluster:network-policies"
            )
            words = [sys.executable, "-P", Path(__file__).with_name("network_policies.py")]
            words += [f"--address={self.plan.host_address}", f"--port={self.plan.apiserver_port}"]
            words += [f"--version={version}" for version in self.plan.versions]
            words += [
                f"--authority={self.plane.authority.certificate}",
                f"--certificate={certificate}",
                f"--key={key}",
            ]
        elif name == "kube-proxy":
            words = [tool("kube-proxy"), f"--config={self.folder / 'kube-proxy.yaml'}"]
        else:
            words = [tool("containerd"), "--config", self.folder / "containerd.toml"]
        return [str(word) for word in words]

    def _daemon(self, name: str) -> Daemon:
        daemon = self.plane.daemon(
            f"{name}-{self.number}", self.words(name), namespaces=self.holder.pid()
        )
        path = (debian.unpacked() / "bin", *self.iptables)
        return Daemon(**{**vars(daemon), "env": daemon_environment(*path)})

    def _sweep(self) -> None:
        """Remove the containers that an ended cluster left in containerd's records; their processes
        are gone.
        """
        left = run([*self.ctr(), "containers", "list", "--quiet"]).split()
        if left:
            run([*self.ctr(), "containers", "delete", *left])

    def write_configuration(self) -> None:
        """Write the files that its programs read."""
        cache.write(self.folder / "containerd.toml", self.containerd_toml())
        cni = json.dumps(cni_configuration(self.plan, self.number), indent=1)
        cache.write(self.folder / "cni" / "10-slurm-charts.conflist", cni)
        cache.write(self.folder / "resolv.conf", upstream(Path("/etc/resolv.conf").read_text()))
        serving = self.plane.authority.issue(
            f"kubelet-{self.number}-serving",
            self.name,
            hosts=[self.name, *(str(it.node_address(self.number)) for it in self.plan.families)],
        )
        kubelet = kubelet_configuration(
            self.plan,
            self.number,
            authority=self.plane.authority.certificate,
            serving=serving,
            resolv_conf=self.folder / "resolv.conf",
        )
        if self.own_kernel:
            kubelet |= {
                "cgroupRoot": "/",
                "registerWithTaints": [{"key": GUEST_TAINT, "effect": "NoSchedule"}],
            }
        cache.write(self.folder / "kubelet.yaml", yaml.safe_dump(kubelet))
        proxy = self.plane.client(f"kube-proxy-{self.number}", "system:kube-proxy")
        cache.write(
            self.folder / "kube-proxy.yaml",
            yaml.safe_dump(proxy_configuration(self.plan, self.number, proxy)),
        )

    def containerd_toml(self) -> str:
        """Configuration of containerd. It can't lower its children's OOM scores on restricted
        hosts, nor must it.
        """
        runc = debian.unpacked() / "bin" / "runc"
        return f"""\
version = 2
root = {json.dumps(str(self.images))}
state = "/run/containerd/state"
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = {json.dumps(str(self.registries))}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {json.dumps(str(runc))}
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {json.dumps(str(debian.unpacked() / "cni"))}
conf_dir = {json.dumps(str(self.folder / "cni"))}
"""


def cni_configuration(plan: Plan, node: int) -> dict[str, Any]:
    """The network of the node's pods: a bridge inside the node, routed, without masquerading
    between nodes.
    """
    return {
        "cniVersion": "0.4.0",
        "name": plan.node_name(node),
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": str(it.node_pods(node))}] for it in plan.families],
                    "routes": [{"dst": it.anywhere} for it in plan.families],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_configuration(
    plan: Plan, node: int, *, authority: Path, serving: tuple[Path, Path], resolv_conf: Path
) -> dict[str, Any]:
    """KubeletConfiguration. Nothing is evicted or garbage-collected: the host's disk is not the
    cluster's.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(plan.node_address(node)),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "10s"},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plan.cgroup}/node-{node}",
        "failCgroupV1": False,
        "clusterDNS": [str(plan.host_address)],
        "clusterDomain": "cluster.local",
        "containerLogMaxSize": "20Mi",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        }
        | {"imagefs.available": "0%", "imagefs.inodesFree": "0%"},
        "failSwapOn": False,
        "healthzBindAddress": "127.0.0.1",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxPods": 110,
        "nodeStatusUpdateFrequency": "10s",
        "oomScoreAdj": 0,
        "podLogsDir": "/var/log/pods",
        "resolvConf": str(resolv_conf),
        "rotateCertificates": False,
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "tlsCertFile": str(serving[0]),
        "tlsPrivateKeyFile": str(serving[1]),
        "volumePluginDir": "/run/kubelet/volume-plugins",
    }


def proxy_configuration(plan: Plan, node: int, kubeconfig: Path) -> dict[str, Any]:
    """KubeProxyConfiguration: iptables, and no connection-tracking limits of its own."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": ",".join(str(it.pod_network) for it in plan.families),
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "healthzBindAddress": "127.0.0.1:10256",
        "hostnameOverride": plan.node_name(node),
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "iptables",
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
    }


def upstream(resolv_conf: str) -> str:
    """resolv.conf for pods with dnsPolicy Default: name servers of the host that a node can
    reach.
    """
    lines = [line for line in resolv_conf.splitlines() if line.split()[:1] == ["nameserver"]]
    outside = [line for line in lines if not line.split()[1].startswith(("127.", "::1"))]
    return "\n".join(outside) + "\n"


def pause_archive() -> Path:
    """An image archive with the pause image, built on demand."""
    program = tool("pause")

    def make(folder: Path) -> None:
        layer = _tar({"pause": (program.read_bytes(), 0o755)})
        config = json.dumps(
            {
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(
                    os.uname().machine, os.uname().machine
                ),
                "os": "linux",
                "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
            }
        ).encode()
        manifest = [{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]
        archive = {
            "config.json": config,
            "layer.tar": layer,
            "manifest.json": json.dumps(manifest).encode(),
        }
        (folder / "pause.tar").write_bytes(
            _tar({name: (data, 0o644) for name, data in archive.items()})
        )

    return cache.entry(cache.root() / "images" / program.parent.name, make) / "pause.tar"


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, (data, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
