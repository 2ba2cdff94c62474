"""`kubectl slurm` from its arguments to its exit status."""

import json
from pathlib import Path

import pytest

from sidecars.explain import main as subject
from tests.unit.explain.fake_kubectl import FakeKubectl
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
    said = capsys.readouterr().out
    assert "job 1: PENDING (JobHeldUser) in partition all" in said
    assert "scontrol release 1" in said


def test_json_is_stable(fake: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    fake.executed["slurm-controller-0"] = (0, output(job={"jobs": [pending_job(state_reason="BeginTime")]}), "")
    assert subject.main(["explain", "job", "1", "-n", "slurm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"about", "state", "findings", "would_start", "timeline", "missing", "known", "next"}
    assert found["findings"][0]["code"] == "BeginTime"


def test_a_job_that_slurm_does_not_have_is_status_1(fake: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_without_an_api_server_the_error_is_one_line(fake: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    fake.paths, fake.other = {}, (1, "", "Unable to connect to the server: no such host")
    assert subject.main(["explain", "pod", "a", "-n", "slurm"]) == 2
    assert capsys.readouterr().err == "kubectl slurm: Unable to connect to the server: no such host\n"


def test_an_error_controls_no_terminal(fake: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    fake.paths, fake.other = {}, (1, "", "Unable to connect: \x1b]0;title\x07")
    assert subject.main(["explain", "pod", "a", "-n", "slurm"]) == 2
    assert (
        capsys.readouterr().err
        == "kubectl slurm: Unable to connect: \N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}\n"
    )


def test_context_and_kubeconfig_reach_kubectl(fake: FakeKubectl) -> None:
    subject.main(["explain", "node", "a", "--context", "mine"])
    assert all(it[0] == "--context=mine" for it in fake.asked())
