"""The Epilog of workers with pods of the Slurm Bridge, run by sh as slurmd runs it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sidecars.contract import annotations, bridge
from sidecars.slurm.external import GUARD_OUTPUT

SCRIPT = Path(__file__).parents[3] / "charts/slurm/files/epilog-slurm-bridge.sh"
DEADLINE = 60.0
MARK = bridge.ADMIN_COMMENT

SCONTROL = """\
#!/bin/sh
echo "$@" >>"$0.calls"
test "$1" = update || cat "$0.node"
"""
SQUEUE = """\
#!/bin/sh
printf '%s %s\n' "$3" "$4" >>"$0.calls"
cat "$0.answer"
exit "$(cat "$0.status")"
"""
SLEEP = """\
#!/bin/sh
echo >>"$0.calls"
while test "$(wc -l <"$0.calls")" -ge "$(cat "$0.allowed")"; do /bin/sleep 0.005; done
"""
"""Returns when more calls are allowed."""


@dataclass
class Epilog:
    """The script with its file of annotations in a folder, where scontrol, squeue and sleep are
    doubles.
    """

    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    allowed: int = 0
    """Looks of all calls of `waits`."""

    def __post_init__(self) -> None:
        text = SCRIPT.read_text()
        assert text.count("file=/etc/podinfo/annotations\n") == 1
        assert text.count(" % 600)") == text.count(" % 60)") == 1
        text = text.replace("/etc/podinfo/annotations", str(self.file))
        text = text.replace(" % 60)", " % 6)").replace(" % 600)", " % 60)")
        (self.folder / "epilog").write_text(text)
        for name, content in (("scontrol", SCONTROL), ("squeue", SQUEUE), ("sleep", SLEEP)):
            (self.folder / name).write_text(content)
            (self.folder / name).chmod(0o755)
        self.node("State=IDLE+COMPLETING")
        self.answer(f"{MARK}COMPLETING")
        self.allow(0)

    def allow(self, looks: int) -> None:
        draft = self.folder / "allowed"
        draft.write_text(f"{looks}\n")
        draft.rename(self.folder / "sleep.allowed")

    @property
    def file(self) -> Path:
        return self.folder / "annotations"

    def node(self, state: str) -> None:
        (self.folder / "scontrol.node").write_text(f"NodeName=w0 Arch=x {state} Weight=1\n")

    def answer(self, text: str, status: int = 0) -> None:
        """Slurm's about the admin comment of the job."""
        for name, content in (("answer", f"{text}\n"), ("status", f"{status}\n")):
            draft = self.folder / "draft"
            draft.write_text(content)
            draft.rename(self.folder / f"squeue.{name}")

    def show(self, **ids: str) -> None:
        """As the kubelet writes the annotations of the pod."""
        draft = self.folder / "draft"
        values = {
            "a": 'with "quotes"',
            bridge.GUARD: "1",
            **({bridge.GONE: ids["gone"]} if ids else {}),
        }
        draft.write_text(
            "\n".join(f"{key}={json.dumps(value)}" for key, value in values.items()) + "\n"
        )
        assert annotations.read(draft.read_text(), bridge.GUARD) == "1"
        draft.rename(self.file)

    def start(
        self, *, output: str = GUARD_OUTPUT, restarts: str | None = "0", run: str = "sABC"
    ) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_STDOUT": output,
            "SLURMD_NODENAME": "w0",
            **({"SLURM_JOB_SLUID": run} if run else {}),
            **({"SLURM_JOB_RESTART_COUNT": restarts} if restarts is not None else {}),
        }
        found = subprocess.Popen(
            ["sh", str(self.folder / "epilog")], env=environment, start_new_session=True
        )
        self.running.append(found)
        return found

    def waits(self, epilog: subprocess.Popen[bytes], looks: int = 20) -> None:
        """It has looked exactly so many times more, and still runs."""
        # Those that are allowed, and not those that have been: the script may have looked before it
        # may look again.
        self.allowed += looks
        deadline = time.monotonic() + DEADLINE
        self.allow(self.allowed)
        while self.looks() < self.allowed:
            assert epilog.poll() is None, "the Epilog has ended"
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def ends(self, epilog: subprocess.Popen[bytes]) -> int:
        """Its exit status."""
        self.allow(1_000_000)
        return epilog.wait(DEADLINE)

    def looks(self) -> int:
        calls = self.folder / "sleep.calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    def scontrol(self) -> list[str]:
        return self._calls("scontrol")

    def asked(self) -> list[str]:
        """What Slurm was asked."""
        return self._calls("squeue")

    def _calls(self, name: str) -> list[str]:
        calls = self.folder / f"{name}.calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def epilog(tmp_path: Path) -> Iterator[Epilog]:
    found = Epilog(tmp_path)
    yield found
    for it in found.running:
        if it.poll() is None:
            # With the double of sleep, which would look at its files for ever.
            os.killpg(it.pid, signal.SIGKILL)
            it.wait()


