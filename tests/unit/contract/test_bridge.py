"""The comment of a placeholder job and the Extra of a node."""

import json

import pytest

from sidecars.contract import bridge
from sidecars.contract.extra import pod_facts

WHOLE = '{"slurmBridge":{"namespace":"n","group":"g","digest":"d",%s}}'
DAMAGED = [
    WHOLE % it
    for it in (
        '"pods":1,"cluster":7',
        '"pods":"1"',
        '"pods":true',
        '"exitCode":"1"',
        '"exitCode":true',
        '"parts":1',
        '"parts":[["a"]]',
        '"parts":[[1,"a"]]',
    )
]


def test_a_comment_is_read_back() -> None:
    comment = bridge.Comment("team", "group/g", "abc", 4)
    assert bridge.decode(bridge.encode(comment)) == comment
    comment = bridge.Comment("team", "group/g", "", 3, (("abc", 1), ("def", 2)))
    assert bridge.decode(bridge.encode(comment)) == comment


def test_a_comment_has_the_exit_code_of_pods_that_have_ended_and_no_other_has_one() -> None:
    for code in (0, 137):
        text = bridge.encode(bridge.Comment("team", "g", "abc", exit_code=code))
        assert json.loads(text)["slurmBridge"]["exitCode"] == code
        found = bridge.decode(text)
        assert found is not None
        assert found.exit_code == code
    assert "exitCode" not in bridge.encode(bridge.Comment("team", "g", "abc"))


def test_a_comment_names_the_cluster_and_that_of_an_earlier_bridge_none() -> None:
    comment = bridge.Comment("team", "group/g", "abc", 4, cluster="uid")
    assert bridge.decode(bridge.encode(comment)) == comment
    earlier = bridge.decode(WHOLE % '"pods":4')
    assert earlier is not None
    assert earlier.cluster == ""


def test_a_pod_that_selects_nodes_by_a_key_of_the_bridge_does_not_change_whose_record_it_is() -> (
    None
):
    for key in (bridge.KUBE_NODE, bridge.CLUSTER, bridge.DEVICES):
        extra = bridge.node_extra("k1", {key: "mine"}, [key], [("gpu", "d", "p", "n")], "uid")
        assert bridge.labels_of(extra) == {bridge.KUBE_NODE: "k1", bridge.CLUSTER: "uid"}
        assert bridge.devices_of(extra) == (("gpu", "d", "p", "n"),)


def test_the_epilog_knows_the_bridges_comments_by_their_beginning() -> None:
    for parts in ((), (("abc", 1), ("def", 2))):
        assert bridge.encode(bridge.Comment("team", "g", "abc", 4, parts)).startswith(
            bridge.ADMIN_COMMENT
        )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        '{"slurmBridge":1}',
        '{"slurmBridge":{}}',
        '["slurmBridge"]',
        '{"slurmBridge":{"namespace":1}}',
        '{"slurmBridge":' + "[" * 1000,
        *DAMAGED,
    ],
)
def test_a_text_that_the_bridge_has_not_written_is_no_comment(text: str) -> None:
    assert bridge.decode(text) is None


@pytest.mark.parametrize(
    "extra", ["", "rack 7", "[]", "7", '{"a":', "[" * 100_000, '{"a":' * 100_000, "9" * 5000]
)
def test_an_extra_of_anything_else_has_neither_labels_nor_devices(extra: str) -> None:
    assert bridge.labels_of(extra) is None
    assert bridge.devices_of(extra) == ()


def test_every_key_is_in_the_extra_with_markers_for_missing_and_empty_labels() -> None:
    found = json.loads(bridge.node_extra("k1", {"a": "1", "b": ""}, {"a", "b", "c"}))
    assert found == {bridge.KUBE_NODE: "k1", "a": "1", "b": bridge.EMPTY, "c": bridge.MISSING}


def test_an_extra_of_a_worker_pod_is_not_the_bridges_and_the_other_way_round() -> None:
    assert bridge.labels_of('{"podUid":"x"}') is None
    assert bridge.labels_of("[" * 100_000) is None
    assert bridge.devices_of("[" * 100_000) == ()
    assert pod_facts(bridge.node_extra("k1", {}, ())) is None
