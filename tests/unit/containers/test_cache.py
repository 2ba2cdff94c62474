"""The cache of a user: one import, complete or absent, and what is deleted when."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sidecars.containers import cache as cache_module
from sidecars.containers.cache import Cache, Limits, Unpacked, complete, delete
from sidecars.containers.errors import ContainerError
from tests.unit.containers.test_registry import program

FIRST, SECOND, THIRD = ("sha256:" + letter * 64 for letter in "abc")
UNLIMITED = Limits(0, 0)
REPOSITORY = Path(__file__).parents[3]


class Clock:
    """Seconds since the epoch, as the test wants them."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def image(size: int = 0) -> Callable[[Path], dict[str, Any]]:
    """A `fetch` with one file of that many bytes."""

    def fetch(root: Path) -> dict[str, Any]:
        (root / "file").write_bytes(b"x" * size)
        return {"Env": ["A=1"]}

    return fetch


def never(root: Path) -> dict[str, Any]:
    pytest.fail(f"imported again into {root}")


def images(root: Path) -> set[str]:
    return {path.name[:1] for path in (root / str(os.geteuid()) / "images").iterdir()}


def use(cache: Cache, digest: str, size: int = 0) -> None:
    """Start and end a container."""
    os.close(cache.get(digest, image(size)).lock)


def test_an_image_is_imported_once_and_found_again(tmp_path: Path) -> None:
    first = Cache(tmp_path, UNLIMITED, 5).get(FIRST, image(3))
    again = Cache(tmp_path, UNLIMITED, 5).get(FIRST, never)
    assert first.root == again.root
    assert (again.root / "file").read_bytes() == b"xxx"
    assert again.config == {"Env": ["A=1"]}
    for unpacked in (first, again):
        os.close(unpacked.lock)


def test_tasks_that_ask_for_one_image_at_the_same_time_import_it_once(tmp_path: Path) -> None:
    imports: list[Path] = []
    barrier = threading.Barrier(8)

    def fetch(root: Path) -> dict[str, Any]:
        imports.append(root)
        return image()(root)

    def task(_: int) -> Path:
        cache = Cache(tmp_path, UNLIMITED, 60)
        barrier.wait(60)
        found = cache.get(FIRST, fetch)
        os.close(found.lock)
        return found.root

    with ThreadPoolExecutor(8) as executor:
        roots = set(executor.map(task, range(8)))
    assert len(imports) == 1
    assert len(roots) == 1


def test_a_failed_import_leaves_nothing_and_the_next_one_begins_again(tmp_path: Path) -> None:
    def fails(root: Path) -> dict[str, Any]:
        (root / "half").touch()
        raise ContainerError("the registry went away")

    cache = Cache(tmp_path, UNLIMITED, 5)
    with pytest.raises(ContainerError, match="the registry went away"):
        cache.get(FIRST, fails)
    assert images(tmp_path) == set()
    use(cache, FIRST)


def test_a_container_is_a_copy_of_its_image_that_is_made_once(tmp_path: Path) -> None:
    cache, copied = Cache(tmp_path, UNLIMITED, 60), []

    def make() -> Unpacked:
        copied.append(1)
        return cache.get(FIRST, image(3))

    with ThreadPoolExecutor(4) as executor:
        found = [
            each.result()
            for each in [executor.submit(cache.container, "own", make) for _ in range(4)]
        ]
    assert (len(copied), {each.root for each in found}) == (1, {found[0].root})
    (found[0].root / "file").write_text("changed")
    (found[0].root / "file").chmod(0)
    again = cache.container("own", None)
    assert (again.root / "file").read_text() == "changed"
    assert again.config == {"Env": ["A=1"]}
    assert (cache.get(FIRST, never).root / "file").read_bytes() == b"xxx"


def test_a_container_that_does_not_exist_needs_an_image_and_a_name_that_is_none_is_refused(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path, UNLIMITED, 60)
    with pytest.raises(
        ContainerError, match="no container of yours with the name own: add --container-image"
    ):
        cache.container("own", None)
    assert images(tmp_path) == set()
    for name in ("", "../x", "a.b", "x" * 64, "a:create"):
        with pytest.raises(ContainerError, match="use up to 63 letters, digits, - and _"):
            cache.container(name, None)


