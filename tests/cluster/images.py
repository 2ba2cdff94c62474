"""Builds the images of images/ without a container engine, out of the very Containerfiles that an
engine builds.

A Containerfile's base image is built by mmdebstrap, each RUN is run in an overlay over the layers
before it, each COPY is copied; all images then go into one archive (OCI image layout) in which
shared layers lie once. Layers are kept in the cache under a key that covers all that they are built
from, so a second build builds what has changed, and only that. Does not load the archive anywhere.

Needs root: it mounts, in mount namespaces of its own that end with the process that created them.

Layers and layout: https://github.com/opencontainers/image-spec
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import tarfile
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

from schemas.image_digests import chart_images
from sidecars.contract.project import REGISTRY
from tests.cluster import cache as cache_folder
from tests.cluster import debian, sbom
from tests.cluster.commands import run
from tests.cluster.containerfile import Config, Copy, Run, Stage, Step, parse
from tests.cluster.errors import ClusterError

REPOSITORY = Path(__file__).parents[2]
_DEFAULTS = [
    image
    for chart in ("slurm", "slurm-operator")
    for image in chart_images(REPOSITORY / "charts" / chart).values()
]
IMAGES = {image.repository.removeprefix(f"{REGISTRY}/"): image.tag for image in _DEFAULTS}
"""Names and tags of the images, which are those of the charts' default values."""

VARIANTS = {
    "login-jupyter": IMAGES["login"],
    "slurmd-jupyter": IMAGES["slurmd"],
    "slurmd-mpi": IMAGES["slurmd"],
}
"""Names and tags of images that continue one of the others. They are built on request alone."""

DEBIAN = "docker.io/library/debian:"
"""Base images that mmdebstrap can stand in for: a Debian suite, slim or not."""

_FORMAT = "1"
"""Part of every layer's key: a change of how layers are built here builds them again."""

_ARCHIVE = "3"
"""Part of every archive's name: likewise."""

