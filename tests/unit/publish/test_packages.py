"""The packages of a commit are the same whenever they are created."""

import io
import tarfile
from pathlib import Path

import pytest

from release import packages, versions
from tests.cluster.commands import run

FILES = {
    "slurm/Chart.yaml": b"name: slurm\n",
    "slurm/values.yaml": b"{}\n",
    "slurm/" + "n" * 90 + "/a.yaml": b"a: 1\n",
}
COMMITTED = 1_700_000_000


def package(path: Path, created: float) -> Path:
    """A package as Helm creates it at that time."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in FILES.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), created  # PAX has fractions of seconds
            archive.addfile(member, io.BytesIO(data))
    return path


def test_packages_that_were_created_at_different_times_become_the_same(tmp_path: Path) -> None:
    first, second = (
        package(tmp_path / "a.tgz", 1_750_000_000.25),
        package(tmp_path / "b.tgz", 1_760_000_000.5),
    )
    assert first.read_bytes() != second.read_bytes()
    for path in (first, second):
        packages.set_times(path, COMMITTED)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mtime == second.stat().st_mtime == COMMITTED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "b.tgz"]


def test_a_package_keeps_its_files_in_their_order_with_the_time_of_the_commit(
    tmp_path: Path,
) -> None:
    path = package(tmp_path / "a.tgz", 1_750_000_000.25)
    packages.set_times(path, COMMITTED)
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        files = [archive.extractfile(member) for member in members]
        found = {
            member.name: file.read()
            for member, file in zip(members, files, strict=True)
            if file is not None
        }
    assert list(found.items()) == list(FILES.items())
    assert {member.mtime for member in members} == {COMMITTED}


def test_the_time_is_that_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", f"{COMMITTED} +0200")
    run(["git", "init", "--quiet"], cwd=tmp_path)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    run(["git", *who, "commit", "--quiet", "--allow-empty", "--message=a"], cwd=tmp_path)
    assert versions.committed(tmp_path) == COMMITTED
