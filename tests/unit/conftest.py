"""Every test ends its processes."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

GRACE_SECONDS = 60.0
"""For processes that were asked to end."""


def processes_with(text: str) -> list[str]:
    """The command lines of the processes that contain a text."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
    return [line for line in found if text in line]


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One that has a file of a test in its command line would slow down all that run after it."""
    yield
    folder = f"{tmp_path_factory.getbasetemp()}/"
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := processes_with(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