_KEPT_SECONDS = 86400.0
"""How long layers and archives are kept that this checkout doesn't use: another one may."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MINIMAL = (
    "--variant=minbase",
    # As in Debian's own slim images.
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/groff/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)

_NAMESPACE = (
    "setpriv",
    "--pdeathsig=KILL",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
"""Runs a program whose processes and mounts are gone when it, or whoever started it, is."""

_STEP = r"""
set -eu
lower=$1 making=$2 command=$3
shift 3
folders="lowerdir=$lower,upperdir=$making/tree,workdir=$making/work"
mount -t overlay overlay "$making/root" -o "$folders,redirect_dir=off,metacopy=off,index=off"
root=$making/root
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/mnt"
for device in null zero full random urandom; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
# Pairs of what is seen inside, and where.
while [ $# -gt 0 ]; do
  if [ -d "$1" ]; then
    mkdir -p "$root$2"
  elif [ ! -e "$root$2" ]; then
    : >"$root$2"
  fi
  mount --bind "$1" "$root$2"
  shift 2
done
exec chroot "$root" sh -eu -c "$command"
"""


@dataclass(frozen=True)
class Layer:
    """One layer: `step` done on top of `parent`, or, with neither, the Debian suite `suite`."""

    parent: "Layer | None"
    title: str
    suite: str | None = None
    step: Step | None = None
    source: "Layer | None" = None
    context: Path = REPOSITORY

    @cached_property
    def key(self) -> str:
        """Changes with anything that the layer is built from, save what the package registries have
        that day.
        """
        parts = [
            _FORMAT,
            platform.machine(),
            self.parent.key if self.parent else "",
            self.suite or "",
        ]
        if self.suite:
            parts += _MINIMAL
        match self.step:
            case Run(command, mounts, environment):
                parts += ["run", command, *(f"{name}={value}" for name, value in environment)]
                for mount in mounts:
                    parts += [mount.target, _content(self.context / mount.source)]
            case Copy(path, target):
                content = self.source.key if self.source else _content(self.context / path)
                parts += ["copy", path if self.source else "", target, content]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    @property
    def chain(self) -> "tuple[Layer, ...]":
        """The layers from the lowest to this one."""
        return (*(self.parent.chain if self.parent else ()), self)


@dataclass(frozen=True)
class Image:
    """What is to be built: the layers up to `top`, and how a container of them is run."""

    reference: str
    top: Layer
    config: Config


@dataclass(frozen=True)
class Blob:
    """A layer as it lies in an archive. `digest` is of the compressed file, `diff_id` of the tar
    file inside.
    """

    path: Path
    digest: str
    diff_id: str
    size: int


def architecture() -> str:
    """The architecture of the images that are built on this host, in the words of Kubernetes and
    OCI.
    """
    architecture_name = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(architecture_name, architecture_name)


def plan(context: Path = REPOSITORY, names: Collection[str] = tuple(IMAGES)) -> tuple[Image, ...]:
    """The images of these names that images/ of the repository `context` defines, in one order.
    Builds nothing.
    """
    known = IMAGES | VARIANTS
    return tuple(_image(name, tag, context) for name, tag in known.items() if name in names)


def _image(name: str, tag: str, context: Path) -> Image:
    path = context / "images" / name / "Containerfile"
    stages = parse(path.read_text(), str(path.relative_to(context)))
    tops: dict[str, Layer] = {}
    config = stages[-1].config
    for stage in stages:
        continued = next(
            (own for own in IMAGES if stage.base == f"{REGISTRY}/{own}:{IMAGES[own]}"), None
        )
        if continued and continued != name:
            below = _image(continued, IMAGES[continued], context)
            tops[stage.base] = below.top
            if stage is stages[-1]:
                config = config.on(below.config)
        tops[stage.name] = _top(stage, tops, context)
    config = replace(config, labels={**config.labels, "org.opencontainers.image.version": tag})
    return Image(f"{REGISTRY}/{name}:{tag}", tops[stages[-1].name], config)


def build_images(
    cache: Path, note: Callable[[str], None], only: Collection[str] = tuple(IMAGES)
) -> Path:
    """One archive with all images of images/, or `only` some of them, built first where it is
    missing or out of date.

    Beside it lies NAME.spdx.json for each image: its packages and their licences. `cache` is the
    cache folder; `say` gets what is being done. The archive's name changes with its content; a
    killed build has no archive and is continued by the next. Raises ClusterError.
    """
    return _archive(cache, note, plan(names=only))


def build_text(cache: Path, reference: str, text: str) -> Path:
    """As `build_images`, with one image of this name from the text of a Containerfile with one
    stage.
    """
    [stage] = parse(text, reference)
    image = Image(reference, _top(stage, {}, REPOSITORY), stage.config)
    return _archive(cache, lambda _: None, [image])


def _archive(cache: Path, note: Callable[[str], None], images: Sequence[Image]) -> Path:
    folder = cache / "images"
    parts = [_ARCHIVE, *(image.reference + image.top.key + repr(image.config) for image in images)]
    final = folder / "archives" / _digest(parts)
    with cache_folder.locked(folder / "build.lock"):
        if not final.is_dir():
            if os.geteuid() != 0:
                raise ClusterError(
                    "images: building them without a container engine needs root (it mounts)"
                )
            blobs = _Builder(folder, note).blobs(images)
            note("images: writing the archive")
            cache_folder.entry(final, lambda making: _write_all(making, images, blobs))
        prune(folder, final, images)
    return final / "images.tar"


def trees(cache: Path, name: str) -> list[Path]:
    """The folders with the files of one image, the topmost layer first, built where they are
    missing.

    `cache` and errors are those of `build_images`.
    """
    folder = cache / "images"
    [image] = plan(names=(name,))
    with cache_folder.locked(folder / "build.lock"):
        _Builder(folder, lambda _: None).blobs([image])
        _keep(folder / "layers", _used([image]))
    return [folder / "layers" / layer.key / "tree" for layer in reversed(image.top.chain)]


def stage_trees(cache: Path, name: str, path: str) -> list[Path]:
    """As `trees`, of the stage from which the Containerfile of an image copies `path`."""
    folder = cache / "images"
    [image] = plan(names=(name,))
    [source] = [
        layer.source
        for layer in image.top.chain
        if layer.source is not None and isinstance(layer.step, Copy) and layer.step.source == path
    ]
    builder = _Builder(folder, lambda _: None)
    with cache_folder.locked(folder / "build.lock"):
        for layer in source.chain:
            builder._blob(layer)
    return [folder / "layers" / layer.key / "tree" for layer in reversed(source.chain)]


def _top(stage: Stage, earlier: dict[str, Layer], context: Path) -> Layer:
    """The topmost layer of a stage."""
    top = earlier.get(stage.base)
    if top is None:
        # mmdebstrap takes what the mirror has now, whatever the digest.
        base = stage.base.partition("@")[0]
        suite = base.removeprefix(DEBIAN).removesuffix("-slim")
        if not base.startswith(DEBIAN):
            raise ClusterError(
                f"images: FROM {stage.base}: without an engine, only {DEBIAN}SUITE can be built on"
            )
        top = Layer(None, f"Debian {suite}", suite=suite)
    for step in stage.steps:
        source = None
        match step:
            case Run(command, mounts):
                folder = next(
                    (mount.source for mount in mounts if mount.target == "/mnt/image"), None
                )
                title = folder or textwrap.shorten(command, 40, placeholder=" …")
            case Copy(path, _, None):
                title = path
            case Copy(path, _, str(name)):
                title = path
                source = earlier.get(name)
                if source is None:
                    raise ClusterError(f"images: COPY --from={name}: no such stage before it")
        top = Layer(top, title, step=step, source=source, context=context)
    return top


class _Builder:
    """Builds layers in the folder `layers`, each once."""

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self._layers = folder / "layers"
        self._packages = folder / "packages"
        self._note = note
        self._refreshed = False

    def blobs(self, images: Iterable[Image]) -> dict[str, Blob]:
        """The layers of all images by key, built where missing."""
        return {layer.key: self._blob(layer) for image in images for layer in image.top.chain}

    def _place(self, layer: Layer) -> Path:
        return self._layers / layer.key

    def _blob(self, layer: Layer) -> Blob:
        folder = cache_folder.entry(self._place(layer), lambda making: self._make(layer, making))
        facts = json.loads((folder / "layer.json").read_text())
        return Blob(folder / "layer.tar.gz", facts["digest"], facts["diff_id"], facts["size"])

    def _make(self, layer: Layer, making: Path) -> None:
        started = time.monotonic()
        self._note(f"images: building {layer.title}")
        tree = making / "tree"
        tree.mkdir()
        match layer.step:
            case None:
                self._debian(layer, tree)
            case Run():
                self._run(layer, layer.step, making)
            case Copy(path, target) if layer.source is None:
                _copy(layer.context / path, tree / target[1:], _wanted)
            case Copy(path, target):
                for below in layer.source.chain:
                    self._blob(below)
                    if (found := self._place(below) / "tree" / path[1:]).exists():
                        _copy(found, tree / target[1:], lambda _: True)
        if layer.step is not None and not any(tree.iterdir()) and isinstance(layer.step, Copy):
            raise ClusterError(f"images: COPY {layer.step.source}: no such file or folder")
        (making / "layer.json").write_text(json.dumps(_pack(tree, making / "layer.tar.gz")))
        self._note(f"images: built {layer.title} in {time.monotonic() - started:.0f} s")

    def _debian(self, layer: Layer, tree: Path) -> None:
        """A minimal Debian from the host's own mirror; where that has no Debian, from
        mmdebstrap's default one.
        """
        programs = debian.unpacked() / "root/usr/bin"
        env = {**os.environ, "PATH": f"{os.environ['PATH']}:{programs}", "LC_ALL": "C.UTF-8"}
        mirror = os.environ.get("DEBIAN_MIRROR") or debian_mirror(
            run(["apt-get", "indextargets", "--format", "$(REPO_URI)"])
        )
        words: list[str | Path] = [
            *_NAMESPACE,
            programs / "mmdebstrap",
            "--mode=root",
            "--format=directory",
            *_MINIMAL,
        ]
        words += [f"--aptopt={line}" for line in _apt_settings()]
        # A host that is not Debian need not know Debian's keys.
        words.append(f"--keyring={programs.parent / 'share/keyrings/debian-archive-keyring.gpg'}")
        try:
            run(
                [*words, str(layer.suite), tree, *([mirror] if mirror else [])],
                env=env,
                seconds=900,
            )
        except ClusterError as error:
            raise ClusterError(
                f"images: can't make {layer.title} from {mirror or 'the default mirror'}; "
                f"DEBIAN_MIRROR=URL names another mirror\n{error}"
            ) from None
        # What a container engine lays over, and what was this host's (a proxy's address may contain
        # a password).
        shutil.rmtree(tree / "dev")
        (tree / "dev").mkdir()
        (tree / "etc/apt/apt.conf.d/99mmdebstrap").unlink()
        for name in ("resolv.conf", "hostname"):
            (tree / "etc" / name).write_text("")

    def _run(self, layer: Layer, step: Run, making: Path) -> None:
        assert layer.parent is not None
        for name in ("work", "root", "tmp"):
            (making / name).mkdir()
        binds = [(layer.context / mount.source, mount.target) for mount in step.mounts]
        binds += self._network(making / "tmp")
        lower = ":".join(f"{below.key}/tree" for below in reversed(layer.parent.chain))
        for below in layer.parent.chain:
            self._blob(below)
        words: list[str | Path] = [
            *_NAMESPACE,
            "sh",
            "-c",
            _STEP,
            "step",
            lower,
            making.name,
            step.command,
        ]
        env = {"PATH": _PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **_pip_settings(), **_proxies()}
        env |= {
            "APT_CONFIG": "/mnt/apt.conf",
            "PIP_CONFIG_FILE": "/mnt/pip.conf",
            "PIP_CACHE_DIR": "/mnt/pip",
        }
        env |= dict(step.environment)
        for source, target in binds:
            if not source.exists():
                raise ClusterError(
                    f"images: {layer.title}: the mount's source {source} does not exist"
                )
            words += [source, target]
        try:
            run(words, cwd=self._layers, env=env, seconds=900)
        except ClusterError as error:
            raise ClusterError(f"images: {layer.title}: {error}") from None
        for name in ("work", "root", "tmp"):
            shutil.rmtree(making / name)

    def _network(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """What lets apt and pip inside reach what they reach outside, and keeps what they
        download.
        """
        lists, archives, pip = (self._packages / name for name in ("lists", "archives", "pip"))
        if not self._refreshed:
            shutil.rmtree(lists, ignore_errors=True)
            self._refreshed = True
        for place in (lists, archives, pip):
            place.mkdir(parents=True, exist_ok=True)
        apt = folder / "apt.conf"
        apt.write_text("\n".join([*_apt_settings(), 'APT::Sandbox::User "root";', ""]))
        trust = Path("/etc/ssl/certs/ca-certificates.crt")
        config = [
            os.environ.get("PIP_CONFIG_FILE", ""),
            "~/.config/pip/pip.conf",
            "~/.pip/pip.conf",
            "/etc/pip.conf",
        ]
        found = (Path(name).expanduser() for name in config if name)
        yield lists, "/var/lib/apt/lists"
        yield archives, "/var/cache/apt/archives"
        yield pip, "/mnt/pip"
        yield Path("/etc/resolv.conf"), "/etc/resolv.conf"
        yield apt, "/mnt/apt.conf"
        if trust.is_file():
            yield trust, "/mnt/ca-certificates.crt"
        yield next((path for path in found if path.is_file()), Path("/dev/null")), "/mnt/pip.conf"


def debian_mirror(targets: str) -> str | None:
    """The Debian mirror among the repository addresses of `targets`, one a line; None without
    none.
    """
    return next(
        (uri.rstrip("/") for uri in targets.split() if uri.rstrip("/").endswith("/debian")), None
    )


def _apt_settings() -> list[str]:
    """How the host's own apt reaches its mirrors."""
    wanted = ("Acquire::http", "Acquire::https", "Acquire::Retries", "Acquire::Check-Date")
    dump = run(["apt-config", "dump", "Acquire"]).splitlines()
    settings = [line for line in dump if line.startswith(wanted) and not line.endswith('"";')]
    # A mirror may be a snapshot.
    return [*settings, 'Acquire::Check-Valid-Until "false";']


def _proxies() -> dict[str, str]:
    names = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    return {name: os.environ[name] for name in names if name in os.environ}


def _pip_settings() -> dict[str, str]:
    """How the host's own pip reaches its index; its paths are valid outside only."""
    names = ("INDEX_URL", "EXTRA_INDEX_URL", "TRUSTED_HOST", "PROXY", "DEFAULT_TIMEOUT", "RETRIES")
    settings = {
        f"PIP_{name}": os.environ[f"PIP_{name}"] for name in names if f"PIP_{name}" in os.environ
    }
    if Path("/etc/ssl/certs/ca-certificates.crt").is_file():
        settings["PIP_CERT"] = "/mnt/ca-certificates.crt"
    return settings


def _wanted(path: Path) -> bool:
    """Whether a file of the build context counts: not what Python writes, nor a definition's
    Containerfile.
    """
    return path.name not in {"__pycache__", "Containerfile"} and path.suffix != ".pyc"


def _files(path: Path, wanted: Callable[[Path], bool]) -> Iterator[Path]:
    """The wanted files under `path`, or `path` itself, in a fixed order."""
    if not path.is_dir() or path.is_symlink():
        if path.exists() or path.is_symlink():
            yield path
        return
    for entry in sorted(path.iterdir()):
        if wanted(entry):
            yield from _files(entry, wanted)


def _content(path: Path) -> str:
    """A digest of the names, contents and executable bits of what is at `path`."""
    digest = hashlib.sha256()
    for file in _files(path, _wanted):
        data = file.read_bytes()
        digest.update(
            f"{file.relative_to(path)}\0{os.access(file, os.X_OK)}\0{len(data)}\0".encode() + data
        )
    return digest.hexdigest()


def _copy(source: Path, target: Path, wanted: Callable[[Path], bool]) -> None:
    """Lay `source` at `target` as root's own; folders are merged. Times are not kept: they change
    without a change.
    """
    for file in _files(source, wanted):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            place.symlink_to(file.readlink())
        else:
            shutil.copyfile(file, place)
            place.chmod(0o755 if os.access(file, os.X_OK) else 0o644)


class _Hashed(io.RawIOBase):
    """Passes on what is written, with its digest and size."""

    def __init__(self, out: IO[bytes] | gzip.GzipFile) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        self.size += len(data)
        self._out.write(data)
        return len(data)


def _pack(tree: Path, target: Path) -> dict[str, str | int]:
    """Pack an overlay's upper folder as a layer: what it marks as deleted becomes the image
    format's whiteouts.
    """
    with target.open("wb") as out:
        packed = _Hashed(out)
        with gzip.GzipFile(
            fileobj=packed, mode="wb", compresslevel=1, mtime=0, filename=""
        ) as compressed:
            plain = _Hashed(compressed)
            with tarfile.open(
                fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT, dereference=False
            ) as archive:
                for path in _below(tree):
                    _add(archive, path, str(path.relative_to(tree)))
    return {"digest": packed.digest, "diff_id": plain.digest, "size": packed.size}


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    facts = path.lstat()
    attributes = os.listxattr(path, follow_symlinks=False)
    if stat.S_ISSOCK(facts.st_mode):
        return
    if stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0:
        archive.addfile(_whiteout(PurePosixPath(name).with_name(f".wh.{path.name}")))
        return
    if "security.capability" in attributes:
        raise ClusterError(
            f"images: /{name} has file capabilities, which the build without an engine would lose"
        )
    member = archive.gettarinfo(str(path), name)
    member.mtime = int(facts.st_mtime)
    member.uname = member.gname = ""
    if member.isreg():
        with path.open("rb") as content:
            archive.addfile(member, content)
    else:
        archive.addfile(member)
    if "trusted.overlay.opaque" in attributes:
        archive.addfile(_whiteout(PurePosixPath(name) / ".wh..wh..opq"))


def _whiteout(path: PurePosixPath) -> tarfile.TarInfo:
    return tarfile.TarInfo(str(path))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _write_all(folder: Path, images: Iterable[Image], blobs: dict[str, Blob]) -> None:
    """The archive, and the software bill of materials of each image."""
    _write_archive(folder / "images.tar", images, blobs)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for image in images:
        name = image.reference.rpartition("/")[2].partition(":")[0]
        trees = [blobs[layer.key].path.parent / "tree" for layer in image.top.chain]
        document = sbom.document(image.reference, image.top.key, packages(trees), created)
        (folder / f"{name}.spdx.json").write_text(json.dumps(document, indent=1))


def packages(trees: Sequence[Path]) -> list[sbom.Package]:
    """The packages of an image, from the files of its layers, lowest first."""
    found = []
    for tree in reversed(trees):
        licences = tree / "usr/share/doc/IMAGE-LICENSES"
        if licences.exists():
            found += sbom.debian_packages(licences.read_text())
            break
    for tree in trees:
        found += [
            sbom.python_package(path.read_text())
            for folder in ("opt/*", "opt/*/lib/python3*/site-packages")
            for path in sorted(tree.glob(f"{folder}/*.dist-info/METADATA"))
        ]
    return found


def _write_archive(target: Path, images: Iterable[Image], blobs: dict[str, Blob]) -> None:
    """Write an OCI image layout with all images as a tar file, and the list of images that `docker
    load` reads.
    """
    system = {"architecture": architecture(), "os": "linux"}
    files: dict[str, bytes] = {"oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode()}
    layers: dict[str, Path] = {}

    def document(media_type: str, content: Any) -> dict[str, Any]:
        data = json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    manifests = []
    listed = []
    for image in images:
        chain = [blobs[layer.key] for layer in image.top.chain]
        layers |= {
            f"blobs/sha256/{blob.digest.removeprefix('sha256:')}": blob.path for blob in chain
        }
        config = document(
            "application/vnd.oci.image.config.v1+json",
            {**system, **image_config(image.config, chain)},
        )
        layer_type = "application/vnd.oci.image.layer.v1.tar+gzip"
        layer_descriptors = [
            {"mediaType": layer_type, "digest": blob.digest, "size": blob.size} for blob in chain
        ]
        manifest = document(
            "application/vnd.oci.image.manifest.v1+json",
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config,
                "layers": layer_descriptors,
                "annotations": dict(image.config.labels),
            },
        )
        names = {
            "io.containerd.image.name": image.reference,
            "org.opencontainers.image.ref.name": image.reference,
        }
        manifests.append({**manifest, "platform": system, "annotations": names})
        blob_names = [
            f"blobs/{each['digest'].replace(':', '/')}" for each in (config, *layer_descriptors)
        ]
        listed.append(
            {"Config": blob_names[0], "RepoTags": [image.reference], "Layers": blob_names[1:]}
        )
    files["manifest.json"] = json.dumps(listed).encode()
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, path in layers.items():
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with path.open("rb") as content:
                archive.addfile(member, content)


def image_config(config: Config, chain: Iterable[Blob]) -> dict[str, Any]:
    """The OCI image configuration, without the platform."""
    environment = {"PATH": _PATH, **config.environment}
    container: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "User": config.user,
        "WorkingDir": config.working_directory,
        "ExposedPorts": {port: {} for port in config.ports},
        "Entrypoint": list(config.entrypoint),
        "Cmd": list(config.command),
        "Labels": dict(config.labels),
    }
    return {
        "config": {name: value for name, value in container.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [blob.diff_id for blob in chain]},
    }


def prune(folder: Path, archive: Path, images: Iterable[Image]) -> None:
    """Remove layers and archives that no checkout has used for a day; those of `images` are used
    now.
    """
    used = _used(images)
    now = time.time()
    for place, names in ((folder / "layers", used), (folder / "archives", {archive.name})):
        for path in place.glob("*"):
            old = path.is_dir() and now - path.stat().st_mtime > _KEPT_SECONDS
            if old and path.name not in names:
                shutil.rmtree(path)
        _keep(place, names)


def _used(images: Iterable[Image]) -> set[str]:
    """The keys of the layers of images, and of those from which they copy."""
    chains = [image.top.chain for image in images]
    sources = [it.source.chain for chain in chains for it in chain if it.source]
    return {layer.key for chain in [*chains, *sources] for layer in chain}


def _keep(place: Path, names: Iterable[str]) -> None:
    """Record that entries are used now, where they exist."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.utime(place / name)
