"""Locks of a user's folder in the cache, and attempts of one task for all that wait.

A file of an attempt is locked during it. Its content is why the last one failed, if it did.
"""

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from sidecars.containers.errors import ContainerError

T = TypeVar("T")

_PAUSE: Final = 0.1
"""Seconds between two attempts to get a lock."""

_NOTE: Final = 8192
"""Bytes of a file with the reason why an attempt failed."""

_NOTE_LETTERS: Final = 1200
"""Of the reason. JSON has up to 6 bytes for each."""

_NO_LOCKS: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What decides with which other tasks a task fails, when an import or the look-up of a tag
    fails.
    """

    step: str = ""
    """The job step of the task. All its tasks fail with the first one, however late they start. "":
    unknown.
    """

    credentials: str = ""
    """Their state. A task that waits for an attempt with the same ones fails with it."""


UNKNOWN: Final = Attempt()


class Locks:
    """The locks in `folder`."""

    def __init__(self, folder: Path, wait_seconds: float, attempt: Attempt) -> None:
        """`wait_seconds`: the longest time that another task's attempt may take."""
        self._folder = folder
        self._wait = wait_seconds
        self._attempt = attempt

    def open(self, name: str) -> int:
        """Return a file descriptor of the lock. It isn't locked yet."""
        try:
            return os.open(
                self._folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise failed(self._folder / name, error) from None

    def shared(self, name: str) -> int:
        """Return a file descriptor that has the lock together with others."""
        lock = self.open(name)
        try:
            flock(lock, fcntl.LOCK_SH, self._folder / name)
        except (ContainerError, OSError):
            os.close(lock)
            raise
        return lock

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Return whether no other task has the lock. If so, it is locked in the block."""
        lock = self.open(name)
        try:
            yield flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, self._folder / name)
        finally:
            os.close(lock)

    def once(
        self,
        name: str,
        what: str,
        known: Callable[[], T | None],
        attempt: Callable[[], T],
        *,
        jobs: bool = True,
    ) -> T:
        """Return the known value, or else what `attempt` returns. One task at a time attempts it,
        and others wait. The failure of an attempt is also that of tasks of its step, and with
        `jobs` of those that waited for it.
        """
        lock = self.open(name)
        try:
            before = _read_note(lock)
            self._wait_for(lock, name, what)
            if (found := known()) is not None:
                return found
            failure = _read_note(lock)
            same_step = self._attempt.step and failure.get("step") == self._attempt.step
            waited = (
                jobs
                and failure != before
                and failure.get("credentials") == self._attempt.credentials
            )
            if "error" in failure and (same_step or waited):
                raise ContainerError(failure["error"])
            try:
                # Now, because the disk may be full when the attempt has failed.
                _write_note(lock, {})
            except OSError as error:
                raise failed(self._folder / name, error) from None
            try:
                return attempt()
            except ContainerError as error:
                about = {"step": self._attempt.step, "credentials": self._attempt.credentials}
                # An identical failure of another attempt is another one.
                about |= {"id": secrets.token_hex(8), "error": str(error)[:_NOTE_LETTERS]}
                with suppress(OSError):
                    _write_note(lock, about)
                raise
        finally:
            os.close(lock)

    def _wait_for(self, lock: int, name: str, what: str) -> None:
        place = self._folder / name
        deadline = time.monotonic() + self._wait
        while not flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, place):
            if time.monotonic() >= deadline:
                raise ContainerError(
                    f"waited {self._wait:g} s for {what}, which has not ended: see which process "
                    f"has {place} open, or raise containers.importSeconds"
                )
            time.sleep(_PAUSE)


def flock(lock: int, operation: int, place: Path) -> bool:
    """flock(2) of the file `place`. False if it is locked, with LOCK_NB.

    Raises ContainerError if the file system has no locks, and OSError with the path for other
    errors.
    """
    try:
        fcntl.flock(lock, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(place)) from None
        raise ContainerError(
            f"{place}: the file system has no locks ({error.strerror}): an administrator must "
            "mount it with the option flock, or choose another volume"
        ) from None
    return True


def _read_note(lock: int) -> Mapping[str, str]:
    with suppress(OSError, ValueError):
        found = json.loads(os.pread(lock, _NOTE, 0))
        if isinstance(found, dict):
            return found
    return {}


def _write_note(lock: int, note: Mapping[str, str]) -> None:
    """Write a note, always of the same length, so that it needs no more space than the one
    before.
    """
    if os.pwrite(lock, json.dumps(note).encode().ljust(_NOTE), 0) < _NOTE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failed(place: Path, error: OSError) -> ContainerError:
    """Return the error of the cache's volume, with the remedy."""
    remedy = "enlarge" if error.errno in _FULL else "look at"
    reason = f"{place}: {error.strerror or error}"
    return ContainerError(
        f"image cache: {reason}: an administrator must {remedy} the volume of the image cache"
    )
