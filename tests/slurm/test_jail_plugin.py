"""The shared root of jobs, with slurmctld and slurmd as plain processes: what a step sees, and when
it must not run.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.waiting import until
from tests.support.real import jailed, ports
from tests.support.real.jailed import PLUGIN, VOLUME, JailedSlurm

MOUNTS = tuple(
    f"mount={it}"
    for it in ("/usr", "/home", "/etc/passwd", "/etc/group", "/etc/slurm", "/srv/missing")
)
LOOK = ("cat", "/etc/os-release")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JailedSlurm]:
    """The daemons, with the versions `first` and `second`."""
    with jailed.running(tmp_path_factory.mktemp("jailed"), ports.JAIL) as found:
        found.volume.mkdir()
        for name in ("first", "second"):
            found.fill(name, f"jail {name}")
        yield found


@pytest.fixture(autouse=True)
def _first(slurm: JailedSlurm) -> None:
    """Jobs see `first`, and may choose nothing."""
    slurm.plugstack(*MOUNTS)
    slurm.switch("versions/first")


def refused(slurm: JailedSlurm, *options: str, command: tuple[str, ...] = ("srun",)) -> str:
    """The error of a step that must not run, least of all on the worker's root."""
    done = slurm.run(*command, *options, *LOOK, check=False)
    assert done.returncode != 0, done
    assert done.stdout == "", done
    return done.stderr


