"""The registry that REGISTRY names: what is wrong with it, and how the images get there.

Requests are sent by the program `push`, with the credentials that `docker login` or `podman login`
has stored.
"""

import json
import os
import re
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas import image_digests
from tests.cluster.commands import environment, run
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool

EXAMPLE = "REGISTRY=registry.example.com/team"
CA = "REGISTRY_CA"
_HOST = re.compile(r"localhost(:\d+)?|[\w.-]*[.:][\w.:-]*|\[[0-9a-f:]+\](:\d+)?")
_PATH = re.compile(
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
)
_CERTIFICATES = ("/etc/docker/certs.d", "/etc/containers/certs.d")
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
_DOCKER_HUB = {"docker.io", "index.docker.io"}


@dataclass(frozen=True)
class Registry:
    """A registry by its host and a path in it. `certificates` are those of its own authorities."""

    host: str
    path: str
    certificates: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return "/".join(part for part in (self.host, self.path) if part)

    def repositories(self, names: Sequence[str]) -> list[str]:
        """Where the images of these names are."""
        return [f"{self}/{name}" for name in names]


@dataclass(frozen=True)
class Credentials:
    """What is stored for a registry. A `token` is for the registry's own clients, and of no use to
    Kubernetes.
    """

    username: str = ""
    password: str = ""
    token: str = ""


class PushError(ClusterError):
    """The registry refuses, or can't be asked. `kind` is one of REMEDIES."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


REMEDIES: Mapping[str, str] = {
    "name": "Correct the name: a host and a path in lower case.",
    "proxy": "The proxy of HTTPS_PROXY can't be reached, or refuses. Correct it, or add {host} to "
    "NO_PROXY.",
    "authority": "Its certificate is signed by an authority that this host doesn't know. Name the "
    "authority's certificate: " + CA + "=/path/of/ca.crt. The cluster's nodes must know it too.",
    "certificate": "Its certificate is not valid for {host}. Use the name in the certificate, or "
    "renew it.",
    "plain": "It answers without TLS. Use a registry with HTTPS: Kubernetes nodes pull from no "
    "other one by default.",
    "unauthorized": "Log in with an account that may push to {registry}: docker login {host}, or, "
    "without a container engine, crane auth login {host}.",
    "forbidden": "The account that is logged in may not push there. Ask for the right to push to "
    "{registry}, or log in with another account: docker login {host}.",
    "missing": "It has no such repository, and creates none. Create {registry} and in it a "
    "repository for each image: {names}.",
    "full": "The registry has no space left. Delete images there, or have its disk enlarged.",
    "server": "The registry has a fault of its own. Try again later, or ask its administrator.",
    "unreachable": "Check the name, the network, and HTTPS_PROXY and NO_PROXY.",
    "other": "",
}


def chosen() -> Registry | None:
    """The registry of the environment. None: it names none. Raises ClusterError."""
    text = os.environ.get("REGISTRY", "").strip()
    if not text:
        if os.environ.get(CA):
            raise ClusterError(
                f"{CA} is set, but REGISTRY is not: name the registry, for example {EXAMPLE}"
            )
        return None
    host, path = split(text)
    named = os.environ.get(CA)
    if named and not Path(named).is_file():
        raise ClusterError(f"{CA}={named}: no such file")
    own = [Path(named).absolute()] if named else []
    own += [
        path for folder in _CERTIFICATES for path in sorted((Path(folder) / host).glob("*.crt"))
    ]
    return Registry(host, path, tuple(own))


def split(text: str) -> tuple[str, str]:
    """Host and path of a value of REGISTRY. Raises ClusterError."""
    host, _, path = text.removesuffix("/").partition("/")
    if "://" in text:
        wrong = "without https://"
    elif not _HOST.fullmatch(host):
        wrong = f"with the registry's host first ({host!r} has no dot and no port)"
    elif path and not _PATH.fullmatch(path):
        wrong = "with a path in lower case, without a tag"
    else:
        return host, path
    raise ClusterError(f"REGISTRY={text}: write it {wrong}, for example {EXAMPLE}")


def check(registry: Registry, names: Sequence[str]) -> None:
    """Raises ClusterError with the remedy unless the images of these names can be pushed. Pushes
    nothing.
    """
    try:
        for _ in _lines(registry, "check", *registry.repositories(names)):
            pass
    except PushError as error:
        raise refusal(registry, error, names) from None


def refusal(registry: Registry, error: PushError, names: Sequence[str]) -> ClusterError:
    """What a user gets for an error of the program `push`."""
    remedy = REMEDIES[error.kind].format(
        host=registry.host, registry=registry, names=", ".join(names)
    )
    return ClusterError(f"nothing can be pushed to {registry}. {remedy}\n{error}")


def push(registry: Registry, archive: Path, names: Sequence[str], note: Any) -> dict[str, str]:
    """Push the images of an archive of tests.cluster.images, and return the digest of each by
    NAME:TAG.
    """
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix=".push-", dir=archive.parent) as folder:
        run(["tar", "-xf", archive, "-C", folder])
        try:
            for line in _lines(registry, "layout", folder, str(registry)):
                if "digest" in line:
                    digests[line["image"]] = line["digest"]
                else:
                    note(f"{line['at']}: {line['complete'] >> 20} of {line['total'] >> 20} MiB")
        except PushError as error:
            raise refusal(registry, error, names) from None
    return digests


def readable(registry: Registry, references: Sequence[str], *, anonymously: bool) -> bool:
    """Whether these images can be pulled, without credentials or with those that are stored."""
    try:
        for _ in _lines(registry, "readable", "anonymous" if anonymously else "login", *references):
            pass
    except PushError:
        return False
    return True


def credentials(registry: Registry) -> Credentials:
    """What is stored for the registry."""
    try:
        (found,) = _lines(registry, "credentials", registry.host)
    except PushError as error:
        raise ClusterError(
            f"the credentials for {registry.host} can't be read. Log in again.\n{error}"
        ) from None
    return Credentials(**found)


def pull_secret(name: str, namespace: str, host: str, given: Credentials) -> dict[str, Any]:
    """A Secret with which the kubelets of a namespace's pods pull from the registry."""
    server = "https://index.docker.io/v1/" if host in _DOCKER_HUB else host
    both = b64encode(f"{given.username}:{given.password}".encode()).decode()
    entry = {"username": given.username, "password": given.password, "auth": both}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {
            ".dockerconfigjson": b64encode(json.dumps({"auths": {server: entry}}).encode()).decode()
        },
    }


