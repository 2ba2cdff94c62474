"""A Slurm cluster whose jobs run in images of a real registry, as users without rights, with three workers.

The workers share the cache of images by a folder of this host, which stands in for a volume that several nodes mount.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.cluster import debian
from tests.support.real import registry
from tests.support.real.harness import CHARTS, VALUES, Kubernetes, Slurm
from tests.support.real.registry import DOWN, LOCKED, OPEN

NAMESPACE = "contained"
WORKERS = 3
USERS = {"alice": 2001, "bob": 2002}
BOX = f"{OPEN}/team/box:1"
"""Tag 2 names the same image."""

GRES_CONF = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"
"""Two GPUs on each worker. Their files are those of devices that every container has."""

_PUSH = f"""
set -eu
mkdir -p /tmp/box/bin && cd /tmp/box
base64 -d >bin/busybox
chmod 755 bin/busybox
for name in cat echo env id ls pwd sh sleep true; do ln -s busybox bin/$name; done
echo the image >which
cd /tmp
umoci init --layout layout
umoci new --image layout:box
umoci insert --image layout:box box /
umoci config --image layout:box --config.env PATH=/bin --config.env COLOR=blue --config.workingdir /bin
for number in 1 2; do
  skopeo copy --quiet --dest-tls-verify=false oci:layout:box docker://{OPEN}/team/box:$number
done
skopeo copy --quiet --dest-tls-verify=false --dest-creds={registry.USER}:{registry.PASSWORD} \
  oci:layout:box docker://{LOCKED}/secret/box:1
"""


_PUSH_LAYER = f"""
set -eu
cd "$(mktemp -d)"
base64 -d >layer
umoci init --layout layout
umoci new --image layout:box
umoci raw add-layer --image layout:box layer
skopeo copy --quiet --dest-tls-verify=false oci:layout:box docker://{OPEN}/$1
"""


def worker(number: int) -> str:
    """The name of a worker's pod."""
    return f"slurm-worker-slinky-{number}"


@contextmanager
def running(kubernetes: Kubernetes, folder: Path) -> Iterator[Slurm]:
    """The cluster with its users, and the image in the registries, until the end of the block.

    The operator must run and watch NAMESPACE, and `registry.running` must be around this block. `folder` must be empty.
    """
    values = {
        "nodesets": {"slinky": {"replicas": WORKERS, "oversubscribeNode": True, "extraConfMap": {"Gres": "gpu:2"}}},
        "configFiles": {"gres.conf": GRES_CONF},
        "containers": {
            "enabled": True,
            "cache": {"hostPath": str(folder / "images")},
            "insecureRegistries": [OPEN, LOCKED, DOWN],
        },
        "checks": {"definitions": {"container": {"enabled": True, "suspend": True, "env": {"CHECK_IMAGE": BOX}}}},
    }
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    found = Slurm(kubernetes, NAMESPACE)
    kubernetes.helm(
        *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", found.namespace),
        *("-f", str(VALUES), "-f", str(folder / "values.yaml")),
    )
    found.until_idle(WORKERS)
    for name, number in USERS.items():
        add = ("useradd", "--create-home", f"--uid={number}", name)
        found.login(*add)
        for index in range(WORKERS):
            found.worker(worker(index), *add)
    busybox = base64.b64encode(debian.program("busybox", "busybox-static").read_bytes()).decode()
    kubernetes.kubectl(
        *("-n", found.namespace, "exec", "-i", worker(0), "-c", "slurmd", "--", "sh", "-c", _PUSH),
        stdin=busybox,
        timeout=180,
    )
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace, "--ignore-not-found")
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false", "--ignore-not-found")


def run_as(slurm: Slurm, user: str, *words: str, stdin: str | None = None) -> str:
    """Run a command on the login node as this user, in the home folder."""
    number = USERS[user]
    become = ("setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups")
    home = ("env", f"--chdir=/home/{user}", f"HOME=/home/{user}", f"USER={user}")
    return slurm.login(*become, *home, *words, timeout=120, stdin=stdin)


def push(slurm: Slurm, image: str, layer: bytes) -> None:
    """Push an image with this tar file as its only layer into the open registry, as `team/name:tag`."""
    slurm.kubernetes.kubectl(
        *("-n", slurm.namespace, "exec", "-i", worker(0), "-c", "slurmd", "--"),
        *("sh", "-c", _PUSH_LAYER, "push", image),
        stdin=base64.b64encode(layer).decode(),
    )


def layers(slurm: Slurm) -> list[str]:
    """The digests of the image's layers."""
    inspect = ("skopeo", "inspect", "--tls-verify=false", "--format={{json .Layers}}", f"docker://{BOX}")
    found = [str(layer) for layer in json.loads(slurm.worker(worker(0), *inspect))]
    assert found
    return found
