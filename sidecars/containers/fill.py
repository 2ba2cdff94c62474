"""`slurm-jail-fill` fills a shared root from an image, a tarball or a folder, and has jobs see it.
A Job runs it.
"""

import argparse
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sidecars.containers import references
from sidecars.containers.errors import ContainerError
from sidecars.containers.jail import Volume
from sidecars.containers.registry import Registry

log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 60.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def parser() -> argparse.ArgumentParser:
    """Return the options that the Job sets."""
    found = argparse.ArgumentParser(prog="slurm-jail-fill", description=__doc__, allow_abbrev=False)
    found.add_argument("--volume", type=Path, required=True, help="folder of the jail's volume")
    found.add_argument(
        "--version", required=True, help="name of the version that jobs see afterwards"
    )
    source = found.add_mutually_exclusive_group()
    source.add_argument("--image", help="what the version is filled from, if it doesn't exist")
    source.add_argument("--tarball", help="likewise: a path on the volume")
    source.add_argument("--claim", help="likewise: how the content of --folder is named")
    found.add_argument(
        "--folder", type=Path, default=Path("/source"), help="where the claim is mounted"
    )
    found.add_argument(
        "--mount", action="append", default=[], help="a path that jobs see as it is on the worker"
    )
    found.add_argument("--keep", type=int, required=True, help="number of old versions that remain")
    found.add_argument(
        "--protect", action="append", default=[], help="a version that remains in any case"
    )
    found.add_argument("--insecure-registry", action="append", default=[])
    found.add_argument("--auth-file", help="credentials of the registry")
    found.add_argument("--seconds", type=float, default=3600, help="the longest time of each step")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the volume. Return 0 on success, 1 with the reason on stderr, 143 after TERM. After a
    failure jobs see what they saw before.
    """
    options = parser().parse_args(arguments)
    # The first process of a container ignores TERM otherwise, and what is half unpacked would stay.
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(message)s"
    )
    try:
        fill(options)
    except (ContainerError, OSError, subprocess.TimeoutExpired) as error:
        log.error("%s", error)  # for administrators
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def fill(options: argparse.Namespace, environment: Mapping[str, str] | None = None) -> None:
    """Fill the version if it doesn't exist, switch jobs to it, delete the oldest ones. Raises
    ContainerError.
    """
    volume = Volume(options.volume, os.geteuid())
    source = options.image or options.tarball or (options.claim and f"claim {options.claim}")
    with volume.locked():
        if source is None:
            volume.facts(options.version)
        elif options.image:
            registry = _registry(
                options,
                environment or {"PATH": _PATH, "HOME": "/tmp", "TMPDIR": "/tmp"},  # noqa: S108
            )
            if volume.fill(options.version, source, lambda root: _image(registry, source, root)):
                log.info("version %s is filled from %s", options.version, source)
        else:
            unpack = _tarball if options.tarball else _folder
            if volume.fill(options.version, source, lambda root: unpack(options, root)):
                log.info("version %s is filled from %s", options.version, source)
        volume.prepare(options.version, options.mount)
        before = volume.switch(options.version)
        log.info(
            "jobs that start from now on see version %s, and saw %s before",
            options.version,
            before or "none",
        )
        for name in volume.prune(options.keep, options.protect):
            log.info("version %s is deleted", name)


def _registry(options: argparse.Namespace, environment: Mapping[str, str]) -> Registry:
    own = dict(environment)
    if options.auth_file:
        own["REGISTRY_AUTH_FILE"] = options.auth_file
    return Registry(
        frozenset(options.insecure_registry), own, _ASK_SECONDS, options.seconds, keep_owners=True
    )


def _image(registry: Registry, source: str, root: Path) -> str:
    image = references.parse(source)
    if isinstance(image, references.Folder):
        raise ContainerError(
            f"{source}: isn't the name of an image: set a tarball with `tarball`, a volume with "
            "`claim`"
        )
    digest = image.digest or registry.digest(image)
    registry.unpack(image, digest, root)
    return digest


def _tarball(options: argparse.Namespace, root: Path) -> str:
    volume: Path = options.volume.resolve()
    file = (volume / options.tarball.lstrip("/")).resolve()
    if not file.is_relative_to(volume) or not file.is_file():
        raise ContainerError(f"{options.tarball}: no such file on the volume of the jail")
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    command = [
        *("tar", "--extract", f"--file={file}", f"--directory={root}"),
        *(
            "--numeric-owner",
            "--same-owner",
            "--same-permissions",
            "--xattrs",
            "--xattrs-include=security.capability",
        ),
    ]
    _run(command, f"{options.tarball} can't be unpacked", options.seconds)
    return f"sha256:{digest}"


def _folder(options: argparse.Namespace, root: Path) -> str:
    """Use a folder. It has no digest, so that "" is returned."""
    if not options.folder.is_dir():
        raise ContainerError(f"{options.folder}: isn't a folder: mount claim {options.claim} here")
    command = [
        "cp",
        "--archive",
        "--one-file-system",
        "--no-target-directory",
        str(options.folder),
        str(root),
    ]
    _run(command, f"claim {options.claim} can't be copied", options.seconds)
    # At the top of a whole file system, and not part of a root.
    with suppress(FileNotFoundError, NotADirectoryError):
        shutil.rmtree(root / "lost+found")
    return ""


def _run(command: Sequence[str], fault: str, seconds: float) -> None:
    """Run a program. Raises ContainerError with the first line of its errors."""
    done = subprocess.run(
        command,
        env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise ContainerError(f"{fault}: {first[:500]}")
