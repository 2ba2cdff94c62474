"""A Linux kernel that runs as a program: user-mode Linux with SMP, built once from the
distribution's own source.

It gives one node of the local cluster cgroup v2 on hosts whose own kernel mounts the controllers
as cgroup v1. The source comes from Debian's mirror among the host's own apt sources, the same
suite that the Slurm images are built from: older kernels have no SMP in user mode, and without SMP
cpuset is not a controller.
"""

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.cluster import cache, debian
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.images import debian_mirror

CONFIG = Path(__file__).with_name("uml") / "kernel.config"
SUITE = "forky"
SOURCE = "linux-source"
"""A package that depends on the suite's present kernel source."""

_FORMAT = "2"
"""Part of the key: a change of how the kernel is built here builds it again."""

_PARSERS = ("flex", "bison", "m4")
_NEEDED = {"gcc": "gcc", "make": "make", "bc": "bc", "ld": "binutils", "xz": "xz-utils"}
_REQUIRED = (
    "SMP",
    "CPUSETS",
    "MEMCG",
    "CGROUP_BPF",
    "HOSTFS",
    "OVERLAY_FS",
    "UML_NET_VECTOR",
    "NFT_COMPAT",
)
_UNUSED = (
    *(
        "arch/[!ux]*/*",
        "drivers/gpu/*",
        "drivers/media/*",
        "drivers/net/ethernet/*",
        "drivers/net/wireless/*",
    ),
    *("drivers/staging/*", "sound/*", "tools/testing/*"),
)
"""Folders of the source whose code isn't compiled. Their Makefiles and Kconfig files are read all
the same.
"""


def built() -> bool:
    """Whether kernel() would return without building."""
    return _place().is_dir()


def kernel(note: Callable[[str], None] = lambda _: None) -> Path:
    """The kernel program. Built first if it is not in the cache: about seven minutes on two cores.

    Raises ClusterError that names what the host lacks.
    """
    return cache.entry(_place(), lambda making: _build(making, note)) / "linux"


def _place() -> Path:
    parts = [_FORMAT, platform.machine(), SUITE, CONFIG.read_text()]
    return (
        cache.root()
        / "bin"
        / f"linux-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"
    )


def _build(folder: Path, note: Callable[[str], None]) -> None:
    missing = sorted(
        package for program, package in _NEEDED.items() if shutil.which(program) is None
    )
    if missing:
        raise ClusterError(
            f"the kernel of the cgroup v2 node can't be built: apt-get install {' '.join(missing)}"
        )
    work = folder / "work"
    work.mkdir()
    note("kernel: downloading its source")
    source, env = _source(work), _environment(work)
    note("kernel: compiling")
    jobs = len(os.sched_getaffinity(0))
    make: list[str | Path] = ["nice", "make", "ARCH=um", f"-j{jobs}"]
    try:
        run([*make, "allnoconfig"], cwd=source, env={**env, "KCONFIG_ALLCONFIG": str(CONFIG)})
        _check((source / ".config").read_text())
        run([*make, "linux"], cwd=source, env=env, seconds=3600)
    except ClusterError as error:
        raise ClusterError(
            f"the kernel of the cgroup v2 node can't be built from {source.name}.\n{error}"
        ) from None
    run(["strip", "-o", folder / "linux", source / "linux"])
    shutil.rmtree(work)


def _check(config: str) -> None:
    """Raises ClusterError if the kernel dropped an option that the node can't do without."""
    lost = [name for name in _REQUIRED if f"CONFIG_{name}=y" not in config.splitlines()]
    if lost:
        raise ClusterError(
            f"this source has no {', '.join(lost)} for user-mode Linux: change {CONFIG.name}"
        )


def _source(work: Path) -> Path:
    """The unpacked source."""
    mirror = os.environ.get("DEBIAN_MIRROR") or debian_mirror(
        run(["apt-get", "indextargets", "--format", "$(REPO_URI)"])
    )
    if mirror is None:
        raise ClusterError(
            "the kernel of the cgroup v2 node can't be built: none of the host's apt sources "
            "is a mirror of Debian; DEBIAN_MIRROR=URL names one"
        )
    keys = debian.unpacked() / "root/usr/share/keyrings/debian-archive-keyring.gpg"
    (work / "sources.list").write_text(f"deb [signed-by={keys}] {mirror} {SUITE} main\n")
    (work / "lists" / "partial").mkdir(parents=True)
    settings = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": work / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": work,
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
        "Acquire::Languages": "none",
    }
    own = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    try:
        run(["apt-get", *own, "update"])
        found = re.search(
            r"Depends: (linux-source-[\d.]+)", run(["apt-cache", *own, "depends", SOURCE])
        )
        if found is None:
            raise ClusterError(f"{SOURCE} depends on no kernel source")
        _fetch(work, found[1], own)
    except ClusterError as error:
        raise ClusterError(
            f"the kernel of the cgroup v2 node can't be built: no {SOURCE} of {SUITE} from "
            f"{mirror}; DEBIAN_MIRROR=URL names another mirror\n{error}"
        ) from None
    archive = next((work / "root/usr/src").glob("linux-source-*.tar.xz"))
    unused = [
        f"--exclude=*/{folder}.{ending}"
        for folder in _UNUSED
        for ending in ("c", "h", "S", "dts", "dtsi")
    ]
    run(["tar", "-C", work, "--exclude=*/Documentation/*/*", *unused, "-xf", archive])
    return work / archive.name.removesuffix(".tar.xz")


def _fetch(work: Path, package: str, own: list[str]) -> None:
    """Download one package and unpack it below `work`/root."""
    archives = work / "archives"
    archives.mkdir(exist_ok=True)
    run(["apt-get", *own, "download", package], cwd=archives)
    for path in archives.glob("*.deb"):
        run(["dpkg", "-x", path, work / "root"])
        path.unlink()


def _fetch_parsers(work: Path) -> None:
    """With the host's package lists first; if they are missing or old, with lists of our own."""
    own = ["-o", "APT::Sandbox::User=root"]
    try:
        for package in _PARSERS:
            _fetch(work, package, own)
    except ClusterError:
        lists = work / "parsers"
        (lists / "partial").mkdir(parents=True)
        own += ["-o", f"Dir::State::lists={lists}", "-o", "Debug::NoLocking=true"]
        try:
            run(["apt-get", *own, "update"])
            for package in _PARSERS:
                _fetch(work, package, own)
        except ClusterError as error:
            raise ClusterError(
                "the kernel of the cgroup v2 node can't be built: apt-get install "
                f"{' '.join(_PARSERS)}\n{error}"
            ) from None


def _environment(work: Path) -> dict[str, str]:
    """Environment with flex and bison: the host's own, else its distribution's packages,
    unpacked.
    """
    env = {**os.environ, "LC_ALL": "C"}
    if all(shutil.which(program) for program in _PARSERS):
        return env
    _fetch_parsers(work)
    root = work / "root/usr"
    return env | {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "BISON_PKGDATADIR": str(root / "share/bison"),
        "M4": str(root / "bin/m4"),
    }