@pytest.mark.parametrize("output", ["", "/dev/null", "/home/ada/slurm-7.out"])
def test_the_epilog_of_other_jobs_ends_at_once(epilog: Epilog, output: str) -> None:
    assert epilog.ends(epilog.start(output=output)) == 0
    assert epilog.looks() == 0
    assert not epilog.asked()


OTHERS = {
    "none": ("(null)         ", 0),
    "of another program": ("archived 2026-0", 0),
    "of another program that quotes": (f" {MARK}", 0),
    "forgotten": ("slurm_load_jobs error: Invalid job id specified", 1),
}


@pytest.mark.parametrize("answer", OTHERS.values(), ids=OTHERS)
def test_a_job_without_the_admin_comment_of_the_bridge_is_no_guard_whatever_its_output(
    epilog: Epilog, answer: tuple[str, int]
) -> None:
    """Any user can submit one with the output of a guard, whether a bridge runs or not."""
    epilog.answer(*answer)
    assert epilog.ends(epilog.start()) == 0
    assert epilog.looks() == 0
    assert not epilog.scontrol()


def test_slurm_is_asked_about_this_run_of_the_job_alone(epilog: Epilog) -> None:
    epilog.answer("(null)")
    assert epilog.ends(epilog.start()) == 0
    assert epilog.ends(epilog.start(run="")) == 0
    assert epilog.asked() == [
        f"--jobs={job} --Format=admin_comment:{len(MARK)},state:13" for job in ("sABC", "7")
    ]


@pytest.mark.parametrize("restarts", ["1", None])
def test_a_job_that_was_queued_again_may_be_a_guard_whatever_its_output(
    epilog: Epilog, restarts: str | None
) -> None:
    """Its user can have changed the output meanwhile. Slurm may start the Epilog again, with
    that.
    """
    waiting = epilog.start(output="/home/ada/x", restarts=restarts)
    epilog.waits(waiting)
    epilog.show(gone="7")
    assert epilog.ends(waiting) == 0


REMARKS = {
    "a name that is resolved at last": (
        "squeue: error: _xgetaddrinfo: getaddrinfo() failed: Name or service not known: "
        "Inappropriate ioctl for device, attempt number -4\n"
    ),
    "obsolete words in slurm.conf": (
        "squeue: error: DebugFlag Task has been removed, please use CPU_Bind\n"
        "squeue: error: DebugFlag Task has been removed, please use CPU_Bind\n"
    ),
}
"""What squeue of Slurm 26.05 writes before its answer."""


@pytest.mark.parametrize("remark", REMARKS.values(), ids=REMARKS)
def test_a_guard_is_one_whatever_squeue_remarks_before_its_answer(
    epilog: Epilog, remark: str
) -> None:
    epilog.answer(f"{remark}{MARK}COMPLETING")
    waiting = epilog.start()
    epilog.waits(waiting)
    epilog.answer(f"{remark}{MARK}CANCELLED")
    assert epilog.ends(waiting) == 0
    assert not epilog.scontrol()


@pytest.mark.parametrize("remark", REMARKS.values(), ids=REMARKS)
def test_a_job_that_is_no_guard_does_not_wait_whatever_squeue_remarks(
    epilog: Epilog, remark: str
) -> None:
    for answer, status in OTHERS.values():
        epilog.answer(f"{remark}{answer}", status)
        assert epilog.ends(epilog.start()) == 0
    assert epilog.looks() == 0


UNKNOWN = {
    "it remarks something alone": (REMARKS["obsolete words in slurm.conf"].rstrip(), 0),
    "the field has another name, and it shows the other one": (
        "squeue: error: Invalid job format specification: admin_comment\nPENDING      ",
        0,
    ),
    "slurmctld is away": (
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        1,
    ),
    "no job is shown": ("", 0),
    "the field has another name": (
        "squeue: error: Invalid job format specification: admin_comment",
        0,
    ),
}


@pytest.mark.parametrize("answer", UNKNOWN.values(), ids=UNKNOWN)
def test_while_slurm_does_not_answer_the_epilog_waits_and_drains_nothing(
    epilog: Epilog, answer: tuple[str, int]
) -> None:
    """slurmctld gives nothing to others then."""
    epilog.show(gone="7")
    epilog.answer(*answer)
    waiting = epilog.start()
    epilog.waits(waiting, 121)
    epilog.answer("(null)")
    assert epilog.ends(waiting) == 0
    assert not epilog.scontrol()


