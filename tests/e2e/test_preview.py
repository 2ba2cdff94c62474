"""A preview of a change, with the real kubectl and the real Slurm, and the change itself."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecars.workloads.names import POD_CORDON
from tests.support.real.configuration import restarts
from tests.support.real.harness import (
    CHARTS,
    REPOSITORY,
    VALUES,
    CommandError,
    PodWatch,
    Slurm,
    condition,
    until,
    until_equal,
)

CHART = str(CHARTS / "slurm")
SHARED: dict[str, Any] = {"nodesetDefaults": {"oversubscribeNode": True}}
"""Two workers can share a Kubernetes node."""

MARK = [{"name": "PREVIEWED", "value": "yes"}]
TOLERATIONS = [{"key": "previewed", "operator": "Exists"}]


@dataclass(frozen=True)
class Step:
    """Changes that one upgrade brings, by what they are. Each is a part of the chart's values."""

    changes: dict[str, dict[str, Any]]
    jobs: tuple[str, ...]
    """Slurm nodes with a job when the upgrade begins."""
    awaited: tuple[str, ...] = ()
    """Those of them whose worker waits for its job to end."""
    ended: tuple[str, ...] = ()
    """Those of them whose job is ended by the upgrade."""


def slinky(**values: Any) -> dict[str, Any]:
    """Values of the workers."""
    return {"nodesets": {"slinky": values}}


def login(**values: Any) -> dict[str, Any]:
    """Values of the login nodes."""
    return {"loginsets": {"slinky": values}}


