"""The record of what autoscaling applied last."""

from hypothesis import given
from hypothesis import strategies as st

from sidecars.contract.autoscaling import Applied, decode, encode

times = st.none() | st.floats(0, 2e9)


@given(
    st.builds(
        Applied,
        st.integers(0, 65536),
        st.tuples() | st.tuples(st.text()),
        times,
        times,
        st.text(),
        st.text(),
        st.text(),
    )
)
def test_the_annotation_reads_as_it_was_written(record: Applied) -> None:
    assert decode(encode(record)) == record


def test_an_annotation_that_cannot_be_read_counts_as_none() -> None:
    for text in (
        *("", "{", "[]", '{"replicas": "3"}', "{}", '{"replicas": true}', "[" * 100_000),
        *('{"replicas": 3, "remove": "a"}', '{"replicas": 3, "remove": [1]}'),
        *('{"replicas": 3, "raisedAt": "now"}', '{"replicas": 3, "node": 1}'),
    ):
        assert decode(text) is None


def test_the_annotation_has_only_what_is_not_the_default() -> None:
    assert encode(Applied(3)) == '{"replicas":3}'
    record = Applied(3, ("a",), 10.0, None, "CPUs=6", "CPUs=8", "é")
    assert (
        encode(record)
        == '{"replicas":3,"remove":["a"],"raisedAt":10.0,"node":"CPUs=6","declared":"CPUs=8",'
        '"reason":"é"}'
    )
    assert encode(Applied(0, raised_at=0.0)) == '{"replicas":0,"raisedAt":0.0}'
