"""Runs commands in a container in a shell that stays.

A `kubectl exec` starts two programs and a container's process, which takes much more of the host
than `sinfo` does.
"""

import os
import select
import selectors
import shlex
import subprocess
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

_PROBE_SECONDS = 10
"""A shell that has run commands and does not answer within this time is replaced."""


@dataclass(frozen=True)
class Done:
    """What a command has printed, and its exit status."""

    status: int
    output: str
    errors: str


class GoneError(Exception):
    """The shell has ended before the command: its container, or the connection to it. The command
    may have run.
    """


class NotStartedError(Exception):
    """No shell has started, so that the command has not run. The text is the reason."""


@dataclass
class Shells:
    """Shells in one container. `start`: the command that starts one, such as `kubectl exec -i … --
    sh`.

    Threads may run commands at the same time. Each has a shell of its own meanwhile.
    """

    start: Sequence[str]
    environment: dict[str, str]
    _free: list["_Shell"] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _used: int = 0
    _begun: bool = False

    def run(self, words: Sequence[str], seconds: float, stdin: str = "") -> Done:
        """Run a command at most once.

        Raises NotStartedError and GoneError, and TimeoutExpired, which ends the shell.
        """
        with self._lock:
            self._used += 1
            self._begun = True
        try:
            deadline = time.monotonic() + seconds
            shell = self._answering(seconds)
            try:
                done = shell.run(_line(words, stdin), words, deadline - time.monotonic())
            except BaseException:
                shell.end()
                raise
            with self._lock:
                self._free.append(shell)
            return done
        finally:
            with self._lock:
                self._used -= 1

    def close(self) -> None:
        """End the shells that no command uses."""
        with self._lock:
            free, self._free = self._free, []
        for shell in free:
            shell.end()

    @property
    def gone(self) -> bool:
        """Whether shells have run, and none does."""
        with self._lock:
            return (
                self._begun
                and not self._used
                and all(shell.process.poll() is not None for shell in self._free)
            )

    def _answering(self, seconds: float) -> "_Shell":
        """A shell that has just answered. A command that is given to it runs, unless its container
        ends that moment.

        So a command that has to run once is never given to a shell whose end has not been noticed
        yet.
        """
        while (kept := self._kept()) is not None:
            try:
                kept.run(":", (":",), min(seconds, _PROBE_SECONDS))
            except (GoneError, subprocess.TimeoutExpired):
                kept.end()
            except BaseException:
                kept.end()
                raise
            else:
                return kept
        pipe = subprocess.PIPE
        fresh = _Shell(
            subprocess.Popen(self.start, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe)
        )
        try:
            fresh.run(":", (":",), seconds)
        except GoneError as error:
            fresh.end()
            raise NotStartedError(str(error)) from error
        except BaseException:
            fresh.end()
            raise
        return fresh

    def _kept(self) -> "_Shell | None":
        with self._lock:
            return self._free.pop() if self._free else None


def _line(words: Sequence[str], stdin: str) -> str:
    command = f"( exec {shlex.join(words)} )"
    # `printf` is a part of the shell, so that no limit applies to what it is given.
    return f"printf %s {shlex.quote(stdin)} | {command}" if stdin else f"{command} </dev/null"


@dataclass
class _Shell:
    process: "subprocess.Popen[bytes]"

    def run(self, line: str, words: Sequence[str], seconds: float) -> Done:
        # Nothing that a command prints can be taken for the end of its output.
        end = uuid.uuid4().hex
        script = f"{line}; printf '%s %d.' {end} $?; printf '%s 0.' {end} >&2\n"
        into, output, errors = self.process.stdin, self.process.stdout, self.process.stderr
        assert into is not None
        assert output is not None
        assert errors is not None
        deadline = time.monotonic() + seconds
        rest, mark = script.encode(), f"{end} ".encode()
        read = {output.fileno(): bytearray(), errors.fileno(): bytearray()}
        with selectors.DefaultSelector() as selector:
            for descriptor in read:
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(into, selectors.EVENT_WRITE)
            while not read.keys().isdisjoint(selector.get_map()):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    raise subprocess.TimeoutExpired(
                        shlex.join(words), seconds, *map(bytes, read.values())
                    )
                for key, _ in ready:
                    if key.fd not in read:
                        rest = _written(key.fd, rest)
                        if not rest:
                            selector.unregister(into)
                        continue
                    part = os.read(key.fd, 65536)
                    read[key.fd] += part
                    if not part or (
                        read[key.fd].endswith(b".") and mark in read[key.fd][-2 * len(mark) :]
                    ):
                        selector.unregister(key.fd)
        (printed, found, status), (complaint, also, _) = (
            it.decode().partition(mark.decode()) for it in read.values()
        )
        if not found or not also:
            raise GoneError(printed + complaint)
        return Done(int(status.rstrip(".")), printed, complaint)

    def end(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self.process.wait()


def _written(descriptor: int, text: bytes) -> bytes:
    """What is left of the text after a pipe that takes some has taken it."""
    try:
        # A pipe that is ready takes as much without blocking.
        return text[os.write(descriptor, text[: select.PIPE_BUF]) :]
    except OSError:
        # The shell has ended, and its output describes why.
        return b""
