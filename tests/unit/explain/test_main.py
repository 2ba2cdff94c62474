"""`kubectl slurm` from its arguments to its exit status."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from sidecars.contract.project import VERSION
from sidecars.explain import main as subject
from sidecars.explain.reading import GROUP
from tests.unit.explain.fake_kubectl import EMPTY, FakeKubectl, forbidden
from tests.unit.explain.printed import output, pending_job, section
from tests.unit.explain.test_reading import DAEMONS, running


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    found = FakeKubectl(tmp_path / "fake")
    found.lists(DAEMONS, "Pod", running("slurmctld", "slurm-controller-0", "slurmctld"))
    found.executed["slurm-controller-0"] = (0, output(), "")
    monkeypatch.setattr(subject, "Kubectl", lambda options: found.kubectl(*options))
    return found


def test_a_job_is_explained(fake: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    assert subject.main(["explain", "job", "1", "-n", "slurm"]) == 0
    message = capsys.readouterr().out
    assert "job 1: PENDING (JobHeldUser) in partition all" in message
    assert "scontrol release 1" in message


def test_json_is_stable(fake: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    fake.executed["slurm-controller-0"] = (
        0,
        output(job={"jobs": [pending_job(state_reason="BeginTime")]}),
        "",
    )
    assert subject.main(["explain", "job", "1", "-n", "slurm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        "about",
        "state",
        "findings",
        "would_start",
        "timeline",
        "missing",
        "known",
        "next",
    }
    assert found["findings"][0]["code"] == "BeginTime"


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "slurm", "--json", "explain", "job", "1"],
        ["--json", "explain", "job", "1", "--namespace=slurm"],
    ],
)
def test_options_may_stand_before_the_command_as_those_of_kubectl(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    fake.namespace = "elsewhere"
    assert subject.main(words) == 0
    assert json.loads(capsys.readouterr().out)["known"]


def test_a_job_that_slurm_does_not_have_is_status_1(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(job=None) + section("job", "", 1)
    fake.executed["slurm-controller-0"] = (0, text, "\x1ejob\nInvalid job id specified\n")
    assert subject.main(["explain", "job", "99", "-n", "slurm"]) == 1
    assert "not in the queue" in capsys.readouterr().out


@pytest.mark.parametrize("job_id", ["a", "12;rm", "$(id)"])
def test_a_wrong_job_id_is_refused_before_anything_runs(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str], job_id: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        subject.main(["explain", "job", job_id])
    assert caught.value.code == 2
    assert "is no job id: use 12" in capsys.readouterr().err
    assert not fake.asked()


def test_without_an_api_server_the_error_is_one_line(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.paths, fake.other = {}, (1, "", "Unable to connect to the server: no such host")
    assert subject.main(["explain", "pod", "a", "-n", "slurm"]) == 2
    assert (
        capsys.readouterr().err == "kubectl slurm: Unable to connect to the server: no such host\n"
    )


def test_an_error_controls_no_terminal(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.paths, fake.other = {}, (1, "", "Unable to connect: \x1b]0;title\x07")
    assert subject.main(["explain", "pod", "a", "-n", "slurm"]) == 2
    assert (
        capsys.readouterr().err == "kubectl slurm: Unable to connect: "
        "\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}\n"
    )


def test_context_and_kubeconfig_reach_kubectl(fake: FakeKubectl) -> None:
    subject.main(["explain", "node", "a", "--context", "mine"])
    assert all(it[0] == "--context=mine" for it in fake.asked())


def test_a_reader_that_has_enough_is_no_error(
    fake: FakeKubectl, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert subject.main(["explain", "job", "1", "-n", "slurm"]) == 0
    assert capfd.readouterr().err == ""


def test_a_doctor_without_a_namespace_that_it_could_mean_answers_nothing(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.namespace = "default"
    found = ({"metadata": {"name": "x", "namespace": it}} for it in ("slurm", "slurm2"))
    fake.lists(f"{GROUP}/controllers", "Controller", *found)
    assert subject.main(["doctor"]) == 2
    assert "slurm, slurm2" in capsys.readouterr().err


def test_a_doctor_that_could_not_read_a_part_reports_no_health(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.executed["slurm-controller-0"] = (0, output(queue=""), "")
    fake.paths[f"{GROUP}/namespaces/slurm/nodesets"] = forbidden(
        "list", "nodesets", "slinky.slurm.net"
    )
    assert subject.main(["doctor", "-n", "slurm"]) == 2
    found = capsys.readouterr().out
    assert "all is well, as far as was read" in found
    assert "NodeSets: you lack" in found


QUEUE = (
    "PD|900|5|bob|Resources|N/A||all\n"
    "PD|800|6_[1-9]|ada|Resources|N/A||all\n"
    "PD|700|9|eve|JobHeldUser|N/A||all\n"
    "R|950|8|bob|None|1790000000|cpu-1|all\n"
)


@pytest.fixture
def queued(fake: FakeKubectl) -> FakeKubectl:
    """Three pending jobs."""
    fake.executed["slurm-controller-0"] = (0, output(queue=QUEUE), "")
    return fake


def test_without_an_id_all_pending_jobs_are_explained(
    queued: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert subject.main(["explain", "job", "-n", "slurm"]) == 0
    found = capsys.readouterr().out
    assert "pending jobs: 3, of which 1 need a remedy" in found
    assert "! job 9: " in found
    assert "… 2 jobs: " in found


class Terminal(io.StringIO):
    """What a terminal shows."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_a_file_none(
    queued: FakeKubectl, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["explain", "job", "-n", "slurm"]
    monkeypatch.delenv("NO_COLOR", raising=False)
    subject.main(words)
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    subject.main(words)
    assert "\x1b[31m! job 9: " in terminal.getvalue()
    assert "\x1b[33m… 2 jobs: " in terminal.getvalue()
    monkeypatch.setattr("sys.stdout", without := Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    subject.main(words)
    assert without.getvalue() == plain


def test_watch_answers_again_until_it_is_interrupted(
    queued: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt
        queued.executed["slurm-controller-0"] = (0, output(queue=""), "")

    words = ["explain", "job", "--watch", "--interval=2", "-n", "slurm"]
    assert subject.main(words, sleep=sleep) == 0
    assert slept == [2.0, 2.0, 2.0]
    found = capsys.readouterr().out
    assert found.count("pending jobs: 3") == 1
    assert found.count("pending jobs: none") == 2


def test_watch_goes_on_while_the_api_server_does_not_answer(
    queued: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    former, queued.paths = queued.paths, {}
    queued.other = (1, "", "Unable to connect to the server: no such host")

    def sleep(_: float) -> None:
        if queued.paths:
            raise KeyboardInterrupt
        queued.paths, queued.other = former, EMPTY

    assert subject.main(["top", "--watch", "-n", "slurm"], sleep=sleep) == 0
    shown = capsys.readouterr()
    assert "Unable to connect" in shown.err
    assert "pending   3" in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["doctor", "--watch", "--bundle=a.tar.gz"], "omit --watch"),
        (["top", "--watch", "--interval=0"], "0 is not between 1 and 3600"),
        (["top", "--interval=nan"], "nan is not between 1 and 3600"),
        (["explian", "job", "1"], "Did you mean 'explain'?"),
        (["explain", "jobs"], "Did you mean 'job'?"),
        (["doctor", "gres"], "-- slurm-sidecars doctor gres"),
        (["doctor", "-n", "slurm", "node-1"], "omit 'node-1'"),
    ],
)
def test_wrong_arguments_are_refused_with_the_remedy(
    fake: FakeKubectl, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        subject.main(words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not fake.asked()


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        subject.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"kubectl slurm {VERSION}\n"


def test_kubectl_gets_completions_with_a_directive_against_names_of_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert subject.main(["__complete", "explain", "no"]) == 0
    assert capsys.readouterr().out == "node\nnodeset\n:4\n"


def test_the_file_for_completion_starts_the_plugin_with_all_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert subject.main(["completion"]) == 0
    assert capsys.readouterr().out == '#!/bin/sh\nexec kubectl slurm __complete "$@"\n'
