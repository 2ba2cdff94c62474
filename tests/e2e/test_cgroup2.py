"""Jobs on a Kubernetes node with cgroup v2, in a Slurm cluster of its own with default values.

The values change images, sizes, the node to run on, and two GPUs that don't exist. The kernel of
that node is user-mode Linux: tests.cluster.guest.
"""

import json
import shlex
from collections.abc import Iterator

import pytest

from sidecars.contract.project import REGISTRY
from tests.cluster import guest
from tests.cluster.local import existing, named_by
from tests.cluster.nodes import GUEST_TAINT
from tests.cluster.progress import Progress
from tests.support.real.harness import (
    CHARTS,
    CommandError,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
)

# The first test builds the kernel, where the cache lacks it.
pytestmark = pytest.mark.timeout(1500)

POD = "slurm-worker-slinky-0"
POD_MIB = 2048
GRES_CONF = "Name=gpu File=/dev/nvidia[0-1]\n"
FILL_MEMORY = "dd if=/dev/zero of=/dev/null bs=3G count=1 iflag=fullblock"
"""Fills a buffer that is larger than any limit here."""
SSH = (
    *("ssh", "-i", "/root/alice", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
)
ACCEPT = "install -d -o alice -g alice -m 700 ~alice/.ssh && cat >~alice/.ssh/authorized_keys"
LIMITS = """
cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
while test -e memory.max; do cat memory.max; cd ..; done
"""
"""Prints the memory limits of the job's task and of all groups above it."""


def values(kube_node: str, *, ssh: bool) -> str:
    """Values of chart slurm. Nothing that a user would need to set for jobs to be confined.

    `ssh`: whether users can have sessions on the worker.
    """

    def image(name: str) -> dict[str, str]:
        return {"image": f"{REGISTRY}/{name}:26.05"}

    pod = {
        "nodeSelector": {"kubernetes.io/hostname": kube_node},
        "tolerations": [{"key": GUEST_TAINT, "operator": "Exists"}],
        # Binds jobs and containers together, so that the kernel would have to choose.
        "resources": {"limits": {"memory": f"{POD_MIB}Mi"}},
    }
    return json.dumps(
        {
            "controller": {
                "slurmctld": image("slurmctld"),
                "persistence": {"resources": {"requests": {"storage": "1Gi"}}},
            },
            "restapi": {"slurmrestd": image("slurmrestd")},
            "loginsetDefaults": {"login": image("login")},
            "loginsets": {"slinky": {"service": {"spec": {"type": "ClusterIP"}}}},
            "nodesetDefaults": {"slurmd": image("slurmd")},
            "nodesets": {
                "slinky": {
                    "replicas": 1,
                    "extraConfMap": {"Gres": "gpu:2"},
                    "podSpec": pod,
                    **({"ssh": {"enabled": True}} if ssh else {}),
                }
            },
            "configFiles": {"gres.conf": GRES_CONF},
            "partitions": {
                "all": {"enabled": True, "configMap": {"State": "UP", "Default": "YES"}}
            },
        }
    )


def upgrade(slurm: Slurm, kube_node: str, *, ssh: bool = False) -> None:
    """Install or upgrade the release with these values."""
    slurm.kubernetes.helm(
        *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", slurm.namespace, "-f", "-"),
        stdin=values(kube_node, ssh=ssh),
    )


@pytest.fixture(scope="module")
def confined(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A Slurm cluster whose worker is on the node with cgroup v2. The operator exists, because
    `slurm` is.
    """
    cluster = existing(named_by(str(kubernetes.kubeconfig)) or "")
    found = Slurm(kubernetes, "confined")
    try:
        upgrade(found, guest.start(cluster, Progress()))
        found.until_idle(1)
        yield found
    finally:
        try:
            kubernetes.helm("uninstall", "slurm", "-n", found.namespace, "--ignore-not-found")
            kubernetes.kubectl(
                "delete", "namespace", found.namespace, "--ignore-not-found", "--wait=false"
            )
        finally:
            guest.stop(cluster)


def restarts(slurm: Slurm) -> dict[str, int]:
    """How often each container of the worker has restarted."""
    status = slurm.pods()[POD]["status"]
    return {
        each["name"]: each["restartCount"]
        for each in status["initContainerStatuses"] + status["containerStatuses"]
    }


def srun(slurm: Slurm, script: str, *options: str) -> str:
    """What a script prints as a job, errors included; its exit code doesn't matter."""
    return slurm.login(
        "sh", "-c", 'srun -Q "$@" 2>&1 || true', "srun", *options, "sh", "-c", script, timeout=120
    )


def slurmd(slurm: Slurm) -> list[str]:
    """Pids of slurmd."""
    script = (
        'for p in /proc/[0-9]*; do read -r n < $p/comm && test "$n" = slurmd && echo '
        "${p#/proc/}; done; true"
    )
    return slurm.worker(POD, "sh", "-c", script).split()


def long_job(slurm: Slurm) -> int:
    """A job that runs until it is ended."""
    number = slurm.submit("#!/bin/sh\nsleep 900\n", "-N1", "--mem=100", "--no-requeue")
    until_equal("the job to run", lambda: slurm.job(number)["JobState"], "RUNNING")
    return number


def test_a_worker_with_default_values_is_idle_and_confines_jobs(confined: Slurm) -> None:
    config = confined.login("scontrol", "show", "config")
    plugins = {
        line.split()[0]: line.split()[-1]
        for line in config.splitlines()
        if "=" in line and len(line.split()) > 2
    }
    assert set(plugins["TaskPlugin"].split(",")) == {"task/cgroup", "task/affinity"}
    assert plugins["ProctrackType"] == "proctrack/cgroup"
    assert restarts(confined)["slurmd"] == 0


def test_a_job_sees_only_its_core(confined: Slurm) -> None:
    assert confined.worker(POD, "nproc").strip() == str(guest.CPUS)
    assert srun(confined, "nproc", "-n1", "-c1", "--mem=100").strip() == "1"


def test_a_job_over_its_memory_is_killed_and_nothing_else(confined: Slurm) -> None:
    before = restarts(confined), slurmd(confined)
    found = srun(confined, FILL_MEMORY, "-n1", "--mem=100")
    assert "oom_kill" in found or "Out Of Memory" in found, found
    confined.until_idle(1)
    assert (restarts(confined), slurmd(confined)) == before


def test_jobs_with_all_memory_of_the_node_leave_slurmd_and_node_what_they_need(
    confined: Slurm,
) -> None:
    before = restarts(confined), slurmd(confined)
    found = srun(confined, LIMITS, "-n1", "--mem=0")
    limits = [int(line) for line in found.split() if line != "max"]
    assert min(limits) == (POD_MIB - POD_MIB // 8) * 2**20, found
    assert "oom_kill" in srun(confined, FILL_MEMORY, "-n1", "--mem=0")
    confined.until_idle(1)
    assert (restarts(confined), slurmd(confined)) == before
    assert condition(confined.pods()[POD], "Ready")["status"] == "True"


def test_a_job_opens_only_the_gpus_that_it_was_given(confined: Slurm) -> None:
    opened = "for i in 0 1; do head -c1 /dev/nvidia$i > /dev/null 2>&1 && echo $i; done; true"
    assert confined.worker(POD, "sh", "-c", opened).split() == ["0", "1"]
    assert srun(confined, opened, "-n1", "--mem=100").split() == []
    assert srun(confined, opened, "-n1", "--mem=100", "--gres=gpu:1").split() in (["0"], ["1"])
    assert srun(confined, opened, "-n1", "--mem=100", "--gres=gpu:2").split() == ["0", "1"]


def test_a_job_survives_the_end_of_slurmd_and_a_reconfigure(confined: Slurm) -> None:
    job, before = long_job(confined), slurmd(confined)
    confined.worker(POD, "sh", "-c", f"kill -9 {' '.join(before)}")
    until("slurmd to run again", lambda: [pid for pid in slurmd(confined) if pid not in before])
    confined.login("scontrol", "reconfigure", timeout=90)
    until_equal(
        "slurmd to answer", lambda: srun(confined, "echo here", "-n1", "--mem=100").strip(), "here"
    )
    assert confined.job(job)["JobState"] == "RUNNING"
    assert "oom_kill" in srun(confined, FILL_MEMORY, "-n1", "--mem=100")
    confined.login("scancel", str(job))
    confined.until_idle(1)


def test_no_cgroup_is_left_behind_by_a_pod_that_is_deleted_with_a_job(confined: Slurm) -> None:
    long_job(confined)
    uid = confined.pods()[POD]["metadata"]["uid"]

    def groups() -> list[str]:
        found = confined.worker(POD, "find", "/sys/fs/cgroup", "-type", "d", "-name", f"*{uid}*")
        return found.split()

    assert len(groups()) == 1
    confined.kubernetes.kubectl(
        "-n", confined.namespace, "delete", "pod", POD, "--grace-period=5", timeout=90
    )
    until(
        "another pod",
        lambda: POD in (pods := confined.pods()) and pods[POD]["metadata"]["uid"] != uid,
    )
    confined.until_idle(1)
    until("the cgroup of the deleted pod to be gone", lambda: not groups())


def test_a_session_by_ssh_has_the_limits_of_the_users_job_and_ends_with_it(confined: Slurm) -> None:
    before = confined.pods()[POD]
    upgrade(confined, before["spec"]["nodeName"], ssh=True)

    def replaced() -> bool:
        pod = confined.pods().get(POD)
        return pod is not None and pod["metadata"]["uid"] != before["metadata"]["uid"]

    until("the worker with sshd", replaced)
    confined.until_idle(1)
    add = ("useradd", "--create-home", "--uid=10001", "alice")
    confined.login(*add)
    confined.worker(POD, *add)
    confined.login("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/alice")
    key = confined.login("cat", "/root/alice.pub")
    confined.worker(POD, "sh", "-c", f"echo '{key.strip()}' | ({ACCEPT})")
    address = confined.pods()[POD]["status"]["podIP"]

    def ssh(command: str) -> str:
        return confined.login(*SSH, f"alice@{address}", command)

    def refused() -> bool:
        try:
            ssh("true")
        except CommandError as error:
            return "you have no active jobs on this node" in str(error)
        return False

    until("sshd to answer", refused)
    job = ("sbatch", "--parsable", "--mem=100", "--chdir=/tmp", "--wrap=sleep 900")
    number = int(
        confined.login("setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", *job)
    )
    until_equal("the job to run", lambda: confined.job(number)["JobState"], "RUNNING")
    # A job runs a moment before its worker has the step that sessions get into.
    groups, *limits = until(
        "a session in the job", lambda: ssh(f"cat /proc/self/cgroup; {LIMITS}")
    ).split()
    assert "/step_extern/" in groups
    assert min(int(limit) for limit in limits if limit != "max") == 100 * 2**20
    confined.login("sh", "-c", f"{shlex.join(SSH)} alice@{address} sleep 4242 >/dev/null 2>&1 &")

    def sessions() -> str:
        return confined.worker(POD, "sh", "-c", "grep -alz '^4242$' /proc/[0-9]*/cmdline || true")

    until("the session's program to run", sessions)
    confined.login("scancel", str(number))
    until("the session to end with the job", lambda: not sessions())
    until("the next one to be refused", refused)
