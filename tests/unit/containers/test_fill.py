"""`slurm-jail-fill` as its Job calls it, with shell scripts instead of skopeo and umoci, and
with the real tar.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sidecars.containers import fill
from sidecars.containers.errors import ContainerError
from tests.cluster.waiting import until
from tests.unit.containers.test_registry import DIGEST, layout, program


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty one."""
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def options(volume: Path, *words: str) -> argparse.Namespace:
    return fill.parser().parse_args([f"--volume={volume}", "--keep=1", *words])


def tarball(volume: Path, name: str, *files: str) -> None:
    """A tar file on the volume with these files, which contain its name."""
    source = volume.parent / "file"
    source.write_text(name)
    (volume / name).parent.mkdir(exist_ok=True)
    with tarfile.open(volume / name, "w:gz") as archive:
        for file in files:
            archive.add(source, file)


def test_a_version_is_filled_from_a_tarball_and_jobs_see_it(volume: Path) -> None:
    tarball(volume, "incoming/one.tar.gz", "etc/os-release")
    fill.fill(options(volume, "--version=v1", "--tarball=incoming/one.tar.gz", "--mount=/home"))
    assert (volume / "current/root/etc/os-release").read_text() == "incoming/one.tar.gz"
    assert (volume / "current/root/home").is_dir()
    assert (volume / "current").readlink() == Path("versions/v1")


def test_jobs_go_back_to_a_version_that_exists_without_its_source(volume: Path) -> None:
    for name in ("v1", "v2", "v3"):
        tarball(volume, f"{name}.tar.gz", "etc/os-release")
        fill.fill(options(volume, f"--version={name}", f"--tarball={name}.tar.gz"))
    assert sorted(item.name for item in (volume / "versions").iterdir()) == ["v2", "v3"]
    (volume / "v2.tar.gz").unlink()
    fill.fill(options(volume, "--version=v2"))
    assert (volume / "current/root/etc/os-release").read_text() == "v2.tar.gz"
    with pytest.raises(ContainerError, match="isn't complete"):
        fill.fill(options(volume, "--version=v1"))
    assert (volume / "current").readlink() == Path("versions/v2")


