"""What is reported of a host that can't run the local cluster."""

from dataclasses import replace

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.preconditions import Facts, demand, problems

GOOD = Facts(
    system="linux",
    user=0,
    python=(3, 11),
    go=(1, 26),
    missing_programs=(),
    ports_taken=(),
    foreign_routes=(),
    kernel={"veth devices": True},
    cgroup_controllers=frozenset({"cpu", "memory", "pids"}),
    cold=True,
    disk_gib=40.0,
    disk_at="/cache",
    memory_gib=8.0,
)


def test_a_good_host_has_no_problems() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(GOOD, user=1000), ["not root", "sudo", "KUBECONFIG"]),
        (replace(GOOD, python=(3, 9)), ["Python 3.9", "3.11"]),
        (replace(GOOD, go=None), ["Go is missing", "go.dev"]),
        (replace(GOOD, go=(1, 19)), ["Go 1.19", "too old"]),
        (replace(GOOD, missing_programs=("openssl",)), ["openssl", "apt-get install openssl"]),
        (replace(GOOD, ports_taken=(("etcd", 16401),)), ["16401", "etcd", "taken"]),
        (replace(GOOD, foreign_routes=("10.0.0.0/8",)), ["10.0.0.0/8", "--name"]),
        (replace(GOOD, kernel={"veth devices": False}), ["veth devices"]),
        (replace(GOOD, cgroup_controllers=frozenset({"cpu", "memory"})), ["pids"]),
        (replace(GOOD, disk_gib=3.0), ["3.0 GiB", "/cache", "15", "SLURM_CHARTS_CACHE"]),
        (replace(GOOD, memory_gib=1.5), ["1.5 GiB", "memory"]),
    ],
)
def test_a_problem_names_what_was_found_and_the_remedy(facts: Facts, words: list[str]) -> None:
    (problem,) = problems(facts)
    assert all(word in problem for word in words)


def test_a_filled_cache_needs_less_disk() -> None:
    assert problems(replace(GOOD, disk_gib=6.0, cold=False)) == []


def test_the_build_of_the_images_alone_needs_less() -> None:
    alone = replace(GOOD, images_alone=True, disk_gib=7.0, memory_gib=2.0)
    assert problems(alone) == []
    (problem,) = problems(replace(alone, disk_gib=3.0))
    assert "SLURM_CHARTS_CACHE" in problem
    (problem,) = problems(replace(alone, user=1000))
    assert "docs/local.md" in problem
    with pytest.raises(ClusterError, match="can't build the images"):
        demand(replace(alone, go=None))


def test_another_system_is_refused_and_nothing_else_is_reported() -> None:
    (problem,) = problems(replace(GOOD, system="darwin", user=501, go=None))
    assert "darwin" in problem
    assert "KUBECONFIG" in problem


def test_every_problem_is_listed_at_once() -> None:
    with pytest.raises(ClusterError) as caught:
        demand(replace(GOOD, user=1, go=None, memory_gib=1.0))
    assert str(caught.value).count("\n- ") == 3


def test_a_good_host_is_let_through() -> None:
    demand(GOOD)