def test_an_image_that_can_not_be_copied_leaves_no_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, UNLIMITED, 60)
    unpacked = cache.get(FIRST, image(3))
    program(tmp_path, "unshare", "echo 'cp: error writing: No space left on device' >&2; exit 1")
    monkeypatch.setattr(cache_module, "_PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(
        ContainerError, match="can't be copied: cp: error writing: No space left on device"
    ):
        cache.container("own", lambda: Unpacked(unpacked.root, {}, os.dup(unpacked.lock)))
    assert images(tmp_path) == {"a"}


def test_a_full_disk_is_named_with_the_volume_and_leaves_nothing(tmp_path: Path) -> None:
    def full(root: Path) -> dict[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        ContainerError, match=r"^image cache: .*/images: No space left on device: an administrator"
    ):
        Cache(tmp_path, UNLIMITED, 5).get(FIRST, full)
    assert images(tmp_path) == set()


def test_an_import_that_was_killed_is_no_image_and_is_cleaned_up(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from sidecars.containers.cache import "
        "Cache, Limits\n"
        "def fetch(root):\n"
        "    (root / 'half').touch(); print('half', flush=True); time.sleep(60)\n"
        f"Cache(Path({str(tmp_path)!r}), Limits(0, 0), 5).get({FIRST!r}, fetch)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.kill()
    assert images(tmp_path) == {"."}
    cache = Cache(tmp_path, UNLIMITED, 5)
    found = cache.get(FIRST, image(2))
    assert sorted(path.name for path in found.root.iterdir()) == [
        "dev",
        "etc",
        "file",
        "proc",
        "sys",
        "tmp",
    ]
    assert images(tmp_path) == {"a"}
    os.close(found.lock)


def test_what_a_killed_import_of_another_image_left_is_cleaned_up_too(tmp_path: Path) -> None:
    cache = Cache(tmp_path, UNLIMITED, 5)
    (tmp_path / str(os.geteuid()) / f"images/.{SECOND[7:]}-{os.uname().machine}.x/rootfs").mkdir(
        parents=True
    )
    use(cache, FIRST)
    assert images(tmp_path) == {"a"}


def test_a_wait_for_an_import_ends_with_the_reason(tmp_path: Path) -> None:
    cache = Cache(tmp_path, UNLIMITED, 0.2)
    lock = tmp_path / str(os.geteuid()) / f"locks/{FIRST[7:]}-{os.uname().machine}.import"
    with lock.open("w") as blocked:
        fcntl.flock(blocked, fcntl.LOCK_EX)
        with pytest.raises(
            ContainerError, match=r"waited 0\.2 s for the import of the image by another task"
        ):
            cache.get(FIRST, never)


def test_an_image_that_is_in_use_is_never_deleted(tmp_path: Path) -> None:
    clock = Clock()
    cache = Cache(tmp_path, Limits(0, 60), 5, clock)
    running = cache.get(FIRST, image())
    clock.now += 61
    assert cache.collect() == []
    os.close(running.lock)
    assert cache.collect() == [f"{FIRST[7:]}-{os.uname().machine}"]
    assert images(tmp_path) == set()


def test_the_least_recently_used_images_are_deleted_when_there_are_too_many(tmp_path: Path) -> None:
    clock = Clock()
    cache = Cache(tmp_path, Limits(300_000, 0), 5, clock)
    for digest in (FIRST, SECOND, FIRST, THIRD):
        clock.now += 1
        use(cache, digest, 120_000)
    assert images(tmp_path) == {"a", "c"}


def test_a_container_counts_with_what_its_tasks_have_written(tmp_path: Path) -> None:
    clock = Clock()
    cache = Cache(tmp_path, Limits(300_000, 0), 60, clock)
    running = cache.container("own", lambda: cache.get(FIRST, image(1000)))
    clock.now += 1
    (running.root / "new").write_bytes(b"x" * 500_000)
    use(cache, SECOND)
    assert images(tmp_path) == {"b", "n"}
    os.close(running.lock)
    clock.now += 1
    use(cache, THIRD)
    assert images(tmp_path) == {"b", "c"}


def test_a_container_that_was_not_used_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Path] = []

    def size(root: Path) -> int:
        measured.append(root)
        return 1000

    clock = Clock()
    cache = Cache(tmp_path, Limits(300_000, 0), 60, clock)
    os.close(cache.container("own", lambda: cache.get(FIRST, image())).lock)
    monkeypatch.setattr(cache_module, "size", size)
    for _ in range(3):
        cache.collect()
    assert len(measured) == 1
    clock.now += 1
    running = cache.container("own", None)
    cache.collect()
    cache.collect()
    assert len(measured) == 3
    os.close(running.lock)
    for _ in range(3):
        cache.collect()
    assert len(measured) == 4


