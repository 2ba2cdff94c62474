"""A Slurm cluster that is installed by Helm alone, with the post-renderer and neither operator nor
CRDs.

With the folder of a release, as users unpack it: Helm 3 starts the post-renderer by its path, and
Helm 4 as a plugin.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from release import postrender
from tests.cluster.commands import run
from tests.cluster.tools import tool
from tests.support.real.harness import (
    CHARTS,
    REPOSITORY,
    VALUES,
    CommandError,
    Kubernetes,
    Slurm,
    until,
    until_equal,
)


@dataclass(frozen=True)
class Alone(Slurm):
    """A Slurm cluster whose login pod has a stable name."""

    renderer: str = ""
    """The post-renderer as Helm is given it: its path, or the name of the plugin."""

    config: Path = Path()
    """Its configuration."""

    def login(self, *words: str, timeout: float = 60, stdin: str | None = None) -> str:
        """Run a command in the login pod."""
        flags = ["-i"] if stdin is not None else []
        return self.kubernetes.kubectl(
            *(
                "-n",
                self.namespace,
                "exec",
                *flags,
                "slurm-login-slinky-0",
                "-c",
                "login",
                "--",
                *words,
            ),
            timeout=timeout,
            stdin=stdin,
        )

    def helm_upgrade(self, *words: str) -> str:
        """Install the release, or upgrade it; Helm's notes."""
        return self.kubernetes.helm(
            *(
                "upgrade",
                "--install",
                "slurm",
                str(CHARTS / "slurm"),
                "-n",
                self.namespace,
                "--create-namespace",
            ),
            *(
                "-f",
                str(VALUES),
                "--set",
                "nodesets.slinky.oversubscribeNode=true",
                "--set",
                "withoutOperator=true",
            ),
            *("--post-renderer", self.renderer, "--post-renderer-args", str(self.config)),
            *("--post-renderer-args", f"--namespace={self.namespace}", *words),
        )


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of plugins with the unpacked archive of a release. Its packages are those of this
    Python.
    """
    build, plugins = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("plugins")
    made = postrender.folder(REPOSITORY, build, postrender.installed(build / "packages"))
    run(["tar", "-xzf", postrender.archive(made, build), "-C", plugins])
    assert [it.name for it in plugins.iterdir()] == [postrender.NAME]
    return plugins


@contextmanager
def installed(
    kubernetes: Kubernetes, version: str, released: Path, folder: Path
) -> Iterator[Alone]:
    """The cluster with two idle workers, installed by this version of Helm, and nothing of it
    afterwards.
    """
    namespace = f"alone-{version}"
    config = folder / "postrender.yaml"
    config.write_text(yaml.safe_dump({"steps": [{"expand": {}}]}))
    (folder / "python3").symlink_to(sys.executable)
    environment = f"PATH={folder}:$PATH SLURM_POSTRENDER_REPORT={folder}/report.txt"
    if version == "4":
        environment += (
            f" HELM_PLUGINS={released} HELM_CACHE_HOME={folder}/cache HELM_DATA_HOME={folder}/data"
        )
    # As in a user's shell: with python3, and of Helm 4 with the folder of its plugins.
    shell = folder / "helm"
    shell.write_text(
        f'#!/bin/sh\n{environment} exec {tool("helm4" if version == "4" else "helm")} "$@"\n'
    )
    shell.chmod(0o755)
    name = postrender.NAME if version == "4" else str(released / postrender.NAME / postrender.NAME)
    with closing(replace(kubernetes, helm_path=shell)) as helm:
        found = Alone(helm, namespace, name, config)
        try:
            notes = found.helm_upgrade()
            assert f"--namespace {namespace} scale statefulset/slinky --replicas=N" in notes
            until_equal("a login pod", lambda: found.login("true"), "")
            found.until_idle(2)
            yield found
        finally:
            helm.helm("uninstall", "slurm", "-n", namespace, "--ignore-not-found")
            kubernetes.kubectl(
                "delete", "namespace", namespace, "--wait=false", "--ignore-not-found"
            )


@pytest.fixture(scope="module")
def alone(
    kubernetes: Kubernetes, released: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Alone]:
    """The cluster, by Helm 3."""
    with installed(kubernetes, "3", released, tmp_path_factory.mktemp("alone")) as found:
        yield found


def test_helm_4_installs_it_with_the_post_renderer_as_a_plugin_and_jobs_run(
    kubernetes: Kubernetes, released: Path, tmp_path: Path
) -> None:
    with installed(kubernetes, "4", released, tmp_path) as found:
        assert sorted(found.login("srun", "-N2", "hostname").split()) == ["slinky-0", "slinky-1"]


def test_jobs_run_and_no_custom_resource_exists(alone: Alone) -> None:
    assert sorted(alone.login("srun", "-N2", "hostname").split()) == ["slinky-0", "slinky-1"]
    assert alone.kubernetes.items("-n", alone.namespace, "nodesets.slinky.slurm.net") == []
    for kind in (
        "statefulset/slinky",
        "statefulset/slurm-login-slinky",
        "statefulset/slurm-controller",
    ):
        assert (
            alone.kubernetes.get("-n", alone.namespace, kind)["metadata"].get("ownerReferences")
            is None
        )


def test_a_worker_that_is_scaled_in_lets_its_job_end_and_leaves_no_record(alone: Alone) -> None:
    number = alone.submit_until_ended("-w", "slinky-1", "--no-requeue")
    alone.until_running(number)
    alone.kubernetes.kubectl("-n", alone.namespace, "scale", "statefulset/slinky", "--replicas=1")
    until(
        "the pod to be asked to go",
        lambda: "deletionTimestamp" in alone.pods()["slinky-1"]["metadata"],
    )
    until_equal("the node to be drained", lambda: alone.nodes().get("slinky-1"), "draining")
    alone.end(number)
    job = alone.job(number)
    assert (job["JobState"], job["ExitCode"], job["NodeList"]) == ("COMPLETED", "0:0", "slinky-1")
    until_equal("the pod to be deleted", lambda: set(alone.pods()), {"slinky-0"})
    until_equal("the record to be deleted", lambda: set(alone.nodes()), {"slinky-0"})
    alone.kubernetes.kubectl("-n", alone.namespace, "scale", "statefulset/slinky", "--replicas=2")
    alone.until_idle(2)


def test_a_changed_configuration_is_taken_without_a_restart_and_a_bad_one_is_refused(
    alone: Alone,
) -> None:
    before = alone.kubernetes.get("-n", alone.namespace, "pod", "slurm-controller-0")["metadata"][
        "uid"
    ]
    with pytest.raises(CommandError, match="slurm-postrender"):
        alone.helm_upgrade("--set", "controller.extraConfMap.KillWiat=9")
    alone.helm_upgrade("--set", "controller.extraConfMap.KillWait=9")

    def taken() -> bool:
        lines = alone.login("scontrol", "show", "config").splitlines()
        return any(line.split() == ["KillWait", "=", "9", "sec"] for line in lines)

    until("slurmctld to take it", taken)
    assert (
        alone.kubernetes.get("-n", alone.namespace, "pod", "slurm-controller-0")["metadata"]["uid"]
        == before
    )
    assert alone.login("srun", "hostname").strip() in {"slinky-0", "slinky-1"}


def test_the_documented_uninstall_waits_for_the_workers_and_leaves_nothing(
    alone: Alone, tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs" / "without-operator.md").read_text(encoding="utf-8")
    section = page.partition("## Uninstall")[2].partition("## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    for name in ("kubectl", "helm"):
        (tmp_path / name).symlink_to(tool(name))
    for commands in blocks:
        run(
            ["sh", "-e", "-x", "-c", commands.replace("-n slurm", f"-n {alone.namespace}")],
            env=os.environ
            | {
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "KUBECONFIG": str(alone.kubernetes.kubeconfig),
            },
            seconds=300,
        )
    assert len(blocks) == 2
    until_equal(
        "all pods to be deleted", lambda: alone.kubernetes.items("-n", alone.namespace, "pods"), []
    )
    for kind in (
        "secrets",
        "persistentvolumeclaims",
        "statefulsets",
        "deployments",
        "jobs",
        "services",
    ):
        assert alone.kubernetes.items("-n", alone.namespace, kind) == [], kind
