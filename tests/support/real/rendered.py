"""What chart `slurm` and the operator render for the chart's values, for daemons that run without
pods.

All of them share the address of this host, so each has a port of its own; see `Ports`.
"""

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from postrender.expand import objects
from postrender.expand.cluster import Cluster, clusters
from postrender.expand.objects import Configuration
from sidecars.contract import environment as variables
from sidecars.contract import manifest, podfiles, ports
from sidecars.register import main as register
from sidecars.workloads import config_maps, names, structure
from sidecars.workloads import controller as slurmctld
from sidecars.workloads.accounting import slurmdbd_conf, storage_of
from sidecars.workloads.assembly import find
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.facts import Site, config_map_contents
from sidecars.workloads.resources import Controller, Manifest, StorageConfig
from tests.cluster.commands import run
from tests.cluster.install import helm_environment
from tests.cluster.tools import tool
from tests.support.real.harness import CHARTS

ADDRESS = "127.0.0.1"
SITE = Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars:test")
PASSWORD = b"of the database"


@dataclass(frozen=True)
class Ports:
    """Those from `first` on: ten, of which the last four are free."""

    first: int

    @property
    def slurmctld(self) -> int:
        """Of slurmctld."""
        return self.first

    @property
    def slurmrestd(self) -> int:
        """Of slurmrestd."""
        return self.first + 1

    @property
    def slurmdbd(self) -> int:
        """Of slurmdbd."""
        return self.first + 2

    @property
    def mariadb(self) -> int:
        """Of the database."""
        return self.first + 3

    def slurmd(self, number: int) -> int:
        """Of a worker, of which there may be three, from 0 on."""
        assert number in range(3)
        return self.first + 4 + number

    @property
    def others(self) -> Sequence[int]:
        """The three that no daemon of Slurm has."""
        return range(self.first + 7, self.first + 10)


@dataclass(frozen=True)
class Command:
    """What a container of a pod runs: the image, and shell text for its environment and its
    arguments.
    """

    image: str
    environment: str
    arguments: str


@dataclass(frozen=True, repr=False)
class Release:
    """Release `slurm` in a namespace."""

    documents: Sequence[Manifest]
    """What the chart renders."""

    cluster: Cluster
    controller: Controller
    configuration: Configuration
    ports: Ports
    keys: Mapping[str, bytes]

    @property
    def config_set(self) -> ConfigSet:
        """What the operator composes."""
        found = self.configuration.config_set
        moved = {
            "SlurmctldPort": self.ports.slurmctld,
            "AccountingStoragePort": self.ports.slurmdbd,
        }
        conf = with_values(found.files[manifest.SLURM_CONF], moved)
        return replace(found, files={**found.files, manifest.SLURM_CONF: conf})

    @property
    def files(self) -> dict[str, bytes]:
        """The files of /etc/slurm, without keys."""
        found = self.config_set
        return {**{name: text.encode() for name, text in found.files.items()}, **found.binary_files}

    @property
    def published(self) -> dict[str, bytes]:
        """The files with their manifest, as the operator publishes them."""
        maps = config_maps.config_maps(self.controller, self.config_set)
        found = [config_map_contents(it.get("data"), it.get("binaryData")) for it in maps]
        contents = {name: content for it in found for name, content in it.items()}
        return {name: it.encode() if isinstance(it, str) else it for name, it in contents.items()}

    def of_slurmctld(self, name: str) -> Manifest:
        """A container of slurmctld's pod."""
        configured = self.configuration
        rendered = slurmctld.workload(self.controller, configured.config_set, configured.facts)
        return container(find(rendered, "StatefulSet")["spec"]["template"]["spec"], name)

    @property
    def pods(self) -> list[Manifest]:
        """The pods of all workers."""
        found = self.cluster.nodesets.values()
        rendered = [
            it
            for nodeset in found
            for it in objects.of_nodeset(self.cluster, nodeset, self.configuration)
        ]
        return [it for it in rendered if it["kind"] == "Pod"]

    def slurmd(self, pod: Manifest) -> Command:
        """What runs in this pod."""
        found = container(pod["spec"], "slurmd")
        server = f"{names.controller(self.controller.name)}.{self.controller.namespace}"
        moved = {f"{server}:{ports.SLURMCTLD}": f"{server}:{self.ports.slurmctld}"}
        # The image's entrypoint has a shell read them.
        words = [moved.get(word, word) for word in found["args"]]
        assert words != found["args"]
        return Command(image(found["image"]), shell(constants(found)), shlex.quote(" ".join(words)))

    def registration(self, pod: Manifest, number: int, folder: Path) -> dict[str, bytes]:
        """The files that `register` writes in this pod, in an empty `folder`, with the worker's
        port.
        """
        metadata = pod["metadata"]
        given = {
            variables.POD_NAME: metadata["name"],
            variables.POD_NAMESPACE: metadata["namespace"],
            variables.POD_UID: f"uid-of-{metadata['name']}",
            variables.POD_IP: ADDRESS,
            variables.KUBE_NODE_NAME: "node",
            variables.SLURM_NODE_DIR: str(folder),
        }
        (folder / podfiles.RECORD).write_text("none")
        (folder / podfiles.LOG).parent.mkdir()
        assert (
            register.main(environment={**constants(container(pod["spec"], "register")), **given})
            == 0
        )
        found = {
            name: (folder / name).read_bytes()
            for name in (podfiles.CONF, podfiles.EXTRA, podfiles.INSTANCE_ID)
        }
        port = f" Port={self.ports.slurmd(number)}".encode()
        return {**found, podfiles.CONF: found[podfiles.CONF].rstrip() + port}

    @property
    def slurmrestd(self) -> Command:
        """What runs in its pod."""
        [served] = self.cluster.restapis.values()
        deployment = find(
            objects.of_restapi(self.cluster, served, self.configuration), "Deployment"
        )
        found = container(deployment["spec"]["template"]["spec"], "slurmrestd")
        moved = {f"0.0.0.0:{ports.SLURMRESTD}": f"{ADDRESS}:{self.ports.slurmrestd}"}
        words = [moved.get(word, word) for word in found["args"]]
        assert words != found["args"]
        return Command(image(found["image"]), shell(constants(found)), shlex.join(words))

    @property
    def storage(self) -> StorageConfig | None:
        """slurmdbd's database; None without accounting."""
        found = list(self.cluster.accountings.values())
        return storage_of(found[0]) if found else None

    @property
    def slurmdbd_conf(self) -> bytes:
        """slurmdbd.conf."""
        [accounting] = self.cluster.accountings.values()
        conf = slurmdbd_conf(accounting, PASSWORD)
        return with_values(
            conf, {"DbdPort": self.ports.slurmdbd, "StoragePort": self.ports.mariadb}
        ).encode()

    @property
    def archive(self) -> str:
        """The folder of slurmdbd's archive, which is on a volume in a pod."""
        found = re.search(rb"^ArchiveDir=(.*)$", self.slurmdbd_conf, re.MULTILINE)
        return found[1].decode() if found else "/tmp"  # noqa: S108 - Slurm's default

    @property
    def host_names(self) -> list[str]:
        """The names by which its daemons find each other."""
        namespace = self.controller.namespace
        service, pod = (
            names.controller(self.controller.name),
            f"{names.controller(self.controller.name)}-0",
        )
        own = f"{pod}.{names.controller_internal(self.controller.name)}.{namespace}"
        accounting = [names.accounting(it.name) for it in self.cluster.accountings.values()]
        storage = [self.storage.host] if self.storage is not None else []
        workers = [it["spec"]["hostname"] for it in self.pods]
        return [
            pod,
            own,
            f"{service}.{namespace}",
            *accounting,
            *(f"{it}-0" for it in accounting),
            *storage,
            *workers,
        ]


