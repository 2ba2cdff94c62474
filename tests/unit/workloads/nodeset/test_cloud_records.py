"""The node records of Slurm's power saving."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm.nodeconf import parse
from sidecars.slurm.records import Node
from sidecars.workloads.nodeset import (
    cloud_record,
    is_current,
    registered,
    shown,
    would_suffice,
)
from sidecars.workloads.resources import NodeSet, ResourceError
from tests.support.builders import nodeset

OFFER = "CPUs=8 RealMemory=16000"


def saving(extra_conf: str = "", **fields: object) -> NodeSet:
    image = {"image": "slurmd:26.05.5"}
    return nodeset(
        "slinky", extraConf=extra_conf, slurmd=image, powerSaving={"enabled": True, **fields}
    )


def test_the_line_has_what_is_declared_and_the_nodesets_own_items_win() -> None:
    line = cloud_record(
        saving("Features=fast RealMemory=12000", node=OFFER, price=7, idleSeconds=60)
    )
    assert line == "State=CLOUD Weight=7 CPUs=8 RealMemory=12000 Features=fast,slinky"


def test_what_belongs_to_a_running_slurmd_alone_is_no_part_of_a_record() -> None:
    items = parse(cloud_record(saving("State=DRAIN Reason=x NodeAddr=10.0.0.1", node=OFFER)))
    assert items.get("State") == "CLOUD"
    assert not {"reason", "nodeaddr"} & items.keys


def test_slurm_gets_what_gres_conf_would_declare() -> None:
    assert "GresConf=name=gpu,type=h100,count=4" in cloud_record(
        saving(node=f"{OFFER} Gres=gpu:h100:4")
    )
    mixed = cloud_record(saving(node=f"{OFFER} Gres=gpu:a100:1,gpu:h100:2"))
    assert "GresConf=name=gpu,type=a100,count=1+name=gpu,type=h100,count=2" in mixed
    assert "GresConf=name=gpu,count=4" in cloud_record(saving(node=f"{OFFER} Gres=gpu:4"))


def test_without_an_offer_there_is_no_line_unless_the_nodeset_sets_the_memory_itself() -> None:
    assert cloud_record(saving()) == ""
    assert cloud_record(saving("CPUs=2 RealMemory=1000")) != ""


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("CPUs", "'CPUs' is not of the form Key=Value"),
        ("CPUs=four RealMemory=1", "CPUs=four must be a whole number from 1 to 65535"),
        ("CPUs=0 RealMemory=1", "CPUs=0 must be a whole number from 1 to 65535"),
        ("CPUs=70000 RealMemory=1", "CPUs=70000 must be a whole number from 1 to 65535"),
        ("CPUs=-1 RealMemory=1", "CPUs=-1 must be a whole number from 1 to 65535"),
        (
            "CPUs=4 RealMemory=8G",
            "RealMemory=8G must be a whole number from 1 to 1099511627776: it is in MiB",
        ),
        (
            "CPUs=4 RealMemory=1 TmpDisk=x",
            "TmpDisk=x must be a whole number from 0 to 4294967280: it is in MiB",
        ),
        ("CPUs=4 RealMemory=1 Weight=-1", "Weight=-1 must be a whole number from 0 to 4294967280"),
        ("CPUs=4 Sockets=1 CoresPerSocket= RealMemory=1", "CoresPerSocket has no value: remove it"),
        (
            "CPUs=4 RealMemry=8000",
            "RealMemry isn't a key of a node in slurm.conf; is it RealMemory?",
        ),
        ("CPUs=4 RealMemory=1 UpTime=0-01:02:03", "UpTime isn't a key of a node in slurm.conf"),
        (
            "CPUs=7 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=1",
            "CPUs=7 must be 2 or 8 or 16: sockets",
        ),
        (
            "CPUs=4 Sockets=1 RealMemory=1",
            "CPUs=4 must be 1: sockets, cores and threads contradict it",
        ),
        ("CPUs=7 ThreadsPerCore=2 RealMemory=1", "CPUs=7 must be 6: sockets"),
        ("CPUs=2 CoresPerSocket=4 RealMemory=1", "CPUs=2 must be 4: sockets"),
        (
            "CPUs=4 RealMemory=1000 MemSpecLimit=1000",
            "MemSpecLimit=1000 must be lower than RealMemory=1000",
        ),
        ("CPUs=4 RealMemory=1 Gres=gpu:a:b", "'gpu:a:b': 'b' is no count"),
        (
            "CPUs=4 RealMemory=1 Sockets=1 SocketsPerBoard=1",
            "set Sockets, or Boards and SocketsPerBoard, not both",
        ),
        (
            "CPUs=4 RealMemory=1 SuspendTime=5",
            "SuspendTime is set by powerSaving.idleSeconds: remove it",
        ),
    ],
)
def test_an_offer_that_slurm_would_not_take_is_refused_with_the_item(
    declared: str, problem: str
) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.powerSaving\.node: ") as caught:
        cloud_record(saving(node=declared))
    assert problem in str(caught.value)


def test_what_slurmd_c_prints_is_taken() -> None:
    printed = (
        "NodeName=host CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 "
        "RealMemory=16000"
    )
    assert "CPUs=8 Boards=1 SocketsPerBoard=1" in cloud_record(saving(node=printed))
    for cpus in (4, 8):
        cloud_record(
            saving(node=f"CPUs={cpus} Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=1")
        )


def test_an_item_of_extra_conf_is_refused_where_it_stands() -> None:
    with pytest.raises(
        ResourceError, match=r"^spec\.extraConf: RealMemory=lots must be a whole number"
    ):
        cloud_record(saving("RealMemory=lots", node=OFFER))


def test_a_worker_that_has_registered_shows_its_hardware_and_what_is_reserved() -> None:
    node = Node(
        "n0", slurmd_start_time=1, cpus=8, sockets=1, cores=4, threads=2, real_memory=16_000
    )
    hardware = "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000"
    assert registered(node) == hardware
    reserved = replace(node, specialized_cores=1, specialized_memory=500, gres="gpu:2(S:0)")
    assert registered(reserved) == f"{hardware} CoreSpecCount=1 MemSpecLimit=500 Gres=gpu:2"


def test_a_record_that_was_created_without_a_worker_shows_nothing() -> None:
    assert registered(Node("n0", cpus=8)) == ""
    assert registered(Node("n0", cpus=8, slurmd_start_time=1, states=frozenset({"CLOUD"}))) == ""


def test_a_record_is_current_while_it_shows_the_line() -> None:
    line = cloud_record(saving(node=f"{OFFER} Gres=gpu:4", idleSeconds=60))
    node = Node("n0", cpus=8, real_memory=16_000, features=("slinky",), gres="gpu:4")
    assert is_current(node, line)
    # Slurm shows the global time of a record without one.
    assert is_current(replace(node, suspend_time=1_000_000_000), line)
    others = (
        replace(node, cpus=4),
        replace(node, weight=2),
        replace(node, features=("a",)),
        replace(node, gres=""),
        replace(node, suspend_time=60),
    )
    assert not any(is_current(other, line) for other in others)


def test_a_record_is_created_again_as_it_is_shown() -> None:
    line = cloud_record(
        saving(
            node="CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000 "
            "Gres=gpu:h100:2"
        )
    )
    node = Node(
        "n0",
        cpus=8,
        sockets=1,
        cores=4,
        threads=2,
        real_memory=16_000,
        gres="gpu:h100:2",
    )
    node = replace(node, features=("slinky",), weight=3, topology="default:a")
    again = parse(shown(node))
    assert is_current(node, shown(node))
    assert {
        it.lower(): again.get(it)
        for it in ("CPUs", "CoresPerSocket", "Gres", "GresConf", "Topology", "Weight")
    } == {
        "cpus": "8",
        "corespersocket": "4",
        "gres": "gpu:h100:2",
        "gresconf": parse(line).get("GresConf"),
        "topology": "default:a",
        "weight": "3",
    }
    assert parse(shown(node)).get("SuspendTime") is None
    assert parse(shown(replace(node, suspend_time=300))).get("SuspendTime") == "300"


@pytest.mark.parametrize(
    ("reason", "record", "suffices"),
    [
        ("Low RealMemory (reported:24105 < 90.00% of configured:99999)", "RealMemory=26783", True),
        ("Low RealMemory (reported:24105 < 90.00% of configured:99999)", "RealMemory=26784", False),
        ("gres/gpu count reported lower than configured (2 < 4)", "Gres=gpu:2", True),
        ("gres/gpu count reported lower than configured (2 < 4)", "Gres=gpu:h100:3", False),
        ("Low RealMemory (reported:1 < 1.2.3% of configured:9)", "RealMemory=9", True),
        (f"Low RealMemory (reported:{'9' * 5000} < 90% of configured:9)", "RealMemory=9", True),
        (f"gres/gpu count reported lower than configured ({'9' * 5000} < 4)", "Gres=gpu:2", True),
        ("Low socket*core*thread count, Low CPUs", "CPUs=7", True),
        ("Low socket*core*thread count, Low CPUs", "CPUs=8", False),
    ],
)
def test_a_worker_that_has_less_than_its_record_may_have_enough_for_another_one(
    reason: str, record: str, suffices: bool
) -> None:
    assert would_suffice(Node("n0", cpus=8, reason=reason), record) is suffices


@pytest.mark.parametrize(
    "reason",
    [
        f"Low RealMemory (reported:{'9' * 5000} < 100.00% of configured:5)",
        "Low RealMemory (reported:1 < 1.2.3% of configured:5)",
        "Low RealMemory (reported:1 < .% of configured:5)",
        "Low RealMemory (reported:-1 < NaN% of configured:5)",
        f"gres/gpu count reported lower than configured ({'9' * 5000} < 3)",
        "gres/ count reported lower than configured ( < )",
    ],
)
def test_a_reason_without_numbers_that_slurm_has_shows_no_lack(reason: str) -> None:
    assert would_suffice(Node("n0", cpus=8, reason=reason), "RealMemory=1000 Gres=gpu:4")


GARBAGE = st.text(st.sampled_from("gpu:=,()*1KM\"'\\ \t\n\0\x1bé"), max_size=12)


@given(GARBAGE, GARBAGE, GARBAGE, st.integers(-(2**63), 2**64 - 1))
def test_whatever_a_record_has_it_can_be_compared_and_shown(
    resources: str, topology: str, feature: str, number: int
) -> None:
    node = Node(
        "n0",
        gres=resources,
        topology=topology,
        features=(feature,),
        cpus=number,
        real_memory=number,
        weight=number,
        suspend_time=number,
    )
    line = "State=CLOUD CPUs=2 RealMemory=1000 Gres=gpu:2"
    assert not is_current(node, line)
    assert shown(node).startswith("State=CLOUD")
    assert would_suffice(node, line)
