"""A NodeSet follows the queue from zero and back, while what it needs for that is killed.

By spec.autoscaling, and by a HorizontalPodAutoscaler with Prometheus and prometheus-adapter as docs/autoscaling.md has
them. The one with the exporter alone is in `test_horizontal_autoscaling`.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.charts.examples import examples
from tests.cluster.tools import tool
from tests.e2e.test_states import kill_processes
from tests.support.real import prometheus
from tests.support.real.configuration import until_saved
from tests.support.real.harness import CHARTS, NODESET, REPOSITORY, Kubernetes, Slurm, condition, until

pytestmark = pytest.mark.timeout(900)

TARGET = ("-n", "slurm", "nodesets.slinky.slurm.net", NODESET)
EXPORTER = "slurm-exporter"
ADAPTER = "prometheus-adapter"
MOST = 3
IDLE_SECONDS = 5
QUICK = {"max": MOST, "idleSeconds": IDLE_SECONDS, "coolDownSeconds": 5, "stepSeconds": 1}
SCRIPT = '#!/bin/sh\nuntil [ -e "/tmp/end-$SLURM_JOB_ID" ]; do sleep 1; done\n'
"""Ends when the test says so."""
SLURMCTLD, SLURMRESTD = ("slurm", "slurmctld"), ("slurm", "slurmrestd")
OPERATOR = ("slinky", "slurm-operator")


@dataclass(frozen=True)
class Way:
    """How a NodeSet is scaled, ready to begin."""

    victims: tuple[tuple[str, str], ...]
    """What is killed: namespaces, and the label app.kubernetes.io/name of their pods."""
    missing: tuple[str, str, str]
    """What is scaled to zero, so that no data is left: its namespace, kind and name."""
    missed: Callable[[], bool]
    """Whether a condition reports that there is no data."""


class Sizes:
    """Each number of replicas that the NodeSet has had, in the order of the API server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[int]:
        return [int(line) for line in self._path.read_text(encoding="utf-8").split("\n")[:-1]]

    def since(self, position: int) -> set[int]:
        """Those of the time since `all` had that length, the present one included."""
        return set(self.all()[position - 1 :])


@contextmanager
def recorded(kubernetes: Kubernetes) -> Iterator[Sizes]:
    """A watch, so that no size is missed between two looks."""
    command = [str(kubernetes.kubectl_path), "get", *TARGET, "--watch", "-o", 'jsonpath={.spec.replicas}{"\\n"}']
    with tempfile.NamedTemporaryFile("w") as file:
        environment = {"KUBECONFIG": str(kubernetes.kubeconfig), "HOME": "/nonexistent"}
        process = subprocess.Popen(command, stdout=file, env=environment)
        try:
            until("the watch to begin", lambda: Path(file.name).stat().st_size, 20)
            yield Sizes(Path(file.name))
            assert process.poll() is None, "the watch has ended early"
        finally:
            process.terminate()
            process.wait()


def patch(slurm: Slurm, autoscaling: Any) -> None:
    text = json.dumps({"spec": {"autoscaling": autoscaling}})
    slurm.kubernetes.kubectl("patch", *TARGET, "--type=merge", "-p", text)


def replicas(slurm: Slurm) -> int:
    return int(slurm.kubernetes.get(*TARGET)["spec"]["replicas"])


def kill(kubernetes: Kubernetes, namespace: str, name: str) -> None:
    """Kill a pod's processes, and wait for its successor."""
    chosen = ("-n", namespace, "pods", "-l", f"app.kubernetes.io/name={name}")
    [pod] = kubernetes.items(*chosen)
    uid = pod["metadata"]["uid"]
    kill_processes(uid)
    # A kubelet waits longer before each start of the same container.
    kubernetes.kubectl("-n", namespace, "delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")

    def replaced() -> bool:
        found = [it for it in kubernetes.items(*chosen) if it["metadata"]["uid"] != uid]
        return len(found) == 1 and condition(found[0], "Ready").get("status") == "True"

    until(f"another pod of {name}", replaced, 120)


@contextmanager
def by_operator(slurm: Slurm) -> Iterator[Way]:
    """spec.autoscaling."""

    def missed() -> bool:
        return condition(slurm.kubernetes.get(*TARGET), "Autoscaled").get("reason") == "NoData"

    patch(slurm, QUICK)
    try:
        yield Way((SLURMCTLD, SLURMRESTD, OPERATOR), ("slurm", "restapis.slinky.slurm.net", "slurm"), missed)
    finally:
        patch(slurm, None)


def documents() -> list[dict[str, Any]]:
    """The YAML of the page, for the cluster's NodeSet instead of `cpu`."""
    page = REPOSITORY / "docs" / "autoscaling.md"
    return [
        json.loads(json.dumps(document).replace('"cpu"', '"slinky"').replace("worker-cpu", "worker-slinky"))
        for example in examples(page.name, page.read_text(encoding="utf-8"))
        for document in example.documents
    ]


