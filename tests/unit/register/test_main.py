"""The role `register` as a whole: the files that it writes for slurmd, and how long it waits for
`node`.
"""

import stat
from pathlib import Path

import pytest

from sidecars.contract.shape import Shape, decode
from sidecars.register.gpus import Device, Found
from sidecars.register.main import RECORD_WAIT, main
from sidecars.register.registration import Host


class Time:
    """Virtual time; `at` a moment, `record` is written as `node` would."""

    def __init__(self, record: Path, at: float) -> None:
        self.now = 0.0
        self._record = record
        self._at = at

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._at:
            self._record.write_text("none before\n")


class Devices:
    """A vendor that found so many GPUs."""

    def __init__(self, count: int) -> None:
        self._count = count

    def find(self) -> Found:
        return Found((Device("NVIDIA L4"),) * self._count, "NVML")


def register(
    folder: Path, *, record_at: float = 0.1, gpus: int = 8, **variables: str
) -> tuple[int, float]:
    """Run the role over the folder; its exit status and the seconds it took."""
    environment = {
        "SLURM_NODE_DIR": str(folder),
        "POD_IP": "10.0.0.9",
        "POD_UID": "uid-1",
        "KUBE_NODE_NAME": "kube-1",
        **variables,
    }
    (folder / "log").mkdir(exist_ok=True)
    time = Time(folder / "record", record_at)
    status = main(
        (),
        environment=environment,
        host=lambda: Host(4, 1, 8000),
        vendor=lambda name: Devices(gpus),
        clock=time.clock,
        sleep=time.sleep,
    )
    return status, time.now


def test_slurmd_finds_its_registration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, seconds = register(tmp_path, NODESET_CONF="Weight=10", REGISTER_CPUS="1")
    assert status == 0
    assert seconds < 0.2
    assert (
        tmp_path / "conf"
    ).read_text() == "NodeAddr=10.0.0.9 CoreSpecCount=3 MemSpecLimit=1000 Weight=10"
    assert (tmp_path / "extra").read_text() == '{"podUid":"uid-1"}'
    assert (tmp_path / "instance-id").read_text() == "kube-1"
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    assert "record in Slurm: none before" in output


def test_node_learns_what_slurmd_will_register(tmp_path: Path) -> None:
    register(tmp_path, gpus=7, REGISTER_GPUS="nvidia")
    assert decode((tmp_path / "shape").read_text()) == Shape(None, 8000, "gpu:nvidia_l4:7")


def test_a_node_that_reports_nothing_delays_slurmd_only_so_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, seconds = register(tmp_path, record_at=1000)
    assert status == 0
    assert seconds == pytest.approx(RECORD_WAIT, abs=0.1)
    assert "record in Slurm: unknown" in capsys.readouterr().out


def test_nothing_of_an_earlier_run_of_the_pod_is_left(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir(0o700)
    for name in ("hook/stop", "conf"):
        (tmp_path / name).write_text("old")
    register(tmp_path)
    files = {path.name for path in tmp_path.iterdir()} - {"log"}
    assert files == {"conf", "extra", "instance-id", "shape", "record", "hook"}
    assert (tmp_path / "conf").read_text() != "old"
    assert list((tmp_path / "hook").iterdir()) == []


def test_only_the_user_of_the_sidecars_and_root_can_enter_what_slurmd_can_write(
    tmp_path: Path,
) -> None:
    assert register(tmp_path)[0] == 0
    assert register(tmp_path)[0] == 0, "again, after the pod sandbox was created again"
    for name in ("hook", "log/slurmd"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["hook", "log/slurmd", "logs/slurmd"])
def test_slurmd_does_not_start_when_jobs_could_write_what_it_shares(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.mkdir(parents=True)
    path.chmod(0o1777)
    assert register(tmp_path)[0] == 1
    assert f"{path}: users other than its owner can enter it" in capsys.readouterr().err
    assert not (tmp_path / "conf").exists()


def test_the_folder_of_job_logs_is_private_and_exists_only_in_pods_with_them(
    tmp_path: Path,
) -> None:
    assert register(tmp_path)[0] == 0
    assert not (tmp_path / "logs").exists()
    (tmp_path / "logs").mkdir()
    assert register(tmp_path)[0] == 0
    assert (tmp_path / "logs" / "slurmd").stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_passed_on_stops_the_pod_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = register(tmp_path, NODESET_CONF='Comment="x')
    assert status == 1
    assert "Comment" in capsys.readouterr().err
    assert not (tmp_path / "conf").exists()


def test_a_folder_that_cannot_be_written_stops_the_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = register(tmp_path, SLURM_NODE_DIR=str(tmp_path / "missing"), record_at=1000)
    assert status == 1
    assert "missing" in capsys.readouterr().err


def test_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gpus"]) == 2
    assert "'--gpus'" in capsys.readouterr().err


def test_gpus_are_looked_for_where_the_nodeset_asks_for_them(tmp_path: Path) -> None:
    register(tmp_path)
    assert "Gres" not in (tmp_path / "conf").read_text()
    register(tmp_path, REGISTER_GPUS="nvidia", REGISTER_GPUS_EXPECTED="8")
    assert "Gres=gpu:nvidia_l4:8" in (tmp_path / "conf").read_text()


def test_a_gpu_that_is_missing_drains_or_refuses_as_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert register(tmp_path, gpus=7, REGISTER_GPUS="nvidia", REGISTER_GPUS_EXPECTED="8")[0] == 0
    assert 'State=DRAIN Reason="slurm-node: 7 of 8' in (tmp_path / "conf").read_text()
    (tmp_path / "conf").unlink()
    status, _ = register(
        tmp_path,
        gpus=7,
        REGISTER_GPUS="nvidia",
        REGISTER_GPUS_EXPECTED="8",
        REGISTER_GPUS_ON_MISMATCH="Refuse",
    )
    assert status == 1
    assert "7 of 8 expected GPUs" in capsys.readouterr().err
    assert not (tmp_path / "conf").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REGISTER_GPUS_EXPECTED", "eight"),
        ("REGISTER_GPUS_EXPECTED", "-1"),
        ("REGISTER_GPUS_ON_MISMATCH", "Ignore"),
        ("REGISTER_GPUS_TYPE", "a:b"),
    ],
)
def test_a_wrong_setting_of_gpus_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    environment = {"SLURM_NODE_DIR": str(tmp_path), "REGISTER_GPUS": "nvidia", name: value}
    assert main((), environment=environment, vendor=lambda _: Devices(8)) == 1
    assert name in capsys.readouterr().err


def test_an_unknown_vendor_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {
        "POD_IP": "10.0.0.9",
        "POD_UID": "u",
        "KUBE_NODE_NAME": "k",
        "REGISTER_GPUS": "acme",
    }
    assert main((), environment=environment) == 1
    assert "'acme'" in capsys.readouterr().err
