"""`slurm-oci-run`: slurmstepd executes it for each task of a job with `--container`, by RunTimeRun
of oci.conf.

It becomes the container's program: no other process is between slurmstepd and the program, so that
signals, limits and exit codes are those of any task.
"""

import argparse
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from sidecars.containers import command, environment, mounts, nvidia, readonly, references
from sidecars.containers.cache import Cache, Limits, Unpacked
from sidecars.containers.errors import ContainerError
from sidecars.containers.locks import Attempt
from sidecars.containers.registry import Registry

CACHE: Final = "/var/cache/slurm-containers"

FAILED: Final = 125
"""Exit code of a task whose container could not start, like that of other container tools."""

OWN: Final = "self"

STEP: Final = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOB_START_TIME", "SLURM_STEP_ID")
"""Variables that together differ between all job steps."""

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ASK_SECONDS: Final = 20.0
_GIB: Final = 1 << 30
_DAY: Final = 86400


@dataclass(frozen=True, slots=True)
class Root:
    """What the container has as its root."""

    path: str
    config: Mapping[str, Any]


def parser() -> argparse.ArgumentParser:
    """Return the options that oci.conf sets. Users don't see them."""
    found = argparse.ArgumentParser(prog="slurm-oci-run", description=__doc__, allow_abbrev=False)
    found.add_argument("--image", help="value of --container of the step")
    found.add_argument(
        "--name", help="a copy of the image that keeps changes; without --image it exists already"
    )
    found.add_argument(
        "--environment",
        required=True,
        help=f"file with the environment of the task, or `{OWN}`: that of this process",
    )
    found.add_argument("--step", type=int, default=0, help="number of the step")
    found.add_argument("--cache", default=CACHE, help="folder of the unpacked images")
    found.add_argument(
        "--max-gib", type=float, default=0, help="size of a user's unpacked images; 0: no limit"
    )
    found.add_argument(
        "--max-days", type=float, default=0, help="days until an unused image is deleted; 0: never"
    )
    found.add_argument(
        "--tag-seconds",
        type=float,
        default=60,
        help="time for which the digest of a tag is used again",
    )
    found.add_argument(
        "--import-seconds", type=float, default=1800, help="longest time of an import"
    )
    found.add_argument("--default-registry", default=references.DOCKER_HUB)
    found.add_argument("--insecure-registry", action="append", default=[])
    found.add_argument(
        "--mount", action="append", default=[], help="SOURCE[:TARGET] of the site, if it exists"
    )
    found.add_argument("--container-mounts", default="", help="SOURCE[:TARGET],… of the user")
    found.add_argument("--container-workdir", help="the folder in which the program starts")
    found.add_argument(
        "--container-env", default="", help="names of variables that keep the job's value"
    )
    home = found.add_mutually_exclusive_group()
    home.add_argument("--mount-home", action="store_true", help="mount the user's home folder")
    home.add_argument(
        "--no-mount-home",
        action="store_true",
        help="no mount of the site shows the user's home folder",
    )
    found.add_argument("--read-only", action="store_true", help="the image can't be written to")
    found.add_argument(
        "--entrypoint", action="store_true", help="run the image's entrypoint with the command"
    )
    found.add_argument("command", nargs="+")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the container. Returns only when it can't start, with the reason on stderr."""
    options = parser().parse_args(arguments)
    try:
        start(options)
    except ContainerError as error:
        reason = str(error)
    except OSError as error:
        # What a file system or the kernel refuses, and nothing above expects.
        place = (
            os.uname().nodename
            if error.filename is None
            else f"{error.filename!r} on {os.uname().nodename}"
        )
        reason = f"{place}: {error.strerror or error}"
    print(f"slurm-oci-run: error: {reason}", file=sys.stderr, flush=True)
    return FAILED


