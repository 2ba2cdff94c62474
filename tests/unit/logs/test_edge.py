"""Opening files of hostile users, and reading what the prolog wrote, on a real file system."""

import fcntl
import itertools
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.logs.edge import RealFiles, Shelf, read_job
from sidecars.logs.records import NO_TASK, Job, Missing, Output, Refused, Source
from sidecars.slurm.external import GUARD_OUTPUT

ME = os.getuid()


def job(uid: int = ME) -> Job:
    return Job(id=7, uid=uid, gid=os.getgid(), user="ada", partition="all")


class Home:
    """A folder shared with slurmd, beside one that isn't."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "home"
        self.elsewhere = root / "elsewhere"
        self.inbox = root / "inbox"
        for folder in (self.folder, self.elsewhere, self.inbox):
            folder.mkdir()
        self.files = RealFiles(self.inbox, [str(self.folder)], writer=ME)

    def open(self, name: str = "out", uid: int = ME) -> Source | Missing | Refused:
        return self.files.open_output(job(uid), Output(os.fsencode(self.folder / name), "stdout"))

    def refusal(self, name: str = "out", uid: int = ME) -> str:
        found = self.open(name, uid)
        assert isinstance(found, Refused), found
        return found.why

    def write(self, name: str = "out", text: bytes = b"hello", mode: int = 0o644) -> Path:
        path = self.folder / name
        path.write_bytes(text)
        path.chmod(mode)
        return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_of_the_jobs_user_is_opened(home: Home) -> None:
    path = home.write()
    found = home.open()
    assert not isinstance(found, Missing | Refused)
    assert found.read(0, 100) == b"hello"
    assert found.read(3, 100) == b"lo"
    assert (found.size(), found.changed()) == (5, path.stat().st_mtime)
    assert found.identity() == (path.stat().st_dev, path.stat().st_ino)
    before = descriptors()
    found.close()
    assert descriptors() == before - 1


def test_no_descriptor_stays_open_for_a_file_that_is_not_read(home: Home) -> None:
    home.write(mode=0o600)
    before = descriptors()
    home.refusal()
    home.open("missing")
    assert descriptors() == before


def test_a_file_of_another_user_is_refused(home: Home) -> None:
    home.write()
    assert home.refusal(uid=ME + 1) == f"it belongs to the user {ME}, not {ME + 1}"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660])
def test_a_private_file_is_refused(home: Home, mode: int) -> None:
    home.write(mode=mode)
    assert f"private (mode {mode:04o})" in home.refusal()


def test_a_symbolic_link_is_refused_wherever_it_leads(home: Home) -> None:
    home.write("target")
    (home.folder / "out").symlink_to("target")
    assert home.refusal() == "it is a symbolic link"
    (home.folder / "etc").symlink_to("/etc/shadow")
    assert home.refusal("etc") == "it is a symbolic link"


def test_a_hard_link_is_refused(home: Home) -> None:
    (home.folder / "out").hardlink_to(home.write("target"))
    assert home.refusal() == "it has several names (hard links)"


def test_a_fifo_is_refused_and_its_writer_sees_no_reader(home: Home) -> None:
    os.mkfifo(home.folder / "out")
    (home.folder / "out").chmod(0o644)
    assert home.refusal() == "it isn't a regular file"
    with pytest.raises(OSError, match="No such device"):
        os.open(home.folder / "out", os.O_WRONLY | os.O_NONBLOCK)


def test_a_folder_is_refused(home: Home) -> None:
    (home.folder / "out").mkdir()
    assert home.refusal() == "it isn't a regular file"


def test_a_path_through_a_linked_folder_is_followed_within_the_volumes_only(home: Home) -> None:
    (home.folder / "real").mkdir()
    home.write("real/out")
    (home.folder / "inside").symlink_to("real")
    found = home.open("inside/out")
    assert not isinstance(found, Missing | Refused)
    found.close()
    (home.elsewhere / "out").write_bytes(b"secret")
    (home.folder / "outside").symlink_to(home.elsewhere)
    assert (
        home.refusal("outside/out") == "its path leads out of the volumes of the slurmd container"
    )


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "/home/ada/out", "/"])
def test_a_path_outside_of_the_volumes_is_refused(home: Home, path: str) -> None:
    found = home.files.open_output(job(), Output(path.encode(), "stdout"))
    assert found == Refused(
        "it isn't on a volume of the slurmd container that this container shares"
    )


def test_a_path_that_climbs_out_of_the_volumes_is_refused(home: Home) -> None:
    (home.elsewhere / "out").write_bytes(b"secret")
    assert "isn't on a volume" in home.refusal("../elsewhere/out")


def test_a_folder_whose_name_begins_like_a_volumes_is_another(home: Home) -> None:
    other = home.folder.with_name("home2")
    other.mkdir()
    (other / "out").write_bytes(b"")
    assert "isn't on a volume" in home.refusal("../home2/out")


@pytest.fixture
def lease_signal_ignored() -> Iterator[None]:
    """The holder of a lease gets SIGIO when someone else opens the file."""
    former = signal.signal(signal.SIGIO, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGIO, former)


@pytest.mark.usefixtures("lease_signal_ignored")
def test_a_lease_of_the_owner_delays_nothing(home: Home) -> None:
    path = home.write()
    with path.open("rb+") as blocked:
        fcntl.fcntl(blocked, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert isinstance(home.open(), Missing)
        fcntl.fcntl(blocked, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    found = home.open()
    assert not isinstance(found, Missing | Refused)
    found.close()


def test_a_file_that_is_replaced_by_another_users_meanwhile_stays_the_one_that_was_checked(
    home: Home,
) -> None:
    path = home.write()
    found = home.open()
    assert not isinstance(found, Missing | Refused)
    path.unlink()
    path.symlink_to("/etc/shadow")
    assert found.read(0, 100) == b"hello"
    found.close()


def test_a_folder_that_is_swapped_while_files_are_opened_never_leads_to_another_users_file(
    home: Home,
) -> None:
    """The user renames a folder of the path and a link to foreign files to and fro. All files are
    world-readable.
    """
    (home.folder / "run").mkdir()
    home.write("run/out", b"mine")
    (home.elsewhere / "out").write_bytes(b"secret")
    (home.folder / "link").symlink_to(home.elsewhere)
    run, link, free = (home.folder / name for name in ("run", "link", "free"))
    stop = threading.Event()

    def swap() -> None:
        steps = ((run, free), (link, run), (run, link), (free, run))
        # Each state lasts for a moment in its turn, however the two threads are scheduled.
        for paused in itertools.cycle(range(len(steps))):
            for number, (source, target) in enumerate(steps):
                source.rename(target)
                if number == paused and stop.wait(0.0001):
                    return

    seen: set[bytes | str] = set()
    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        deadline = time.monotonic() + 60
        opened = 0
        while (opened < 3000 or len(seen) < 3) and time.monotonic() < deadline:
            found = home.open("run/out")
            opened += 1
            if isinstance(found, Missing | Refused):
                seen.add(found.why if isinstance(found, Refused) else "")
                continue
            seen.add(found.read(0, 100))
            found.close()
    finally:
        stop.set()
        attacker.join()
    assert seen == {b"mine", "", "its path leads out of the volumes of the slurmd container"}


@pytest.mark.parametrize("target", ["/dev", "/proc/self"])
def test_a_linked_folder_gives_neither_devices_nor_files_of_processes(
    home: Home, target: str
) -> None:
    (home.folder / "link").symlink_to(target)
    for name in ("zero", "null", "environ", "fd/0", "mem"):
        assert isinstance(home.open(f"link/{name}", 0), Missing | Refused)
        assert isinstance(home.open(f"link/{name}"), Missing | Refused)


@pytest.mark.parametrize("mode", [stat.S_IFIFO, stat.S_IFSOCK])
def test_a_special_file_below_the_volume_is_refused_before_it_is_opened(
    home: Home, mode: int
) -> None:
    os.mknod(home.folder / "out", mode | 0o644)
    assert home.refusal() == "it isn't a regular file"


def test_a_name_that_is_not_utf_8_is_opened(home: Home) -> None:
    path = os.fsencode(home.folder) + b"/\xff.out"
    Path(os.fsdecode(path)).write_bytes(b"x")
    found = home.files.open_output(job(), Output(path, "stdout"))
    assert not isinstance(found, Missing | Refused)
    found.close()


def test_a_name_that_is_too_long_is_missing(home: Home) -> None:
    assert isinstance(home.open("x" * 300), Missing)


class Identity:
    """The user and group of a process, as the kernel lets it change them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.user, self.group, self.groups = 65532, 65532, list[int]()
        monkeypatch.setattr(os, "geteuid", lambda: self.user)
        monkeypatch.setattr(os, "getegid", lambda: self.group)
        monkeypatch.setattr(os, "getgroups", lambda: self.groups)
        monkeypatch.setattr(os, "seteuid", self._become)
        monkeypatch.setattr(os, "setegid", lambda group: self._change("group", group))
        monkeypatch.setattr(os, "setgroups", lambda groups: self._change("groups", groups))

    def _become(self, user: int) -> None:
        # The saved user is root. Another one can become root only.
        assert self.user == 0 or user == 0
        self.user = user

    def _change(self, name: str, value: object) -> None:
        assert self.user == 0
        setattr(self, name, value)

    @property
    def now(self) -> tuple[int, int, list[int]]:
        return self.user, self.group, self.groups


