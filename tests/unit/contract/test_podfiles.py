"""The files that the containers of a worker pod share: `sidecars.contract.podfiles`."""

import stat
from pathlib import Path

import pytest

from sidecars.contract import podfiles


def test_the_folder_is_the_one_of_the_environment_or_the_usual_one() -> None:
    assert podfiles.folder({"SLURM_NODE_DIR": "/tmp/a"}) == Path("/tmp/a")  # noqa: S108
    assert podfiles.folder({"SLURM_NODE_DIR": ""}) == podfiles.folder({}) == Path("/run/slurm-node")


def test_a_private_folder_is_only_its_owners(tmp_path: Path) -> None:
    path = tmp_path / podfiles.HOOK
    podfiles.create_private(path)
    podfiles.create_private(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.chmod(0o710)
    with pytest.raises(PermissionError, match="delete the pod"):
        podfiles.create_private(path)


def test_a_file_is_replaced_whole_and_readable_by_every_user_of_the_pod(tmp_path: Path) -> None:
    path = tmp_path / podfiles.CONF
    podfiles.write(path, "old")
    with path.open() as reader:
        podfiles.write(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [it.name for it in tmp_path.iterdir()] == [podfiles.CONF]