def pinned(chart: Path, digests: Mapping[str, str]) -> str:
    """Values in YAML that pin all images of a chart's default values by their digests. `digests`
    are by NAME:TAG.

    A node that has an older image of the same tag pulls the new one, and an unchanged image changes
    no pod.
    """
    found = image_digests.chart_images(chart)
    return image_digests.values_text(
        found,
        {
            image: digests[f"{image.name.rpartition('/')[2]}:{image.tag}"]
            for image in found.values()
        },
    )


def _lines(registry: Registry, *words: str) -> Iterator[dict[str, Any]]:
    """The output of `push`, line by line. Raises PushError."""
    with _trust(registry) as env:
        process = subprocess.Popen(
            [str(tool("push")), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert process.stdout is not None
        with process, process.stdout:
            for text in process.stdout:
                line: dict[str, Any] = json.loads(text)
                if "error" in line:
                    raise PushError(line["error"], line["message"])
                yield line
        if process.returncode:
            raise PushError("other", f"push {words[0]}: exit code {process.returncode}")


@contextmanager
def _trust(registry: Registry) -> Iterator[dict[str, str]]:
    """The environment in which the registry's own authorities are trusted beside those of this
    host.
    """
    env = environment()
    if not registry.certificates:
        yield env
        return
    common = next(
        (path for path in (env.get("SSL_CERT_FILE"), *_BUNDLES) if path and Path(path).is_file()),
        None,
    )
    with tempfile.NamedTemporaryFile("w", prefix="slurm-charts-", suffix=".crt") as bundle:
        for path in (*registry.certificates, *([Path(common)] if common else [])):
            bundle.write(path.read_text().rstrip() + "\n")
        bundle.flush()
        yield env | {"SSL_CERT_FILE": bundle.name}