def without_plugin(slurm: JailedSlurm, line: str = "") -> tuple[str, ...]:
    """An srun of the user that has this plugstack.conf, and so checks nothing."""
    own = slurm.root / "tmp/own"
    own.mkdir(exist_ok=True)
    conf = (slurm.root / "etc/slurm/slurm.conf").read_text()
    (own / "slurm.conf").write_text(
        f"{conf}PlugStackConfig=/tmp/own/plugstack.conf\nSlurmdPidFile=/tmp/own/pid\n"
    )
    (own / "plugstack.conf").write_text(line)
    (own / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    return ("env", "SLURM_CONF=/tmp/own/slurm.conf", "srun")


def test_a_step_has_the_jail_as_its_root_and_runs_as_its_user(slurm: JailedSlurm) -> None:
    assert slurm.run("srun", *LOOK).stdout == "jail first\n"
    look = (
        "id -un; ls /; test -c /dev/null && test -d /proc/1 && test -w /tmp && grep -c . "
        "/proc/self/mountinfo && pwd"
    )
    user, *_, mounts, folder = slurm.run("srun", "sh", "-c", look).stdout.splitlines()
    assert (user, folder) == ("alice", "/tmp")  # noqa: S108
    mountinfo = slurm.run("srun", "cat", "/proc/self/mountinfo").stdout
    assert int(mounts) > 5
    assert " /state " not in mountinfo
    assert slurm.run("srun", "ls", "/").stdout.split() == [
        *(
            "bin",
            "dev",
            "etc",
            "home",
            "lib",
            "lib64",
            "proc",
            "run",
            "sbin",
            "sys",
            "tmp",
            "usr",
            "var",
        )
    ]


def test_no_file_of_the_worker_stays_open_in_a_step(slurm: JailedSlurm) -> None:
    listing = slurm.run(
        "srun", "sh", "-c", "readlink /proc/self/fd/* /proc/self/cwd /proc/self/root || true"
    ).stdout
    paths = {
        path
        for path in listing.splitlines()
        if path.startswith("/") and not path.startswith(("/proc/", "/dev/"))
    }
    assert paths == {"/", "/tmp"}, "the root and the folder of the job"  # noqa: S108
    assert (
        slurm.run("srun", "sh", "-c", "ls -d ../../../../../state || echo none").stdout == "none\n"
    )


def test_set_user_id_programs_of_the_jail_have_no_effect(slurm: JailedSlurm) -> None:
    program = slurm.volume / "versions/first/root/become-root"
    shutil.copy(slurm.root / "usr/bin/id", program)
    program.chmod(0o4755)
    assert slurm.run("srun", "/become-root", "-u").stdout == f"{jailed.USER}\n"


def test_a_jail_on_a_volume_that_is_read_only_for_the_worker_is_so_for_jobs_except_for_its_mounts(
    slurm: JailedSlurm,
) -> None:
    slurm.run("srun", "true")
    slurm.run("mount", "--bind", VOLUME, VOLUME, user=0)
    slurm.run("mount", "-o", "remount,bind,ro", VOLUME, user=0)
    try:
        write = (
            "cat /etc/os-release; echo x 2>/dev/null >/etc/x || echo no; echo yes "
            ">/home/alice/x; cat /home/alice/x"
        )
        assert slurm.run("srun", "sh", "-c", write).stdout == "jail first\nno\nyes\n"
        slurm.plugstack(*MOUNTS, "mount=/opt")
        assert "doesn't exist, and can't be created" in refused(slurm)
    finally:
        slurm.run("umount", VOLUME, user=0)


def test_what_a_step_mounts_is_gone_with_it_and_was_never_seen_by_the_worker(
    slurm: JailedSlurm,
) -> None:
    before = slurm.run("cat", "/proc/1/mountinfo", user=0).stdout
    slurm.run("srun", "true")
    assert slurm.run("cat", "/proc/1/mountinfo", user=0).stdout == before


def test_a_batch_script_and_its_steps_are_in_the_jail(slurm: JailedSlurm) -> None:
    script = "#!/bin/sh\ncat /etc/os-release\nsrun cat /etc/os-release\n"
    out = "/home/alice/out"
    (slurm.root / "tmp/script").write_text(script)
    slurm.run("sbatch", f"--output={out}", "/tmp/script")  # noqa: S108
    file = slurm.root / out.removeprefix("/")
    until(
        lambda: file.exists() and file.read_text().count("\n") == 2,
        "the job to write its output",
        300,
        slurm.log,
    )
    assert file.read_text() == "jail first\njail first\n"


def test_jobs_see_another_version_once_the_link_is_switched_and_the_former_one_again(
    slurm: JailedSlurm,
) -> None:
    slurm.switch("versions/second")
    assert slurm.run("srun", *LOOK).stdout == "jail second\n"
    slurm.switch("versions/first")
    assert slurm.run("srun", *LOOK).stdout == "jail first\n"


def test_a_job_chooses_a_version_or_none_where_the_site_allows_it(slurm: JailedSlurm) -> None:
    slurm.plugstack(*MOUNTS, "allow=second", "allow=none")
    assert slurm.run("srun", "--jail=second", *LOOK).stdout == "jail second\n"
    assert slurm.run("srun", "--jail=none", *LOOK).stdout != "jail first\n"
    assert "--jail=first isn't allowed here" in refused(slurm, "--jail=first")
    slurm.plugstack(*MOUNTS, "allow=*")
    assert slurm.run("srun", "--jail=second", *LOOK).stdout == "jail second\n"
    assert "--jail=none isn't allowed here" in refused(slurm, "--jail=none")


def test_the_worker_refuses_an_option_that_the_users_own_srun_lets_pass(slurm: JailedSlurm) -> None:
    own = without_plugin(slurm, f"required {PLUGIN} root={VOLUME} allow=none allow=*\n")
    for name in ("none", "second"):
        assert f"--jail={name} isn't allowed here" in refused(slurm, f"--jail={name}", command=own)


def test_a_worker_without_the_plugin_runs_no_step_and_a_slurmd_does_not_start(
    slurm: JailedSlurm,
) -> None:
    missing = f"required {PLUGIN}.missing root={VOLUME}\n"
    (slurm.root / "etc/slurm/plugstack.conf").write_text(missing)
    refused(slurm, "--time=1", command=without_plugin(slurm))
    without_plugin(slurm, missing)
    shutil.copy(slurm.root / "etc/slurm/slurm.key", slurm.root / "tmp/own")
    # Not in /run of the one that runs: it would take over its socket.
    run = (
        "mount -t tmpfs tmpfs /run; mkdir /run/slurm; exec timeout 30 slurmd -D -N worker -f "
        "/tmp/own/slurm.conf"
    )
    slurmd = ("unshare", "--mount", "sh", "-euc", run)
    start = slurm.run(*slurmd, user=0, check=False)
    assert start.returncode not in (0, 124), start
    assert "slurm_jail.so.missing" in start.stderr, start


@contextmanager
def moved(slurm: JailedSlurm, path: str) -> Iterator[None]:
    """Without this file or folder of the worker."""
    place = slurm.root / path.removeprefix("/")
    place.rename(f"{place}.moved")
    try:
        yield
    finally:
        if place.is_symlink():
            place.unlink()
        place.with_name(f"{place.name}.moved").rename(place)


def test_the_epilog_of_a_refused_task_does_not_run_on_the_root_of_the_worker(
    slurm: JailedSlurm,
) -> None:
    epilog = slurm.root / "tmp/epilog"
    epilog.write_text("#!/bin/sh\ncat /etc/os-release >/tmp/escaped\n")
    epilog.chmod(0o755)
    option = "--task-epilog=/tmp/epilog"
    slurm.run("srun", option, "true")
    escaped = slurm.root / "tmp/escaped"
    assert escaped.read_text() == "jail first\n"
    escaped.unlink()
    with moved(slurm, f"{VOLUME}/current"):
        assert "the jail isn't filled" in refused(slurm, option)
    assert not escaped.exists()


def test_the_number_of_a_batch_script_does_not_free_the_epilog_of_a_refused_task(
    slurm: JailedSlurm, tmp_path: Path
) -> None:
    """slurmctld lets the user's own srun choose the number of a step."""
    shutil.copy(jailed.forged(tmp_path / "forged"), slurm.root / "tmp")
    epilog, escaped = slurm.root / "tmp/forged-epilog", slurm.root / "tmp/forged-escaped"
    epilog.write_text("#!/bin/sh\ncat /etc/os-release >/tmp/forged-escaped\n")
    epilog.chmod(0o755)
    own = without_plugin(slurm, f"required {PLUGIN} root={VOLUME} allow=none\n")
    srun = ("env", "LD_PRELOAD=/tmp/forged.so", *own)
    step = ("--job-name=forged", "--task-epilog=/tmp/forged-epilog")
    slurm.run(*srun, *step, "true")
    assert escaped.read_text() == "jail first\n"
    assert ".batch request from" in slurm.log(), "the step had the number of a batch script"
    escaped.unlink()
    assert "--jail=none isn't allowed here" in refused(slurm, *step, "--jail=none", command=srun)
    assert not escaped.exists()


def test_a_batch_script_that_is_refused_does_not_run_and_its_output_has_the_reason(
    slurm: JailedSlurm,
) -> None:
    (slurm.root / "tmp/script").write_text("#!/bin/sh\necho ran\n")
    out = "/home/alice/refused"
    file = slurm.root / out.removeprefix("/")
    with moved(slurm, f"{VOLUME}/current"):
        slurm.run("sbatch", f"--output={out}", "/tmp/script")  # noqa: S108
        until(
            lambda: file.exists() and "the jail isn't filled" in file.read_text(),
            "the reason",
            300,
            slurm.log,
        )
    assert "ran" not in file.read_text()


FIRST = f"{VOLUME}/versions/first"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (VOLUME, "this worker has no jail"),
        (f"{VOLUME}/current", "the jail isn't filled"),
        (FIRST, "No such file"),
        (f"{FIRST}/complete", "this version isn't complete"),
        (f"{FIRST}/root", "No such file"),
    ],
)
def test_a_step_without_a_complete_jail_fails_with_the_reason(
    slurm: JailedSlurm, path: str, reason: str
) -> None:
    with moved(slurm, path):
        assert reason in refused(slurm)
    assert slurm.run("srun", *LOOK).stdout == "jail first\n"


