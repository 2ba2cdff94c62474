"""Files in memory, for tests of the shipper."""

import json
from dataclasses import dataclass, field
from typing import Any

from sidecars.logs.records import Job, Missing, Output, Refused, Settings, Source
from sidecars.logs.shipper import Shipper

PATH = b"/home/ada/slurm-7.out"
JOB = Job(id=7, uid=1000, gid=1000, user="ada", partition="all", outputs=(Output(PATH, "stdout"),))


@dataclass(slots=True)
class File:
    """A file, and a Source of it."""

    data: bytes = b""
    inode: int = 1
    modified: float = 100.0
    broken: bool = False
    open_count: int = 0

    def size(self) -> int:
        if self.broken:
            raise OSError("stale file handle")
        return len(self.data)

    def changed(self) -> float:
        return self.modified

    def identity(self) -> tuple[int, int]:
        return 1, self.inode

    def read(self, offset: int, count: int) -> bytes:
        if self.broken:
            raise OSError("stale file handle")
        return self.data[offset : offset + count]

    def close(self) -> None:
        self.open_count -= 1


SETTINGS = Settings("w-0", bytes_per_second=1 << 30, backlog_bytes=1 << 20)


@dataclass(slots=True)
class World:
    """A file system, a clock, and a shipper that prints."""

    settings: Settings = SETTINGS
    files: dict[bytes, File | Refused] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    now: float = 0.0
    printed: bytearray = field(default_factory=bytearray)
    largest: int = 0
    """Bytes that one step printed at most."""

    def open_output(self, _job: Job, output: Output) -> Source | Missing | Refused:
        return self._open(output.path)

    def open_program(self, name: str) -> Source | Missing | Refused:
        return self._open(name.encode())

    def remove(self, name: str) -> None:
        self.files.pop(name.encode(), None)
        self.removed.append(name)

    def _open(self, path: bytes) -> Source | Missing | Refused:
        found = self.files.get(path, Missing())
        if isinstance(found, File):
            found.open_count += 1
        return found

    def step(self, shipper: Shipper) -> float:
        data, pause = shipper.step(self.now, f"{self.now:.3f}")
        self.printed += data
        self.largest = max(self.largest, len(data))
        return pause

    def pass_time(self, shipper: Shipper, seconds: float) -> None:
        """Step as `logs` does, for so long."""
        end = self.now + seconds
        for _ in range(100_000):
            self.now += max(self.step(shipper), 0.001)
            if self.now >= end:
                return
        raise AssertionError("it never pauses")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.printed.splitlines()]

    def messages(self, stream: str = "stdout") -> list[str]:
        return [line["message"] for line in self.lines if line["stream"] == stream]

    def text(self, job: int = 7) -> str:
        """What was printed of a job's files, without lines about them."""
        about = ("droppedBytes", "truncated", "shipped")
        found = [
            line
            for line in self.lines
            if line.get("job") == job and not any(key in line for key in about)
        ]
        return "".join(line["message"] + ("" if line.get("more") else "\n") for line in found)
