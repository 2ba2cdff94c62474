"""The controllers of JobSet and LeaderWorkerSet as processes beside a control plane, with their
webhooks and rights.

Their objects are those of their own releases. What a cluster would do for them is done here: no
Service leads to their webhooks, so the API server gets their addresses, and the authority of the
control plane signs their certificates.
"""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.cluster import cache
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane, free_ports
from tests.cluster.processes import Daemon
from tests.cluster.tools import MANIFESTS, tool
from tests.cluster.waiting import until

ADDRESS = "127.0.0.1"
_CONTROLLERS = ("job", "statefulset", "replicaset", "resourceclaim", "garbage-collector")
"""Of Kubernetes: what the others and tests need, and none that would find the Kubernetes nodes
dead.
"""
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_SECONDS = 300.0


@dataclass(frozen=True)
class Controller:
    """The program `name` of tests/cluster, whose objects are in `namespace`."""

    name: str
    namespace: str
    configuration: str
    """Group of its configuration file."""
    kind: str
    """Path of its kind in the API."""

    @contextlib.contextmanager
    def running(self, plane: ControlPlane) -> Iterator[None]:
        """The controller, while the block runs."""
        port, health = free_ports(2)
        self._install(plane, port)
        daemon = self._daemon(plane, port, health)
        daemon.start()
        try:

            def listens() -> bool:
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection((ADDRESS, port), timeout=1),
                ):
                    return True
                return False

            until(listens, f"the webhooks of {self.name} to listen", _SECONDS, daemon.last_words)
            yield
        finally:
            daemon.stop()

    def _install(self, plane: ControlPlane, port: int) -> None:
        kubectl = (tool("kubectl"), f"--kubeconfig={plane.kubeconfig}")
        manifests = yaml.safe_load_all(
            (tool(self.name).parent / MANIFESTS).read_text(encoding="utf-8")
        )
        # The program runs without a Pod.
        wanted = [
            self._reached(plane, port, it)
            for it in manifests
            if it["kind"] not in ("Deployment", "Service")
        ]
        run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump_all(wanted), seconds=60)
        until(lambda: plane.get(self.kind)[0] == 200, f"{self.kind} to be served", _SECONDS)

    def _reached(self, plane: ControlPlane, port: int, manifest: dict[str, Any]) -> dict[str, Any]:
        """Webhooks at the address of the process."""
        if manifest["kind"] not in _WEBHOOKS:
            return manifest
        bundle = run(["base64", "-w0", plane.authority.certificate])
        webhooks = [
            {**it, "clientConfig": {"url": f"https://{ADDRESS}:{port}{path}", "caBundle": bundle}}
            for it in manifest["webhooks"]
            for path in [it["clientConfig"]["service"]["path"]]
        ]
        return {**manifest, "webhooks": webhooks}

    def _daemon(self, plane: ControlPlane, port: int, health: int) -> Daemon:
        folder = plane.folder / self.name
        certificate, key = plane.authority.issue(f"{self.name}-webhook", self.name, hosts=[ADDRESS])
        cache.write(folder / "tls.crt", certificate.read_bytes())
        cache.write(folder / "tls.key", key.read_bytes(), mode=0o600)
        configuration = {
            "apiVersion": f"{self.configuration}/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": ADDRESS, "port": port, "certDir": str(folder)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{ADDRESS}:{health}"},
        }
        cache.write(folder / "configuration.yaml", yaml.safe_dump(configuration))
        # The account of its release: it has its own rights, and no others.
        name = f"{self.namespace.removesuffix('-system')}-controller-manager"
        account = f"system:serviceaccount:{self.namespace}:{name}"
        who = plane.client(self.name, account, "system:serviceaccounts", "system:authenticated")
        return plane.daemon(
            self.name,
            [tool(self.name), f"--config={folder / 'configuration.yaml'}", f"--kubeconfig={who}"],
        )


CONTROLLERS = (
    Controller(
        "jobset",
        "jobset-system",
        "config.jobset.x-k8s.io",
        "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    ),
    Controller(
        "lws",
        "lws-system",
        "config.lws.x-k8s.io",
        "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
    ),
)


@contextlib.contextmanager
def controllers(plane: ControlPlane) -> Iterator[None]:
    """All of them, and the controllers of Kubernetes that they need, while the block runs."""
    with contextlib.ExitStack() as stack:
        for it in CONTROLLERS:
            stack.enter_context(it.running(plane))
        # It learns of the kinds of others when it starts, and only much later of new ones.
        plane.manager_options = [
            "--controllers=" + ",".join(f"{it}-controller" for it in _CONTROLLERS)
        ]
        plane.controller_manager.start()
        yield
