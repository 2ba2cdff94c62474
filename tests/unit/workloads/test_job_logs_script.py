"""The script that is prolog and epilog of clusters with job logs, run by sh as slurmd runs it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sidecars.contract import podfiles
from sidecars.logs.edge import RealFiles, Shelf
from sidecars.logs.records import Job, Settings
from sidecars.logs.shipper import Shipper
from tests.charts import examples

SCRIPT = Path(__file__).parents[3] / "charts/slurm-operator/workloads/job-logs.sh"
PAGE = Path(__file__).parents[3] / "docs/job-logs.md"
DEADLINE = 60.0
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_GID": "1000",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_PARTITION": "all",
    "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_JOB_WORK_DIR": "/home/ada",
    "SLURM_JOB_NODELIST": "w-0",
    "SLURM_JOB_STDOUT": "slurm-%j.out",
}


class Node:
    """A worker's folders, and a squeue that answers one line."""

    def __init__(self, root: Path) -> None:
        self.logs, self.spool, self.programs = root / "logs", root / "spool", root / "bin"
        for folder in (self.logs, self.spool, self.programs):
            folder.mkdir()
        self.script = root / "slurm-job-logs"
        self.script.write_text(SCRIPT.read_text())
        self.script.chmod(0o755)
        self.answer("exit 1")

    def answer(self, program: str) -> None:
        squeue = self.programs / "squeue"
        squeue.write_text(f'#!/bin/sh\necho "$@" >>{self.programs}/asked\n{program}\n')
        squeue.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        file = self.programs / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def slow(self, name: str) -> None:
        """This program takes its time before it begins."""
        program = self.programs / name
        program.write_text(f'#!/bin/sh\nsleep 0.5\nexec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)

    def run(
        self, context: str, text: str | None = None, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        """The script as slurmd runs it, or another one with this text."""
        script = self.script if text is None else self.programs / "site.sh"
        if text is not None:
            script.write_text(text.replace(podfiles.LOGS_FOLDER, str(self.logs)))
            script.chmod(0o755)
        environment = JOB | {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "SLURM_LOGS_DIR": str(self.logs),
            "SLURM_CONF": f"{self.spool}/conf-cache/slurm.conf",
            "SLURM_SCRIPT_CONTEXT": context,
        }
        found = {key: value for key, value in (environment | changes).items() if value}
        process = subprocess.Popen(
            [script],
            env=found,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        code = process.wait(DEADLINE)
        # slurmd ends what is left of the script's process group (common/run_command.c).
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate(timeout=DEADLINE)
        assert code == 0, errors
        return subprocess.CompletedProcess(script, code, out, errors)

    def prolog(self, **changes: str) -> None:
        assert self.run("prolog_slurmd", **changes).stderr == ""

    def epilog(self, **changes: str) -> None:
        assert self.run("epilog_slurmd", **changes).stderr == ""

    def jobs(self) -> list[Job]:
        found = Shelf(RealFiles(self.logs, [], writer=os.getuid()), "w-0").scan()
        assert found.faults == []
        return found.jobs

    def printed(self) -> list[dict[str, Any]]:
        """The lines that the container prints for what is in its folder. At the pod's end it
        empties the folder.
        """
        settings = Settings("w-0", bytes_per_second=1 << 20, backlog_bytes=1 << 20)
        files = RealFiles(self.logs, [], writer=os.getuid())
        shipper, found = Shipper(settings, files), Shelf(files, "w-0").scan()
        for job in found.jobs:
            shipper.announce(job)
        for program in sorted(found.programs, key=lambda it: it[2], reverse=True):
            shipper.program(*program)
        shipper.leave(0.0)
        out = b""
        for second in range(100):
            out += shipper.step(float(second), "T")[0]
            if shipper.is_done:
                break
        assert list(self.logs.iterdir()) == []
        return [
            it for it in map(json.loads, out.splitlines()) if it["stream"] in ("prolog", "epilog")
        ]

    def job_with_output(self) -> Job:
        """The job, when its output is known."""
        deadline = time.monotonic() + DEADLINE
        while not (found := self.jobs()) or not (found[0].outputs or found[0].unknown):
            assert time.monotonic() < deadline, f"the record has no output: {found}"
        return found[0]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_batch_job_on_one_node_is_announced_at_once_and_without_a_request(node: Node) -> None:
    node.prolog()
    [job] = node.jobs()
    assert (job.id, job.uid, job.gid, job.user, job.partition) == (7, 1000, 1000, "ada", "all")
    assert [output.path for output in job.outputs] == [b"/home/ada/slurm-7.out"]
    assert names(node.logs) == {"7-0.job", "7-0.prolog"}
    assert node.asked == []


def test_a_request_outlives_the_end_of_the_script_with_which_slurmd_ends_its_processes(
    node: Node,
) -> None:
    node.slow("setsid")
    node.answer("echo '7 5 3 a job'")
    node.prolog(SLURM_JOB_STDOUT="%x-%A_%a.out")
    assert [output.path for output in node.job_with_output().outputs] == [
        b"/home/ada/a job-5_3.out"
    ]


def test_what_the_container_reads_is_readable_for_it(node: Node) -> None:
    node.prolog()
    assert {path.stat().st_mode & 0o777 for path in node.logs.iterdir()} == {0o644}


def test_the_epilog_marks_the_end(node: Node) -> None:
    node.prolog()
    node.epilog()
    assert names(node.logs) == {"7-0.job", "7-0.prolog", "7-0.end", "7-0.epilog"}


def test_the_epilog_of_a_job_that_was_not_announced_leaves_nothing(node: Node) -> None:
    node.epilog()
    assert names(node.logs) == set()


def test_what_the_prolog_and_the_epilog_of_the_documentation_print_becomes_lines_of_the_job(
    node: Node,
) -> None:
    values = next(
        values
        for example in examples.examples("job-logs.md", PAGE.read_text(encoding="utf-8"))
        for _, values in example.values()
        if "prologScripts" in values
    )
    [prolog], [epilog] = values["prologScripts"].values(), values["epilogScripts"].values()
    for restarts in ("0", "1"):
        node.prolog(SLURM_JOB_RESTART_COUNT=restarts)
        node.run("prolog_slurmd", prolog, SLURM_JOB_RESTART_COUNT=restarts)
        node.epilog(SLURM_JOB_RESTART_COUNT=restarts)
        node.run("epilog_slurmd", epilog, SLURM_JOB_RESTART_COUNT=restarts)
        found = [(it["stream"], it["job"], it["user"], it["message"]) for it in node.printed()]
        assert found == [
            ("prolog", 7, "ada", "preparing the scratch folder"),
            ("epilog", 7, "ada", "cleaning the scratch folder"),
        ]
    # On a worker without the container they run as well.
    node.logs.rmdir()
    assert "preparing" in node.run("prolog_slurmd", prolog).stdout


def test_a_requeued_job_is_announced_again(node: Node) -> None:
    node.prolog()
    node.epilog()
    node.prolog(SLURM_JOB_RESTART_COUNT="1")
    assert sorted(job.key for job in node.jobs()) == ["7-0", "7-1"]
    assert "7-1.end" not in names(node.logs)


def test_an_interactive_job_has_no_file(node: Node) -> None:
    node.prolog(SLURM_JOB_STDOUT="")
    assert [job.outputs for job in node.jobs()] == [()]


def test_a_worker_without_job_logs_does_nothing(node: Node) -> None:
    node.logs.rmdir()
    assert node.run("prolog_slurmd").stdout == ""
    assert not node.logs.exists()


def test_a_full_folder_fails_no_job(node: Node) -> None:
    node.logs.rmdir()
    node.logs.symlink_to("/proc/self/fdinfo")
    assert node.run("prolog_slurmd").returncode == 0


def test_a_task_of_an_array_asks_slurmctld_once_for_the_name(node: Node) -> None:
    node.answer('echo "7 5 3 my  job"')
    node.prolog(SLURM_JOB_STDOUT="%A_%a_%x.out")
    job = node.job_with_output()
    assert (job.array_job, job.array_task) == (5, 3)
    assert job.outputs[0].path == b"/home/ada/5_3_my  job.out"
    assert len(node.asked) == 1
    assert "--jobs=7" in node.asked[0]


def test_of_several_tasks_in_the_answer_the_jobs_own_counts(node: Node) -> None:
    node.answer('printf "%s\\n" "5 5 9 x" "7 5 3 x"')
    node.prolog(SLURM_JOB_STDOUT="%A_%a")
    assert node.job_with_output().outputs[0].path == b"/home/ada/5_3"


@pytest.mark.parametrize("pattern", ["%j-%N-%u", "100%%", "%5j", "a-x"])
def test_names_that_the_node_knows_need_no_request(node: Node, pattern: str) -> None:
    node.prolog(SLURM_JOB_STDOUT=pattern, SLURM_JOB_STDERR="%j.err")
    assert node.jobs()[0].outputs
    assert node.asked == []


def test_hostile_names_reach_the_record_as_they_are(node: Node) -> None:
    name = "$(touch /x)`id`;'\"\n uid=0"
    node.prolog(SLURM_JOB_STDOUT=f"/home/ada/{name}", SLURM_JOB_WORK_DIR=name)
    [job] = node.jobs()
    assert job.uid == 1000
    assert job.outputs[0].path == f"/home/ada/{name}".encode()


def test_of_a_job_on_several_nodes_the_one_with_its_script_has_the_file(node: Node) -> None:
    node.prolog(SLURM_JOB_NODELIST="w-[0-1]")
    assert node.jobs()[0].outputs == ()
    (node.spool / "job00007").mkdir()
    assert node.job_with_output().outputs[0].path == b"/home/ada/slurm-7.out"


def test_the_wait_for_the_script_ends_with_the_job(node: Node) -> None:
    node.prolog(SLURM_JOB_NODELIST="w-0,x-1")
    node.epilog()
    (node.spool / "job00007").mkdir()
    assert node.jobs()[0].outputs == ()