def start(options: argparse.Namespace) -> NoReturn:
    """Become the program in the container. Raises ContainerError."""
    job = (
        environment.own(os.environb)
        if options.environment == OWN
        else environment.read(options.environment)
    )
    chosen = _mounts(options, job)
    root = _root(options, job)
    if nvidia.wanted(job):
        chosen = mounts.unique((*nvidia.mounts(), *chosen))
    prefer = frozenset((job.get("CONTAINER_ENV", "") + "," + options.container_env).split(","))
    variables = environment.compose(job, _texts(root.config.get("Env")), prefer)
    if any(mount.target.startswith(f"{nvidia.LIBRARIES}/") for mount in chosen):
        nvidia.add_paths(variables)
    folder = root.config.get("WorkingDir")
    folder = command.working_folder(
        options.container_workdir or job.get("CONTAINER_WORKDIR"),
        _here(),
        chosen,
        folder if isinstance(folder, str) else None,
    )
    words = list(options.command)
    if options.step != command.BATCH_STEP:
        words[0] = command.program(words[0], job)
        if options.entrypoint:
            words = [*_texts(root.config.get("Entrypoint")), *words]
    file = os.memfd_create("environment", 0)
    os.write(file, environment.render(variables))
    prepared = [mounts.prepare(root.path, mount) for mount in chosen]
    readonly.apply(readonly.changes(prepared))
    line = command.ch_run(
        root.path,
        mounts=prepared,
        folder=folder,
        environment=f"/proc/self/fd/{file}",
        writable=_writable(options),
        command=words,
    )
    sys.stdout.flush()
    try:
        os.execvpe(line[0], line, {"PATH": _PATH, "HOME": _home(), "USER": _user()})  # noqa: S606
    except OSError as error:
        raise ContainerError(
            f"ch-run: {error.strerror}: use this project's image of slurmd, or install it"
        ) from None


def _root(options: argparse.Namespace, job: Mapping[str, str]) -> Root:
    named = (
        None if options.image is None else references.parse(options.image, options.default_registry)
    )
    if isinstance(named, references.Folder):
        if options.name:
            raise ContainerError(
                "--container-name needs an image of a registry: --container-image names a folder"
            )
        return _folder(named.path)
    limits = Limits(int(options.max_gib * _GIB), options.max_days * _DAY)
    registry = _registry(options, job)
    attempt = Attempt(_step(job), registry.credentials())
    cache = Cache(Path(options.cache), limits, options.import_seconds, attempt=attempt)

    def unpacked(image: references.Image) -> Unpacked:
        digest = image.digest or cache.digest(
            image.name, options.tag_seconds, lambda: registry.digest(image)
        )
        return cache.get(digest, lambda root: registry.unpack(image, digest, root))

    image = None if named is None else partial(unpacked, named)
    if options.name is not None:
        found = cache.container(options.name, image)
    elif image is not None:
        found = image()
    else:
        raise ContainerError("neither an image nor the name of a container is given")
    # It stays while the program runs.
    os.set_inheritable(found.lock, True)
    return Root(str(found.root), found.config)


def _writable(options: argparse.Namespace) -> command.Writable:
    if options.read_only:
        return command.Writable.NO
    if options.name:
        return command.Writable.KEPT
    return (
        command.Writable.UNTIL_THE_END
        if command.has_overlay(os.uname().release)
        else command.Writable.NO
    )


def _mounts(options: argparse.Namespace, job: Mapping[str, str]) -> tuple[mounts.Mount, ...]:
    site = [mount for text in options.mount for mount in mounts.parse(text, "containers.mounts")]
    found = [mount for mount in site if Path(mount.source).exists()]
    if options.no_mount_home:
        found = [mount for mount in found if not mounts.shows(mount, _home())]
    if options.mount_home:
        found += mounts.parse(_home(), "--container-mount-home")
    found += mounts.parse(job.get("CONTAINER_MOUNTS", ""), "CONTAINER_MOUNTS")
    found += mounts.parse(options.container_mounts, "--container-mounts")
    if options.step == command.BATCH_STEP:
        # The batch script, at the path by which it is called.
        script = str(Path(options.command[0]).parent)
        found.append(mounts.Mount(script, script))
    return mounts.unique(found)


def _registry(options: argparse.Namespace, job: Mapping[str, str]) -> Registry:
    own = {"PATH": _PATH, "HOME": _home(), "TMPDIR": "/tmp"}  # noqa: S108
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG"):
        if job.get(name, "").startswith("/"):
            own[name] = job[name]
    return Registry(frozenset(options.insecure_registry), own, _ASK_SECONDS, options.import_seconds)


def _step(job: Mapping[str, str]) -> str:
    """Return the job step of this task, which is another one on another cluster and after a
    requeue. "": unknown.
    """
    found = [job.get(name, "") for name in STEP]
    return " ".join(found) if all(found) else ""


def _folder(path: str) -> Root:
    root = path.rstrip("/") or "/"
    try:
        if (Path(root) / "config.json").exists() and (Path(root) / "rootfs").is_dir():
            root = f"{root}/rootfs"
        if not Path(root).is_dir() or root == "/":
            raise ContainerError(
                f"--container: {path!r} isn't the folder of an image on {os.uname().nodename}"
            )
    except PermissionError:
        raise ContainerError(f"--container: you may not read {path!r}") from None
    return Root(root, {})


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _here() -> str:
    """Return the folder of the job. slurmstepd has entered it."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return "/"


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
