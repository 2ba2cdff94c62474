"""What one node of a NodeSet offers: `sidecars.autoscaling.offers`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.autoscaling import offers
from sidecars.autoscaling.offers import Offer, OfferError
from sidecars.autoscaling.records import Shape
from sidecars.slurm.gres import Gres
from sidecars.slurm.records import Partition
from tests.support.builders import nodeset
from tests.unit.autoscaling.builders import node


def test_the_line_that_slurmd_prints_is_read() -> None:
    line = (
        "NodeName=x CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 "
        "RealMemory=128000"
    )
    found = offers.read(f"{line} Gres=gpu:a100:4,gpu:a100:4 TmpDisk=900 MemSpecLimit=1000")
    assert found == Offer(Shape(2, 16, 2, 127000, (Gres("gpu", "a100", 8),), frozenset(), 900))


@pytest.mark.parametrize(
    ("more", "jobs"),
    [("", 8), ("CoreSpecCount=6", 2), ("CpuSpecList=0-3,8", 5), ("CoreSpecCount=99", 0)],
)
def test_jobs_get_no_core_that_is_reserved_for_the_system(more: str, jobs: int) -> None:
    shape = offers.read(f"Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 {more}").shape
    assert shape.all_cores == jobs


@pytest.mark.parametrize(
    ("extra_conf", "limit", "more", "jobs"),
    [
        ("", None, "", 64),
        ("", "31500m", "", 16),
        ("", "200", "", 64),
        ("CoreSpecCount=4", "32", "", 60),
        ("CoreSpecCount=4", "32", "CoreSpecCount=8", 56),
        ("CpuSpecList=0-7", None, "CoreSpecCount=8", 56),
        ("CPUs=128", "32", "", 64),
        ("", "many", "", 64),
    ],
)
def test_a_declared_node_gives_jobs_the_cores_that_its_worker_will_register(
    extra_conf: str, limit: str | None, more: str, jobs: int
) -> None:
    """As `register` does: spec.extraConf wins, else the CPU limit of slurmd counts."""
    found = offers.declared(
        nodeset(
            extraConf=extra_conf,
            slurmd={"resources": {"limits": {"cpu": limit}}} if limit else {},
            autoscaling={
                "max": 1,
                "node": f"Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=9000 {more}",
            },
        )
    )
    assert found is not None
    assert found.shape.all_cores == jobs


def test_a_declared_node_gives_jobs_no_memory_that_extra_conf_reserves() -> None:
    for conf, memory in (("", 8000), ("MemSpecLimit=2000", 7000)):
        declared = {"max": 1, "node": f"CPUs=4 RealMemory=9000{' MemSpecLimit=1000' * (not conf)}"}
        found = offers.declared(nodeset(extraConf=conf, autoscaling=declared))
        assert found is not None
        assert found.shape.memory == memory


def test_a_node_that_names_only_cpus_has_as_many_cores() -> None:
    assert offers.read("CPUs=8 RealMemory=4000").shape == Shape(1, 8, 1, 4000)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Sockets", "Sockets"),
        ("CPUs=many", "CPUs=many"),
        ("Sockets=0", "Sockets=0"),
        ("Gres=gpu:", "Gres=gpu:"),
        ("CpuSpecList=3-1", "CpuSpecList=3-1"),
        ("CpuSpecList=all", "CpuSpecList=all"),
    ],
)
def test_what_describes_no_node_is_named(text: str, named: str) -> None:
    with pytest.raises(OfferError, match=named):
        offers.read(text)


numbers = st.integers(1, 1 << 20)
shapes = st.builds(
    Shape,
    numbers,
    numbers,
    numbers,
    numbers,
    st.sampled_from([(), (Gres("gpu", "", 2),), (Gres("gpu", "h100", 4), Gres("shard", "", 8))]),
    st.sampled_from([frozenset[str](), frozenset({"a"}), frozenset({"a", "b"})]),
    st.integers(0, 1 << 20),
    st.just(0),
)
specialized = st.builds(
    lambda shape, share: replace(shape, specialized_cores=shape.sockets * shape.cores * share // 4),
    shapes,
    st.integers(0, 4),
)


@given(st.builds(Offer, specialized, st.integers(0, 1000)))
def test_the_text_of_an_offer_reads_as_the_offer(offer: Offer) -> None:
    assert offers.read(offers.text(offer)) == offer


def test_a_declared_node_has_the_features_and_the_weight_of_the_nodeset() -> None:
    found = offers.declared(
        nodeset(
            extraConf="Features=fast Weight=7",
            autoscaling={"max": 1, "node": "CPUs=4 Features=big"},
        )
    )
    assert found is not None
    assert found.shape.features == {"fast", "big", "slurm-worker-slinky"}
    assert found.weight == 7
    assert offers.declared(nodeset(autoscaling={"max": 1})) is None


def test_the_largest_node_that_jobs_can_use_shows_what_nodes_offer() -> None:
    small, large = Shape(1, 2, 1, 1000), Shape(1, 4, 1, 1000)
    found = offers.learnt([node("a", shape=small), node("b", shape=large), node("c", usable=False)])
    assert found == Offer(large)
    assert offers.learnt([node("c", usable=False)]) is None


def test_the_partitions_of_a_nodeset_are_known_before_it_has_a_node() -> None:
    known = [
        Partition("all", node_sets="ALL"),
        Partition("some", node_sets="other,slurm-worker-slinky"),
        Partition("foreign", node_sets="other"),
    ]
    assert offers.partitions(nodeset(), known, []) == {"all", "some"}
    own = nodeset(partition={"enabled": True})
    assert offers.partitions(own, [], [node("a", partitions=frozenset({"listed"}))]) == {
        "listed",
        "slurm-worker-slinky",
    }


def test_a_weight_that_is_too_long_for_a_number_is_left_out() -> None:
    scaled = nodeset(autoscaling={"max": 1, "node": "CPUs=1"}, extraConf=f"Weight={'9' * 5000}")
    found = offers.declared(scaled)
    assert found is not None
    assert found.weight == 1


@pytest.mark.parametrize(
    ("declared", "registered", "difference"),
    [
        ("CPUs=4 RealMemory=8000", "CPUs=4 RealMemory=8000 MemSpecLimit=1000", ""),
        ("CPUs=4 RealMemory=90000", "CPUs=4 RealMemory=90000 MemSpecLimit=1024", ""),
        ("CPUs=4 RealMemory=8000", "CPUs=4 RealMemory=6000", "memory 6000 MiB instead of 8000 MiB"),
        ("CPUs=4 RealMemory=8000", "CPUs=4 RealMemory=9000", "memory 9000 MiB instead of 8000 MiB"),
        ("CPUs=4", "CPUs=4 CoreSpecCount=1", "cores 3 instead of 4"),
        ("CPUs=4 Gres=gpu:a100:4", "CPUs=4", "Gres none instead of gpu:a100:4"),
        ("CPUs=4 Features=a,b,c", "CPUs=4 Features=b", "no feature a,c"),
        ("CPUs=4 Features=b", "CPUs=4 Features=a,b Weight=9", ""),
    ],
)
def test_what_workers_register_otherwise_than_declared_is_named(
    declared: str, registered: str, difference: str
) -> None:
    found = offers.differs(offers.read(declared), offers.read(registered))
    assert found == (f"workers have registered {difference}" if difference else "")
