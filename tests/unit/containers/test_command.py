"""The program in the container, and ch-run's command line."""

from pathlib import Path

import pytest

from sidecars.containers import command
from sidecars.containers.mounts import Mount


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """A job whose PATH has a folder with one program."""
    (tmp_path / "python3").touch(mode=0o755)
    (tmp_path / "folder").mkdir()
    return {"PATH": f"relative:/no/such:{tmp_path}"}


def test_a_path_that_slurm_has_found_becomes_a_name_again(
    node: dict[str, str], tmp_path: Path
) -> None:
    assert command.program(f"{tmp_path}/python3", node) == "python3"


@pytest.mark.parametrize(
    "argument", ["python3", "/usr/local/bin/python3", "./python3", "/no/such/thing"]
)
def test_any_other_program_stays_as_it_is(node: dict[str, str], argument: str) -> None:
    assert command.program(argument, node) == argument


def test_a_folder_was_not_found_by_slurm(node: dict[str, str], tmp_path: Path) -> None:
    assert command.program(f"{tmp_path}/folder", node) == f"{tmp_path}/folder"


HOME = (Mount("/home", "/home"), Mount("/scratch", "/data"))


@pytest.mark.parametrize(
    ("wanted", "here", "image", "want"),
    [
        ("/work", "/home/alice", "/app", "/work"),
        (None, "/home/alice", "/app", "/home/alice"),
        (None, "/home", None, "/home"),
        (None, "/tmp/x", "/app", "/tmp/x"),  # noqa: S108
        (None, "/scratch/x", "/app", "/app"),
        (None, "/data", None, "/"),
        (None, "/homes", "app", "/"),
    ],
)
def test_the_container_starts_where_the_job_is_if_it_can(
    wanted: str | None, here: str, image: str | None, want: str
) -> None:
    assert command.working_folder(wanted, here, HOME, image) == want


@pytest.mark.parametrize(
    ("release", "want"),
    [
        *(("6.6.0-generic", True), ("6.18.1", True), ("10.0", True)),
        *(("6.5.13", False), ("5.15.0-91-generic", False), ("odd", False), ("6", False)),
    ],
)
def test_the_writable_layer_needs_linux_6_6(release: str, want: bool) -> None:
    assert command.has_overlay(release) is want


@pytest.mark.parametrize(
    ("writable", "option"),
    [
        (command.Writable.NO, []),
        (command.Writable.UNTIL_THE_END, ["--write-fake"]),
        (command.Writable.KEPT, ["--write"]),
    ],
)
def test_the_programs_words_cannot_become_options_of_the_runtime(
    writable: command.Writable, option: list[str]
) -> None:
    line = command.ch_run(
        "/cache/rootfs",
        mounts=HOME,
        folder="/",
        environment="/proc/self/fd/3",
        writable=writable,
        command=["--write", "-x"],
    )
    assert line == [
        *("ch-run", *option, "--env-no-expand", "--unset-env=*", "--set-env0=/proc/self/fd/3"),
        *(
            "--bind=/home:/home",
            "--bind=/scratch:/data",
            "--cd=/",
            "/cache/rootfs",
            "--",
            "--write",
            "-x",
        ),
    ]