def test_an_image_larger_than_the_limit_is_used_and_deleted_by_the_next_import(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path, Limits(1000, 0), 5)
    use(cache, FIRST, 50_000)
    assert images(tmp_path) == {"a"}
    use(cache, SECOND, 50_000)
    assert images(tmp_path) == {"b"}


def test_a_tag_is_looked_up_by_one_task_and_again_after_its_time(tmp_path: Path) -> None:
    clock = Clock()
    cache = Cache(tmp_path, UNLIMITED, 5, clock)
    asked: list[str] = []

    def ask(digest: str) -> Callable[[], str]:
        def resolve() -> str:
            asked.append(digest)
            return digest

        return resolve

    assert cache.digest("x:1", 60, ask(FIRST)) == FIRST
    assert cache.digest("x:1", 60, ask(SECOND)) == FIRST
    assert cache.digest("x:2", 60, ask(THIRD)) == THIRD
    clock.now += 3600
    assert cache.digest("x:1", 60, ask(SECOND)) == SECOND
    assert asked == [FIRST, THIRD, SECOND]


def test_a_folder_that_another_user_has_prepared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(ContainerError, match=f"/{user} isn't a folder of your own"):
        Cache(tmp_path, UNLIMITED, 5)


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / str(os.geteuid())).mkdir()
    (tmp_path / str(os.geteuid())).chmod(0o755)
    with pytest.raises(ContainerError, match="that nobody else can read"):
        Cache(tmp_path, UNLIMITED, 5)


def test_a_volume_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ContainerError, match=r"^image cache: .*/none/\d+: No such file or directory"
    ):
        Cache(tmp_path / "none", UNLIMITED, 5)


def test_an_image_for_one_program_gets_what_the_runtime_mounts_over(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "rootfs"
    (root / "etc").mkdir(parents=True)
    (root / "etc/resolv.conf").symlink_to(outside / "resolv.conf")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    complete(root)
    assert sorted(path.name for path in root.iterdir()) == ["dev", "etc", "proc", "sys", "tmp"]
    assert (root / "etc/passwd").read_text() == "root:x:0:0::/:/bin/sh\n"
    assert (root / "etc/resolv.conf").read_text() == ""
    assert list(outside.iterdir()) == []


def test_an_image_whose_etc_leads_elsewhere_changes_nothing_there(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "rootfs"
    root.mkdir()
    (root / "etc").symlink_to(outside)
    complete(root)
    assert list(outside.iterdir()) == []


def test_folders_without_write_permission_are_deleted(tmp_path: Path) -> None:
    inner = tmp_path / "image/inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0o500)
    delete(tmp_path / "image")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_becomes_a_link_while_it_is_deleted_changes_nothing_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in an old version of the jail could have root change the mode of any folder of the
    new one.
    """
    folder, elsewhere = tmp_path / "deleted", tmp_path / "elsewhere"
    inner = folder / "inner"
    inner.mkdir(parents=True)
    elsewhere.mkdir(mode=0o755)
    scandir = os.scandir
    swapped: list[Path] = []

    def replaced(place: Any) -> Any:
        found = scandir(place)
        path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.fspath(place)  # noqa: PTH115
        if path == str(inner) and not swapped:
            swapped.append(inner.rename(folder / "aside"))
            inner.symlink_to(elsewhere)
        return found

    monkeypatch.setattr(os, "scandir", replaced)
    delete(folder)
    assert swapped
    assert elsewhere.stat().st_mode & 0o777 == 0o755
    assert not folder.exists()