@pytest.mark.parametrize(
    "path", [VOLUME, f"{VOLUME}/versions", FIRST, f"{FIRST}/root", f"{FIRST}/complete"]
)
def test_a_jail_that_others_can_change_is_refused(slurm: JailedSlurm, path: str) -> None:
    place = slurm.root / path.removeprefix("/")
    mode = place.stat().st_mode & 0o777
    for owner, wrong in ((0, mode | 0o002), (0, mode | 0o020), (jailed.USER, mode)):
        os.chown(place, owner, 0)
        place.chmod(wrong)
        try:
            assert "it must belong to root, and no one else may write to it" in refused(slurm)
        finally:
            os.chown(place, 0, 0)
            place.chmod(mode)


@pytest.mark.parametrize(
    "target",
    ["/etc", "../../../etc", "versions/..", "versions/first/../..", "versions", "versions/none"],
)
def test_a_link_that_names_no_version_is_refused(slurm: JailedSlurm, target: str) -> None:
    slurm.switch(target)
    assert "doesn't name a version" in refused(slurm)


@pytest.mark.parametrize(
    "path", [VOLUME, f"{VOLUME}/versions", FIRST, f"{FIRST}/root", f"{FIRST}/complete"]
)
def test_a_symbolic_link_in_the_place_of_a_folder_is_refused(slurm: JailedSlurm, path: str) -> None:
    with moved(slurm, path):
        (slurm.root / path.removeprefix("/")).symlink_to(f"{path}.moved")
        error = refused(slurm)
        assert "isn't a folder" in error or "isn't a file" in error or "Not a directory" in error


@pytest.mark.parametrize("path", ["/home", "/etc/passwd", "/etc"])
def test_a_mount_through_a_symbolic_link_of_the_jail_is_refused(
    slurm: JailedSlurm, path: str
) -> None:
    with moved(slurm, f"{FIRST}/root{path}"):
        (slurm.root / f"{FIRST}/root{path}".removeprefix("/")).symlink_to("/tmp")  # noqa: S108
        refused(slurm)
    assert slurm.run("srun", *LOOK).stdout == "jail first\n"
