"""The role's environment and exit statuses."""

import json
from pathlib import Path

import pytest

from sidecars.checks import main as subject
from sidecars.contract import environment as variables


def environment(folder: Path, **more: str) -> dict[str, str]:
    check = folder / "check.json"
    check.write_text(json.dumps({"name": "disk", "script": "#!/bin/sh\n"}))
    return {
        variables.SLURMRESTD_URL: "http://127.0.0.1:1/",
        variables.CHECK_FILE: str(check),
        variables.CHECK_TOKEN_FILE: str(folder / "admin"),
        variables.CHECK_JOB_TOKEN_FILE: str(folder / "jobs"),
        variables.CHECK_RESULTS: "slurm/results",
        **more,
    }


def test_all_variables_are_read(tmp_path: Path) -> None:
    found = subject.parse(environment(tmp_path))
    assert found.slurmrestd_url == "http://127.0.0.1:1"
    assert found.check.name == "disk"
    assert found.results == ("slurm", "results")
    assert subject.parse(environment(tmp_path, CHECK_RESULTS="")).results is None


def test_all_files_beside_the_check_are_declared_checks(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text("{}")
    assert subject.parse(environment(tmp_path)).declared == {"check", "disk", "network"}


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        (variables.SLURMRESTD_URL, "slurm:6820", "give slurmrestd's address"),
        (variables.CHECK_FILE, "", "CHECK_FILE is missing"),
        (variables.CHECK_FILE, "/nowhere", "CHECK_FILE is /nowhere: No such file"),
        (variables.CHECK_TOKEN_FILE, "", "CHECK_TOKEN_FILE is missing"),
        (variables.CHECK_RESULTS, "results", "give NAMESPACE/NAME"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=fault):
        subject.parse({**environment(tmp_path), name: value})


def test_another_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        subject.main(["delete"])
    assert caught.value.code == 2
    assert "usage: slurm-sidecars checks" in capsys.readouterr().err


def test_a_check_that_cannot_run_is_distinguished_from_a_node_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(subject, "TOKEN_SECONDS", 0.0)
    assert subject.main(["run"]) == 3
    assert "has no token: check that the operator runs" in caplog.text
    monkeypatch.setenv(variables.CHECK_FILE, "/nowhere")
    assert subject.main(["run"]) == 3
