"""The PrologSlurmctld of clusters with power saving, run by sh with an sinfo of the test's own."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "charts/slurm-operator/workloads/await-nodes.sh"
DEADLINE = 60.0


class Controller:
    """A slurmctld's folders, its sinfo, and the scripts of its jobs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.conf("ResumeTimeout=600")
        self.nodes()
        self.program("sinfo", f'echo asked >>"{root}/asked"; cat "{root}/nodes"')
        self.program("scontrol", 'shift 2; echo "$1" | tr , "\\n"')
        self.processes: list[subprocess.Popen[str]] = []

    def program(self, name: str, text: str) -> None:
        """A program on the PATH of the scripts."""
        file = self.root / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def conf(self, *lines: str) -> None:
        """The lines of slurm.conf."""
        (self.root / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))

    def nodes(self, **states: str) -> None:
        """What sinfo prints from now on."""
        new = self.root / "new"
        new.write_text("".join(f"{name} {state}\n" for name, state in states.items()))
        new.replace(self.root / "nodes")

    @property
    def asked(self) -> int:
        """How often sinfo ran."""
        file = self.root / "asked"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @property
    def waiting(self) -> set[str]:
        """The jobs that wait for another script."""
        return {file.stem for file in (self.root / "awaited").glob("[!.]*.waits")}

    def job(self, number: int, *nodes: str) -> subprocess.Popen[str]:
        """The script of a job with these nodes."""
        process = subprocess.Popen(
            ["sh", str(SCRIPT)],
            env=os.environ
            | {
                "PATH": f"{self.root}/bin:{os.environ['PATH']}",
                "SLURM_AWAIT_DIR": str(self.root / "awaited"),
                "SLURM_CONF": str(self.root / "slurm.conf"),
                "SLURM_JOB_ID": str(number),
                "SLURM_JOB_NODELIST": ",".join(nodes),
            },
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def close(self) -> None:
        """End all scripts."""
        with ExitStack() as stack:
            for process in self.processes:
                stack.enter_context(process)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """One without jobs."""
    found = Controller(tmp_path)
    yield found
    found.close()


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll a condition; fails with what was waited for."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE:g} s for {what}"
        time.sleep(0.02)


def test_a_job_whose_nodes_are_up_begins_at_once(controller: Controller) -> None:
    controller.nodes(b="idle~")
    job = controller.job(1, "a")
    assert job.wait(DEADLINE) == 0
    assert controller.asked == 1
    assert job.stderr is not None
    assert job.stderr.read() == ""


def test_a_job_begins_when_its_last_node_is_up(controller: Controller) -> None:
    controller.nodes(a="allocated#", b="allocated~")
    job = controller.job(1, "a", "b")
    until(lambda: controller.asked >= 2, "the script to look twice")
    controller.nodes(b="mixed#")
    seen = controller.asked
    until(lambda: controller.asked >= seen + 2, "the script to look twice again")
    assert job.poll() is None
    controller.nodes(c="idle%")
    assert job.wait(DEADLINE) == 0


def test_a_node_that_did_not_start_is_not_waited_for(controller: Controller) -> None:
    controller.nodes(a="down~")
    assert controller.job(1, "a").wait(DEADLINE) == 0


def test_a_job_that_lost_its_node_is_not_waited_for(controller: Controller) -> None:
    controller.nodes(a="allocated#", b="allocated#", c="allocated#")
    first = controller.job(1, "a")
    until(lambda: controller.asked > 0, "the first to look")
    second, third = controller.job(2, "b"), controller.job(3, "c")
    until(lambda: controller.waiting == {"2", "3"}, "the others to wait")
    controller.nodes(a="allocated#", b="reserved~", c="allocated#")
    assert second.wait(DEADLINE) == 0
    assert first.poll() is third.poll() is None
    controller.nodes(a="idle~", c="allocated#")
    assert first.wait(DEADLINE) == 0
    seen = controller.asked
    until(lambda: controller.asked >= seen + 2, "the last one to look twice")
    assert third.poll() is None


def test_a_job_that_got_its_node_while_slurmctld_answered_waits_for_it(
    controller: Controller,
) -> None:
    controller.nodes(a="allocated#", b="idle~")
    controller.job(1, "a")
    until(lambda: controller.asked > 0, "the first to look")
    root = controller.root
    controller.program(
        "sinfo",
        f'cat "{root}/nodes"; echo asked >>"{root}/asked"; touch "{root}/lasting"; '
        f'until test -e "{root}/go"; do sleep 0.05; done',
    )
    until((root / "lasting").exists, "a look that lasts")
    second = controller.job(2, "b")
    until(lambda: controller.waiting == {"2"}, "the second to wait")
    controller.nodes(a="allocated#", b="allocated#")
    seen = controller.asked
    (root / "go").touch()
    until(lambda: controller.asked >= seen + 2, "two more looks")
    assert second.poll() is None
    controller.nodes(a="allocated#")
    assert second.wait(DEADLINE) == 0


def test_one_script_looks_for_all_jobs_and_another_one_when_it_is_gone(
    controller: Controller,
) -> None:
    controller.nodes(a="allocated#", b="allocated#", c="allocated#")
    first = controller.job(1, "a")
    until(lambda: controller.asked > 0, "the first to look")
    second, third = controller.job(2, "b"), controller.job(3, "c")
    until(lambda: controller.waiting == {"2", "3"}, "the others to wait")
    controller.nodes(a="allocated#", c="allocated#")
    assert second.wait(DEADLINE) == 0
    assert first.poll() is third.poll() is None
    os.killpg(first.pid, signal.SIGKILL)
    seen = controller.asked
    until(lambda: controller.asked > seen, "the last one to look")
    controller.nodes(a="allocated#")
    assert third.wait(DEADLINE) == 0
    assert controller.waiting == set()


def test_jobs_that_were_cancelled_are_forgotten(controller: Controller) -> None:
    controller.nodes(a="allocated#", b="allocated#")
    controller.job(1, "a")
    until(lambda: controller.asked > 0, "the first to look")
    second = controller.job(2, "b")
    until(lambda: controller.waiting == {"2"}, "the second to wait")
    os.killpg(second.pid, signal.SIGKILL)
    second.wait()
    until(lambda: controller.waiting == set(), "the second to be forgotten")


@pytest.mark.parametrize(
    "lines", [("PrologTimeout=6",), ("prologepilogtimeout=6 # short",), ("PrologTimeout=3",)]
)
def test_no_job_fails_because_its_nodes_take_longer_than_a_prolog_may(
    controller: Controller, lines: tuple[str, ...]
) -> None:
    controller.conf("ResumeTimeout=600", *lines)
    controller.nodes(a="allocated#")
    jobs = [controller.job(1, "a"), controller.job(2, "a")]
    assert [job.wait(DEADLINE) for job in jobs] == [0, 0]


@pytest.mark.parametrize("program", ["sinfo", "scontrol"])
def test_no_job_fails_because_slurmctld_does_not_answer(
    controller: Controller, program: str
) -> None:
    controller.conf("PrologTimeout=7")
    controller.program(program, "exit 1")
    assert controller.job(1, "a").wait(DEADLINE) == 0


def test_a_slurmctld_that_answers_slowly_is_asked_less_often(controller: Controller) -> None:
    controller.nodes(a="allocated#")
    controller.program(
        "sinfo", f'sleep 1; date +%s%N >>"{controller.root}/asked"; echo "a allocated~"'
    )
    controller.job(1, "a")
    until(lambda: controller.asked >= 2, "two looks")
    first, second = map(int, (controller.root / "asked").read_text().split()[:2])
    assert second - first > 4e9
