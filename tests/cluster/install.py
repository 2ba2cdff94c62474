"""Slurm on a cluster, the way a user would do it: three Helm releases, waited for, and a first job.

Works on the local cluster and on any other that a kubeconfig names.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import cache, pulls
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.progress import Progress
from tests.cluster.tools import built, tool
from tests.cluster.waiting import until

CHARTS = Path(__file__).parents[2] / "charts"
LOCAL_VALUES = CHARTS / "slurm" / "ci" / "local-values.yaml"
FIRST_JOB = CHARTS / "slurm" / "examples" / "minimal.yaml"
GROUP = "slinky.slurm.net"
KINDS = ("controllers", "restapis", "loginsets", "nodesets")
OPERATOR_NAMESPACE, SLURM_NAMESPACE = "slinky", "slurm"
READY_SECONDS = 300
PULL_SECONDS = 600
"""In addition, where nodes pull the images from a registry."""


@dataclass(frozen=True)
class Release:
    """A Helm release: its chart has its name."""

    name: str
    namespace: str
    values: tuple[Path, ...] = ()

    @property
    def chart(self) -> Path:
        """The chart's folder."""
        return CHARTS / self.name

    def digest(self, *also: str) -> str:
        """Changes with chart, values and `also`."""
        # Subcharts and shared templates are links.
        files = sorted(
            Path(folder, name)
            for folder, _, names in os.walk(self.chart, followlinks=True)
            for name in names
        )
        parts = [
            f"{path.relative_to(CHARTS)}\0{path.read_text(errors='replace')}" for path in files
        ]
        parts += [path.read_text() for path in self.values]
        return hashlib.sha256("\0".join([*parts, *also]).encode()).hexdigest()[:16]


def chosen_values(local: bool) -> tuple[Path, ...]:
    """Values files of chart slurm: those that VALUES names, with colons between, in the order in
    which Helm reads them.

    On the local cluster they lie over its own one. On another, FIRST_JOB replaces them if VALUES is
    empty.
    """
    named = os.environ.get("VALUES", "")
    files = [Path(name).absolute() for name in named.split(":") if name]
    for path in files:
        if not path.is_file():
            raise ClusterError(f"VALUES={named}: the file {path} doesn't exist")
    if local:
        return (LOCAL_VALUES, *files)
    return tuple(files or [FIRST_JOB])


def releases(values: tuple[Path, ...], operator_values: tuple[Path, ...] = ()) -> list[Release]:
    """What is installed, in order."""
    return [
        Release("slurm-operator-crds", OPERATOR_NAMESPACE),
        Release("slurm-operator", OPERATOR_NAMESPACE, operator_values),
        Release("slurm", SLURM_NAMESPACE, values),
    ]


