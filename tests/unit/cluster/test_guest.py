"""The node with a kernel of its own: what its first process runs, and how the kernel is chosen."""

import shutil
import string
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests.cluster import guest, kernel
from tests.cluster.addresses import Plan
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.images import IMAGES, plan

CONFINED = """\
CPUs: 1
exit code: 137
oom_kill 1
group removed
reboot: Power down
"""


def test_a_boot_counts_only_if_the_job_was_confined_in_every_way() -> None:
    assert guest.unconfined(CONFINED) == ""
    for line in CONFINED.splitlines()[:4]:
        assert line in guest.unconfined(CONFINED.replace(f"{line}\n", ""))
    assert "oom_kill 1" in guest.unconfined(CONFINED.replace("oom_kill 1", "oom_kill 10"))


def test_the_scripts_of_the_first_process_are_valid_shell(tmp_path: Path) -> None:
    node = guest._NODE.format_map(dict.fromkeys(_fields(guest._NODE), "x"))
    for number, body in enumerate((node, guest._JOB)):
        script = tmp_path / str(number)
        script.write_text(guest._MOUNTS.format(name="x") + body)
        run(["bash", "-n", script])


def test_a_kernel_without_a_needed_option_is_refused_by_name() -> None:
    config = "".join(f"CONFIG_{name}=y\n" for name in kernel._REQUIRED)
    kernel._check(config)
    with pytest.raises(ClusterError, match="no CPUSETS for user-mode Linux"):
        kernel._check(config.replace("CONFIG_CPUSETS=y", "# CONFIG_CPUSETS is not set"))


def test_every_needed_option_is_asked_for() -> None:
    asked = kernel.CONFIG.read_text().splitlines()
    assert [name for name in kernel._REQUIRED if f"CONFIG_{name}=y" not in asked] == []


def test_a_host_without_a_compiler_gets_a_list_of_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="apt-get install bc binutils gcc make"):
        kernel._build(tmp_path, print)


def test_a_host_without_a_mirror_of_debian_gets_the_advice_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    monkeypatch.setattr(kernel, "run", lambda *_, **__: "http://mirror.example/ubuntu/\n")
    with pytest.raises(ClusterError, match="DEBIAN_MIRROR=URL names one"):
        kernel._source(tmp_path)


def test_parsers_are_downloaded_with_lists_of_our_own_where_the_hosts_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apt_get(argv: list[str], **_: object) -> str:
        if any(word.startswith("Dir::State::lists=") for word in argv):
            done.append(argv[-1])
            return ""
        raise ClusterError("no package lists")

    done: list[str] = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kernel, "run", apt_get)
    assert str(tmp_path / "root/usr/bin") in kernel._environment(tmp_path)["PATH"]
    assert done == ["update", "flex", "bison", "m4"]


def test_the_nodes_images_are_images_of_this_repository() -> None:
    assert set(guest.IMAGES) <= set(IMAGES)
    assert (
        len(
            [
                image
                for image in plan()
                if image.reference.partition(":")[0].rpartition("/")[2] in guest.IMAGES
            ]
        )
        == 2
    )


def test_the_nodes_addresses_are_no_other_nodes() -> None:
    of = Plan("slurm", 1)
    assert of.node_address(guest.NUMBER) not in [of.node_address(number) for number in (1, 2, 3)]
    assert len(f"{Plan('slurm', 39).node_veth(guest.NUMBER)}k") <= 15, (
        "the kernel's limit for names of devices"
    )


def test_a_host_with_a_small_dev_shm_gets_the_way_to_enlarge_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 * 2**20))
    with pytest.raises(ClusterError, match=r"64 MiB.*/dev/shm.*6 GiB.*remount.*--shm-size"):
        guest.demand_memory()
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=guest.MEMORY_GIB * 2**30)
    )
    guest.demand_memory()


def test_the_node_is_stopped_where_its_kernel_can_not_be_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guest, "kernel", Mock(side_effect=ClusterError("no compiler")))
    monkeypatch.setattr(guest, "node", lambda _: Mock(number=guest.NUMBER))
    cluster = Mock()
    guest.stop(cluster)
    cluster.plane.daemon.return_value.kill.assert_called_once_with()
    assert cluster.kubectl.call_args.args[:2] == ("delete", "node")


def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}
