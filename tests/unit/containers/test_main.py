"""The command line of oci.conf, and what becomes of a task. ch-run itself is replaced."""

import errno
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecars.containers import main, mounts
from sidecars.containers.cache import Cache, Limits, Unpacked
from tests.unit.containers.test_registry import program

Start = Callable[..., "list[str] | None"]


class ReplacedError(Exception):
    """Instead of the end of this process."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a task; ch-run's command line, or None if it couldn't start."""
    found: list[list[str]] = []
    environments: list[dict[str, str]] = []
    spool = tmp_path / "spool"
    spool.mkdir()

    def replaced(_: str, line: list[str], variables: dict[str, str]) -> None:
        found.append(line)
        environments.append(variables)
        raise ReplacedError

    def run(
        image: str | None, *words: str, options: tuple[str, ...] = (), **job: str
    ) -> list[str] | None:
        text = "".join(
            f"{name}={value}\0" for name, value in {"PATH": "/usr/bin:/bin", **job}.items()
        )
        (spool / "environment").write_text(text)
        try:
            named = [] if image is None else [f"--image={image}"]
            code = main.main([*named, f"--environment={spool}/environment", *options, "--", *words])
        except ReplacedError:
            assert "SECRET" not in environments[-1]
            return found[-1]
        assert code == main.FAILED
        return None

    monkeypatch.setattr(os, "execvpe", replaced)
    # Containers keep a folder below /tmp, as that of the tests may be.
    monkeypatch.chdir("/")
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An unpacked image."""
    (tmp_path / "box").mkdir()
    return tmp_path / "box"


def variables(line: list[str]) -> dict[str, str]:
    """What ch-run would read from the file that it gets."""
    [descriptor] = re.findall(r"--set-env0=/proc/self/fd/([0-9]+)", " ".join(line))
    content = os.pread(int(descriptor), 1 << 20, 0)
    return dict(item.decode().split("=", 1) for item in content.split(b"\0") if item)


def test_a_task_becomes_its_program_in_an_unpacked_image(start: Start, folder: Path) -> None:
    line = start(str(folder), "/opt/thing", "--flag", SECRET="1", SLURM_JOB_ID="7")
    assert line is not None
    assert line[-4:] == [str(folder), "--", "/opt/thing", "--flag"]
    found = variables(line)
    assert (found["SECRET"], found["SLURM_JOB_ID"]) == ("1", "7")


def test_a_bundle_is_used_by_its_rootfs(start: Start, folder: Path) -> None:
    (folder / "rootfs").mkdir()
    (folder / "config.json").write_text("{}")
    line = start(f"{folder}/", "/x")
    assert line is not None
    assert f"{folder}/rootfs" in line


def test_the_sites_mounts_are_omitted_where_they_are_missing_and_the_users_are_not(
    start: Start, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    site = (f"--mount={tmp_path}/data:/data", "--mount=/no/such")
    line = start(str(folder), "/x", options=site, CONTAINER_MOUNTS=f"{tmp_path}/data:/mine")
    assert line is not None
    binds = [word for word in line if word.startswith("--bind=")]
    assert binds == [f"--bind={tmp_path}/data:/data", f"--bind={tmp_path}/data:/mine"]
    assert start(str(folder), "/x", CONTAINER_MOUNTS="/no/such") is None
    assert "slurm-oci-run: error: mount /no/such: it doesn't exist on" in capsys.readouterr().err


def test_a_batch_script_is_mounted_and_called_by_its_path(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job00007"
    job.mkdir()
    (job / "slurm_script").touch(mode=0o700)
    line = start(str(folder), f"{job}/slurm_script", options=("--step=4294967291",), PATH=str(job))
    assert line is not None
    assert f"--bind={job}:{job}" in line
    assert line[-1] == f"{job}/slurm_script"


def test_a_program_that_slurm_found_on_the_node_is_looked_up_in_the_image(
    start: Start, folder: Path
) -> None:
    line = start(str(folder), "/usr/bin/env")
    assert line is not None
    assert line[-1] == "env"


def test_the_folder_of_the_user_is_where_the_container_starts(start: Start, folder: Path) -> None:
    line = start(str(folder), "/x", CONTAINER_WORKDIR="/work")
    assert line is not None
    assert "--cd=/work" in line


@pytest.mark.parametrize("image", ["../etc", "-x", "/no/such", "/", "a b", ""])
def test_a_task_whose_image_is_none_fails_with_one_error(
    start: Start, capsys: pytest.CaptureFixture[str], image: str
) -> None:
    assert start(image, "/x") is None
    assert capsys.readouterr().err.startswith("slurm-oci-run: error: --container: ")


def test_an_error_of_the_file_system_is_one_line_with_the_path_and_the_node(
    start: Start,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = f"on {os.uname().nodename}: "
    assert start(str(folder), "/x", CONTAINER_MOUNTS=f"{tmp_path}:/{'y' * 300}") is None
    assert (
        capsys.readouterr().err
        == f"slurm-oci-run: error: '{folder}/{'y' * 300}' {where}File name too long\n"
    )

    def refused(lock: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refused)
    assert start("box@sha256:" + "a" * 64, "/x", options=(f"--cache={tmp_path}",)) is None
    place = f"{tmp_path}/{os.geteuid()}/locks/{'a' * 64}-{os.uname().machine}.use"
    assert capsys.readouterr().err == f"slurm-oci-run: error: '{place}' {where}Input/output error\n"


def test_the_tasks_of_a_step_fail_with_the_first_one_and_a_step_of_another_job_asks_again(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, "skopeo", "echo 'manifest unknown' >&2; exit 1")
    monkeypatch.setattr(main, "_PATH", f"{programs}:/usr/bin:/bin")
    step = dict.fromkeys(main.STEP, "1")
    # Another step, the job after a requeue, another job, one of another cluster, and one that Slurm
    # has not described.
    other = [{**step, name: "9"} for name in step]
    for job in (step, step, *other, {}, {}):
        assert start("x/y:1", "/x", options=(f"--cache={tmp_path}",), **job) is None
        assert "the registry has no such image" in capsys.readouterr().err
    assert (tmp_path / "asked").read_text().count("inspect") == 7


def test_without_ch_run_the_error_names_the_remedy(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "execvpe", missing)
    assert start(str(folder), "/x") is None
    assert (
        "ch-run: No such file or directory: use this project's image of slurmd"
        in capsys.readouterr().err
    )


def test_the_options_of_srun_are_added_to_what_the_job_sets_by_variables(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    options = (
        f"--container-mounts={tmp_path}/two:/two",
        "--container-workdir=/two",
        "--container-env=A,B",
        "--read-only",
    )
    line = start(
        str(folder),
        "/x",
        options=options,
        CONTAINER_MOUNTS=f"{tmp_path}/one:/one",
        CONTAINER_WORKDIR="/one",
    )
    assert line is not None
    assert {f"--bind={tmp_path}/one:/one", f"--bind={tmp_path}/two:/two", "--cd=/two"} <= set(line)
    assert "--write-fake" not in line


def test_the_home_folder_is_mounted_or_not_as_the_user_sets(
    start: Start, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "ada"
    home.mkdir(parents=True)
    monkeypatch.setattr(main, "_home", lambda: str(home))
    site = f"--mount={tmp_path}/home:/home"
    with_home = start(str(folder), "/x", options=("--mount-home",))
    without = start(str(folder), "/x", options=(site, "--no-mount-home"))
    assert with_home is not None
    assert without is not None
    assert f"--bind={home}:{home}" in with_home
    assert [word for word in without if word.startswith("--bind=")] == []


def test_a_task_that_slurm_has_started_itself_has_the_environment_of_this_process(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_CONF", "/run/slurm/conf/slurm.conf")
    line = start(str(folder), "/x", options=("--environment=self",))
    assert line is not None
    found = variables(line)
    assert found["SLURM_JOB_ID"] == "9"
    assert "SLURM_CONF" not in found


@pytest.mark.parametrize("home", ["/", "/srv/ada"])
def test_a_home_folder_that_would_hide_the_image_or_that_the_runtime_hides_fails_the_task(
    home: str,
    start: Start,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(main, "_home", lambda: home)
    monkeypatch.setattr(mounts, "prepare", lambda _, mount: mount)
    assert start(str(folder), "/x", options=("--mount-home",)) is None
    assert f"--container-mount-home: '{home}'" in capsys.readouterr().err


def test_a_container_with_a_name_keeps_changes_unless_it_is_read_only(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = (f"--cache={tmp_path / 'cache'}", "--name=own")
    (tmp_path / "cache").mkdir()
    made = Cache(tmp_path / "cache", Limits(0, 0), 60)

    def image() -> Unpacked:
        return made.get(f"sha256:{'a' * 64}", lambda _: {"WorkingDir": "/work"})

    os.close(made.container("own", image).lock)
    line = start(None, "true", options=cache)
    assert line is not None
    assert (line[1], line[-3]) == (
        "--write",
        f"{tmp_path}/cache/{os.geteuid()}/images/name_own/rootfs",
    )
    assert "--cd=/work" in line
    line = start("registry.example/other:1", "true", options=(*cache, "--read-only"))
    assert line is not None
    assert line[1] == "--env-no-expand"
    assert start(None, "true", options=(cache[0], "--name=other")) is None
    assert (
        "has no container of yours with the name other: add --container-image"
        in capsys.readouterr().err
    )
    assert start(str(tmp_path), "true", options=cache) is None
    assert "--container-image names a folder" in capsys.readouterr().err
    assert start(None, "true", options=cache[:1]) is None
    assert "neither an image nor the name of a container" in capsys.readouterr().err
