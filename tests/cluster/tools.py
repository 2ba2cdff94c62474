"""Programs that the local cluster and the chart tests need: built from Go modules on demand, kept
in the cache.

The key of a built program covers its recipe, so a changed recipe means a new one.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache, debian
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError

HERE = Path(__file__).parent
NEWEST_KUBERNETES = "1.37.2"
"""What `make test` runs. Its module is kubernetes/go.mod."""
FORMER_KUBERNETES = ("1.36.3", "1.35.4")
"""What `make soak` runs as well. The module of 1.36 is kubernetes/1.36.mod."""
KUBERNETES_VERSION = "KUBERNETES_VERSION"
"""Environment variable: the Kubernetes to run, such as `1.36`."""


def chosen_kubernetes(wanted: str) -> str:
    """Return the Kubernetes to run, which is the newest without a wish. Raises ClusterError for one
    that is not known.
    """
    known = {_minor(it): it for it in (NEWEST_KUBERNETES, *FORMER_KUBERNETES)}
    if wanted and wanted not in known:
        raise ClusterError(f"{KUBERNETES_VERSION}={wanted}: is not one of {', '.join(known)}")
    return known[wanted] if wanted else NEWEST_KUBERNETES


def _minor(version: str) -> str:
    return version.rpartition(".")[0]


KUBERNETES = chosen_kubernetes(os.environ.get(KUBERNETES_VERSION, ""))
KUBERNETES_MINOR = int(KUBERNETES.split(".")[1])
MANIFESTS = "manifests.yaml"
_VERSION = "k8s.io/component-base/version"
_STAMP = {
    f"{_VERSION}.gitVersion": f"v{KUBERNETES}",
    f"{_VERSION}.gitMajor": KUBERNETES.split(".")[0],
    f"{_VERSION}.gitMinor": KUBERNETES.split(".")[1],
    f"{_VERSION}.gitTreeState": "clean",
    "k8s.io/client-go/pkg/version.gitVersion": f"v{KUBERNETES}",
}
_KUBERNETES_MODULE = "go" if KUBERNETES == NEWEST_KUBERNETES else _minor(KUBERNETES)
_MAJOR, _MINOR, _ = NEWEST_KUBERNETES.split(".")
# Without these, Helm renders for a Kubernetes of years ago when it has no cluster to ask.
_HELM_STAMP = {
    "helm.sh/helm/v3/internal/version.version": "v3.21.4",
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": _MAJOR,
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": _MINOR,
    "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": _MAJOR,
    "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": _MINOR,
}


@dataclass(frozen=True)
class Module:
    """A program of a module in this folder: `package` is built in `folder`, and linked under each
    of `names`.
    """

    folder: str
    package: str
    names: tuple[str, ...]
    stamp: Mapping[str, str]
    manifests: tuple[str, str] | None = None
    """Path of a required module, and the folder in it that kustomize renders into MANIFESTS, beside
    the program.
    """

    module: str = "go"
    """Its files are `module`.mod and `module`.sum."""

    def key(self) -> str:
        """Changes with anything that the program is built from."""
        files = [
            path
            for path in sorted((HERE / self.folder).rglob("*"))
            if path.name in {f"{self.module}.mod", f"{self.module}.sum", "main.go"}
        ]
        parts = self.manifests or ()
        return _digest(
            self.package, *parts, *self.stamp.values(), *(path.read_text() for path in files)
        )

    def build(self, folder: Path) -> None:
        """Build into `folder`."""
        program = folder / self.names[0]
        words: list[str | Path] = [
            "build",
            *([] if self.module == "go" else [f"-modfile={self.module}.mod"]),
            "-trimpath",
            "-ldflags",
            _links(self.stamp),
            "-o",
            program,
            self.package,
        ]
        _go(words, cwd=HERE / self.folder)
        for name in self.names[1:]:
            (folder / name).symlink_to(program.name)
        if self.manifests is not None:
            module, within = self.manifests
            # The modules themselves may be missing from a cache that has this program.
            source = _go(["list", "-m", "-f", "{{.Dir}}", module], cwd=HERE / self.folder).strip()
            rendered = run([tool("kustomize"), "build", Path(source) / within], seconds=60)
            (folder / MANIFESTS).write_text(rendered)


@dataclass(frozen=True)
class Published:
    """A program that `go install` takes as published."""

    package: str
    version: str
    name: str
    stamp: Mapping[str, str]

    def key(self) -> str:
        """Changes with version and stamp."""
        return _digest(self.package, self.version, *self.stamp.values())

    def build(self, folder: Path) -> None:
        """Build into `folder`."""
        _go(
            [
                "install",
                "-trimpath",
                "-ldflags",
                _links(self.stamp),
                f"{self.package}@{self.version}",
            ],
            gobin=folder,
        )
        # The program of a/b/v5 is b.
        made = re.sub(r"/v\d+$", "", self.package).rsplit("/", 1)[-1]
        if made != self.name:
            (folder / made).rename(folder / self.name)


KUBERNETES_PROGRAMS = (
    "kube",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
)
_GO: dict[str, Module | Published] = {
    **dict.fromkeys(
        KUBERNETES_PROGRAMS,
        Module("kubernetes", ".", KUBERNETES_PROGRAMS, _STAMP, module=_KUBERNETES_MODULE),
    ),
    "kubectl": Module("kubernetes", "./kubectl", ("kubectl",), _STAMP, module=_KUBERNETES_MODULE),
    "pause": Module("pause", ".", ("pause",), {}),
    "deviceplugin": Module("deviceplugin", ".", ("deviceplugin",), {}),
    "push": Module("push", ".", ("push",), {}),
    "helm": Published("helm.sh/helm/v3/cmd/helm", "v3.21.4", "helm", _HELM_STAMP),
    "helm4": Published(
        "helm.sh/helm/v4/cmd/helm",
        "v4.2.4",
        "helm4",
        {"helm.sh/helm/v4/internal/version.version": "v4.2.4"},
    ),
    "actionlint": Published(
        "github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12", "actionlint", {}
    ),
    "crane": Published("github.com/google/go-containerregistry/cmd/crane", "v0.22.1", "crane", {}),
    "kustomize": Published("sigs.k8s.io/kustomize/kustomize/v5", "v5.8.1", "kustomize", {}),
    "versitygw": Published("github.com/versity/versitygw/cmd/versitygw", "v1.2.0", "versitygw", {}),
    "ct": Module("tools/ct", "github.com/helm/chart-testing/v3/ct", ("ct",), {}),
    "prometheus-adapter": Module(
        "tools/prometheus-adapter",
        "sigs.k8s.io/prometheus-adapter/cmd/adapter",
        ("prometheus-adapter",),
        {},
    ),
    "jobset": Module(
        "tools/jobset",
        "sigs.k8s.io/jobset",
        ("jobset",),
        {},
        ("sigs.k8s.io/jobset", "config/default"),
    ),
    "lws": Module(
        "tools/lws", "sigs.k8s.io/lws/cmd", ("lws",), {}, ("sigs.k8s.io/lws", "config/default")
    ),
    "otelcol": Module("tools/otelcol", ".", ("otelcol",), {}),
    "helm-unittest": Module(
        "tools/helm-unittest",
        "github.com/helm-unittest/helm-unittest/cmd/helm-unittest",
        ("helm-unittest",),
        {},
    ),
}


def tool(name: str) -> Path:
    """Path of a program, built or downloaded first if it is not in the cache (minutes, for the
    Kubernetes ones).

    Raises ClusterError if it can't be had.
    """
    if name in _GO:
        return _entry(name) / name
    if name in debian.PROGRAMS:
        return debian.unpacked() / "bin" / name
    raise ClusterError(
        f"{name}: not a tool of tests/cluster; it has {', '.join(sorted({*_GO, *debian.PROGRAMS}))}"
    )


def built(name: str) -> bool:
    """Whether `tool(name)` would answer at once."""
    recipe = _GO[name]
    return _place(recipe).is_dir()


def _entry(name: str) -> Path:
    recipe = _GO[name]
    return cache.entry(_place(recipe), recipe.build)


def _place(recipe: Module | Published) -> Path:
    name = recipe.names[0] if isinstance(recipe, Module) else recipe.name
    return cache.root() / "bin" / f"{name}-{recipe.key()}"


def _links(stamp: Mapping[str, str]) -> str:
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in stamp.items())])


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _go(words: list[str | Path], cwd: Path | None = None, gobin: Path | None = None) -> str:
    home = cache.root() / "go"
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in {"GOBIN", "GOOS", "GOARCH", "GOWORK"}
    }
    env |= {
        "CGO_ENABLED": "0",
        "GOCACHE": str(home / "build"),
        "GOFLAGS": "-modcacherw -buildvcs=false",
        "GOMODCACHE": str(home / "mod"),
        "GOPATH": str(home / "path"),
        # An older Go takes the release that a module asks for from the module proxy.
        "GOTOOLCHAIN": "auto",
        "GOWORK": "off",
    }
    if gobin is not None:
        env["GOBIN"] = str(gobin)
    return run(["go", *words], cwd=cwd or HERE, env=env, seconds=1800)
