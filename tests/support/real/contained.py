"""Slurm clusters whose jobs run in images of a real registry, as users without rights, with three
workers.

The workers share the cache of images by a folder of this host, which stands in for a volume that
several nodes mount.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.cluster import debian
from tests.support.real import as_processes, registry, rendered
from tests.support.real.as_processes import Daemons
from tests.support.real.harness import CHARTS, VALUES, Kubernetes, Slurm
from tests.support.real.registry import ON_CLUSTER, Addresses

NAMESPACE = "contained"
WORKERS = 3
USERS = {"alice": 2001, "bob": 2002}
BOX = f"{ON_CLUSTER.open}/team/box:1"
"""Tag 2 names the same image."""
CACHE = "/var/cache/slurm-containers"
"""Where workers have the cache of images."""

GRES_CONF = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"
"""Two GPUs on each worker. Their files are those of devices that every container has."""

_PUSH = """
set -eu
open=$1 locked=$2 credentials=$3
mkdir -p /tmp/box/bin && cd /tmp/box
base64 -d >bin/busybox
chmod 755 bin/busybox
for name in cat echo env id ls pwd sh sleep true; do ln -s busybox bin/$name; done
echo the image >which
cd /tmp
umoci init --layout layout
umoci new --image layout:box
umoci insert --image layout:box box /
umoci config --image layout:box --config.env PATH=/bin --config.env COLOR=blue \
  --config.workingdir /bin
for number in 1 2; do
  skopeo copy --quiet --dest-tls-verify=false oci:layout:box docker://$open/team/box:$number
done
skopeo copy --quiet --dest-tls-verify=false --dest-creds=$credentials \
  oci:layout:box docker://$locked/secret/box:1
"""


_PUSH_LAYER = """
set -eu
cd "$(mktemp -d)"
base64 -d >layer
umoci init --layout layout
umoci new --image layout:box
umoci raw add-layer --image layout:box layer
skopeo copy --quiet --dest-tls-verify=false oci:layout:box docker://$1
"""


_PREPARE = f"""
{"".join(f"useradd --create-home --uid={number} {name}; " for name, number in USERS.items())}
[ ! -d {CACHE} ] || chmod 1777 {CACHE}
"""


class Login(Protocol):
    """A cluster with a login node."""

    def login(self, *words: str, timeout: float = 60, stdin: str | None = None) -> str:
        """Run a command of root there."""


def worker(number: int) -> str:
    """The name of a worker's pod."""
    return f"slurm-worker-slinky-{number}"


@contextmanager
def running(kubernetes: Kubernetes, folder: Path, *words: str) -> Iterator[Slurm]:
    """The cluster with its users, and the image in the registries, until the end of the block.
    `words`: more of Helm's.

    The operator must run and watch NAMESPACE, and `registry.running` must be around this block.
    `folder` must be empty.
    """
    (folder / "values.yaml").write_text(yaml.safe_dump(_values(ON_CLUSTER, folder / "images")))
    found = Slurm(kubernetes, NAMESPACE)
    kubernetes.helm(
        *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", found.namespace),
        *("-f", str(VALUES), "-f", str(folder / "values.yaml"), *words),
    )
    found.until_idle(WORKERS)
    for name, number in USERS.items():
        add = ("useradd", "--create-home", f"--uid={number}", name)
        found.login(*add)
        for index in range(WORKERS):
            found.worker(worker(index), *add)
    kubernetes.kubectl(
        *("-n", found.namespace, "exec", "-i", worker(0), "-c", "slurmd", "--", *_push(ON_CLUSTER)),
        stdin=_busybox(),
        timeout=180,
    )
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace, "--ignore-not-found")
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false", "--ignore-not-found")


@contextmanager
def on_this_host(home: Path, first_port: int, addresses: Addresses) -> Iterator[Daemons]:
    """The cluster as plain processes with ports from this one on; as `running`, with the registries
    at `addresses`.

    `home` must be empty.
    """
    cache = home / "images"
    cache.mkdir()
    release = rendered.release(NAMESPACE, first_port, [VALUES], _values(addresses, cache))
    with as_processes.running(home, release, prepare=_PREPARE, folders={CACHE: cache}) as found:
        found.output("slinky-0", *_push(addresses), stdin=_busybox())
        yield found


def _values(addresses: Addresses, cache: Path) -> dict[str, Any]:
    check = {"enabled": True, "suspend": True, "env": {"CHECK_IMAGE": BOX}}
    return {
        "nodesets": {
            "slinky": {
                "replicas": WORKERS,
                "oversubscribeNode": True,
                "extraConfMap": {"Gres": "gpu:2"},
            },
        },
        "configFiles": {"gres.conf": GRES_CONF},
        "containers": {
            "enabled": True,
            "cache": {"hostPath": str(cache)},
            "insecureRegistries": [addresses.open, addresses.locked, addresses.down],
        },
        "checks": {"definitions": {"container": check}},
    }


def _push(addresses: Addresses) -> tuple[str, ...]:
    credentials = f"{registry.USER}:{registry.PASSWORD}"
    return ("sh", "-c", _PUSH, "push", addresses.open, addresses.locked, credentials)


def _busybox() -> str:
    return base64.b64encode(debian.program("busybox", "busybox-static").read_bytes()).decode()


def run_as(slurm: Login, user: str, *words: str, stdin: str | None = None) -> str:
    """Run a command on the login node as this user, in the home folder."""
    number = USERS[user]
    become = ("setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups")
    home = ("env", f"--chdir=/home/{user}", f"HOME=/home/{user}", f"USER={user}")
    return slurm.login(*become, *home, *words, timeout=300, stdin=stdin)


def push(daemons: Daemons, image: str, layer: bytes) -> None:
    """Push an image with this tar file as its only layer, as `host:port/team/name:tag`."""
    daemons.output(
        "slinky-0", "sh", "-c", _PUSH_LAYER, "push", image, stdin=base64.b64encode(layer).decode()
    )


def layers(slurm: Slurm) -> list[str]:
    """The digests of the image's layers."""
    inspect = (
        "skopeo",
        "inspect",
        "--tls-verify=false",
        "--format={{json .Layers}}",
        f"docker://{BOX}",
    )
    found = [str(layer) for layer in json.loads(slurm.worker(worker(0), *inspect))]
    assert found
    return found
