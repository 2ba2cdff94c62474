"""Finding the control group hierarchies of a host."""

from pathlib import Path

from tests.cluster.cgroups import make, parse, processes, remove

V2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = """\
29 23 0:25 / /sys/fs/cgroup ro - tmpfs tmpfs ro
30 29 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
31 29 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 29 0:28 / /sys/fs/cgroup/pids rw shared:9 - cgroup cgroup rw,pids
"""
V1 = "\n".join(line for line in HYBRID.splitlines() if "cgroup2" not in line)


def test_a_unified_host_has_one_hierarchy() -> None:
    found = parse(V2)
    assert (found.v1, found.unified) == ((), Path("/sys/fs/cgroup"))
    assert found.tracking == Path("/sys/fs/cgroup")


def test_a_mixed_host_keeps_daemons_together_in_the_unified_one() -> None:
    found = parse(HYBRID)
    assert found.v1 == (Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup/pids"))
    assert found.tracking == Path("/sys/fs/cgroup/unified")


def test_an_old_host_keeps_daemons_together_by_pids() -> None:
    assert parse(V1).tracking == Path("/sys/fs/cgroup/pids")


def test_a_new_cpuset_group_takes_over_the_cpus_from_above(tmp_path: Path) -> None:
    cpuset = tmp_path / "cpuset"
    for folder in (cpuset, cpuset / "ours", cpuset / "ours" / "node-1"):
        folder.mkdir()
        (folder / "cpuset.cpus").write_text("0-3\n" if folder == cpuset else "\n")
        (folder / "cpuset.mems").write_text("0\n" if folder == cpuset else "\n")
    make(parse(f"1 1 0:1 / {cpuset} rw - cgroup cgroup rw,cpuset"), "ours", ("node-1",))
    assert (cpuset / "ours" / "node-1" / "cpuset.cpus").read_text() == "0-3\n"
    assert (cpuset / "ours" / "node-1" / "cpuset.mems").read_text() == "0\n"


def test_on_a_unified_host_controllers_are_switched_on_down_to_the_nodes(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "ours"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpu memory pids rdma\n")
    make(parse(f"1 1 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw"), "ours", ("node-1",))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"
    assert (tmp_path / "ours" / "cgroup.subtree_control").read_text() == "+pids"


def test_processes_are_found_at_any_depth(tmp_path: Path) -> None:
    deep = tmp_path / "ours" / "node-1" / "kubepods"
    deep.mkdir(parents=True)
    (deep / "cgroup.procs").write_text("17\n")
    (tmp_path / "ours" / "cgroup.procs").write_text("4\n")
    assert processes(parse(f"1 1 0:1 / {tmp_path} rw - cgroup cgroup rw,pids"), "ours") == {4, 17}


def test_an_empty_group_is_removed_with_everything_below(tmp_path: Path) -> None:
    (tmp_path / "ours" / "node-1" / "pod").mkdir(parents=True)
    remove(parse(f"1 1 0:1 / {tmp_path} rw - cgroup cgroup rw,pids"), "ours")
    assert not (tmp_path / "ours").exists()
