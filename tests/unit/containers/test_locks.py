"""What becomes of a failed attempt, for the tasks that wait for it and for later ones, and volumes
without locks.
"""

import errno
import fcntl
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sidecars.containers import locks
from sidecars.containers.cache import Cache, Unpacked
from sidecars.containers.errors import ContainerError
from sidecars.containers.locks import Attempt
from tests.cluster.waiting import until
from tests.unit.containers.test_cache import FIRST, REPOSITORY, UNLIMITED, image, images, never, use


class Waiters:
    """The threads that have found a lock taken, as of `locks.flock`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._found: set[int] = set()
        self._flock = locks.flock
        monkeypatch.setattr(locks, "flock", self._count)

    def await_number(self, number: int) -> None:
        until(lambda: len(self._found) >= number, f"{number} tasks to wait", 60)

    def _count(self, lock: int, operation: int, place: Path) -> bool:
        free = self._flock(lock, operation, place)
        if not free:
            self._found.add(threading.get_ident())
        return free


@pytest.fixture
def waiters(monkeypatch: pytest.MonkeyPatch) -> Waiters:
    return Waiters(monkeypatch)


class Refusing:
    """An import that fails when so many tasks wait for it, each time with another text."""

    def __init__(self, waiters: Waiters) -> None:
        self.waiters = waiters
        self.awaited = 0
        self.attempts = 0

    def fetch(self, root: Path) -> dict[str, Any]:
        (root / "half").write_bytes(b"x" * 100_000)
        raise ContainerError(self.resolve())

    def resolve(self) -> str:
        self.attempts += 1
        self.waiters.await_number(self.awaited)
        raise ContainerError(f"the registry went away {self.attempts}")


@pytest.fixture
def refusing(waiters: Waiters) -> Refusing:
    return Refusing(waiters)


def errors(tasks: int, task: Callable[[int], object]) -> list[str]:
    """The error of each of so many tasks that run at the same time."""
    barrier = threading.Barrier(tasks)

    def run(number: int) -> str:
        barrier.wait(60)
        with pytest.raises(ContainerError) as caught:
            task(number)
        return str(caught.value)

    with ThreadPoolExecutor(tasks) as executor:
        return list(executor.map(run, range(tasks)))


def test_tasks_that_wait_for_an_import_fail_with_it_and_a_later_one_begins_again(
    tmp_path: Path, refusing: Refusing
) -> None:
    caches = [Cache(tmp_path, UNLIMITED, 60) for _ in range(32)]
    refusing.awaited = 31
    found = errors(32, lambda number: caches[number].get(FIRST, refusing.fetch))
    assert (set(found), refusing.attempts) == ({"the registry went away 1"}, 1)
    assert images(tmp_path) == set()
    assert errors(1, lambda _: caches[0].get(FIRST, refusing.fetch)) == ["the registry went away 2"]
    use(caches[0], FIRST)


def test_tasks_that_wait_for_the_digest_of_a_tag_fail_with_it_and_a_later_one_asks_again(
    tmp_path: Path, refusing: Refusing
) -> None:
    caches = [Cache(tmp_path, UNLIMITED, 60) for _ in range(32)]
    refusing.awaited = 31
    found = errors(32, lambda number: caches[number].digest("x:1", 60, refusing.resolve))
    assert (set(found), refusing.attempts) == ({"the registry went away 1"}, 1)
    assert errors(1, lambda _: caches[0].digest("x:1", 60, refusing.resolve)) == [
        "the registry went away 2"
    ]
    assert caches[0].digest("x:1", 60, lambda: FIRST) == FIRST


def test_a_task_that_starts_late_fails_with_those_of_its_step_and_another_step_begins_again(
    tmp_path: Path, refusing: Refusing
) -> None:
    def cache(step: str) -> Cache:
        return Cache(tmp_path, UNLIMITED, 60, attempt=Attempt(step, "password 1"))

    for _ in range(3):
        assert errors(1, lambda _: cache("7.0").get(FIRST, refusing.fetch)) == [
            "the registry went away 1"
        ]
    assert errors(1, lambda _: cache("7.1").get(FIRST, refusing.fetch)) == [
        "the registry went away 2"
    ]
    use(cache("7.2"), FIRST)
    use(cache("7.1"), FIRST)


def test_a_job_with_another_password_does_not_fail_with_one_that_is_refused(
    tmp_path: Path, refusing: Refusing
) -> None:
    wrong = Cache(tmp_path, UNLIMITED, 60, attempt=Attempt("7.0", "password 1"))
    right = Cache(tmp_path, UNLIMITED, 60, attempt=Attempt("8.0", "password 2"))
    refusing.awaited = 1
    with ThreadPoolExecutor(1) as executor:
        first = executor.submit(wrong.get, FIRST, refusing.fetch)
        until(lambda: refusing.attempts == 1, "the first task to import", 60)
        use(right, FIRST)
        with pytest.raises(ContainerError, match="the registry went away 1"):
            first.result()


def test_a_job_that_names_an_image_does_not_fail_with_one_whose_container_has_none(
    tmp_path: Path, refusing: Refusing
) -> None:
    cache = Cache(tmp_path, UNLIMITED, 60, attempt=Attempt("7.0"))
    other = Cache(tmp_path, UNLIMITED, 60, attempt=Attempt("8.0"))
    refusing.awaited = 1

    def none() -> Unpacked:
        raise ContainerError(refusing.resolve())

    with ThreadPoolExecutor(1) as executor:
        first = executor.submit(cache.container, "own", none)
        until(lambda: refusing.attempts == 1, "the first task to import", 60)
        os.close(other.container("own", lambda: other.get(FIRST, image())).lock)
        with pytest.raises(ContainerError, match="the registry went away 1"):
            first.result()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_volume_without_locks_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(lock: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    cache = Cache(tmp_path, UNLIMITED, 5)
    monkeypatch.setattr(fcntl, "flock", refused)
    for call in (lambda: cache.get(FIRST, never), lambda: cache.digest("x:1", 60, lambda: FIRST)):
        with pytest.raises(
            ContainerError, match=f"^{tmp_path}/.*: the file system has no locks .*flock"
        ):
            call()


def test_a_full_volume_fails_all_tasks_at_once_and_is_as_before(tmp_path: Path) -> None:
    script = (
        "import os; from pathlib import Path; from sidecars.containers.cache import Cache, Limits\n"
        "from sidecars.containers.errors import ContainerError\n"
        "tried = []\n"
        "def fetch(root):\n"
        "    tried.append(1); (root / 'half').write_bytes(b'x' * (1 << 21)); return {}\n"
        "from sidecars.containers.locks import Attempt\n"
        "for number in range(4):\n"
        "    cache = Cache(Path.cwd(), Limits(0, 0), 5, attempt=Attempt('7.0'))\n"
        f"    try: cache.get({FIRST!r}, fetch)\n"
        "    except ContainerError as error: print(error)\n"
        "print(len(tried), os.listdir(f'{os.geteuid()}/images'), os.statvfs('.').f_bfree > 200)\n"
    )
    mounted = 'mount -t tmpfs -o size=1m,mode=1777 tmpfs "$0" && cd "$0" && exec "$@"'
    unshare = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, tmp_path)
    done = subprocess.run(
        [*unshare, sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    *found, last = done.stdout.splitlines()
    assert (done.stderr, last) == ("", "1 [] True")
    assert len(found) == 4
    assert re.fullmatch(
        r"image cache: .*: No space left on device: an administrator must .*", found[0]
    )
    assert set(found) == {found[0]}
