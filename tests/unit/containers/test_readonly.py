"""Read-only mounts: what is changed, and what a process can then write."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sidecars.containers.errors import ContainerError
from sidecars.containers.mounts import Mount
from sidecars.containers.readonly import changes

WRITE = """
import sys
from pathlib import Path
from sidecars.containers.readonly import apply

sources, files = sys.argv[1].split(), sys.argv[2:]
apply([(path.rstrip("!"), not path.endswith("!")) for path in sources])
for file in files:
    try:
        Path(file).write_text("x")
        print("written")
    except OSError as error:
        print(error.strerror)
"""


def written(sources: Sequence[str], *files: Path) -> list[str]:
    """What writing each file gives in the namespaces. A source that ends in `!` is writable."""
    words = [sys.executable, "-c", WRITE, " ".join(sources), *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def test_without_read_only_mounts_nothing_changes() -> None:
    assert changes([Mount("/a", "/a"), Mount("/a/b", "/c")]) == ()


def test_a_writable_mount_below_a_read_only_one_is_changed_back() -> None:
    mounts = [
        Mount("/data/out", "/out"),
        Mount("/data", "/data", read_only=True),
        Mount("/data-2", "/x"),
    ]
    assert changes(mounts) == (("/data", True), ("/data/out", False))


def test_a_read_only_mount_below_a_writable_one_changes_that_part_alone() -> None:
    mounts = [Mount("/home", "/home"), Mount("/home/alice/data", "/data", read_only=True)]
    assert changes(mounts) == (("/home/alice/data", True),)


def test_a_source_that_is_mounted_in_both_ways_is_refused() -> None:
    mounts = [Mount("/data", "/a", read_only=True), Mount("/data", "/b")]
    with pytest.raises(ContainerError, match="/data: it is mounted both read-only and writable"):
        changes(mounts)


def test_a_read_only_source_can_not_be_written_and_what_is_beside_and_writable_below_can(
    tmp_path: Path,
) -> None:
    for name in ("data/out", "data/in", "other"):
        (tmp_path / name).mkdir(parents=True)
    data = tmp_path / "data"
    results = written(
        [str(data), f"{data}/out!"], data / "a", data / "in/a", data / "out/a", tmp_path / "other/a"
    )
    assert results == ["Read-only file system", "Read-only file system", "written", "written"]
    assert not (data / "a").exists()
    assert (data / "out/a").read_text() == "x"


def test_a_single_file_can_be_read_only(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    assert written([str(file)], file) == ["Read-only file system"]
    assert file.read_text() == "before"