def test_a_private_file_is_opened_as_its_user_and_nothing_else_is(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(mode=0o600)
    files = RealFiles(home.inbox, [str(home.folder)], private=True, writer=ME)
    identity, opened = Identity(monkeypatch), list[tuple[int, int, list[int]]]()
    real = os.open

    def noting(path: str, flags: int) -> int:
        opened.append(identity.now)
        return real(path, flags)

    monkeypatch.setattr(os, "open", noting)
    found = files.open_output(job(), Output(os.fsencode(home.folder / "out"), "stdout"))
    assert not isinstance(found, Missing | Refused)
    assert opened == [(ME, os.getgid(), [os.getgid()])] * 2
    assert identity.now == (65532, 65532, [])
    assert found.read(0, 5) == b"hello"
    found.close()


def test_the_process_is_itself_again_after_an_error(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = Identity(monkeypatch)

    def fail(_path: str, _flags: int) -> int:
        assert identity.now == (1000, 1000, [1000])
        raise ValueError("embedded null byte")

    monkeypatch.setattr(os, "open", fail)
    files = RealFiles(home.inbox, [str(home.folder)], private=True)
    with pytest.raises(ValueError, match="null byte"):
        files.open_output(
            Job(7, 1000, 1000, "ada", "all"), Output(os.fsencode(home.folder / "out"), "stdout")
        )
    assert identity.now == (65532, 65532, [])


# ---- the shared folder
# ----------------------------------------------------------------------------------------------


def record(**items: str | bytes) -> bytes:
    wanted: dict[str, str | bytes] = {
        "job": "7",
        "uid": "1000",
        "gid": "1001",
        "user": "ada",
        "partition": "all",
    }
    wanted |= {"restarts": "0", "workDir": "/home/ada"} | items
    return b"".join(
        b"%s=%s\0" % (key.encode(), value if isinstance(value, bytes) else value.encode())
        for key, value in wanted.items()
    )


def test_a_record_is_a_job() -> None:
    found = read_job(record(stdout="slurm-%j.out", stderr="/logs/%u.err"), "w-0", 5.0)
    assert found == Job(
        id=7,
        uid=1000,
        gid=1001,
        user="ada",
        partition="all",
        outputs=(Output(b"/home/ada/slurm-7.out", "stdout"), Output(b"/logs/ada.err", "stderr")),
        began=5.0,
    )


def test_two_streams_in_one_file_are_one_output() -> None:
    found = read_job(record(stdout="all-%j", stderr="/home/ada/all-7"), "w-0", 0)
    assert found.outputs == (Output(b"/home/ada/all-7", "stdout"),)


def test_no_output_is_no_file() -> None:
    assert read_job(record(stdout="/dev/null", stderr=""), "w-0", 0).outputs == ()
    # The output of a guard of the Slurm Bridge.
    assert read_job(record(stdout=GUARD_OUTPUT, stderr="/dev/null"), "w-0", 0).outputs == ()


def test_a_task_of_an_array_has_the_file_that_slurmctld_named() -> None:
    found = read_job(record(stdout="%A_%a-%x", arrayJob="5", arrayTask="3", name="a b"), "w-0", 0)
    assert (found.array_job, found.array_task) == (5, 3)
    assert found.outputs[0].path == b"/home/ada/5_3-a b"


def test_a_job_that_is_no_array_has_the_numbers_that_slurmstepd_writes() -> None:
    found = read_job(record(stdout="%A_%a_%b", arrayJob="7", arrayTask="N/A", name="x"), "w-0", 0)
    assert (found.array_job, found.array_task) == (None, None)
    assert found.outputs[0].path == f"/home/ada/7_{NO_TASK}_4".encode()


def test_a_name_that_slurmctld_did_not_report_is_a_fault_and_the_other_file_is_read() -> None:
    found = read_job(record(stdout="%x.out", stderr="%j.err"), "w-0", 0)
    assert found.outputs == (Output(b"/home/ada/7.err", "stderr"),)
    assert (
        found.unknown
        == "the name of the file for stdout isn't known: Slurm did not answer which value %x has"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "incomplete"),
        (record()[:-1], "incomplete"),
        (record() + b"x\0", "isn't an item"),
        (record(uid="root"), "missing"),
        (record(uid="-1"), "missing"),
        (b"x=" + b"y" * 70_000 + b"\0", "too long"),
    ],
)
def test_a_record_that_is_none_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_job(data, "w-0", 0)


