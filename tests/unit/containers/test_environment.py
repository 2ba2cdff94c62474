"""The environment of the container, and the file that brings it."""

import os
from pathlib import Path

import pytest

from sidecars.containers import environment
from sidecars.containers.errors import ContainerError

JOB = {
    "PATH": "/usr/bin",
    "LD_LIBRARY_PATH": "/opt/lib",
    "HOME": "/home/alice",
    "SLURM_JOB_ID": "7",
    "LANG": "C",
    "CUDA_VISIBLE_DEVICES": "0",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """As slurmstepd writes it."""
    folder = tmp_path / "oci-job1-0/task-0"
    folder.mkdir(parents=True)
    found = folder / "environment"
    found.write_bytes(b"A=1\0B=two\nlines=\0C=\0noise\0=x\0")
    return found


def test_variables_are_read_whatever_their_values_contain(file: Path) -> None:
    assert environment.read(str(file)) == {"A": "1", "B": "two\nlines=", "C": ""}


def test_bytes_that_are_not_utf_8_survive() -> None:
    variables = environment.parse(b"A=\xff\xfe\0")
    assert environment.render(variables) == b"A=\xff\xfe\0"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match=r"none: No such file"):
        environment.read(str(tmp_path / "none"))


def test_a_folder_that_others_can_change_is_refused(file: Path) -> None:
    file.parent.chmod(0o777)
    with pytest.raises(ContainerError, match="can be changed by others"):
        environment.read(str(file))


def test_a_folder_with_the_sticky_bit_may_be_open_for_all(file: Path) -> None:
    file.parent.parent.chmod(0o1733)
    assert environment.read(str(file))["A"] == "1"


def test_a_folder_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    os.chown(file.parent, own + 1, -1)
    monkeypatch.setattr(os, "geteuid", lambda: own)
    with pytest.raises(ContainerError, match=f"in a folder of user {own + 1}, who isn't you"):
        environment.read(str(file))


def test_links_in_the_place_of_the_file_or_a_folder_are_refused(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file.parent)
    with pytest.raises(ContainerError):
        environment.read(str(tmp_path / "link/environment"))
    (tmp_path / "environment").symlink_to(file)
    with pytest.raises(ContainerError):
        environment.read(str(tmp_path / "environment"))


def test_a_pipe_in_the_place_of_the_file_does_not_hang_the_task(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ContainerError, match="isn't a file"):
        environment.read(str(file))


def test_the_image_wins_except_for_what_describes_the_job() -> None:
    image = [
        "PATH=/opt/bin",
        "HOME=/root",
        "SLURM_JOB_ID=0",
        "LANG=en",
        "NEW=1",
        "CUDA_VISIBLE_DEVICES=all",
        "bad",
        "=x",
    ]
    assert environment.compose(JOB, image) == {
        "PATH": "/opt/bin",
        "HOME": "/home/alice",
        "SLURM_JOB_ID": "7",
        "LANG": "en",
        "NEW": "1",
        "CUDA_VISIBLE_DEVICES": "0",
    }


def test_paths_of_the_node_stay_on_the_node() -> None:
    found = environment.compose(JOB, [])
    assert found["PATH"] == environment.DEFAULT_PATH
    assert "LD_LIBRARY_PATH" not in found


def test_the_user_can_prefer_variables_of_the_job() -> None:
    found = environment.compose(JOB, ["LANG=en", "PATH=/opt/bin"], ["LANG", "PATH"])
    assert (found["LANG"], found["PATH"]) == ("C", "/usr/bin")