def test_an_image_is_unpacked_with_its_owners(volume: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program(
        programs, "skopeo", f"case $2 in inspect) echo {DIGEST} ;; *) {layout(tmp_path)} ;; esac"
    )
    program(programs, "umoci", 'for last; do :; done; mkdir "$last" && echo hello >"$last/file"')
    words = (
        "--version=v1",
        "--image=registry.example:5000/team/box:1",
        "--auth-file=/run/auth/config.json",
    )
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    fill.fill(options(volume, *words), environment)
    assert (volume / "current/root/file").read_text() == "hello\n"
    asked = (tmp_path / "asked").read_text()
    assert "--authfile=/run/auth/config.json" in asked
    assert "--rootless" not in asked


def test_a_version_is_a_copy_of_a_claim_with_its_links_modes_and_times(
    volume: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    (folder / "bin").mkdir(parents=True)
    (folder / "lost+found").mkdir()
    (folder / "bin/tool").write_text("one file")
    (folder / "bin/tool").chmod(0o751)
    os.utime(folder / "bin/tool", (1, 1))
    (folder / "bin/same").hardlink_to(folder / "bin/tool")
    (folder / "out").symlink_to("/etc/shadow")
    words = (f"--folder={folder}", "--version=v1", "--claim=restored/root")
    fill.fill(options(volume, *words))
    root = volume / "versions/v1/root"
    tool = (root / "bin/tool").stat()
    assert (tool.st_mode & 0o777, tool.st_mtime, tool.st_ino) == (
        0o751,
        1,
        (root / "bin/same").stat().st_ino,
    )
    assert (root / "out").readlink() == Path("/etc/shadow")
    assert not (root / "lost+found").exists()
    assert (folder / "lost+found").is_dir()
    assert json.loads((volume / "versions/v1/complete").read_text()) == {
        "source": "claim restored/root",
        "digest": "",
    }
    (folder / "bin/tool").write_text("changed")
    fill.fill(options(volume, *words))
    assert (root / "bin/tool").read_text() == "one file"
    with pytest.raises(
        ContainerError, match="was filled from claim restored/root, and not from claim other"
    ):
        fill.fill(options(volume, f"--folder={folder}", "--version=v1", "--claim=other"))


def test_a_claim_that_is_empty_not_mounted_or_can_not_be_read_changes_nothing(
    volume: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, words = (
        tmp_path / "source",
        [f"--volume={volume}", "--keep=1", "--version=v1", "--claim=restored"],
    )
    assert fill.main([*words, f"--folder={folder}"]) == 1
    assert "mount claim restored here" in caplog.text
    folder.mkdir()
    assert fill.main([*words, f"--folder={folder}"]) == 1
    assert "claim restored is empty" in caplog.text
    programs = tmp_path / "bin"
    programs.mkdir()
    program(
        programs,
        "cp",
        "echo half >${*##* }/half; echo 'cp: error reading file: Input/output error' >&2; exit 1",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fill, "_PATH", f"{programs}:/usr/bin:/bin")
        assert fill.main([*words, f"--folder={folder}"]) == 1
    assert (
        "claim restored can't be copied: cp: error reading file: Input/output error" in caplog.text
    )
    assert list((volume / "versions").iterdir()) == []
    assert not (volume / "current").exists()


@pytest.mark.parametrize("name", ["missing.tar.gz", "../outside.tar.gz", "link.tar.gz", "versions"])
def test_a_tarball_that_is_not_on_the_volume_is_an_error(volume: Path, name: str) -> None:
    tarball(volume.parent, "outside.tar.gz", "file")
    (volume / "link.tar.gz").symlink_to("../outside.tar.gz")
    with pytest.raises(ContainerError, match="no such file on the volume"):
        fill.fill(options(volume, "--version=v1", f"--tarball={name}"))


def test_a_broken_tarball_and_a_hostile_one_change_nothing(
    volume: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (volume / "broken.tar.gz").write_text("no tar file")
    words = [f"--volume={volume}", "--keep=1", "--version=v1"]
    assert fill.main([*words, "--tarball=broken.tar.gz"]) == 1
    assert "broken.tar.gz can't be unpacked" in caplog.text
    tarball(volume, "hostile.tar.gz", "../../../escaped")
    assert fill.main([*words, "--tarball=hostile.tar.gz"]) == 1
    assert not list(volume.parent.rglob("escaped"))
    assert list((volume / "versions").iterdir()) == []
    assert not (volume / "current").exists()


def test_a_folder_is_no_image(volume: Path) -> None:
    with pytest.raises(ContainerError, match="isn't the name of an image"):
        fill.fill(options(volume, "--version=v1", "--image=/etc"))


def test_a_job_that_is_deleted_ends_at_once_and_leaves_nothing(
    volume: Path, tmp_path: Path
) -> None:
    tarball(volume, "one.tar.gz", "etc/os-release")
    programs, started = tmp_path / "bin", tmp_path / "started"
    programs.mkdir()
    program(programs, "tar", f"touch {started}; exec sleep 600")
    code = (
        "import sys; from sidecars.containers import fill; fill._PATH = sys.argv[1]; "
        "sys.exit(fill.main(sys.argv[2:]))"
    )
    words = (
        f"{programs}:/usr/bin:/bin",
        f"--volume={volume}",
        "--keep=1",
        "--version=v1",
        "--tarball=one.tar.gz",
    )
    with subprocess.Popen([sys.executable, "-c", code, *words]) as process:
        until(started.exists, "tar to run", 60)
        process.terminate()
        assert process.wait(60) == 143
    assert list((volume / "versions").iterdir()) == []
    assert not (volume / "current").exists()