OVER = {
    "ended": (f"{MARK}CANCELLED", 0),
    "ended with its node": (f"{MARK}NODE_FAIL", 0),
    "queued again": (f"{MARK}PENDING", 0),
    "forgotten": ("slurm_load_jobs error: Invalid job id specified", 1),
}


@pytest.mark.parametrize("answer", OVER.values(), ids=OVER)
def test_the_epilog_ends_without_an_answer_of_the_bridge_when_its_job_retains_nothing_any_more(
    epilog: Epilog, answer: tuple[str, int]
) -> None:
    """slurmd was lost for a while, or an administrator has set the node DOWN. The bridge writes
    the id of no such job.
    """
    waiting = epilog.start()
    epilog.waits(waiting)
    epilog.answer(*answer)
    assert epilog.ends(waiting) == 0
    assert not epilog.scontrol()


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "STAGE_OUT", "OF_A_LATER_SLURM", ""])
def test_the_epilog_waits_while_its_job_may_retain_something(epilog: Epilog, state: str) -> None:
    epilog.answer(f"{MARK}{state}")
    waiting = epilog.start()
    epilog.waits(waiting)
    epilog.show(gone="7")
    assert epilog.ends(waiting) == 0


@pytest.mark.parametrize("answer", UNKNOWN.values(), ids=UNKNOWN)
def test_a_guard_keeps_its_node_when_slurm_stops_answering(
    epilog: Epilog, answer: tuple[str, int]
) -> None:
    waiting = epilog.start()
    epilog.waits(waiting)
    epilog.answer(*answer)
    epilog.waits(waiting)
    epilog.show(gone="7")
    assert epilog.ends(waiting) == 0


def test_the_epilog_of_a_guard_ends_when_the_bridge_has_written_its_id(epilog: Epilog) -> None:
    epilog.show()
    waiting = epilog.start()
    epilog.waits(waiting)
    epilog.show(gone="6,17,71,70")
    epilog.waits(waiting)
    epilog.show(gone="6,7,17")
    assert epilog.ends(waiting) == 0
    assert not epilog.scontrol()


@pytest.mark.parametrize("gone", ["7", "7,8", "6,7"])
def test_an_id_counts_wherever_it_is_in_the_list(epilog: Epilog, gone: str) -> None:
    epilog.show(gone=gone)
    assert epilog.ends(epilog.start()) == 0


def test_without_the_file_the_epilog_waits(epilog: Epilog) -> None:
    waiting = epilog.start()
    epilog.waits(waiting)
    epilog.show(gone="7")
    assert epilog.ends(waiting) == 0


def test_an_empty_list_ends_no_epilog(epilog: Epilog) -> None:
    epilog.show(gone="")
    epilog.waits(epilog.start())


@pytest.mark.parametrize(
    "gone", ["17", "7x", "7 8", "-7", "*", "?", "[0-9]", "$SLURM_JOB_ID", "\n7"]
)
def test_what_is_not_the_id_of_the_job_ends_no_epilog(epilog: Epilog, gone: str) -> None:
    epilog.show(gone=gone)
    waiting = epilog.start()
    epilog.waits(waiting, 3)
    epilog.show(gone="7")
    assert epilog.ends(waiting) == 0


@pytest.mark.parametrize(
    "line",
    [
        f'{bridge.GONE}-x="7"',
        f'x.{bridge.GONE}="7"',
        f'a="\\n{bridge.GONE}=\\"7\\""',
        f'a={bridge.GONE}="7"',
        f" {bridge.GONE[1:]}=7",
        "\x00\x1b[2J=",
    ],
)
def test_an_annotation_that_quotes_the_one_of_the_bridge_ends_no_epilog(
    epilog: Epilog, line: str
) -> None:
    epilog.file.write_text(f"{line}\n")
    waiting = epilog.start()
    epilog.waits(waiting, 3)
    epilog.show(gone="7")
    assert epilog.ends(waiting) == 0


def test_after_a_while_the_node_is_drained_and_the_epilog_still_waits(epilog: Epilog) -> None:
    waiting = epilog.start()
    epilog.waits(waiting, 59)
    assert not epilog.scontrol()
    epilog.waits(waiting, 2)
    show, update = epilog.scontrol()
    assert show == "--oneliner show node w0"
    reason = f"{bridge.DRAIN_PREFIX}the bridge has not confirmed that the pod of job 7 is gone"
    assert update == f"update NodeName=w0 State=DRAIN Reason={reason}"
    epilog.show(gone="7")
    assert epilog.ends(waiting) == 0


@pytest.mark.parametrize("state", ["State=IDLE+DRAIN", ""], ids=["drained", "unknown"])
def test_the_reason_of_another_drain_is_not_overwritten(epilog: Epilog, state: str) -> None:
    epilog.node(state)
    epilog.waits(epilog.start(), 121)
    assert epilog.scontrol() == 2 * ["--oneliner show node w0"]