STEPS: Sequence[Step] = (
    Step(
        {
            "another scheduler": {
                "controller": {
                    "extraConfMap": {
                        "SchedulerParameters": [
                            "batch_sched_delay=0",
                            "bf_interval=6",
                            "sched_interval=5",
                        ],
                    }
                }
            },
            "another partition": {
                "partitions": {
                    "short": {"enabled": True, "nodesets": ["ALL"], "configMap": {"MaxTime": "10"}}
                }
            },
            "a limit of the NodeSet's partition": slinky(
                partition={"configMap": {"MaxTime": "60"}}
            ),
            "two workers at a time": slinky(
                updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
            ),
            "a script": {"epilogSlurmctldScripts": {"90-previewed.sh": "#!/bin/sh\nexit 0\n"}},
            "another cgroup.conf": {
                "configFiles": {
                    "cgroup.conf": "CgroupPlugin=disabled\nSignalChildrenProcesses=no\n"
                }
            },
            "a network policy": {
                "networkPolicy": {"restapiFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}
            },
        },
        ("slinky-1",),
    ),
    Step(
        {
            "what slurmctld reads at its start": {
                "controller": {"extraConfMap": {"CommunicationParameters": "NoAddrCache"}}
            },
            "another KillWait": {"controller": {"extraConfMap": {"KillWait": 6}}},
        },
        ("slinky-1",),
    ),
    Step(
        {
            "a toleration of slurmctld": {"controller": {"podSpec": {"tolerations": TOLERATIONS}}},
            "more of slurmrestd": {"restapi": {"replicas": 2}},
            "a variable of slurmrestd": {"restapi": {"slurmrestd": {"env": MARK}}},
            "a variable of login nodes": login(login={"env": MARK}),
            "more login nodes": login(replicas=2),
        },
        ("slinky-1",),
    ),
    Step(
        {
            "one more worker": slinky(replicas=3),
            "another NodeSet": {"nodesets": {"extra": {"replicas": 1, "deletionTimeout": "5s"}}},
        },
        ("slinky-1",),
    ),
    Step(
        {
            "a variable of workers": slinky(slurmd={"env": MARK}),
            "a toleration of workers": slinky(podSpec={"tolerations": TOLERATIONS}),
        },
        ("slinky-2",),
        awaited=("slinky-2",),
    ),
    Step(
        {
            "one worker less": slinky(replicas=2),
            "a NodeSet less": {"nodesets": {"extra": {"enabled": False}}},
        },
        ("slinky-0", "slinky-1", "slinky-2", "extra-0"),
        awaited=("slinky-2",),
        ended=("extra-0",),
    ),
)


def merged(value: Any, patch: Any) -> Any:
    """Values over values, as Helm lays them."""
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return patch
    return value | {key: merged(value.get(key), it) for key, it in patch.items()}


@dataclass(frozen=True)
class Snapshot:
    """What an upgrade could do something to."""

    objects: dict[tuple[str, str], Any]
    """Of the release, by kind and name, without status and what others write into their metadata.
    """
    pods: dict[tuple[str, str], set[str]]
    """uids of the pods of each StatefulSet and Deployment."""
    workers: dict[str, str]
    """uid by name."""
    files: dict[str, str]
    """The configuration."""
    slurmctld: tuple[str, int]
    """uid of the pod, and how often slurmctld has restarted in it."""


@dataclass(frozen=True)
class Outcome:
    """What an upgrade does, as the preview reports it or as it has happened."""

    objects: set[tuple[str, str, str]]
    """Action, kind and name."""
    pods: set[tuple[str, str, str]]
    """Kind and name of a StatefulSet or Deployment, and whether its pods restart, are created or
    deleted.
    """
    workers: dict[str, str]
    files: set[str]
    slurmctld: str
    """pod: it is replaced; restart: within its pod; live: it takes the files while it runs; "":
    nothing.
    """


class Release:
    """The release `slurm`. `folder`: where the files of a preview are."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder

    def helm(self, verb: str, values: dict[str, Any], *words: str) -> str:
        """`helm template` or `helm upgrade` with these values over those of the local cluster."""
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(merged(SHARED, values)))
        given = ("slurm", CHART, "-n", "slurm", "-f", str(VALUES), "-f", str(file), *words)
        return self.slurm.kubernetes.helm(verb, *given)

    def preview(self, values: dict[str, Any]) -> dict[str, Any]:
        """What the post-renderer reports of an upgrade with these values."""
        config = self.folder / "preview.yaml"
        config.write_text(
            yaml.safe_dump(
                {"steps": [{"preview": {"live": True, "format": "json", "output": "preview.json"}}]}
            )
        )
        kubernetes = self.slurm.kubernetes
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "postrender",
                f"--config={config}",
                "--namespace=slurm",
                "--release=slurm",
            ],
            input=self.helm("template", values, "--skip-tests"),
            capture_output=True,
            text=True,
            env={
                "KUBECONFIG": str(kubernetes.kubeconfig),
                "PATH": f"{kubernetes.kubectl_path.parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(REPOSITORY),
                "HOME": str(self.folder),
            },
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert "nothing is passed on after a preview" in done.stderr
        found: dict[str, Any] = json.loads((self.folder / "preview.json").read_text())
        return found

    def snapshot(self) -> Snapshot:
        """As it is now."""
        items, pods = (
            self.slurm.kubernetes.items,
            self.slurm.kubernetes.items("-n", "slurm", "pods"),
        )
        own: dict[tuple[str, str], set[str]] = {}
        for pod in pods:
            owner = owner_of(pod)
            if owner is not None and "deletionTimestamp" not in pod["metadata"]:
                own.setdefault(owner, set()).add(pod["metadata"]["uid"])
        kinds = [
            f"{it}.slinky.slurm.net"
            for it in ("controllers", "restapis", "loginsets", "nodesets", "accountings")
        ]
        kinds += [
            "configmaps",
            "secrets",
            "networkpolicies",
            "services",
            "serviceaccounts",
            "poddisruptionbudgets",
        ]
        released = [it for it in items("-n", "slurm", ",".join(kinds)) if is_released(it)]
        configuration = self.slurm.kubernetes.get("-n", "slurm", "configmap", "slurm-config")
        files = {**configuration.get("data", {}), **configuration.get("binaryData", {})}
        return Snapshot(
            objects={(it["kind"], it["metadata"]["name"]): content(it) for it in released},
            pods=own,
            workers={name: pod["metadata"]["uid"] for name, pod in self.slurm.pods().items()},
            files={name: text for name, text in files.items() if name != "manifest.json"},
            slurmctld=restarts(self.slurm),
        )

    def settled(self) -> bool:
        """Whether the operator has done all that the custom resources ask for, and Kubernetes what
        it asks for.
        """
        items = self.slurm.kubernetes.items
        kinds = ",".join(
            f"{it}.slinky.slurm.net" for it in ("controllers", "restapis", "loginsets", "nodesets")
        )
        for it in items("-n", "slurm", kinds):
            wanted = ("Ready", "ConfigurationAccepted", "ConfigurationRunning")
            for kind in wanted if it["kind"] == "Controller" else wanted[:1]:
                found = condition(it, kind)
                if (
                    found.get("status") != "True"
                    or found.get("observedGeneration") != it["metadata"]["generation"]
                ):
                    return False
            if (
                it["kind"] == "NodeSet"
                and it["status"].get("updatedReplicas", 0) != it["spec"]["replicas"]
            ):
                return False
        for it in items("-n", "slurm", "statefulsets,deployments"):
            status, wanted_pods = it["status"], it["spec"]["replicas"]
            counts = [
                status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")
            ]
            if (
                status.get("observedGeneration") != it["metadata"]["generation"]
                or counts != [wanted_pods] * 3
            ):
                return False
        return not any("deletionTimestamp" in it["metadata"] for it in items("-n", "slurm", "pods"))


def owner_of(pod: dict[str, Any]) -> tuple[str, str] | None:
    """Kind and name of its StatefulSet or Deployment; None for others."""
    for it in pod["metadata"].get("ownerReferences", ()):
        if it["kind"] == "StatefulSet":
            return "StatefulSet", it["name"]
        if it["kind"] == "ReplicaSet":
            return "Deployment", it["name"].rpartition("-")[0]
    return None


def is_released(manifest: dict[str, Any]) -> bool:
    """Whether Helm has applied it."""
    return (manifest["metadata"].get("annotations") or {}).get(
        "meta.helm.sh/release-name"
    ) == "slurm"


def content(manifest: dict[str, Any]) -> Any:
    """An object without what Helm and controllers write into each."""
    labels = manifest["metadata"].get("labels") or {}
    return {
        "labels": {key: it for key, it in labels.items() if not key.startswith("helm.sh/")},
        **{
            key: it
            for key, it in manifest.items()
            if key not in {"apiVersion", "kind", "metadata", "status"}
        },
    }


def happened(before: Snapshot, after: Snapshot) -> Outcome:
    """What an upgrade did between two snapshots."""
    objects = {("create", *it) for it in after.objects.keys() - before.objects.keys()}
    objects |= {("delete", *it) for it in before.objects.keys() - after.objects.keys()}
    objects |= {
        ("change", *it)
        for it in before.objects.keys() & after.objects.keys()
        if before.objects[it] != after.objects[it]
    }
    pods = set()
    for owner in before.pods.keys() | after.pods.keys():
        had, has = before.pods.get(owner, set()), after.pods.get(owner, set())
        if had and has and not had & has:
            pods.add((*owner, "restart"))
        if len(had) != len(has):
            pods.add((*owner, "create" if len(has) > len(had) else "delete"))
    workers = dict.fromkeys(after.workers.keys() - before.workers.keys(), "create")
    workers |= dict.fromkeys(before.workers.keys() - after.workers.keys(), "delete")
    workers |= {
        name: "replace"
        for name, uid in before.workers.items()
        if after.workers.get(name, uid) != uid
    }
    files = {
        it
        for it in before.files.keys() | after.files.keys()
        if before.files.get(it, "") != after.files.get(it, "")
    }
    one, other = before.slurmctld, after.slurmctld
    slurmctld = (
        "pod"
        if one[0] != other[0]
        else "restart"
        if one[1] != other[1]
        else "live"
        if files
        else ""
    )
    return Outcome(objects, pods, workers, files, slurmctld)


def previewed(of: dict[str, Any]) -> Outcome:
    """The same from a preview."""
    pods = {(it["kind"], it["name"], it["action"]) for it in of["pods"]}
    configured = of["configured"]
    replaced = ("StatefulSet", "slurm-controller", "restart") in pods
    return Outcome(
        objects={(it["action"], it["kind"], it["name"]) for it in of["changes"]},
        pods=pods,
        workers={it["pod"]: it["action"] for found in of["workers"] for it in found["workers"]},
        files={file for it in configured for file in it["files"]},
        slurmctld="pod" if replaced else "".join(it["action"] for it in configured),
    )


def touched(watch: PodWatch) -> list[str]:
    """Names of the workers in the order in which they were drained or deleted."""
    found: dict[str, None] = {}
    for pod in watch.history:
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata or POD_CORDON in metadata.get("annotations", {}):
            found.setdefault(metadata["name"])
    return list(found)


def answered(look: Callable[[], bool]) -> Callable[[], bool]:
    """False also while login nodes are replaced, which answer for Slurm."""

    def again() -> bool:
        try:
            return look()
        except CommandError:
            return False

    return again


@pytest.fixture(scope="module", autouse=True)
def _as_the_chart_has_it(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each custom resource has the spec of the chart: Helm keeps what another client has added to
    it.
    """
    release, kubernetes = Release(slurm, tmp_path_factory.mktemp("chart")), slurm.kubernetes

    def replaced(wanted: dict[str, Any]) -> bool:
        """Refused if the operator has written a status since it was read."""
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        live = kubernetes.get("-n", "slurm", f"{kind}.slinky.slurm.net", name)
        kubernetes.kubectl("replace", "-f", "-", stdin=json.dumps({**live, "spec": wanted["spec"]}))
        return True

    for it in yaml.safe_load_all(release.helm("template", {}, "--skip-tests")):
        if it and it["apiVersion"].startswith("slinky.slurm.net/"):
            until(f"the {it['kind']} of the chart", partial(replaced, it))
    until("the cluster of the chart", release.settled)
    slurm.until_idle(2)


@pytest.fixture
def release(slurm: Slurm, tmp_path: Path) -> Iterator[Release]:
    """The release, which has the values of the local cluster again at the end."""
    found = Release(slurm, tmp_path)
    yield found
    slurm.login("scancel", "--user=root")
    found.helm("upgrade", {})
    until("the cluster to be as before", answered(found.settled))
    slurm.until_idle(2)


def test_the_same_values_change_nothing(release: Release) -> None:
    assert not any(release.preview({}).values())


def test_a_field_that_another_client_has_added_stays_and_is_no_change(release: Release) -> None:
    kubernetes, nodeset = (
        release.slurm.kubernetes,
        ("-n", "slurm", "nodesets.slinky.slurm.net", "slurm-worker-slinky"),
    )
    kubernetes.kubectl(
        "patch", *nodeset, "--type=merge", "-p", json.dumps({"spec": {"minReadySeconds": 1}})
    )
    try:
        assert not any(release.preview({}).values())
        release.helm("upgrade", {})
        assert kubernetes.get(*nodeset)["spec"]["minReadySeconds"] == 1
    finally:
        kubernetes.kubectl(
            "patch", *nodeset, "--type=merge", "-p", json.dumps({"spec": {"minReadySeconds": None}})
        )


def test_what_a_preview_reports_of_twenty_changes_happens(release: Release) -> None:
    assert sum(len(step.changes) for step in STEPS) == 20
    values: dict[str, Any] = {}
    for step in STEPS:
        for change in step.changes.values():
            values = merged(values, change)
        upgrade(release, step, values, running(release.slurm, step))


def running(slurm: Slurm, step: Step) -> dict[str, int]:
    """A running job on each of the step's nodes, by node, and none else."""
    slurm.login("scancel", "--user=root")
    until("all nodes to be idle", answered(lambda: set(slurm.nodes().values()) == {"idle"}))
    # The worker whose job may end first is the first to go.
    minutes = {node: 20 if node in step.awaited else 60 for node in step.jobs}
    found = {
        node: slurm.submit_until_ended("-w", node, "--no-requeue", f"--time={limit}")
        for node, limit in minutes.items()
    }
    slurm.until_running(*found.values())
    return found


def state_of(slurm: Slurm, node: str) -> str:
    return slurm.nodes().get(node, "")


def upgrade(release: Release, step: Step, values: dict[str, Any], jobs: dict[str, int]) -> None:
    """Preview a step, apply it, and compare."""
    what, slurm = ", ".join(step.changes), release.slurm
    report = release.preview(values)
    expected, before = previewed(report), release.snapshot()
    with slurm.watching_pods() as watch:
        release.helm("upgrade", values)
        for node in step.awaited:
            until_equal(f"{node} to wait for its job", partial(state_of, slurm, node), "draining")
            slurm.end(jobs[node])
        until(f"{what} to be done", release.settled)
        until_equal(
            f"what the preview reports of {what}",
            lambda: happened(before, release.snapshot()),
            expected,
        )
    workers = [
        it for found in report["workers"] for it in found["workers"] if it["action"] != "create"
    ]
    first = {it["pod"] for it in workers if it["first"]}
    order = touched(watch)
    assert set(order) == {it["pod"] for it in workers}, what
    assert set(order[: len(first)]) == first, what

    # Which jobs the preview names, and the time at which a job is ended.
    named = {job["job_id"]: job["by"] for it in workers for job in it["jobs"]}
    concerned = {
        number for node, number in jobs.items() if node in {it["slurm_node"] for it in workers}
    }
    assert named.keys() == concerned, what
    for node, number in jobs.items():
        state = slurm.job(number)["JobState"]
        if number not in named:
            assert state == "RUNNING", (what, node)
        elif node in step.ended:
            assert named[number] is not None
            assert state not in {"RUNNING", "COMPLETED"}, (what, node)
        else:
            assert (named[number], state) == (None, "COMPLETED"), (what, node)