@given(
    st.dictionaries(
        st.sampled_from(["stdout", "stderr", "workDir", "name", "user", "restarts"]), st.binary()
    )
)
def test_whatever_a_user_chooses_gives_a_job_or_an_error(chosen: dict[str, bytes]) -> None:
    items = {key: value.replace(b"\0", b"") for key, value in chosen.items()}
    found = read_job(record(**items), "w-0", 0)
    assert (found.id, found.uid) == (7, 1000)
    assert all(output.path.startswith(b"/") for output in found.outputs)


def test_the_shared_folder_reports_jobs_ends_and_output(home: Home) -> None:
    (home.inbox / "7-0.job").write_bytes(record(stdout="out"))
    for name in ("7-0.end", "7-0.prolog", "health", ".8-0.new", "README", "x-0.job"):
        (home.inbox / name).touch()
    shelf = Shelf(home.files, "w-0")
    found = shelf.scan()
    assert [it.key for it in found.jobs] == ["7-0"]
    assert found.ended == ["7-0"]
    assert found.programs == [("7-0.prolog", "7-0", "prolog")]
    assert found.health
    assert found.faults == []
    assert shelf.scan().jobs == []
    (home.inbox / "new").write_bytes(record(stdout="other"))
    (home.inbox / "new").rename(home.inbox / "7-0.job")
    assert [it.outputs[0].path for it in shelf.scan().jobs] == [b"/home/ada/other"]


def test_a_record_that_root_did_not_write_is_not_used(home: Home) -> None:
    (home.inbox / "7-0.job").write_bytes(record())
    shelf = Shelf(RealFiles(home.inbox, [], writer=ME + 1), "w-0")
    assert shelf.scan().faults == [
        f"the record of job 7-0 is not used: it belongs to the user {ME}, not {ME + 1}"
    ]
    assert shelf.scan().faults == []


def test_a_record_under_another_jobs_name_is_not_used(home: Home) -> None:
    (home.inbox / "8-0.job").write_bytes(record())
    assert Shelf(home.files, "w-0").scan().faults == [
        "the record of job 8-0 can't be read: it is of job 7-0"
    ]


def test_a_file_of_the_shared_folder_is_removed_once(home: Home) -> None:
    (home.inbox / "7-0.end").touch()
    home.files.remove("7-0.end")
    home.files.remove("7-0.end")
    assert list(home.inbox.iterdir()) == []