@dataclass(frozen=True)
class Target:
    """A cluster to install on, named by a value of KUBECONFIG: one path, or several with colons
    between.

    `images` names the set of images it was given, if it was given one.
    """

    kubeconfig: str
    images: str = ""
    down: str = ""
    values: tuple[Path, ...] = ()
    """Values files of chart slurm that name the images in the registry of REGISTRY."""

    @property
    def local(self) -> bool:
        """Whether it is a local cluster; `down` is the command that ends it."""
        return bool(self.down)

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Output of kubectl. Raises ClusterError."""
        return run(
            [self.program("kubectl"), *words], env=self._environment(), stdin=stdin, seconds=seconds
        )

    def helm(self, *words: str | Path, seconds: float = 300) -> str:
        """Output of Helm. Raises ClusterError."""
        return run(
            [self.program("helm"), "--kubeconfig", self.kubeconfig, *words],
            env=helm_environment(),
            seconds=seconds,
        )

    def _environment(self) -> dict[str, str]:
        return {**helm_environment(), "KUBECONFIG": self.kubeconfig}

    def program(self, name: str) -> Path:
        """kubectl or helm: ours on the local cluster; on another the user's own, if it exists
        one.
        """
        own = None if self.local else shutil.which(name)
        return Path(own) if own else tool(name)

    def items(self, namespace: str, kind: str) -> list[dict[str, Any]]:
        """Objects of a kind, empty without any."""
        found = json.loads(self.kubectl("-n", namespace, "get", kind, "-o", "json"))
        items: list[dict[str, Any]] = found["items"]
        return items


def helm_environment() -> dict[str, str]:
    """Helm's folders lie in the cache; nothing of the user's Helm setup has a say."""
    home = cache.root() / "helm"
    own = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HELM_")},
        **own,
    }


def check_charts(values: tuple[Path, ...], progress: Progress) -> list[dict[str, Any]]:
    """Render every chart with its values, so that a wrong values file stops everything before
    anything is changed.

    Returns the objects, without the CRDs.
    """
    rendered: list[dict[str, Any]] = []
    if not built("helm"):
        with progress.step("Helm (built once, some minutes)"):
            tool("helm")
    with progress.step("charts and values"):
        for path in values:
            try:
                yaml.safe_load(path.read_text())
            except yaml.YAMLError as error:
                raise ClusterError(f"{path}: not YAML: {error}") from None
        for release in releases(values):
            files = [word for path in release.values for word in ("-f", str(path))]
            words: list[str | Path] = [
                "template",
                release.name,
                release.chart,
                "-n",
                release.namespace,
                *files,
            ]
            try:
                text = run([tool("helm"), *words], env=helm_environment())
            except ClusterError as error:
                named = " ".join(map(str, release.values)) or "its default values"
                raise ClusterError(f"chart {release.name} doesn't take {named}:\n{error}") from None
            if release.name != "slurm-operator-crds":
                rendered += [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
    return rendered


def check_reachable(target: Target, progress: Progress) -> None:
    """Raises ClusterError unless the kubeconfig names a cluster that answers."""
    with progress.step(f"cluster of {target.kubeconfig}"):
        if not any(Path(path).is_file() for path in target.kubeconfig.split(":")):
            raise ClusterError(
                f"KUBECONFIG={target.kubeconfig}: the file doesn't exist. Unset KUBECONFIG for the "
                "local cluster."
            )
        try:
            target.kubectl("--request-timeout=15s", "get", "--raw", "/version", seconds=30)
        except ClusterError as error:
            proxy = next(
                (
                    os.environ[name]
                    for name in ("HTTPS_PROXY", "https_proxy")
                    if os.environ.get(name)
                ),
                None,
            )
            also = (
                ", or add the cluster's host to NO_PROXY, because HTTPS_PROXY is set"
                if proxy
                else ""
            )
            raise ClusterError(
                f"the cluster of KUBECONFIG={target.kubeconfig} doesn't answer. Check the "
                f"file{also}, or unset KUBECONFIG for the local cluster.\n{error}"
            ) from None


def install(target: Target, chosen: Sequence[Release], progress: Progress) -> bool:
    """Bring the releases up to date and wait until all is Ready. False if nothing had to
    do.
    """
    changed = [_release(target, release, progress) for release in chosen]
    if not any(changed) and not _not_ready(target):
        return False
    if not target.local:
        _retry_pulls(target)
    with progress.step("Slurm to be Ready"):

        def ready() -> bool:
            missing = _not_ready(target)
            if missing:
                progress.announce(
                    missing[0]
                    if len(missing) == 1
                    else f"{missing[0]}, and {len(missing) - 1} more"
                )
            if missing and not target.local:
                _demand_pulls(target)
            return not missing

        seconds = READY_SECONDS + (0 if target.local else PULL_SECONDS)
        until(ready, "Slurm to be Ready", seconds, lambda: diagnosis(target), pause=0.5)
    return True


def first_job(target: Target, progress: Progress) -> str | None:
    """Output of `srun hostname` on two nodes (or the only one), from a login pod. None without
    login or workers.
    """
    logins = target.items(SLURM_NAMESPACE, f"loginsets.{GROUP}")
    nodesets = target.items(SLURM_NAMESPACE, f"nodesets.{GROUP}")
    count: int = min(2, sum(each.get("status", {}).get("replicas", 0) for each in nodesets))
    if not logins or not count:
        progress.note("no job is run: the values name no login nodes or no workers")
        return None
    login = f"deploy/{logins[0]['metadata']['name']}"
    inside = ["-n", SLURM_NAMESPACE, "exec", login, "-c", "login", "--"]
    with progress.step(f"srun -N{count} hostname"):

        def idle() -> bool:
            try:
                states = target.kubectl(*inside, "sinfo", "-h", "-N", "-o", "%N %T").splitlines()
            except ClusterError as error:
                progress.announce(str(error).splitlines()[-1])
                return False
            progress.announce("; ".join(sorted(set(states))) or "no Slurm nodes yet")
            return len({state for state in states if state.endswith(" idle")}) >= count

        until(idle, f"{count} idle Slurm nodes", 120, lambda: diagnosis(target), pause=0.5)
        return target.kubectl(*inside, "srun", f"-N{count}", "hostname", seconds=90)


def how_to(target: Target) -> str:
    """What to do next."""
    logins = [
        each["metadata"]["name"] for each in target.items(SLURM_NAMESPACE, f"loginsets.{GROUP}")
    ]
    nodesets = [
        each["metadata"]["name"] for each in target.items(SLURM_NAMESPACE, f"nodesets.{GROUP}")
    ]
    folders = dict.fromkeys(str(target.program(name).parent) for name in ("kubectl", "helm"))
    lines = [f"  export KUBECONFIG={target.kubeconfig}", f"  export PATH={':'.join(folders)}:$PATH"]
    if logins:
        exec_ = f"kubectl -n {SLURM_NAMESPACE} exec -it deploy/{logins[0]} --"
        lines += [f"  {exec_} bash", f"  {exec_} sbatch --wrap 'srun hostname'"]
    if nodesets:
        lines.append(
            f"  kubectl -n {SLURM_NAMESPACE} scale nodesets.{GROUP}/{nodesets[0]} --replicas=3"
        )
    lines.append(f"  kubectl -n {SLURM_NAMESPACE} get nodesets.{GROUP},pods --watch")
    if target.local:
        chart = (CHARTS / "slurm").relative_to(CHARTS.parent)
        files = f"-f {chart}/examples/without-cgroup-v2.yaml -f YOUR-VALUES.yaml"
        lines.append(f"  helm -n {SLURM_NAMESPACE} upgrade slurm {chart} {files}")
        lines.append(target.down)
    else:
        files = " ".join(f"-f {_shown(path)}" for path in target.values)
        lines.append(
            f"  helm -n {SLURM_NAMESPACE} upgrade slurm {_shown(CHARTS / 'slurm')} {files} -f "
            "YOUR-VALUES.yaml"
        )
        lines += [
            f"  helm -n {each.namespace} uninstall {each.name}" for each in reversed(releases(()))
        ]
        lines.append(f"  kubectl delete namespace {SLURM_NAMESPACE} {OPERATOR_NAMESPACE}")
    names = [
        "",
        "",
        *(["log in:", "submit:"] if logins else []),
        *(["scale:"] if nodesets else []),
        "watch:",
        "configure:",
        "tear down:",
    ]
    names += [""] * (len(lines) - len(names))
    return "\n".join(f"{name:11}{line.strip()}" for name, line in zip(names, lines, strict=True))


def _shown(path: Path) -> str:
    """A path of this repository as the commands name it that are run there."""
    return str(path.relative_to(CHARTS.parent)) if path.is_relative_to(CHARTS.parent) else str(path)


def _release(target: Target, release: Release, progress: Progress) -> bool:
    """Install or upgrade, unless the very same is deployed. A release that a killed run left
    pending is begun again.
    """
    digest = f"slurm-charts {release.digest(target.images)}"
    found = json.loads(
        target.helm(
            "list", "--all", "-n", release.namespace, "--filter", f"^{release.name}$", "-o", "json"
        )
    )
    status = found[0]["status"] if found else ""
    if status == "deployed":
        described = json.loads(
            target.helm("status", release.name, "-n", release.namespace, "-o", "json")
        )
        if described["info"].get("description") == digest:
            return False
    with progress.step(f"helm upgrade --install {release.name}"):
        if status == "uninstalling":
            target.helm(
                "uninstall", release.name, "-n", release.namespace, "--wait", "--timeout", "3m"
            )
        elif status.startswith("pending"):
            pending = "status in (pending-install,pending-upgrade,pending-rollback)"
            chosen = f"owner=helm,name={release.name},{pending}"
            target.kubectl("-n", release.namespace, "delete", "secret", "-l", chosen)
        files = [word for path in release.values for word in ("-f", str(path))]
        words: list[str | Path] = ["upgrade", "--install", release.name, release.chart]
        words += ["-n", release.namespace, "--create-namespace"]
        target.helm(*words, *files, "--description", digest)
        if release.name == "slurm-operator-crds":
            until(lambda: _established(target), "the CRDs to be Established", 60)
        elif release.name == "slurm-operator" and status == "deployed" and target.images:
            # The same tag may name another image by now.
            target.kubectl(
                "-n", release.namespace, "rollout", "restart", "deployment/slurm-operator"
            )
    return True


def _established(target: Target) -> bool:
    """Whether the API serves all our kinds."""
    found = json.loads(target.kubectl("get", "customresourcedefinitions", "-o", "json"))["items"]
    served = {
        crd["spec"]["names"]["plural"]
        for crd in found
        if crd["spec"]["group"] == GROUP
        and any(
            each["type"] == "Established" and each["status"] == "True"
            for each in crd.get("status", {}).get("conditions") or []
        )
    }
    return served.issuperset(KINDS)


def _not_ready(target: Target) -> list[str]:
    """What is not Ready yet, one line each, the causes before the effects."""
    missing: list[str] = []
    for deployment in target.items(OPERATOR_NAMESPACE, "deployments"):
        status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
        current = status.get("observedGeneration") == deployment["metadata"]["generation"]
        if (
            not current
            or min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0)) < wanted
        ):
            missing.append(f"deployment {deployment['metadata']['name']} is not available")
    for kind in KINDS:
        for each in target.items(SLURM_NAMESPACE, f"{kind}.{GROUP}"):
            why = unready(each)
            if why is not None:
                missing.append(f"{each['kind']} {each['metadata']['name']}: {why}")
    return missing


def unready(resource: Mapping[str, Any]) -> str | None:
    """Why a custom resource is not Ready by its own condition. None: it is, in its present
    generation.
    """
    conditions = {each["type"]: each for each in resource.get("status", {}).get("conditions", [])}
    ready = conditions.get("Ready")
    if ready is None:
        return "the operator has not looked at it yet"
    if ready["status"] != "True":
        return f"{ready.get('reason', 'NotReady')}: {ready.get('message', '')}".rstrip(": ")
    generation = resource["metadata"].get("generation", 0)
    if ready.get("observedGeneration", generation) < generation:
        return "the operator has not seen the last change yet"
    return None


def diagnosis(target: Target) -> str:
    """Everything that helps to see why it is not Ready: conditions, containers, warnings."""
    lines = _not_ready(target)
    for namespace in (OPERATOR_NAMESPACE, SLURM_NAMESPACE):
        for pod in target.items(namespace, "pods"):
            lines += pod_troubles(pod)
        events = [
            each for each in target.items(namespace, "events") if each.get("type") == "Warning"
        ]
        events.sort(key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "")
        for event in events[-8:]:
            about = event.get("involvedObject", {})
            lines.append(
                f"event: {about.get('kind')} {about.get('name')}: {event.get('reason')}: "
                f"{event.get('message')}"
            )
    return "\n- ".join(["", *lines]) if lines else "everything is ready by now"


def pod_troubles(pod: Mapping[str, Any]) -> Sequence[str]:
    """A line for the pod if it waits to be scheduled and for each of its containers that is not
    well.
    """
    name, status = pod["metadata"]["name"], pod.get("status", {})
    lines = [
        f"pod {name}: {each.get('reason')}: {each.get('message')}"
        for each in status.get("conditions", [])
        if each["type"] == "PodScheduled" and each["status"] != "True"
    ]
    for container in [
        *status.get("initContainerStatuses", []),
        *status.get("containerStatuses", []),
    ]:
        state = container.get("state", {})
        ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
        if "waiting" in state and state["waiting"].get("reason") != "PodInitializing":
            waiting = state["waiting"]
            lines.append(
                f"pod {name}, {container['name']}: {waiting.get('reason')}: "
                f"{waiting.get('message', '')}"
            )
        if ended and ended.get("exitCode"):
            message = f": {ended['message'].strip()}" if ended.get("message") else ""
            lines.append(
                f"pod {name}, {container['name']}: ended with {ended['exitCode']} "
                f"({ended.get('reason')}){message}"
            )
        if "running" in state and not container.get("ready") and not ended:
            lines.append(f"pod {name}, {container['name']}: runs, but is not ready")
    return lines


def _retry_pulls(target: Target) -> None:
    """Delete the pods that wait for the next try of a pull: what an earlier run has reported may be
    repaired.
    """
    for namespace in (OPERATOR_NAMESPACE, SLURM_NAMESPACE):
        for pod in target.items(namespace, "pods"):
            status = pod.get("status", {})
            containers = [
                *status.get("initContainerStatuses", []),
                *status.get("containerStatuses", []),
            ]
            states = [each.get("state", {}) for each in containers]
            waiting = any(
                state.get("waiting", {}).get("reason") in pulls.REASONS for state in states
            )
            if waiting and not any("running" in state for state in states):
                words = [
                    "delete",
                    "pod",
                    pod["metadata"]["name"],
                    "--ignore-not-found",
                    "--wait=false",
                ]
                target.kubectl("-n", namespace, *words)


def _demand_pulls(target: Target) -> None:
    """Raises ClusterError with the remedy if a node will never get an image."""
    for namespace in (OPERATOR_NAMESPACE, SLURM_NAMESPACE):
        # A pod that is being deleted shows what was wrong before.
        present = (
            pod
            for pod in target.items(namespace, "pods")
            if "deletionTimestamp" not in pod["metadata"]
        )
        for pod in present:
            for line in pod_troubles(pod):
                remedy = pulls.remedy(line)
                if remedy is not None:
                    raise ClusterError(f"{remedy} Then run the same command again.\n{line}")
