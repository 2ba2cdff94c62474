"""The decoder of the aiohttp carrier: the same answers as `protocol.decode`, with less work for
what stays the same.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm import protocol
from sidecars.slurm.client import Decoder
from sidecars.slurm.errors import Malformed, SlurmError
from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Node, Nodes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NODE = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c"])},
    optional={
        "state": st.lists(st.sampled_from(["IDLE", "DOWN"])),
        "cpus": st.integers(0, 3),
        "comment": JSON,
    },
)
BODY = JSON | st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.lists(NODE | JSON, max_size=3) | JSON,
        "errors": JSON,
        "last_update": JSON,
    },
)


def body(*nodes: dict[str, Any]) -> bytes:
    """A good answer with these nodes."""
    return json.dumps(
        {"nodes": nodes, "last_update": {"set": True, "infinite": False, "number": 7}}
    ).encode()


def read(decoder: Decoder, *nodes: dict[str, Any]) -> tuple[Node, ...]:
    answer = decoder(protocol.get_nodes(), 200, body(*nodes))
    assert isinstance(answer, Nodes)
    return answer.nodes


def test_a_record_that_did_not_change_is_the_same_object_and_one_that_did_is_new() -> None:
    decoder = Decoder()
    a, b = read(decoder, {"name": "a", "cpus": 1}, {"name": "b", "cpus": 1})
    b_after, a_after, c = read(
        decoder, {"name": "b", "cpus": 2}, {"name": "a", "cpus": 1}, {"name": "c"}
    )
    assert a_after is a
    assert (b.cpus, b_after.cpus, c.name) == (1, 2, "c")


def test_a_comment_that_is_not_utf_8_hides_no_node() -> None:
    text = body({"name": "a", "comment": "?"}, {"name": "b"}).replace(b"?", b"\xff")
    answer = Decoder()(protocol.get_nodes(), 200, text)
    assert isinstance(answer, Nodes)
    assert [(node.name, node.comment) for node in answer.nodes] == [("a", "\ufffd"), ("b", "")]


def test_the_load_of_a_node_is_read_after_the_same_text_was_read_without_it() -> None:
    decoder = Decoder()
    record = {"name": "a", "cpus": 2, "alloc_idle_cpus": 1}
    (a,) = read(decoder, record)
    answer = decoder(protocol.get_node_usage(), 200, body(record))
    assert answer is not None
    assert [(it.node, it.idle_cpus) for it in answer.nodes] == [(a, 1)]


def test_only_the_last_list_is_kept() -> None:
    decoder = Decoder()
    (a,) = read(decoder, {"name": "a"})
    read(decoder)
    (again,) = read(decoder, {"name": "a"})
    assert again == a
    assert again is not a


def states(decoder: Decoder, *jobs: dict[str, Any], **more: Any) -> Mapping[int, frozenset[str]]:
    return decoder(
        protocol.get_job_states(), 200, json.dumps({"jobs": jobs, "meta": {"n": 1}} | more).encode()
    )


def test_states_of_jobs_that_did_not_change_are_the_same_object() -> None:
    decoder = Decoder()
    running, ended = {"job_id": "1", "state": ["RUNNING"]}, {"job_id": "1", "state": ["COMPLETED"]}
    first = states(decoder, running)
    assert first == {1: {"RUNNING"}}
    assert states(decoder, running, meta={"n": 2}) is first
    assert states(decoder, ended) == {1: {"COMPLETED"}}
    again = states(decoder, running)
    assert (again, again is first) == (first, False)


def test_errors_beside_the_same_states_are_errors() -> None:
    decoder, running = Decoder(), {"job_id": "1", "state": ["RUNNING"]}
    first = states(decoder, running)
    with pytest.raises(SlurmError):
        states(decoder, running, errors=[{"error_number": 1800}])
    with pytest.raises(Malformed):
        decoder(protocol.get_job_states(), 200, b"{")
    assert states(decoder, running) == first


def test_reading_one_node_and_a_broken_answer_leave_the_list_as_it_is() -> None:
    decoder = Decoder()
    (a,) = read(decoder, {"name": "a"})
    assert decoder(protocol.get_node("b"), 200, body({"name": "b"})).name == "b"
    with pytest.raises(Malformed):
        decoder(protocol.get_nodes(), 200, body({"name": "b"}, {"name": 5}))
    assert read(decoder, {"name": "a"})[0] is a


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b"[" * 100_000, "body"),
        (b'{"nodes": ' + b"[" * 100_000, "body"),
        (b'{"nodes": [], "errors": [}', "body"),
        (b"{}", "nodes"),
        (b'{"nodes": {}}', "nodes"),
        (b'{"nodes": [1]}', "nodes[0]"),
        (body({"name": "a"}, {"name": "a", "cpus": "4"}), "nodes[1].cpus"),
    ],
)
def test_a_broken_answer_names_the_call_and_the_field(text: bytes, field: str) -> None:
    with pytest.raises(Malformed) as caught:
        Decoder()(protocol.get_nodes(), 200, text)
    assert (caught.value.source, caught.value.field) == ("GET nodes/", field)


@given(st.lists(st.tuples(BODY, st.sampled_from([200, 304, 401, 500])), min_size=1, max_size=4))
def test_any_answers_in_any_order_are_decoded_as_without_it(answers: list[tuple[Any, int]]) -> None:
    decoder = Decoder()
    requests: list[Request[Any]] = [
        protocol.get_nodes(1),
        protocol.get_node("a"),
        protocol.get_node_usage(),
        protocol.get_jobs(),
    ]
    for content, status in answers:
        text = json.dumps(content).encode()
        for request in requests:
            assert outcome(decoder, request, status, text) == outcome(
                protocol.decode, request, status, text
            )


def outcome(decode: Any, request: Request[Any], status: int, text: bytes) -> object:
    try:
        return decode(request, status, text)
    except SlurmError as error:
        return type(error), str(error)
