"""Upgrades of the chart `slurm` on a live cluster with a running job: who restarts, and why.

From SchedMD's custom resources, and from those of the former release of this chart
(tests/configurations/upgrade).
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.install import unready
from tests.e2e import upgrading
from tests.support.real.harness import CHARTS, REPOSITORY, Kubernetes, Slurm, until, until_equal

RELEASES = REPOSITORY / "tests" / "configurations" / "upgrade"
VALUES = RELEASES / "values.yaml"
SCHEDMD, FORMER, PRESENT = RELEASES / "slinky-1.2", RELEASES / "slurm-0.1.0", CHARTS / "slurm"
SIDECARS = "docker.io/library/alpine:latest"
"""The image with which SchedMD's chart runs `logfile` and `initconf`. Here it is another name of
the login image.
"""

PATCHED = upgrading.reference("slurmd", "26.05-patched")
KINDS = ("controllers", "restapis", "loginsets", "nodesets")
CTLD, RESTD, LOGIN = "slurmctld slurm", "slurmrestd slurm", "login slurm-login-slinky"
BUSY, IDLE = "slurmd slurm-worker-busy", "slurmd slurm-worker-idle"


@pytest.fixture(scope="module")
def upgraded(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A cluster of SchedMD's resources: two NodeSets with one worker each. The operator runs, as
    `slurm` does.
    """
    found = Slurm(kubernetes, "upgraded")
    names = {
        SIDECARS: upgrading.reference("login", "26.05"),
        PATCHED: upgrading.reference("slurmd", "26.05"),
    }
    with upgrading.other_names(kubernetes, names):
        kubernetes.helm("install", "slurm", str(SCHEDMD), "-n", found.namespace)
        settled(found)
        found.until_idle(2)
        yield found
        # The NodeSets wait for the jobs of a test that failed, too.
        found.login("sh", "-c", "squeue --noheader --format=%A | xargs --no-run-if-empty scancel")
        kubernetes.helm("uninstall", "slurm", "-n", found.namespace)
        until("the pods to be gone", lambda: not kubernetes.items("-n", found.namespace, "pods"))
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false")


@pytest.fixture
def job(upgraded: Slurm) -> int:
    """A job on the worker of the NodeSet `busy`, which must not be started twice."""
    upgraded.until_idle(2)
    number = upgraded.submit("#!/bin/sh\nsleep 600\n", "-w", "busy-0", "--no-requeue")
    until_equal("the job to run", lambda: upgraded.job(number)["JobState"], "RUNNING")
    return number


def upgrade(slurm: Slurm, *words: str) -> None:
    """Upgrade the release to the present chart."""
    command = ("upgrade", "slurm", str(PRESENT), "-n", slurm.namespace, "-f", str(VALUES), *words)
    slurm.kubernetes.helm(*command)
    settled(slurm)


def settled(slurm: Slurm) -> None:
    """Wait until every resource is Ready as it is described, and thus no restart is under way."""

    def ready() -> bool:
        found = [
            item
            for kind in KINDS
            for item in slurm.kubernetes.items("-n", slurm.namespace, f"{kind}.slinky.slurm.net")
        ]
        return len(found) == 5 and all(unready(item) is None for item in found)

    until("all resources to be Ready", ready)


def pods(slurm: Slurm) -> dict[str, set[str]]:
    """The uids of the pods of each component, those that are going included."""
    found: dict[str, set[str]] = {}
    for pod in slurm.kubernetes.items("-n", slurm.namespace, "pods", "-l", upgrading.PODS):
        labels = pod["metadata"]["labels"]
        component = f"{labels['app.kubernetes.io/name']} {labels['app.kubernetes.io/instance']}"
        found.setdefault(component, set()).add(pod["metadata"]["uid"])
    return found


def restarted(before: dict[str, set[str]], after: dict[str, set[str]]) -> set[str]:
    """The components that don't have the same pods."""
    return {
        component
        for component in before.keys() | after.keys()
        if before.get(component) != after.get(component)
    }


def runs(slurm: Slurm, number: int) -> bool:
    """Whether the job has run all the time."""
    found = slurm.job(number)
    return (found["JobState"], found["Restarts"]) == ("RUNNING", "0")


def until_replaced(slurm: Slurm, before: dict[str, set[str]], components: set[str]) -> None:
    """Wait until each of the components has another pod, and only that."""

    def replaced() -> bool:
        found = pods(slurm)
        return all(
            len(found.get(each, ())) == 1 and found[each] != before[each] for each in components
        )

    until(f"another pod of each of {sorted(components)}", replaced)


