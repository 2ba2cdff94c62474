"""Reads images from registries with skopeo, and unpacks them with umoci, both as the user of this
process.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecars.containers import cache
from sidecars.containers.errors import ContainerError
from sidecars.containers.references import Image


@dataclass(frozen=True, slots=True)
class Registry:
    """How images are read."""

    insecure: frozenset[str]
    """Registries, as in the image's name, that are asked without TLS or with a certificate that
    nobody checks.
    """

    environment: Mapping[str, str]
    """Of skopeo and umoci. It decides where skopeo looks for the user's credentials."""

    ask_seconds: float
    """The longest time for the digest of a tag."""

    fetch_seconds: float
    """The longest time for an image."""

    keep_owners: bool = False
    """Whether files belong to the users that the image names, which needs root. Otherwise to this
    process's user.
    """

    def credentials(self) -> str:
        """Return the state of the files in which skopeo looks for credentials, for comparison with
        another one.
        """
        home = self.environment.get("HOME", "/")
        docker = self.environment.get("DOCKER_CONFIG", f"{home}/.docker")
        files = [f"{home}/.config/containers/auth.json", f"{docker}/config.json"]
        return " ".join(map(_state, [self.environment.get("REGISTRY_AUTH_FILE", ""), *files]))

    def digest(self, image: Image) -> str:
        """Return the digest of the image's tag at the moment."""
        out = self._skopeo(
            image,
            self.ask_seconds,
            "inspect",
            "--no-tags",
            "--format={{.Digest}}",
            self._source(image),
        )
        digest = out.strip()
        if not digest.startswith("sha256:"):
            raise ContainerError(
                f"{image.name}: the registry returned no digest, but {digest[:80]!r}"
            )
        return digest

    def unpack(self, image: Image, digest: str, root: Path) -> dict[str, Any]:
        """Unpack the image with this digest into an empty folder. Returns its configuration."""
        copy = root.with_name("oci")
        try:
            source = f"docker://{image.at(digest)}"
            self._skopeo(image, self.fetch_seconds, "copy", "--quiet", source, f"oci:{copy}:image")
            config = _config(copy)
            root.rmdir()  # umoci creates it.
            self._umoci(image, copy, root)
            return config
        finally:
            cache.delete(copy)

    def _source(self, image: Image) -> str:
        return f"docker://{image.name}"

    def _skopeo(self, image: Image, seconds: float, verb: str, *words: str) -> str:
        flags = []
        if authfile := self.environment.get("REGISTRY_AUTH_FILE"):
            flags.append(f"--authfile={authfile}")
        if image.registry in self.insecure:
            # Otherwise the site's registries.conf decides, whose default is TLS.
            flags.append("--src-tls-verify=false" if verb == "copy" else "--tls-verify=false")
        command = ["skopeo", f"--command-timeout={seconds:g}s", verb, *flags, *words]
        done = self._run(image, command, seconds)
        if done.returncode:
            own = authfile or f"{self.environment.get('HOME', '')}/.config/containers/auth.json"
            raise ContainerError(
                explain(image, done.stderr, own, insecure=image.registry in self.insecure)
            )
        return done.stdout

    def _umoci(self, image: Image, copy: Path, root: Path) -> None:
        rootless = () if self.keep_owners else ("--rootless",)
        command = ["umoci", "raw", "unpack", *rootless, f"--image={copy}:image", str(root)]
        done = self._run(image, command, self.fetch_seconds)
        if done.returncode:
            raise ContainerError(
                f"{image.name}: can't be unpacked: {_last(done.stderr)}{_space(done.stderr)}"
            )

    def _run(
        self, image: Image, command: Sequence[str], seconds: float
    ) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                # skopeo ends before, and reports what it was doing.
                timeout=seconds + 10,
                check=False,
            )
        except FileNotFoundError:
            raise ContainerError(
                f"{command[0]} isn't in the image of slurmd: use this project's image, or install "
                "it"
            ) from None
        except OSError as error:
            raise ContainerError(
                f"{image.name}: {command[0]} can't be started: {error.strerror}"
            ) from None
        except subprocess.TimeoutExpired:
            raise ContainerError(
                f"{image.name}: {command[0]} has not ended after {seconds:g} s"
            ) from None


def _state(file: str) -> str:
    try:
        found = os.stat(file)  # noqa: PTH116 (`file` may be empty)
    except OSError:
        return "-"
    # No numbers of the file system: nodes have others.
    return f"{file}:{found.st_mtime_ns}:{found.st_size}"


def explain(image: Image, error: str, authfile: str, *, insecure: bool) -> str:
    """skopeo's error in words of the user, with skopeo's own last line. `authfile`: where
    credentials belong.
    """
    text = error.lower()
    last = _last(error)
    if "no space left" in text:
        return f"{image.name}: {last}{_space(error)}"
    if (
        "unauthorized" in text
        or "authentication required" in text
        or "denied" in text
        or "invalid username" in text
    ):
        # Login nodes have no skopeo, and workers have it.
        flags = f"{'--tls-verify=false ' if insecure else ''}--authfile {authfile}"
        return (
            f"{image.name}: the registry refuses you: check the name, and log in by "
            f"`srun --pty skopeo login {flags} {image.registry}` on a login node ({last})"
        )
    if (
        "manifest unknown" in text
        or "name unknown" in text
        or "not found" in text
        or "status 404" in text
    ):
        return f"{image.name}: the registry has no such image: check its name and its tag ({last})"
    if any(
        word in text
        for word in (
            "connection refused",
            "no such host",
            "timeout",
            "deadline exceeded",
            "no route",
        )
    ):
        return (
            f"{image.name}: the registry {image.registry} doesn't answer on {os.uname().nodename} "
            f"({last})"
        )
    if "server gave http response" in text:
        return (
            f"{image.name}: the registry has no TLS: an administrator can list it in "
            "containers.insecureRegistries"
        )
    if "x509" in text or "certificate" in text:
        return (
            f"{image.name}: the certificate of the registry isn't trusted on "
            f"{os.uname().nodename} ({last})"
        )
    return f"{image.name}: {last}"


def _last(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    found = lines[-1] if lines else "no reason given"
    _, mark, message = found.partition("msg=")
    if mark:
        found = message.removeprefix('"').removesuffix('"').replace('\\"', '"')
    return found[:500]


def _space(error: str) -> str:
    return (
        ": an administrator must enlarge the volume of the image cache"
        if "no space left" in error.lower()
        else ""
    )


def _config(copy: Path) -> dict[str, Any]:
    """Return the configuration of the only image of an OCI layout: Env, WorkingDir and others."""
    try:
        manifest = _blob(
            copy, json.loads((copy / "index.json").read_text())["manifests"][0]["digest"]
        )
        return dict(_blob(copy, manifest["config"]["digest"]).get("config") or {})
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise ContainerError(f"{copy}: not an OCI image: {error!r}") from None


def _blob(copy: Path, digest: str) -> dict[str, Any]:
    algorithm, _, name = digest.partition(":")
    if not (algorithm.isalnum() and name.isalnum()):
        raise ValueError(digest)
    found = json.loads((copy / "blobs" / algorithm / name).read_text())
    if not isinstance(found, dict):
        raise TypeError(digest)
    return found
