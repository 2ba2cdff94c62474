"""What slurmds ended of, as another process finds it."""

from pathlib import Path

import pytest

from sidecars.reconfigure import refusals
from sidecars.reconfigure.refusals import Refusal
from sidecars.slurm.diagnosis import Culprit

REFUSAL = Refusal("a" * 64, Culprit("slurmd ended", "slurm.conf", 3), ("w-0", "w-1"))


def test_it_is_found_until_it_is_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "good"
    assert refusals.read(folder) is None
    before = refusals.version(folder)
    refusals.write(folder, REFUSAL)
    assert refusals.read(folder) == REFUSAL
    assert refusals.version(folder) != before
    refusals.forget(folder)
    refusals.forget(folder)
    assert refusals.read(folder) is None
    assert refusals.version(folder) == before


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"sha256": 1}'])
def test_a_damaged_one_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / refusals.FILE).write_text(content)
    assert refusals.read(tmp_path) is None
