"""The script of `helm test`, with commands that answer as Slurm's do."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "charts" / "slurm" / "files" / "helm-test.sh"
IDLE = "all* up idle"
GET = "kubectl --namespace hpc get"
COMPLETED = (
    "JobId=7 JobState=COMPLETED Reason=None ExitCode=0:0 BatchHost=a-0 Comment=42@a-0 Power="
)


ANSWERING = """#!/bin/sh
echo "{name} $SLURM_JWT $*" >>{folder}/calls
answer={folder}/{name}
case "$*" in *--Node*) answer={folder}/nodes ;; esac
if grep -q '^!' "$answer"; then
  sed 's/^!//' "$answer" >&2
  exit 1
fi
cat "$answer"
"""
"""A command of Slurm."""


class Cluster:
    """What the commands of Slurm answer: their output, or with `!` before it an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.token = folder / "token"
        self.token.write_text("secret-token")
        self.answers(sinfo=IDLE, nodes="", sbatch="7", scontrol=COMPLETED, scancel="")

    def answers(self, **outputs: str) -> None:
        """Replace the answers of some commands."""
        for name, output in outputs.items():
            (self.folder / name).write_text(f"{output}\n" if output else "")
            if name == "nodes":
                continue
            command = self.folder / "bin" / name
            command.write_text(ANSWERING.format(name=name, folder=self.folder))
            command.chmod(0o755)

    def calls(self, command: str) -> list[str]:
        """How a command was called."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(f"{command} ")]

    def tested(self) -> tuple[int, str]:
        """The exit status of the script, and the last line of its output. Each step gets one
        try.
        """
        environment = {
            "CLUSTER": "slurm",
            "NAMESPACE": "hpc",
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "SLURM_CONF_SERVER": "slurm-controller.hpc:6817",
            "TIMEOUT_SECONDS": "0",
            "TMPDIR": str(self.folder),
            "TOKEN_FILE": str(self.token),
            "TOKEN_SECRET_NAME": "slurm-helm-test",
            "USERNAME": "alice",
        }
        done = subprocess.run(
            ["sh", "-c", SCRIPT.read_text()],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()[-1]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A healthy one."""
    return Cluster(tmp_path)


def test_a_job_with_the_right_output_passes(cluster: Cluster) -> None:
    assert cluster.tested() == (0, "Job 7 ran on node a-0, and its output is right. Slurm works.")
    [submission] = cluster.calls("sbatch")
    assert submission.startswith("sbatch secret-token ")
    assert "--partition=all " in submission
    assert cluster.calls("scancel") == []


@pytest.mark.parametrize(
    ("rows", "partition"),
    [
        ("first up idle\nall* up mixed\nlast up idle", "all"),
        ("all* up drained\nfirst up idle\nlast up idle", "first"),
        ("all* down idle\nlast up allocated", "last"),
        ("first up idle*\nall* up mixed-", "all"),
    ],
)
def test_the_job_goes_to_a_partition_with_usable_nodes_first_to_the_default(
    cluster: Cluster, rows: str, partition: str
) -> None:
    cluster.answers(sinfo=rows)
    assert cluster.tested()[0] == 0
    assert f"--partition={partition} " in cluster.calls("sbatch")[0]


def test_a_token_that_the_operator_did_not_issue_is_named(cluster: Cluster) -> None:
    cluster.token.unlink()
    status, line = cluster.tested()
    assert status == 1
    assert line.startswith(
        "FAILED: Secret slurm-helm-test does not exist. The operator creates it."
    )
    assert line.endswith("kubectl --namespace hpc get tokens.slinky.slurm.net slurm-helm-test")
    assert cluster.calls("sinfo") == []


def test_a_slurmctld_that_does_not_answer_is_named_with_the_reason(cluster: Cluster) -> None:
    cluster.answers(
        sinfo="!sinfo: error: fetch_config\nsinfo: fatal: Could not establish a configuration "
        "source\n"
    )
    status, line = cluster.tested()
    assert status == 1
    assert line == (
        "FAILED: slurmctld does not answer at slurm-controller.hpc:6817 (sinfo: fatal: Could not "
        "establish a configuration source). See its state: kubectl --namespace hpc get "
        "controllers.slinky.slurm.net,pods"
    )


def test_a_cluster_without_a_partition_is_reported_with_the_values_to_set(cluster: Cluster) -> None:
    cluster.answers(sinfo="")
    assert cluster.tested() == (
        1,
        (
            "FAILED: Slurm has no partition. Set partitions.all.enabled or "
            "nodesets.NAME.partition.enabled to true."
        ),
    )


@pytest.mark.parametrize(
    ("nodes", "shown"),
    [
        ("", "no node has registered with slurmctld;"),
        (
            "b-0 is down* (No answer)\na-0 is drained (disk)",
            "a-0 is drained (disk);b-0 is down* (No answer);",
        ),
    ],
)
def test_a_cluster_without_usable_workers_is_reported_with_their_states(
    cluster: Cluster, nodes: str, shown: str
) -> None:
    cluster.answers(sinfo="all* up n/a", nodes=nodes)
    assert cluster.tested() == (
        1,
        (
            f"FAILED: No worker can run a job: {shown} See their state: {GET} "
            "nodesets.slinky.slurm.net,pods"
        ),
    )
    assert cluster.calls("sbatch") == []


def test_a_job_that_slurm_refuses_is_reported_with_the_reason(cluster: Cluster) -> None:
    cluster.answers(sbatch="!sbatch: error: Batch job submission failed: Invalid account")
    status, line = cluster.tested()
    assert status == 1
    assert (
        "refuses a job of the user alice in the partition all (sbatch: error: Batch job "
        "submission failed: " in line
    )


def test_a_job_that_waits_until_the_end_is_cancelled(cluster: Cluster) -> None:
    cluster.answers(scontrol="JobId=7 JobState=PENDING Reason=Resources")
    status, line = cluster.tested()
    assert status == 1
    assert line.startswith("FAILED: Job 7 in the partition all is PENDING (reason: Resources).")
    assert cluster.calls("scancel") == ["scancel secret-token 7"]


def test_a_job_that_failed_is_reported_with_its_node_and_exit_code(cluster: Cluster) -> None:
    cluster.answers(scontrol="JobId=7 JobState=FAILED ExitCode=1:0 BatchHost=a-0")
    status, line = cluster.tested()
    assert status == 1
    assert line.startswith(
        "FAILED: Job 7 ended on node a-0 with state FAILED and exit code 1:0. See slurmd's log: "
    )


def test_a_job_with_another_output_fails(cluster: Cluster) -> None:
    cluster.answers(scontrol=COMPLETED.replace("42@a-0", "41@a-0"))
    status, line = cluster.tested()
    assert status == 1
    assert "with the output '41@a-0' instead of '42@a-0'" in line
