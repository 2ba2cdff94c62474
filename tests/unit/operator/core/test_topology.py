"""Where workers are, from labels: `sidecars.operator.core.topology`, and its file:
`sidecars.workloads.topology`.
"""

import pytest
import yaml

from sidecars.operator.core.topology import Line, blocks, line, lost, positions
from sidecars.workloads import topology as files
from sidecars.workloads.resources import Block, Topology, Tree

FABRIC = Topology(name="fabric", cluster_default=True, tree=Tree(labels=["zone", "rack"]))
JOINED = Topology(name="fabric", tree=Tree(labels=["zone", "rack"], join_names=True))
NVLINK = Topology(name="nvlink", block=Block(label="domain", sizes=[2, 4]))
KNOWN = {"fabric": {"fabric"}, "nvlink": {"d1", "d2"}}


def of(
    labels: dict[str, str],
    *others: dict[str, str],
    topologies: tuple[Topology, ...] = (FABRIC, NVLINK),
) -> Line:
    """The line of a node with these labels beside others."""
    return line(topologies, labels, positions(topologies, [labels, *others]), KNOWN)


def node(zone: str, rack: str) -> dict[str, str]:
    return {"zone": zone, "rack": rack}


def test_a_line_has_the_whole_path_of_the_tree_and_the_block() -> None:
    assert of({"zone": "z1", "rack": "r1", "domain": "d1"}) == Line("fabric:fabric:z1:r1,nvlink:d1")


def test_a_node_without_labels_is_elsewhere_in_the_tree_and_in_no_block() -> None:
    assert of({"other": "x"}) == Line("fabric:fabric:fabric-other")


def test_a_node_with_some_of_the_labels_of_a_tree_is_elsewhere_and_the_missing_one_is_named() -> (
    None
):
    found = of({"zone": "z1"})
    assert found.text == "fabric:fabric:fabric-other"
    [problem] = found.problems
    assert problem.startswith("topology fabric: the label rack is missing")


def test_a_switch_below_two_others_is_where_most_nodes_have_it_and_the_rest_gets_a_reason() -> None:
    right, wrong = node("z1", "r1"), node("z2", "r1")
    assert of(right, right, wrong) == Line("fabric:fabric:z1:r1")
    found = of(wrong, right, right)
    assert found.text == "fabric:fabric:fabric-other"
    assert "switch r1 below z2, but most Kubernetes nodes have it below z1" in found.problems[0]


def test_of_two_equal_votes_the_first_by_name_counts_whatever_the_order_of_the_nodes() -> None:
    one, two = node("z1", "r1"), node("z2", "r1")
    assert of(one, two).problems == of(one, two, one, two).problems == ()
    assert of(two, one).problems != ()


def test_a_name_on_two_levels_is_a_contradiction() -> None:
    assert of(node("a", "a")).problems != ()
    assert of(node("a", "b"), node("b", "c")).problems != ()


def test_joined_names_let_two_zones_have_a_rack_of_one_name() -> None:
    one, two = node("z1", "r1"), node("z2", "r1")
    assert of(one, two, topologies=(JOINED,)) == Line("fabric:fabric:z1:z1.r1")
    assert of(two, one, topologies=(JOINED,)) == Line("fabric:fabric:z2:z2.r1")


@pytest.mark.parametrize("name", ["fabric", "fabric-other"])
def test_a_label_can_not_have_the_name_of_the_switches_that_are_always_there(name: str) -> None:
    found = of(node(name, "r1"))
    assert found.text == "fabric:fabric:fabric-other"
    assert "rename the topology" in found.problems[0]


def test_what_topology_yaml_lacks_is_left_out_until_it_has_it() -> None:
    labels = {"zone": "z1", "rack": "r1", "domain": "d9"}
    assert of(labels) == Line("fabric:fabric:z1:r1", waits=True)
    assert line((FABRIC, NVLINK), labels, {}, {}) == Line("", waits=True)


def test_a_number_that_slurm_could_not_read_is_no_longer_at_the_end_of_a_name() -> None:
    assert of(node("z1", "r" + 19 * "1")).text.endswith("1_")
    assert of(node("z1", "r" + 18 * "1")).text.endswith("1")


def test_the_file_has_the_root_of_a_tree_and_all_blocks() -> None:
    named = blocks((FABRIC, NVLINK), [{"domain": "d2"}, {"domain": "d1"}, {}])
    assert yaml.safe_load(files.render((FABRIC, NVLINK), named)) == [
        {
            "topology": "fabric",
            "cluster_default": True,
            "tree": {"switches": [{"switch": "fabric"}]},
        },
        {
            "topology": "nvlink",
            "cluster_default": False,
            "block": {"block_sizes": [2, 4], "blocks": [{"block": "d1"}, {"block": "d2"}]},
        },
    ]


def test_a_block_topology_without_labelled_nodes_has_an_empty_block() -> None:
    assert files.places(files.render((NVLINK,), {})) == {"nvlink": frozenset({"nvlink-none"})}


def test_a_file_without_the_place_of_a_slurm_node_is_a_fault_that_names_the_node() -> None:
    text = files.render((FABRIC, NVLINK), {"nvlink": ["d1"]})
    nodes = {"a": "fabric:fabric:z1:r1,nvlink:d1", "b": "nvlink:d2", "c": "nvlink:d2", "d": ""}
    [fault] = lost(nodes, {"topology.yaml": text})
    assert fault.startswith(
        "'nvlink:d2' isn't in topology.yaml, but Slurm node b (and 1 more) has this topology"
    )
    [gone] = lost({"a": "fabric:fabric:z1:r1"}, {})
    assert "'fabric:fabric'" in gone
    assert lost({"d": ""}, {}) == []


def test_a_site_with_a_topology_conf_and_no_topology_yaml_is_left_to_slurmctld() -> None:
    assert lost({"a": "default:s1"}, {"topology.conf": "SwitchName=s1\n"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "- topology: nvlink\n  flat: true\n",
        (
            "- topology: nvlink\n  block: {block_sizes: [1], blocks: [{block: 'd[1-9]', nodes: "
            "'n[1-9]'}]}\n"
        ),
        "no list",
        "[",
    ],
)
def test_a_file_whose_places_can_not_be_read_is_left_to_slurmctld(text: str) -> None:
    assert lost({"b": "nvlink:d2"}, {"topology.yaml": text}) == []
