"""Job logs on a real cluster: the output of jobs in the log of their worker's pod."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.real.harness import NODESET, Slurm, until, until_equal

KIND = "nodesets.slinky.slurm.net"
NAME, POD, NODE = "logging", "logging-0", "logging-0"
USER, UID = "daemon", 1
"""A user that all images have."""

HELLO = """#!/bin/sh
echo "hello from $SLURM_JOB_ID"
echo oops >&2
printf 'bytes \\377\\n'
ls /run/slurm-logs || echo "closed to jobs"
"""
LAST_WORDS = """#!/bin/sh
echo first
until [ -e /data/end ]; do sleep 0.2; done
seq -f 'line %.0f' 20000
echo last
"""
HOSTILE = """#!/bin/sh
echo mine
out=/data/$SLURM_JOB_ID.out
rm $out && ln -s /data/secret $out
"""


def submit(slurm: Slurm, script: str, *options: str, umask: str = "022") -> int:
    """Submit as USER; the job's ID."""
    words = ("sbatch", "--parsable", "--chdir=/data", f"--partition={NAME}", *options)
    shell = ("runuser", "-u", USER, "--", "sh", "-c", f'umask {umask} && exec "$@"', "sh")
    return int(slurm.login(*shell, *words, stdin=script))


def lines(slurm: Slurm) -> list[dict[str, Any]]:
    """What the container has printed. Each line must be JSON."""
    text = slurm.kubernetes.kubectl("-n", slurm.namespace, "logs", POD, "-c", "logs")
    return [json.loads(line) for line in text.splitlines()]


def printed(slurm: Slurm, job: int, message: str) -> dict[str, Any]:
    """The line of this job with this message, when it has been printed."""
    return until(
        f"the log to contain {message!r} of job {job}",
        lambda: next(
            (it for it in lines(slurm) if it.get("job") == job and it["message"] == message), None
        ),
    )


def until_forgotten(slurm: Slurm, job: int) -> None:
    """The job has ended, and the container has read all of it."""
    until_equal(f"job {job} to complete", lambda: slurm.job(job)["JobState"], "COMPLETED")
    until(
        f"the record of job {job} to be deleted",
        lambda: f"{job}-0.job" not in slurm.worker(POD, "ls", "/run/slurm-logs").split() or None,
    )


@pytest.fixture(scope="module")
def logging(slurm: Slurm) -> Iterator[Slurm]:
    """A worker with job logs and a volume for output."""
    spec = slurm.kubernetes.get("-n", "slurm", KIND, NODESET)["spec"]
    template = spec["template"].get("spec", {}) | {"hostname": f"{NAME}-"}
    template["volumes"] = [*template.get("volumes", ()), {"name": "data", "emptyDir": {}}]
    mounts = [*spec["slurmd"].get("volumeMounts", ()), {"name": "data", "mountPath": "/data"}]
    spec |= {
        "replicas": 1,
        "template": spec["template"] | {"spec": template},
        "slurmd": spec["slurmd"] | {"volumeMounts": mounts},
        "partition": {"enabled": True, "config": "State=UP"},
        "jobLogs": {"enabled": True},
        "forceRemoval": True,
    }
    metadata = {"name": NAME, "namespace": "slurm"}
    nodeset = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "NodeSet",
        "metadata": metadata,
        "spec": spec,
    }
    slurm.kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(nodeset))
    try:
        until_equal("the worker with job logs to be idle", lambda: slurm.nodes().get(NODE), "idle")
        until(
            "slurmctld to have the prolog",
            lambda: "slurm-job-logs" in slurm.login("scontrol", "show", "config") or None,
        )
        slurm.worker(
            POD,
            "sh",
            "-c",
            "umask 077 && echo top secret > /data/secret && chown www-data /data/secret",
        )
        yield slurm
    finally:
        slurm.kubernetes.kubectl("-n", "slurm", "delete", KIND, NAME, "--timeout=180s", timeout=200)


def test_the_output_of_a_job_is_in_the_log_of_its_pod(logging: Slurm) -> None:
    job = submit(logging, HELLO, "--output=/data/%j.out", "--error=/data/%j.err")
    found = printed(logging, job, f"hello from {job}")
    time = found.pop("time")
    assert time.endswith("Z")
    assert found == {
        "job": job,
        "step": "batch",
        "user": USER,
        "uid": UID,
        "partition": NAME,
        "node": NODE,
        "stream": "stdout",
        "file": f"/data/{job}.out",
        "message": f"hello from {job}",
    }
    assert printed(logging, job, "oops")["stream"] == "stderr"
    assert printed(logging, job, r"bytes \xff")["binary"] is True
    printed(logging, job, "closed to jobs")


def test_the_task_of_an_array_is_named_in_its_lines(logging: Slurm) -> None:
    job = submit(logging, HELLO, "--array=3", "--job-name=a job", "--output=/data/%x-%A_%a.out")
    found = printed(logging, job, f"hello from {job}")
    assert (found["arrayJob"], found["arrayTask"]) == (job, 3)
    assert found["file"] == f"/data/a job-{job}_3.out"


def test_a_private_file_is_not_printed_and_the_log_has_the_reason(logging: Slurm) -> None:
    job = submit(logging, HELLO, "--output=/data/%j.out", umask="077")
    until_forgotten(logging, job)
    [found] = [line for line in lines(logging) if line.get("job") == job]
    assert found["shipped"] is False
    assert found["message"] == "not printed: it is private (mode 0600); see jobLogs.privateFiles"


def test_another_users_file_is_not_printed_through_a_jobs_link(logging: Slurm) -> None:
    job = submit(logging, HOSTILE, "--output=/data/%j.out")
    until_forgotten(logging, job)
    assert "top secret" in logging.worker(POD, "cat", f"/data/{job}.out")
    assert "top secret" not in str(lines(logging))


def test_the_other_workers_run_jobs_as_before(logging: Slurm) -> None:
    assert logging.login("srun", "--nodelist=slinky-0", "hostname").strip() == "slinky-0"


def test_a_worker_that_is_drained_and_deleted_prints_the_last_lines_of_its_job(
    logging: Slurm,
) -> None:
    job = submit(logging, LAST_WORDS, "--output=/data/%j.out")
    printed(logging, job, "first")
    with ThreadPoolExecutor(1) as threads:
        words = ("-n", "slurm", "logs", "--follow", POD, "-c", "logs")
        log = threads.submit(logging.kubernetes.kubectl, *words, timeout=240)
        try:
            logging.kubernetes.kubectl("-n", "slurm", "scale", KIND, NAME, "--replicas=0")
            until(
                "the worker to be drained", lambda: "drain" in logging.nodes().get(NODE, "") or None
            )
        finally:
            logging.worker(POD, "touch", "/data/end")
        # The pod is deleted as soon as its job has ended.
        found = [
            line for line in map(json.loads, log.result().splitlines()) if line.get("job") == job
        ]
    assert [line["message"] for line in found] == [
        "first",
        *(f"line {n}" for n in range(1, 20_001)),
        "last",
    ]
