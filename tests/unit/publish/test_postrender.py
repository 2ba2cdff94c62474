"""The folder of the post-renderer: one for both Helms, which needs python3 alone."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from release import postrender, versions
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).parents[3]
STREAM = """\
apiVersion: slinky.slurm.net/v1beta1
kind: Controller
metadata: {name: slurm}
spec:
  slurmKeyRef: {name: k, key: a}
  jwtKeyRef: {name: k, key: b}
  slurmctld: {image: "a/slurmctld:26.05"}
---
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: worker}
spec: {controllerRef: {name: slurm}, replicas: 1}
"""
CONFIG = """\
steps:
- check: {severity: {invalid-resource: error}}
- labels: {set: {team: "on"}, select: [{where: "spec.replicas == `1`"}], required: true}
- patch: {strategic: {spec: {slurmd: {env: [{name: A, value: "1"}]}}}, select: [{kind: NodeSet}]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("postrender")
    return postrender.folder(ROOT, target, postrender.installed(target / "packages"))


def run(folder: Path, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The executable, with the Python of these tests as python3 and an environment without Python's
    variables.
    """
    (tmp_path / "bin").mkdir(exist_ok=True)
    if not (tmp_path / "bin" / "python3").exists():
        (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    env = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    words = [str(folder / postrender.NAME), *arguments]
    return subprocess.run(
        words, input=STREAM, env=env, capture_output=True, text=True, check=False, timeout=60
    )


def test_it_runs_every_step_from_its_folder_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    done = run(folder, tmp_path, str(tmp_path / "c.yaml"), "--namespace=slurm")
    assert done.stderr == ""
    controller, nodeset = yaml.safe_load_all(done.stdout)
    assert controller == next(yaml.safe_load_all(STREAM))
    assert nodeset["metadata"]["labels"] == {"team": "on"}
    assert nodeset["spec"]["slurmd"] == {"env": [{"name": "A", "value": "1"}]}


def test_it_contains_no_part_that_runs_in_the_cluster(folder: Path) -> None:
    found = {path.name for path in (folder / "lib" / "sidecars").iterdir() if path.is_dir()} - {
        "__pycache__"
    }
    assert found == set(postrender.PACKAGES)


def test_the_plugin_has_the_release_version_and_only_keys_that_helm_4_knows(folder: Path) -> None:
    plugin = yaml.safe_load((folder / "plugin.yaml").read_text())
    assert plugin == {
        "apiVersion": "v1",
        "type": "postrenderer/v1",
        "name": "slurm-postrender",
        "version": versions.version(ROOT),
        "runtime": "subprocess",
        "sourceURL": plugin["sourceURL"],
        "runtimeConfig": {"platformCommand": [{"command": "${HELM_PLUGIN_DIR}/slurm-postrender"}]},
    }


def test_an_old_python_is_named(folder: Path) -> None:
    text = (folder / "lib" / "run.py").read_text()
    received = text.replace("sys.version_info < (3, 11)", "sys.version_info < (99, 0)")
    done = subprocess.run(
        [sys.executable, "-c", received], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("slurm-postrender: needs Python 3.11 or newer as python3, not 3.")


def test_the_archive_of_one_folder_has_always_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = postrender.archive(folder, tmp_path)
    content = first.read_bytes()
    (folder / "plugin.yaml").touch()
    assert postrender.archive(folder, tmp_path).read_bytes() == content
    with tarfile.open(first) as packed:
        program = packed.getmember("slurm-postrender/slurm-postrender")
        assert (program.mode, program.uid, program.uname) == (0o755, 0, "")
    assert first.name == f"slurm-postrender-{versions.version(ROOT)}.tgz"


def test_the_lock_of_the_folder_is_that_of_the_repository() -> None:
    text = "".join(postrender.requirements(ROOT))
    names = [line.partition("==")[0] for line in text.splitlines() if "==" in line]
    assert names == ["jmespath", "pyyaml", "msgspec"]
    assert sorted(names) == sorted(postrender.LOCKED)
    assert text.count("--hash=sha256:") > 50


def test_packages_of_two_platforms_that_differ_in_one_file_are_refused(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(text)
        (tmp_path / name / "RECORD").write_text(text)
    postrender.merge(tmp_path / "a", tmp_path / "all")
    postrender.merge(tmp_path / "a", tmp_path / "all")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["module.py"]
    with pytest.raises(ClusterError, match=r"module\.py: differs between platforms"):
        postrender.merge(tmp_path / "b", tmp_path / "all")
