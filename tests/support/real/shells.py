"""Runs commands in a container in a shell that stays.

A `kubectl exec` starts two programs and a container's process, which takes much more of the host than `sinfo` does.
"""

import os
import selectors
import shlex
import subprocess
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Done:
    """What a command has printed, and its exit status."""

    status: int
    output: str
    errors: str


class GoneError(Exception):
    """The shell has ended before the command: its container, or the connection to it."""


@dataclass
class Shells:
    """Shells in one container. `start`: the command that starts one, such as `kubectl exec -i … -- sh`.

    Threads may run commands at the same time. Each has a shell of its own meanwhile.
    """

    start: Sequence[str]
    environment: dict[str, str]
    _free: list["_Shell"] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, words: Sequence[str], seconds: float) -> Done:
        """Run a command without standard input. Raises GoneError, and TimeoutExpired, which ends the shell."""
        shell = self._taken()
        try:
            done = shell.run(words, seconds)
        except BaseException:
            shell.end()
            raise
        with self._lock:
            self._free.append(shell)
        return done

    def close(self) -> None:
        """End the shells that no command uses."""
        with self._lock:
            free, self._free = self._free, []
        for shell in free:
            shell.end()

    def _taken(self) -> "_Shell":
        with self._lock:
            while self._free:
                shell = self._free.pop()
                if shell.process.poll() is None:
                    return shell
                shell.end()
        return _Shell(
            subprocess.Popen(
                self.start,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )


@dataclass
class _Shell:
    process: "subprocess.Popen[bytes]"

    def run(self, words: Sequence[str], seconds: float) -> Done:
        # Nothing that a command prints can be taken for the end of its output.
        end = uuid.uuid4().hex
        command = shlex.join(words)
        line = f"( exec {command} ) </dev/null; printf '%s %d.' {end} $?; printf '%s 0.' {end} >&2\n"
        into, output, errors = self.process.stdin, self.process.stdout, self.process.stderr
        assert into is not None
        assert output is not None
        assert errors is not None
        # If it fails, the shell has ended, and its output describes why.
        with suppress(OSError):
            into.write(line.encode())
            into.flush()
        deadline = time.monotonic() + seconds
        mark = f"{end} ".encode()
        read = {output.fileno(): b"", errors.fileno(): b""}
        with selectors.DefaultSelector() as selector:
            for descriptor in read:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    raise subprocess.TimeoutExpired(command, seconds, *read.values())
                for key, _ in ready:
                    part = os.read(key.fd, 65536)
                    read[key.fd] += part
                    if not part or (mark in read[key.fd] and read[key.fd].endswith(b".")):
                        selector.unregister(key.fd)
        (printed, found, status), (complaint, also, _) = (it.decode().partition(mark.decode()) for it in read.values())
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
