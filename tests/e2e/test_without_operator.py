"""A Slurm cluster that is installed by Helm alone, with the post-renderer and neither operator nor CRDs.

With Helm 3, which starts the post-renderer by its path, and with Helm 4, which starts it as a plugin.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from tests.cluster.tools import tool
from tests.support.real.harness import CHARTS, REPOSITORY, VALUES, CommandError, Kubernetes, Slurm, seconds, until

pytestmark = pytest.mark.timeout(420)

PLUGIN = {
    "apiVersion": "v1",
    "type": "postrenderer/v1",
    "name": "slurm-postrender",
    "version": "0.1.0",
    "runtime": "subprocess",
    "runtimeConfig": {"platformCommand": [{"command": "${HELM_PLUGIN_DIR}/slurm-postrender"}]},
}


@dataclass(frozen=True)
class Alone(Slurm):
    """A Slurm cluster whose login pod has a stable name. `renderer`: the post-renderer as Helm is given it."""

    renderer: str = ""

    def login(self, *words: str, timeout: float = 60, stdin: str | None = None) -> str:
        """Run a command in the login pod."""
        flags = ["-i"] if stdin is not None else []
        return self.kubernetes.kubectl(
            *("-n", self.namespace, "exec", *flags, "slurm-login-slinky-0", "-c", "login", "--", *words),
            timeout=timeout,
            stdin=stdin,
        )

    def helm_upgrade(self, *words: str) -> None:
        """Install the release, or upgrade it."""
        self.kubernetes.helm(
            *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", self.namespace, "--create-namespace"),
            *("-f", str(VALUES), "--set", "nodesets.slinky.oversubscribeNode=true", "--set", "helmTest.enabled=false"),
            *("--post-renderer", self.renderer, *words),
        )


def program(file: Path, text: str) -> Path:
    """An executable shell script."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.fixture(scope="module", params=["3", "4"], ids=["helm-3", "helm-4"])
def alone(
    kubernetes: Kubernetes, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Alone]:
    """The cluster, and nothing of it afterwards."""
    version, folder = request.param, tmp_path_factory.mktemp("alone")
    namespace = f"alone-{version}"
    config = folder / "postrender.yaml"
    config.write_text(yaml.safe_dump({"steps": [{"expand": {}}]}))
    plugin = folder / "plugins" / "slurm-postrender"
    run = f'PYTHONPATH={REPOSITORY} exec {sys.executable} -m postrender --config={config} --namespace={namespace} "$@"'
    renderer = program(plugin / "slurm-postrender", run)
    helm = kubernetes
    name = str(renderer)
    if version == "4":
        (plugin / "plugin.yaml").write_text(yaml.safe_dump(PLUGIN))
        environment = f"HELM_PLUGINS={plugin.parent} HELM_CACHE_HOME={folder}/cache HELM_DATA_HOME={folder}/data"
        helm = replace(kubernetes, helm_path=program(folder / "helm4", f'{environment} exec {tool("helm4")} "$@"'))
        name = "slurm-postrender"
    found = Alone(helm, namespace, name)
    found.helm_upgrade()
    until("a login pod", lambda: found.login("true") == "" or None, 180)
    found.until_idle(2, 180)
    yield found
    helm.helm("uninstall", "slurm", "-n", namespace)
    kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")


def test_jobs_run_and_no_custom_resource_exists(alone: Alone) -> None:
    assert sorted(alone.login("srun", "-N2", "hostname").split()) == ["slinky-0", "slinky-1"]
    assert alone.kubernetes.items("-n", alone.namespace, "nodesets.slinky.slurm.net") == []
    for kind in ("statefulset/slinky", "statefulset/slurm-login-slinky", "statefulset/slurm-controller"):
        assert alone.kubernetes.get("-n", alone.namespace, kind)["metadata"].get("ownerReferences") is None


def test_a_worker_that_is_scaled_in_lets_its_job_end_and_leaves_no_record(alone: Alone) -> None:
    number = alone.submit("#!/bin/sh\nsleep 15\n", "-w", "slinky-1", "--no-requeue")
    until(f"job {number} to run", lambda: alone.job(number)["JobState"] == "RUNNING", 60)
    with alone.watching_pods() as watch:
        alone.kubernetes.kubectl("-n", alone.namespace, "scale", "statefulset/slinky", "--replicas=1")
        until("the node to be drained", lambda: alone.nodes().get("slinky-1", "").startswith("drain"), 60)
        until("the pod to be deleted", lambda: set(alone.pods()) == {"slinky-0"}, 120)
    job = alone.job(number)
    assert (job["JobState"], job["ExitCode"], job["NodeList"]) == ("COMPLETED", "0:0", "slinky-1")
    assert watch.deletion_asked["slinky-1"] <= seconds(job["EndTime"])
    until("the record to be deleted", lambda: set(alone.nodes()) == {"slinky-0"}, 60)
    alone.kubernetes.kubectl("-n", alone.namespace, "scale", "statefulset/slinky", "--replicas=2")
    alone.until_idle(2)


def test_a_changed_configuration_is_taken_without_a_restart_and_a_bad_one_is_refused(alone: Alone) -> None:
    before = alone.kubernetes.get("-n", alone.namespace, "pod", "slurm-controller-0")["metadata"]["uid"]
    with pytest.raises(CommandError, match="slurm-postrender"):
        alone.helm_upgrade("--set", "controller.extraConfMap.KillWiat=9")
    alone.helm_upgrade("--set", "controller.extraConfMap.KillWait=9")

    def taken() -> bool:
        lines = alone.login("scontrol", "show", "config").splitlines()
        return any(line.split() == ["KillWait", "=", "9", "sec"] for line in lines)

    until("slurmctld to take it", taken, 240)
    assert alone.kubernetes.get("-n", alone.namespace, "pod", "slurm-controller-0")["metadata"]["uid"] == before
    assert alone.login("srun", "hostname").strip() in {"slinky-0", "slinky-1"}
