"""Programs out of the distribution's packages, unpacked into the cache: nothing is installed on the
host.

The packages and what they need are downloaded with the host's own apt sources. Each program gets
a wrapper that finds the unpacked libraries.
"""

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import cache
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError

PROGRAMS = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "conntrack": "conntrack",
    "mmdebstrap": "mmdebstrap",
}
DIRECTORY_PROGRAMS = ("slapd", "ldapsearch", "ldapadd", "ldapdelete", "ldapwhoami")
DIRECTORY_PACKAGES = ("ldap-utils", "slapd")
IPTABLES = (
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
)
PACKAGES = tuple(
    sorted(
        {*PROGRAMS.values(), "iptables", "containernetworking-plugins", "debian-archive-keyring"}
    )
)

_LAYOUT = "1"  # of the folder that unpacked() fills; a change of it means a new folder


def release() -> str:
    """Name and version of the distribution with the host's architecture, such as
    `debian-12-x86_64`.
    """
    words = dict(
        re.findall(
            r'^(ID|VERSION_ID)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE
        )
    )
    return "-".join(
        [words.get("ID", "linux"), words.get("VERSION_ID", "rolling"), platform.machine()]
    )


def unpacked() -> Path:
    """The unpacked packages: folders bin (wrappers), iptables-nft, iptables-legacy, cni, share and
    root.

    Downloads them if they are not in the cache. Raises ClusterError that names a package the
    release doesn't have.
    """
    key = hashlib.sha256("\n".join([_LAYOUT, *PACKAGES]).encode()).hexdigest()[:12]
    return cache.entry(cache.root() / "debian" / f"{release()}-{key}", _unpack)


def program(name: str, package: str) -> Path:
    """Path of a program that needs nothing but the C library, out of one package, which is
    downloaded if need be.

    Raises ClusterError if the release doesn't have the package or the package doesn't have the
    program.
    """

    def unpack(folder: Path) -> None:
        _download(folder, ["download", package])
        (archive,) = folder.glob("*.deb")
        run(["dpkg", "-x", archive, folder / "root"])
        archive.unlink()
        (folder / name).symlink_to(Path("root") / _find(folder / "root", name))

    return cache.entry(cache.root() / "debian" / f"{release()}-{name}", unpack) / name


def directory() -> Path:
    """OpenLDAP's server and clients with their libraries: folders bin (wrappers) and root (the
    packages).
    """

    def unpack(folder: Path) -> None:
        root = _install(folder, DIRECTORY_PACKAGES)
        final = _final(folder)
        for name in DIRECTORY_PROGRAMS:
            _wrap(folder / "bin" / name, root, _find(root, name), final)

    return cache.entry(cache.root() / "debian" / f"{release()}-directory", unpack)


def browser() -> Path:
    """Chromium without windows. Beside it is fonts.conf, for fontconfig: it finds the same fonts on
    each host.
    """
    name = "chromium-headless-shell"

    def unpack(folder: Path) -> None:
        root = _install(folder, (name, "fonts-dejavu-core"))
        final = _final(folder)
        _wrap(folder / name, root, Path("usr/lib/chromium") / name, final)
        (folder / "fonts.conf").write_text(
            f"<fontconfig><dir>{final}/root/usr/share/fonts</dir><cachedir>{final}/fonts</cachedir>"
            "<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer>"
            "</alias></fontconfig>\n"
        )

    return cache.entry(cache.root() / "debian" / f"{release()}-{name}", unpack) / name


def _install(folder: Path, names: Sequence[str]) -> Path:
    """Download packages and what they need and this host lacks, and unpack them; where they
    lie.
    """
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    _download(
        folder,
        ["install", "--download-only", "--reinstall", "--no-install-recommends", "--yes", *names],
    )
    root = folder / "root"
    root.mkdir()
    for package in sorted(archives.glob("*.deb")):
        run(["dpkg", "-x", package, root])
    shutil.rmtree(archives)
    return root


def _final(folder: Path) -> Path:
    """Where a folder of the cache that is being filled will lie."""
    return folder.with_name(re.sub(r"^\.(.*)\.making-.*$", r"\1", folder.name))


def _unpack(folder: Path) -> None:
    root = _install(folder, PACKAGES)
    final = _final(folder)
    for program in PROGRAMS:
        _wrap(folder / "bin" / program, root, _find(root, program), final)
    for kind in ("nft", "legacy"):
        for program in IPTABLES:
            multi = _find(root, f"xtables-{kind}-multi")
            _wrap(folder / f"iptables-{kind}" / program, root, multi, final, program)
    cni = next(
        (
            path
            for path in (root / "usr/lib/cni", root / "opt/cni/bin")
            if (path / "bridge").exists()
        ),
        None,
    )
    if cni is None:
        raise ClusterError(
            "the package containernetworking-plugins contains no CNI plugin `bridge`"
        )
    (folder / "cni").symlink_to(cni.relative_to(folder))
    (folder / "share").symlink_to("root/usr/share")


def _download(folder: Path, fetch: list[str]) -> None:
    """Run apt-get with `fetch` in `folder`.

    Try with the host's package lists first; if they are missing or old, fetch lists of our own.
    """
    base = [
        "apt-get",
        "-o",
        f"Dir::Cache={folder}",
        "-o",
        f"Dir::Cache::archives={folder}/archives",
    ]
    base += [
        "-o",
        "APT::Sandbox::User=root",
        "-o",
        "APT::Keep-Downloaded-Packages=true",
        "-o",
        "Debug::NoLocking=true",
    ]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        run([*base, *fetch], cwd=folder, env=env)
    except ClusterError:
        lists = folder / "lists"
        (lists / "partial").mkdir(parents=True)
        base += ["-o", f"Dir::State::lists={lists}"]
        try:
            run([*base, "update"], env=env)
            run([*base, *fetch], cwd=folder, env=env)
        except ClusterError as error:
            raise ClusterError(
                f"apt-get can't {' '.join(fetch)} for {release()}. The local cluster needs a "
                "Debian or Ubuntu release that has them (universe on), or a cluster of your own "
                f"named by KUBECONFIG.\n{error}"
            ) from None
        shutil.rmtree(lists)


def _find(root: Path, program: str) -> Path:
    for folder in ("usr/bin", "usr/sbin", "bin", "sbin"):
        if (root / folder / program).exists():
            return (root / folder / program).relative_to(root)
    raise ClusterError(
        f"none of the packages {', '.join(PACKAGES)} of {release()} contains the program {program}"
    )


def _wrap(wrapper: Path, root: Path, program: Path, final: Path, *first: str) -> None:
    """A script that runs the program with the unpacked libraries."""
    libraries = sorted({path.parent.relative_to(root) for path in root.glob("**/lib*.so*")})
    extensions = next(iter(sorted(root.glob("**/xtables/libxt_comment.so"))), None)
    settings = ["LD_LIBRARY_PATH=" + ":".join(f"{final}/root/{path}" for path in libraries)]
    if extensions is not None and "xtables" in program.name:
        settings.append(f"XTABLES_LIBDIR={final}/root/{extensions.parent.relative_to(root)}")
    words = " ".join([*settings, f"'{final}/root/{program}'", *first])
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nexec env {words} "$@"\n')
    wrapper.chmod(0o755)