def exporter_values() -> dict[str, Any]:
    """The page's values of the exporter without external.metrics.k8s.io of its own."""
    for document in documents():
        values: dict[str, Any] = document.get(EXPORTER, {})
        if values and "externalMetrics" not in values["exporter"]["autoscaling"]:
            values["exporter"]["cacheFrequency"] = "1s"
            values["exporter"]["autoscaling"]["nodeSets"]["slinky"]["idleSeconds"] = IDLE_SECONDS
            return values
    raise AssertionError("the page has no such values")


@contextmanager
def autoscaled(slurm: Slurm, values: dict[str, Any]) -> Iterator[None]:
    """The exporter, and an autoscaler that begins with one worker."""
    kubernetes = slurm.kubernetes
    autoscaler = next(it for it in documents() if it.get("kind") == "HorizontalPodAutoscaler")
    autoscaler["spec"] |= {"minReplicas": 0, "maxReplicas": MOST}
    autoscaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    install = ("install", EXPORTER, str(CHARTS / EXPORTER), "-n", "slurm", "--wait", "--timeout=3m", "-f", "-")
    slurm.scale(1)
    slurm.until_idle(1)
    try:
        kubernetes.helm(*install, stdin=json.dumps(values))
        kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(autoscaler))
        yield
    finally:
        kubernetes.kubectl("-n", "slurm", "delete", "hpa", NODESET, "--ignore-not-found")
        kubernetes.helm("uninstall", EXPORTER, "-n", "slurm", "--ignore-not-found")


def has_no_number(kubernetes: Kubernetes) -> bool:
    """Whether the autoscaler got none at its last look."""
    autoscaler = kubernetes.get("-n", "slurm", "hpa", NODESET)
    return condition(autoscaler, "ScalingActive").get("reason") == "FailedGetExternalMetric"


def adapter(kubernetes: Kubernetes) -> list[dict[str, Any]]:
    """The page's objects, with the program of this host instead of the image, which is not on the nodes."""
    program = tool(ADAPTER)
    page = documents()
    first = next(at for at, it in enumerate(page) if it.get("metadata", {}).get("name") == ADAPTER)
    last = next(at for at, it in enumerate(page) if it.get("kind") == "APIService")
    found = page[first : last + 1]
    [pod] = [it["spec"]["template"]["spec"] for it in found if it["kind"] == "Deployment"]
    [container] = pod["containers"]
    relist = container["args"].index("--metrics-relist-interval=30s")
    container["args"][relist] = "--metrics-relist-interval=3s"
    container |= {"image": prometheus.image(kubernetes), "command": [f"/programs/{program.name}"]}
    container["volumeMounts"].append({"name": "programs", "mountPath": "/programs"})
    container["readinessProbe"]["periodSeconds"] = 1
    pod["volumes"].append({"name": "programs", "hostPath": {"path": str(program.resolve().parent)}})
    return found


@contextmanager
def by_adapter(slurm: Slurm) -> Iterator[Way]:
    """A HorizontalPodAutoscaler with Prometheus and prometheus-adapter, to and from zero."""
    kubernetes, values = slurm.kubernetes, exporter_values()
    [node] = json.loads(slurm.login("scontrol", "--json", "show", "node", "slinky-0"))["nodes"]
    values["exporter"]["autoscaling"]["nodeSets"]["slinky"]["shape"] = {
        "sockets": node["sockets"],
        "coresPerSocket": node["cores"],
        "threadsPerCore": node["threads"],
        "memory": node["real_memory"],
    }
    with ExitStack() as stack:
        stack.enter_context(autoscaled(slurm, values))
        monitor = prometheus.service_monitor(EXPORTER, "slurm")
        stack.enter_context(prometheus.running(kubernetes, [monitor]))
        objects = [json.dumps(it) for it in adapter(kubernetes)]
        stack.callback(
            lambda: [
                kubernetes.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=it) for it in reversed(objects)
            ]
        )
        for it in objects:
            kubernetes.kubectl("create", "-f", "-", stdin=it)
        rollout = ("rollout", "status", f"deploy/{ADAPTER}", "--timeout=60s")
        kubernetes.kubectl("-n", prometheus.NAMESPACE, *rollout, timeout=70)
        yield Way(
            (SLURMCTLD, ("slurm", EXPORTER), (prometheus.NAMESPACE, "prometheus"), OPERATOR),
            (prometheus.NAMESPACE, "deployment", "prometheus"),
            lambda: has_no_number(kubernetes),
        )


WAYS = {"spec.autoscaling": by_operator, ADAPTER: by_adapter}


@pytest.fixture(scope="module")
def workers(slurm: Slurm) -> Iterator[Slurm]:
    """Two workers at the end, as at the beginning."""
    slurm.until_idle(2)
    yield slurm
    slurm.login("scancel", "--user=root")
    # A worker that is left has the ordinal of the job that ended last; other tests know slinky-0 and slinky-1.
    slurm.scale(0)
    until("no worker to be left", lambda: not slurm.pods() and not slurm.nodes(), 240)
    slurm.scale(2)
    slurm.until_idle(2)