def changed_and_back(slurm: Slurm) -> None:
    """Have the operator act on later changes that restart nothing: a restart that it still owed has
    begun by then.
    """
    resources = [
        ("controllers", "slurm", "extraConf"),
        ("nodesets", "slurm-worker-busy", "minReadySeconds"),
        ("nodesets", "slurm-worker-idle", "minReadySeconds"),
    ]
    for kind, name, field in resources:
        words = (
            "-n",
            slurm.namespace,
            "patch",
            f"{kind}.slinky.slurm.net",
            name,
            "--type=merge",
            "-p",
        )
        spec = slurm.kubernetes.get("-n", slurm.namespace, f"{kind}.slinky.slurm.net", name)["spec"]
        former = spec.get(field)
        later = f"{former or ''}\nSlurmctldTimeout=121\n" if field == "extraConf" else 1
        for value in (later, former):
            slurm.kubernetes.kubectl(*words, json.dumps({"spec": {field: value}}))
            settled(slurm)


def assert_restarted(slurm: Slurm, before: dict[str, set[str]], components: set[str]) -> None:
    """These components have other pods than before and no other has, also when the operator has
    acted again.
    """
    assert restarted(before, pods(slurm)) == components
    changed_and_back(slurm)
    assert restarted(before, pods(slurm)) == components


def end(slurm: Slurm, job: int) -> None:
    """End the job, and wait until all is well."""
    slurm.login("scancel", str(job))
    settled(slurm)


def test_this_chart_instead_of_schedmds_with_the_same_values_restarts_nothing(
    upgraded: Slurm, job: int
) -> None:
    before = pods(upgraded)
    assert set(before) == {CTLD, RESTD, LOGIN, BUSY, IDLE}
    upgrade(upgraded)
    assert_restarted(upgraded, before, set())
    assert runs(upgraded, job)
    end(upgraded, job)
    assert restarted(before, pods(upgraded)) == set()


def test_helm_rollback_to_schedmds_chart_restarts_nothing(upgraded: Slurm, job: int) -> None:
    upgrade(upgraded)
    before = pods(upgraded)
    upgraded.kubernetes.helm("rollback", "slurm", "1", "-n", upgraded.namespace)
    settled(upgraded)
    assert_restarted(upgraded, before, set())
    assert runs(upgraded, job)
    end(upgraded, job)
    assert restarted(before, pods(upgraded)) == set()


def test_another_image_of_one_nodeset_restarts_that_nodeset_alone(
    upgraded: Slurm, job: int
) -> None:
    before = pods(upgraded)
    upgrade(upgraded, "--set", "nodesets.idle.slurmd.image.tag=26.05-patched")
    until_replaced(upgraded, before, {IDLE})
    assert_restarted(upgraded, before, {IDLE})
    assert runs(upgraded, job)
    end(upgraded, job)


def test_only_the_login_node_restarts_when_this_chart_replaces_its_former_release(
    upgraded: Slurm, job: int
) -> None:
    """The default sssd.conf has a space less than that of the former release, and login pods read
    it at their start.
    """
    upgraded.kubernetes.helm("upgrade", "slurm", str(FORMER), "-n", upgraded.namespace)
    settled(upgraded)
    before = pods(upgraded)
    upgrade(upgraded)
    until_replaced(upgraded, before, {LOGIN})
    assert_restarted(upgraded, before, {LOGIN})
    assert runs(upgraded, job)
    end(upgraded, job)


def without_sidecar_images() -> str:
    """The values, as a user has them who doesn't set the images of `logfile` and `initconf` to the
    chart.
    """
    values: dict[str, Any] = yaml.safe_load(VALUES.read_text())
    del (
        values["controller"]["logfile"],
        values["nodesetDefaults"]["logfile"],
        values["loginsetDefaults"]["initconf"],
    )
    return yaml.safe_dump(values)


def test_sidecar_images_that_are_left_to_the_chart_restart_only_workers_and_each_after_its_jobs(
    upgraded: Slurm, job: int
) -> None:
    before = pods(upgraded)
    command = ("upgrade", "slurm", str(PRESENT), "-n", upgraded.namespace, "-f", "-")
    upgraded.kubernetes.helm(*command, stdin=without_sidecar_images())
    until_replaced(upgraded, before, {IDLE})
    assert restarted(before, pods(upgraded)) == {IDLE}
    assert runs(upgraded, job)
    end(upgraded, job)
    assert restarted(before, pods(upgraded)) == {IDLE, BUSY}
