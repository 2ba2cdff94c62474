"""`kubectl slurm` on a real cluster: what it explains is so, the commands that it prints work, and
rights are kept.
"""

import base64
import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sidecars.explain import plugin
from tests.support.real.harness import NODESET, Slurm, until, until_equal

CONTROLLER = "slurm-controller-0"
VIEWER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: slurm}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: viewer, namespace: slurm}
rules:
  - {apiGroups: [""], resources: [pods, events], verbs: [get, list]}
  - {apiGroups: [slinky.slurm.net], resources: ["*"], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: slurm}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}
subjects: [{kind: ServiceAccount, name: viewer, namespace: slurm}]
"""


@dataclass(frozen=True)
class Plugin:
    """The file `kubectl-slurm`, beside the cluster's kubectl."""

    folder: Path
    kubeconfig: Path

    def run(self, *words: str, kubeconfig: Path | None = None) -> tuple[int, str]:
        """Exit status and what it prints."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(self.folder / "kubectl-slurm"), *words],
            env={
                "PATH": f"{self.folder}:/usr/bin:/bin",
                "KUBECONFIG": str(kubeconfig or self.kubeconfig),
                "HOME": "/nonexistent",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        print(
            f"$ kubectl slurm {' '.join(words)}    # {time.monotonic() - began:.2f} "
            f"s\n{done.stdout}{done.stderr}"
        )
        return done.returncode, done.stdout

    def json(self, *words: str, kubeconfig: Path | None = None) -> dict[str, Any]:
        """The answer."""
        found: dict[str, Any] = json.loads(
            self.run(*words, "-n", "slurm", "--json", kubeconfig=kubeconfig)[1]
        )
        return found

    def shell(self, command: str) -> None:
        """Run a command that an answer contains, as its reader would."""
        env = {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": "/nonexistent",
        }
        subprocess.run(["sh", "-c", command], env=env, check=True, timeout=60, capture_output=True)


@pytest.fixture(scope="module")
def program(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    folder = tmp_path_factory.mktemp("plugin")
    assert plugin.main([str(folder / "kubectl-slurm")]) == 0
    (folder / "kubectl").symlink_to(slurm.kubernetes.kubectl_path)
    return Plugin(folder, slurm.kubernetes.kubeconfig)


@pytest.fixture(autouse=True)
def clean(slurm: Slurm) -> Iterator[None]:
    """Each test begins with two idle nodes, and ends without a job."""
    slurm.until_idle(2)
    yield
    slurm.login("scancel", "-u", "root")
    slurm.until_idle(2)


def codes(answer: dict[str, Any]) -> set[str]:
    return {it["code"] for it in answer["findings"]}


def finding(answer: dict[str, Any], code: str) -> dict[str, Any]:
    [found] = [it for it in answer["findings"] if it["code"] == code]
    assert isinstance(found, dict)
    return found


def test_a_job_that_waits_for_its_release_is_released_by_the_command_of_the_answer(
    slurm: Slurm, program: Plugin
) -> None:
    job = slurm.submit("#!/bin/sh\nsleep 300\n", "--hold")
    answer = program.json("explain", "job", str(job))
    assert codes(answer) == {"JobHeldUser"}
    assert answer["missing"] == []
    program.shell(finding(answer, "JobHeldUser")["commands"][0])
    until_equal("the job to run", lambda: slurm.job(job)["JobState"], "RUNNING")
    assert codes(program.json("explain", "job", str(job))) == {"Running"}


def test_a_job_that_begins_later_and_one_that_depends_on_it_have_their_next_event(
    slurm: Slurm, program: Plugin
) -> None:
    later = slurm.submit("#!/bin/sh\ntrue\n", "--begin=now+1hour")
    after = slurm.submit("#!/bin/sh\ntrue\n", f"--dependency=afterok:{later}")
    until_equal("Slurm to give the reason", lambda: slurm.job(after)["Reason"], "Dependency")
    answer = program.json("explain", "job", str(later))
    assert codes(answer) == {"BeginTime"}
    assert 3000 < answer["next"]["at"] - time.time() < 3700
    answer = program.json("explain", "job", str(after))
    assert f"afterok:{later}" in finding(answer, "Dependency")["cause"]


def test_a_job_for_which_all_nodes_are_busy_names_the_first_to_end_and_what_would_start_it(
    slurm: Slurm, program: Plugin
) -> None:
    first = slurm.submit("#!/bin/sh\nsleep 600\n", "-N1", "--exclusive", "--time=5")
    second = slurm.submit("#!/bin/sh\nsleep 600\n", "-N1", "--exclusive", "--time=30")
    until(
        "both to run", lambda: all(slurm.job(it)["JobState"] == "RUNNING" for it in (first, second))
    )
    waits = slurm.submit("#!/bin/sh\ntrue\n", "-N1", "--exclusive", "--time=5")
    until(
        "Slurm to give the reason", lambda: slurm.job(waits)["Reason"] in ("Resources", "Priority")
    )
    answer = program.json("explain", "job", str(waits))
    assert {"Busy", "FirstToEnd"} <= codes(answer)
    assert f"is {first} of" in finding(answer, "FirstToEnd")["cause"]
    assert 0 < answer["next"]["at"] - time.time() < 400
    assert any(f"of NodeSet {NODESET}" in it for it in answer["would_start"])


def test_an_administrators_drain_is_explained_and_ended_by_the_command_of_the_answer(
    slurm: Slurm, program: Plugin
) -> None:
    drained = min(slurm.nodes())
    slurm.login("scontrol", "update", f"nodename={drained}", "state=drain", "reason=bad disk")
    other = slurm.submit("#!/bin/sh\nsleep 600\n", "-N1", "--exclusive")
    until_equal("the other node to be busy", lambda: slurm.job(other)["JobState"], "RUNNING")
    waits = slurm.submit("#!/bin/sh\nsleep 600\n", "-N1", "--exclusive")
    until("Slurm to give the reason", lambda: slurm.job(waits)["Reason"] != "None")
    answer = program.json("explain", "job", str(waits))
    assert f"with node {drained} in service" in answer["would_start"]
    answer = program.json("explain", "node", drained)
    assert codes(answer) == {"Drained"}
    assert "bad disk" in finding(answer, "Drained")["cause"]
    status, _ = program.run("doctor", "-n", "slurm")
    assert status == 1
    program.shell(finding(program.json("doctor"), "Drained")["commands"][0])
    until_equal("the job to run there", lambda: slurm.job(waits)["JobState"], "RUNNING")


def test_a_nodeset_that_kubernetes_cannot_schedule_quotes_the_scheduler(
    slurm: Slurm, program: Plugin
) -> None:
    k8s, name = slurm.kubernetes, "explain-nowhere"
    nodeset = k8s.get("-n", "slurm", "nodesets.slinky.slurm.net", NODESET)
    nodeset["metadata"] = {"name": name, "namespace": "slurm"}
    nodeset["spec"]["replicas"] = 1
    pod_spec = nodeset["spec"].setdefault("template", {}).setdefault("spec", {})
    pod_spec |= {"hostname": "nowhere-", "nodeSelector": {"explain.example.com/no": "such"}}
    k8s.kubectl("create", "-f", "-", stdin=json.dumps(nodeset))
    try:
        answer = until(
            "a pod to be unschedulable",
            lambda: (
                found
                if "Unschedulable" in codes(found := program.json("explain", "nodeset", name))
                else None
            ),
        )
        assert "nodes are available" in finding(answer, "Unschedulable")["cause"]
        pod = finding(answer, "Unschedulable")["about"].rpartition("/")[2]
        assert codes(program.json("explain", "pod", pod)) == {"Unschedulable"}
        assert "Unschedulable" in codes(program.json("doctor"))
    finally:
        k8s.kubectl(
            "-n",
            "slurm",
            "delete",
            "nodesets.slinky.slurm.net",
            name,
            "--timeout=120s",
            timeout=150,
        )


def test_a_user_who_may_only_read_gets_what_kubernetes_shows_and_the_missing_right(
    slurm: Slurm, program: Plugin, tmp_path: Path
) -> None:
    k8s = slurm.kubernetes
    k8s.kubectl("apply", "-f", "-", stdin=VIEWER)
    try:
        own = tmp_path / "viewer.conf"
        shutil.copy(k8s.kubeconfig, own)
        token = k8s.kubectl("create", "token", "viewer", "-n", "slurm").strip()
        for words in (
            ("set-credentials", "viewer", f"--token={token}"),
            ("set-context", "--current", "--user=viewer"),
        ):
            k8s.kubectl("--kubeconfig", str(own), "config", *words)
        job = slurm.submit("#!/bin/sh\nsleep 600\n", "--hold")
        answer = program.json("explain", "job", str(job), kubeconfig=own)
        assert not answer["known"]
        assert any("create pods/exec" in it["why"] for it in answer["missing"])
        assert any(it["part"] == "quotas" for it in answer["missing"])
        # What another test restarted last may still be starting.
        until_equal(
            "nothing to be found",
            lambda: codes(program.json("explain", "job", str(job), kubeconfig=own)),
            set(),
        )
        until(
            "the NodeSet to be ready",
            lambda: (
                "2 of 2 workers ready"
                in program.json("explain", "nodeset", NODESET, kubeconfig=own)["state"]
            ),
        )
    finally:
        k8s.kubectl("delete", "-f", "-", stdin=VIEWER)


def test_a_slurmctld_that_does_not_answer_is_named_and_nothing_is_claimed_about_the_job(
    slurm: Slurm, program: Plugin
) -> None:
    job = slurm.submit("#!/bin/sh\nsleep 600\n", "--hold")

    def signal(name: str) -> None:
        command = f"kill -{name} $(pidof slurmctld)"
        slurm.kubernetes.kubectl(
            "-n", "slurm", "exec", CONTROLLER, "-c", "slurmctld", "--", "sh", "-c", command
        )

    signal("STOP")
    try:
        answer = program.json("explain", "job", str(job))
    finally:
        signal("CONT")
    assert not answer["known"]
    assert "NotFound" not in codes(answer)
    assert any("slurmctld does not answer" in it["why"] for it in answer["missing"])
    until_equal("slurmctld to answer again", lambda: slurm.job(job)["JobState"], "PENDING")


def test_a_job_that_slurm_does_not_have_is_status_1(slurm: Slurm, program: Plugin) -> None:
    status, printed = program.run("explain", "job", "99999", "-n", "slurm")
    assert status == 1
    assert "not in the queue" in printed


def test_top_counts_as_sinfo_does_and_the_configuration_is_accepted(
    slurm: Slurm, program: Plugin
) -> None:
    assert program.json("top")["nodes"] == {"idle": 2}
    answer = program.json("explain", "config")
    assert answer["findings"] == []
    assert "ConfigurationAccepted is True" in answer["state"]


def secret_key(slurm: Slurm) -> str:
    """Slurm's key, in base64."""
    [secret] = [
        it
        for it in slurm.kubernetes.items("secrets", "-n", "slurm")
        if it["metadata"]["name"] == "slurm-auth-slurm"
    ]
    return str(secret["data"]["slurm.key"])


def test_the_bundle_of_the_doctor_has_no_value_of_any_secret(
    slurm: Slurm, program: Plugin, tmp_path: Path
) -> None:
    program.run("doctor", "-n", "slurm", "--bundle", str(tmp_path / "bundle.tar.gz"))
    secrets = set()
    for it in slurm.kubernetes.items("secrets", "-n", "slurm"):
        for value in (it.get("data") or {}).values():
            raw = base64.b64decode(value)
            secrets |= {value.encode(), raw, *(line for line in raw.splitlines() if len(line) > 20)}
    secrets = {it for it in secrets if len(it) > 8}
    assert base64.b64decode(secret_key(slurm)) in secrets
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        names = archive.getnames()
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None
            content = stream.read()
            assert not [it for it in secrets if it in content], entry.name
    assert {"slurm-doctor/doctor.json", "slurm-doctor/pods.json"} <= set(names)
    assert any("slurmctld" in it for it in names if it.startswith("slurm-doctor/logs/"))
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o077 == 0
