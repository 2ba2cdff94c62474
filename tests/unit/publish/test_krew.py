"""What krew installs."""

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

from release import krew
from sidecars.contract.project import HOME, VERSION
from sidecars.explain import plugin

LICENSE = Path(__file__).parents[3] / "LICENSE"


def test_the_program_of_the_archive_runs_and_the_licence_is_beside_it(tmp_path: Path) -> None:
    content = krew.archive(plugin.build(), LICENSE)
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        assert packed.getnames() == ["kubectl-slurm", "LICENSE"]
        assert packed.getmember("kubectl-slurm").mode == 0o755
        file = packed.extractfile("kubectl-slurm")
        assert file is not None
        program = tmp_path / "kubectl-slurm"
        program.write_bytes(file.read())
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"kubectl slurm {VERSION}\n"


def test_the_same_program_gives_the_same_archive() -> None:
    assert krew.archive(b"program", LICENSE) == krew.archive(b"program", LICENSE)


def test_the_manifest_names_the_archive_by_its_checksum_on_the_page_of_the_release() -> None:
    found = yaml.safe_load(krew.manifest("0.2.0", b"content"))
    assert (found["metadata"]["name"], found["spec"]["version"]) == ("slurm", "v0.2.0")
    [platform] = found["spec"]["platforms"]
    assert platform["uri"] == f"{HOME}/releases/download/v0.2.0/kubectl-slurm-0.2.0.tar.gz"
    assert platform["sha256"] == hashlib.sha256(b"content").hexdigest()
    assert platform["bin"] == "kubectl-slurm"
    [systems] = platform["selector"]["matchExpressions"]
    assert systems == {"key": "os", "operator": "In", "values": ["darwin", "linux"]}


def test_the_descriptions_are_short_enough_for_krew() -> None:
    spec = yaml.safe_load(krew.manifest("0.2.0", b""))["spec"]
    assert len(spec["shortDescription"]) <= 50
    assert "Python 3.11" in spec["caveats"]