def release(
    namespace: str, first_port: int, values: Sequence[Path], more: Mapping[str, Any]
) -> Release:
    """What is rendered for these values files and values."""
    words: list[str | Path] = [
        "template",
        "slurm",
        CHARTS / "slurm",
        f"--namespace={namespace}",
        "--skip-tests",
    ]
    files = [f"--values={path}" for path in values]
    text = run(
        [tool("helm"), *words, *files, "--values=-"],
        env=helm_environment(),
        stdin=yaml.safe_dump(dict(more)),
    )
    keys = {
        manifest.SLURM_KEY: secrets.token_bytes(1024),
        manifest.JWT_KEY: secrets.token_bytes(32),
    }
    return composed(
        [it for it in yaml.safe_load_all(text) if it], namespace, Ports(first_port), keys
    )


def composed(
    documents: Sequence[Manifest], namespace: str, ports: Ports, keys: Mapping[str, bytes]
) -> Release:
    """What the operator renders for these. Raises PostrenderError for a configuration that it would
    not publish.
    """
    found = clusters(documents, namespace)[namespace]
    [controller] = found.controllers.values()
    configured = objects.configuration(found, controller, SITE, frozenset())
    return Release(documents, found, controller, configured, ports, keys)


def container(spec: Manifest, name: str) -> Manifest:
    """A container, or init container, of a PodSpec."""
    [found] = [
        it for it in [*spec["containers"], *spec.get("initContainers", ())] if it["name"] == name
    ]
    return dict(found)


def image(reference: str) -> str:
    """The name of an image of this repository, from any registry."""
    return reference.rpartition("/")[2].partition(":")[0]


def with_values(text: str, values: Mapping[str, int]) -> str:
    """A configuration with other values of those of these keys that it has."""
    for key, value in values.items():
        text = re.sub(rf"^{key}=.*$", f"{key}={value}", text, flags=re.MULTILINE)
    return text


def constants(found: Manifest) -> dict[str, str]:
    """The variables of a container that don't depend on its pod."""
    return {it["name"]: it["value"] for it in found.get("env", ()) if "value" in it}


def shell(environment: Mapping[str, str]) -> str:
    """Variables as arguments of `env`, as shell text."""
    return shlex.join(f"{name}={value}" for name, value in environment.items())
