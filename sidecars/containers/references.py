"""Names of images, as users write them in `--container`. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from sidecars.containers.errors import ContainerError

DOCKER_HUB: Final = "docker.io"

_SCHEME = "docker://"
_LONGEST = 512
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
)
_PATH = re.compile(
    r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SQUASHFS = (".sqsh", ".sqfs", ".squashfs")
_EXAMPLE = (
    "write it like ubuntu:24.04, docker://registry.example:5000/team/image:tag or image@sha256:…"
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a registry."""

    registry: str
    """Host, with a port where the user or the site gave one."""

    path: str
    """Its name in the registry."""

    tag: str | None
    """`None` with a digest, which alone counts then."""

    digest: str | None
    """`sha256:` and 64 digits. `None`: that of the tag at the moment."""

    @property
    def name(self) -> str:
        """With the tag or the digest, for the registry and for messages."""
        return f"{self.registry}/{self.path}{f'@{self.digest}' if self.digest else f':{self.tag}'}"

    def at(self, digest: str) -> str:
        """Return the name of the image with this digest."""
        return f"{self.registry}/{self.path}@{digest}"


@dataclass(frozen=True, slots=True)
class Folder:
    """An unpacked image: the absolute path of its root, or of an OCI bundle with a folder
    `rootfs`.
    """

    path: str


def parse(text: str, default_registry: str = DOCKER_HUB) -> Image | Folder:
    """Parse the value of `--container`. Raises ContainerError with the remedy.

    A name without a registry is one of `default_registry`. enroot's `REGISTRY#IMAGE` may have a
    slash after the `#`. Anything that a name of an image can't
    contain is refused, so that no part of it can be an option, a path or a second argument of a
    program.
    """
    if text.endswith(_SQUASHFS):
        raise ContainerError(
            f"--container: {text[:80]!r} is a squashfs file, which only Pyxis and enroot mount: "
            "unpack it once with `unsquashfs -d /shared/FOLDER FILE`, and name that folder"
        )
    if text.startswith(("./", "../", "~/")):
        raise _wrong(text, "a folder needs its absolute path")
    if text.startswith("/"):
        return _folder(text)
    if len(text) > _LONGEST:
        raise ContainerError(
            f"--container: {text[:40]!r}… is longer than {_LONGEST} characters: {_EXAMPLE}"
        )
    rest, at, digest = text.removeprefix(_SCHEME).partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _wrong(text, f"the digest {digest!r} isn't `sha256:` and 64 hexadecimal digits")
    registry, mark, path = rest.partition("#")
    path = path.removeprefix("/")
    if not mark:
        registry, path = _split(rest, default_registry)
    path, colon, tag = path.partition(":")
    if not _HOST.fullmatch(registry):
        raise _wrong(text, f"{registry!r} isn't the name of a registry")
    if not _PATH.fullmatch(path):
        raise _wrong(
            text,
            f"{path!r} isn't the name of an image: only a-z, 0-9 and `.`, `_`, `-`, `/` within",
        )
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(text, f"{tag!r} isn't a tag")
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return Image(registry, path, None if at else tag or "latest", digest if at else None)


def _split(name: str, default_registry: str) -> tuple[str, str]:
    """Registry and path. The first part is a registry if it can't be a part of a name on Docker
    Hub.
    """
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return default_registry, name


def _folder(text: str) -> Folder:
    if "\0" in text or "\n" in text or ":" in text:
        raise ContainerError(
            f"--container: the path {text!r} contains a line break or a colon: rename the folder"
        )
    return Folder(text)


def _wrong(text: str, reason: str) -> ContainerError:
    return ContainerError(
        f"--container: {text!r} names no image: {reason}. {_EXAMPLE[0].upper()}{_EXAMPLE[1:]}"
    )
