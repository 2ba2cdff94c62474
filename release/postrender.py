"""The folder of the post-renderer: for Helm 3 an executable, for Helm 4 a plugin. It needs python3
and nothing else.

It contains the code that `slurm-postrender` imports, the pods of charts/slurm-operator/workloads,
and the locked packages for all platforms: compiled modules of Linux have names of their own each,
those of macOS a folder each.
"""

import filecmp
import gzip
import importlib.metadata
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from release import versions
from sidecars.contract.project import HOME
from tests.cluster import cache
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError

NAME = "slurm-postrender"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "x86_64-manylinux2014": "linux",
    "aarch64-manylinux2014": "linux",
    "x86_64-unknown-linux-musl": "linux",
    "aarch64-unknown-linux-musl": "linux",
    "x86_64-apple-darwin": "darwin-x86_64",
    "aarch64-apple-darwin": "darwin-arm64",
}
"""uv's names of platforms, each with the folder of its packages."""

PACKAGES = ("contract", "policy", "slurm", "workloads")
"""Those of `sidecars` that the post-renderer may import."""

LOCKED = ("jmespath", "msgspec", "pyyaml")

_LAUNCHER = """\
#!/bin/sh
# slurm-postrender {version}: see docs/postrender.md. The user's cache has the bytecode of a
# read-only folder.
here=$(dirname "$(readlink -f "$0" 2>/dev/null || echo "$0")")
if [ -w "$here/lib" ]; then
  exec python3 -I -S "$here/lib/run.py" "$@"
fi
cache=${{XDG_CACHE_HOME:-$HOME/.cache}}/slurm-postrender/bytecode
exec python3 -I -S -X "pycache_prefix=$cache" "$here/lib/run.py" "$@"
"""
_RUN = """\
\"\"\"Starts slurm-postrender with the packages of this folder alone.\"\"\"

import os
import sys

if sys.version_info < (3, 11):
    version = sys.version.split()[0]
    sys.exit("slurm-postrender: needs Python 3.11 or newer as python3, not %s" % version)
here = os.path.dirname(os.path.abspath(__file__))
system = "linux" if sys.platform == "linux" else "%s-%s" % (sys.platform, os.uname()[4])
sys.path[:0] = [here, os.path.join(here, "packages", system)]

from postrender.cli import main

sys.exit(main())
"""


def build(root: Path, target: Path) -> Path:
    """Write the folder for all platforms into `target`, and its archive beside it; returns the
    archive.
    """
    shutil.rmtree(target / NAME, ignore_errors=True)
    with tempfile.TemporaryDirectory() as packages:
        return archive(folder(root, target, locked(root, Path(packages))), target)


def folder(root: Path, target: Path, packages: Path) -> Path:
    """Write the folder `slurm-postrender` into `target`. `packages`: a folder per system with the
    locked packages.
    """
    version = versions.version(root)
    made = target / NAME
    library = made / "lib"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(root / "postrender", library / "postrender", ignore=ignored)
    for name in PACKAGES:
        shutil.copytree(root / "sidecars" / name, library / "sidecars" / name, ignore=ignored)
    for module in (root / "sidecars").glob("*.py"):
        shutil.copy(module, library / "sidecars")
    base = library / "sidecars" / "workloads" / "base"
    shutil.copytree(root / "charts" / "slurm-operator" / "workloads", base, ignore=ignored)
    shutil.copytree(packages, library / "packages", ignore=ignored)
    shutil.copy(root / "LICENSE", made)
    (library / "run.py").write_text(_RUN, encoding="utf-8")
    (made / "plugin.yaml").write_text(plugin(version), encoding="utf-8")
    launcher = made / NAME
    launcher.write_text(_LAUNCHER.format(version=version), encoding="utf-8")
    launcher.chmod(0o755)
    return made


def plugin(version: str) -> str:
    """plugin.yaml of Helm 4."""
    command = {"command": f"${{HELM_PLUGIN_DIR}}/{NAME}"}
    value = {
        "apiVersion": "v1",
        "type": "postrenderer/v1",
        "name": NAME,
        "version": version,
        "runtime": "subprocess",
        "sourceURL": HOME,
        "runtimeConfig": {"platformCommand": [command]},
    }
    return yaml.safe_dump(value, sort_keys=False)


def archive(made: Path, target: Path) -> Path:
    """Return the folder as NAME-VERSION.tgz in `target`, the same bytes for the same content."""
    version = yaml.safe_load((made / "plugin.yaml").read_text(encoding="utf-8"))["version"]
    path = target / f"{NAME}-{version}.tgz"
    with (
        path.open("wb") as out,
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as packed,
    ):
        for file in [made, *sorted(made.rglob("*"))]:
            packed.add(
                file,
                arcname=file.relative_to(made.parent).as_posix(),
                recursive=False,
                filter=_anonymous,
            )
    return path


def installed(target: Path) -> Path:
    """Return the folder with the packages of the running Python, for tests: of this platform and
    this version alone.
    """
    system = target / "linux"
    for name in LOCKED:
        for file in importlib.metadata.files(name) or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                (system / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, system / file)
    return target


def locked(root: Path, target: Path) -> Path:
    """Return the packages of the lock for all platforms and versions of Python. Raises ClusterError
    where two differ.
    """
    with tempfile.TemporaryDirectory() as name:
        lock = Path(name) / "lock.txt"
        lock.write_text("".join(requirements(root)), encoding="utf-8")
        for platform, system in PLATFORMS.items():
            for python in PYTHONS:
                one = Path(name) / f"{platform}-{python}"
                run(
                    [
                        Path(sys.executable).with_name("uv"), "pip", "install",
                        "--quiet", "--no-config", "--target", one,
                        "--python-platform", platform, "--python-version", python,
                        "--only-binary", ":all:", "--no-deps", "--require-hashes",
                        "--cache-dir", cache.root() / "uv", "--requirement", lock,
                    ]
                )  # fmt: skip
                merge(one, target / system)
    return target


def requirements(root: Path) -> Iterator[str]:
    """Yield the lock of what the folder contains: requirements/postrender.txt, and msgspec, which
    `workloads` needs.
    """
    yield (root / "requirements" / "postrender.txt").read_text(encoding="utf-8")
    lines = (
        (root / "requirements" / "runtime.txt")
        .read_text(encoding="utf-8")
        .splitlines(keepends=True)
    )
    wanted = False
    for line in lines:
        wanted = line.startswith("msgspec==") or (wanted and line.startswith(" "))
        if wanted:
            yield line


_UNUSED: Sequence[str] = (
    "RECORD",
    "WHEEL",
    "INSTALLER",
    "REQUESTED",
    "direct_url.json",
    "top_level.txt",
    ".lock",
)


def merge(source: Path, target: Path) -> None:
    """Add packages of a platform to those of others. Raises ClusterError where two have different
    content.
    """
    for file in sorted(source.rglob("*")):
        own = file.relative_to(source)
        if not file.is_file() or file.name in _UNUSED or "bin" in own.parts[:1]:
            continue
        copy = target / own
        if copy.exists() and not filecmp.cmp(file, copy, shallow=False):
            raise ClusterError(f"{own}: differs between platforms, so one folder can't serve them")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