@pytest.fixture(scope="module", params=WAYS)
def way(workers: Slurm, request: pytest.FixtureRequest) -> Iterator[Way]:
    """Each way, without workers."""
    with WAYS[request.param](workers) as found:
        until_none(workers)
        yield found
        workers.login("scancel", "--user=root")


def until_none(slurm: Slurm) -> None:
    """Until no worker is left, and no record of one."""
    until("no worker to be left", lambda: not (replicas(slurm) or slurm.pods() or slurm.nodes()), 240)


def states(slurm: Slurm, *jobs: int) -> list[str]:
    """The state of each job and of each task of an array."""
    return slurm.login("squeue", "-h", "-r", "-t", "all", "-j", ",".join(map(str, jobs)), "-o", "%T").split()


def end(slurm: Slurm, job: int) -> None:
    """Let a job end by itself."""
    slurm.worker(f"slurm-worker-{slurm.job(job)['BatchHost']}", "touch", f"/tmp/end-{job}")  # noqa: S108
    until(f"job {job} to complete", lambda: states(slurm, job) == ["COMPLETED"], 60)


def test_a_nodeset_follows_the_queue_and_holds_its_size_without_data_whatever_is_killed(
    workers: Slurm, way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm, kubernetes = workers, workers.kubernetes
    with recorded(kubernetes) as sizes:
        submitted = time.monotonic()
        wide = slurm.submit(SCRIPT, "-N2", "--exclusive", "--no-requeue")
        until("a worker", slurm.pods, 150, 0.05)
        first = time.monotonic() - submitted
        with capsys.disabled():
            print(f"\nanother worker pod {first:.2f} s after sbatch")
        narrow = slurm.submit(SCRIPT, "-N1", "--exclusive", "--no-requeue")
        until("both jobs to run", lambda: states(slurm, wide, narrow) == ["RUNNING"] * 2, 240)
        array = slurm.submit("#!/bin/sh\nsleep 1\n", "--array=1-4")
        until("the watch to have shown the size for both", lambda: sizes.all()[-1] == MOST, 30)
        full = len(sizes.all())

        # A slurmctld that is killed forgets what it has not saved.
        until_saved(slurm, narrow)
        for namespace, name in way.victims:
            kill(kubernetes, namespace, name)
            until("slurmctld to answer", lambda: states(slurm, wide, narrow) == ["RUNNING"] * 2, 60)
        assert sizes.since(full) == {MOST}, sizes.all()

        namespace, kind, name = way.missing
        scale = ("-n", namespace, "patch", kind, name, "--type=merge", "-p")
        until("all data to be there", lambda: not way.missed(), 120)
        kubernetes.kubectl(*scale, '{"spec":{"replicas":0}}')
        try:
            until("the data to be missed", way.missed, 120)
            end(slurm, narrow)
            until("the array to complete", lambda: states(slurm, array) == ["COMPLETED"] * 4, 60)
            idle = time.monotonic()
            until(
                "a worker to be idle for longer than it would be left",
                lambda: time.monotonic() - idle > 2 * IDLE_SECONDS,
                60,
            )
            assert way.missed()
            assert sizes.since(full) == {MOST}, sizes.all()
        finally:
            kubernetes.kubectl(*scale, '{"spec":{"replicas":1}}')

        until("the idle worker to be removed", lambda: sizes.all()[-1] == MOST - 1, 150)
        assert states(slurm, wide) == ["RUNNING"]
        end(slurm, wide)
        until_none(slurm)
        found = sizes.all()
    assert [slurm.job(it)["Restarts"] for it in (wide, narrow)] == ["0", "0"]
    changes = [after > one for one, after in pairwise(found) if after != one]
    assert sum(one != other for one, other in pairwise(changes)) <= 2, found


@pytest.mark.parametrize("way", ["spec.autoscaling"], indirect=True, scope="module")
@pytest.mark.usefixtures("way")
def test_a_number_that_a_user_sets_stays_for_a_while_and_is_named(workers: Slurm) -> None:
    patch(workers, QUICK | {"coolDownSeconds": 3600, "idleSeconds": 3600})
    until(
        "the number to be recorded",
        lambda: workers.kubernetes.get(*TARGET)["metadata"]["annotations"].get("slinky.slurm.net/autoscaling"),
        60,
    )
    workers.scale(1)

    def named() -> dict[str, Any]:
        found = condition(workers.kubernetes.get(*TARGET), "Autoscaled")
        return found if found.get("reason") == "OtherOwner" and "to 1" in found["message"] else {}

    found = until("kubectl to be named", named, 60)
    assert "'kubectl' has set replicas to 1" in found["message"]
    assert replicas(workers) == 1
