"""register waits for the topology that the operator stamps on the pod."""

from pathlib import Path

import pytest

from sidecars.register.annotations import WAIT, with_topology

LINES = (
    'kubectl.kubernetes.io/default-container="slurmd"\ntopology.slinky.slurm.net/spec='
    '"topo-switch:s2,block:b2"\n'
)


class Clock:
    """Time that passes by sleeping only; `then` happens at the first sleep."""

    def __init__(self, file: Path, then: str | None = None) -> None:
        self.now, self.file, self.then = 0.0, file, then

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.then is not None:
            self.file.write_text(self.then)


def test_a_stamp_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "annotations"
    file.write_text('a="b"\n')
    clock = Clock(file, LINES)
    assert with_topology({"A": "b"}, file, clock, clock.sleep) == {
        "A": "b",
        "SLINKY_TOPOLOGY": "topo-switch:s2,block:b2",
    }
    assert 0 < clock.now < 0.1


def test_without_an_operator_slurmd_starts_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "annotations"
    file.write_text("")
    clock = Clock(file)
    assert with_topology({"A": "b"}, file, clock, clock.sleep) == {"A": "b"}
    assert WAIT <= clock.now < WAIT + 0.1
    assert "within 3 s" in capsys.readouterr().out


def test_a_pod_made_without_the_file_keeps_what_its_environment_sets(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "nothing")
    kept = {"SLINKY_TOPOLOGY": "s1"}
    assert with_topology(kept, tmp_path / "nothing", clock, clock.sleep) == kept
    assert clock.now == 0
