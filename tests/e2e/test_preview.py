"""A preview of a change, with the real kubectl and the real Slurm, and the change itself."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.real.harness import CHARTS, REPOSITORY, VALUES, Slurm, condition, until

pytestmark = pytest.mark.timeout(420)

RELEASE = ("slurm", str(CHARTS / "slurm"), "-n", "slurm", "-f", str(VALUES))
SHARED = ("--set", "nodesets.slinky.oversubscribeNode=true")
CHANGED = ("--set", "nodesets.slinky.slurmd.env[0].name=PREVIEWED", "--set", "nodesets.slinky.slurmd.env[0].value=yes")


@pytest.fixture(scope="module", autouse=True)
def _as_the_chart_has_it(slurm: Slurm) -> None:
    """Each custom resource has the spec of the chart: Helm leaves what another client has added to it."""
    kubernetes = slurm.kubernetes
    rendered = yaml.safe_load_all(kubernetes.helm("template", *RELEASE, *SHARED, "--skip-tests"))
    for it in rendered:
        if it and it["apiVersion"].startswith("slinky.slurm.net/"):
            live = kubernetes.get("-n", "slurm", f"{it['kind']}.slinky.slurm.net", it["metadata"]["name"])
            kubernetes.kubectl("replace", "-f", "-", stdin=json.dumps({**live, "spec": it["spec"]}))

    def settled() -> bool:
        nodesets = kubernetes.items("-n", "slurm", "nodesets.slinky.slurm.net")
        return all(
            condition(it, "Ready").get("status") == "True"
            and it["status"].get("observedGeneration") == it["metadata"]["generation"]
            and it["status"].get("updatedReplicas") == it["spec"]["replicas"]
            for it in nodesets
        )

    until("the workers of the chart", settled, 180)
    slurm.until_idle(2)


@pytest.fixture(autouse=True)
def _as_before(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.login("scancel", "--user=root")
    slurm.kubernetes.helm("upgrade", *RELEASE, *SHARED)

    def restored() -> bool:
        return not any(marked(pod) for pod in slurm.pods().values())

    until("the workers to be as before", restored, 180)
    slurm.until_idle(2)


def marked(pod: dict[str, Any]) -> bool:
    """Whether its slurmd has the variable of the change."""
    [slurmd] = [it for it in pod["spec"]["containers"] if it["name"] == "slurmd"]
    return any(it["name"] == "PREVIEWED" for it in slurmd.get("env", ()))


def preview(slurm: Slurm, folder: Path, *words: str) -> dict[str, Any]:
    """What the post-renderer reports of an upgrade with these values."""
    config = folder / "preview.yaml"
    config.write_text(
        yaml.safe_dump({"steps": [{"preview": {"live": True, "format": "json", "output": "preview.json"}}]})
    )
    stream = slurm.kubernetes.helm("template", *RELEASE, *SHARED, *words, "--skip-tests")
    command = [sys.executable, "-m", "postrender", f"--config={config}", "--namespace=slurm", "--release=slurm"]
    environment = {
        "KUBECONFIG": str(slurm.kubernetes.kubeconfig),
        "PATH": f"{slurm.kubernetes.kubectl_path.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "HOME": str(folder),
    }
    done = subprocess.run(
        command, input=stream, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "nothing is passed on after a preview" in done.stderr
    found: dict[str, Any] = json.loads((folder / "preview.json").read_text())
    return found


def test_the_same_values_change_nothing(slurm: Slurm, tmp_path: Path) -> None:
    assert not any(preview(slurm, tmp_path).values())


def test_the_worker_drains_first_and_the_job_ends_that_the_preview_names(slurm: Slurm, tmp_path: Path) -> None:
    number = slurm.submit("#!/bin/sh\nsleep 25\n", "-w", "slinky-1", "--no-requeue", "--time=5")
    until(f"job {number} to run", lambda: slurm.job(number)["JobState"] == "RUNNING", 60)
    before = {name: pod["metadata"]["uid"] for name, pod in slurm.pods().items()}
    [nodeset] = preview(slurm, tmp_path, *CHANGED)["workers"]
    workers = {it["slurm_node"]: it for it in nodeset["workers"]}
    assert {it["action"] for it in workers.values()} == {"replace"}
    assert [job["job_id"] for job in workers["slinky-1"]["jobs"]] == [number]
    assert workers["slinky-0"]["jobs"] == []
    first = {node for node, it in workers.items() if it["first"]}

    with slurm.watching_pods() as watch:
        slurm.kubernetes.helm("upgrade", *RELEASE, *SHARED, *CHANGED)

        def replaced() -> bool:
            pods = slurm.pods()
            return len(pods) == 2 and all(map(marked, pods.values()))

        until("all workers to be replaced", replaced, 240)
    assert slurm.job(number)["JobState"] == "COMPLETED"
    assert set(before.values()).isdisjoint(pod["metadata"]["uid"] for pod in slurm.pods().values())
    earliest = min(watch.deletion_asked, key=watch.deletion_asked.__getitem__)
    assert earliest.replace("slurm-worker-", "") in first
