"""The answer with all jobs, read in pieces: the same as when it is decoded as a whole, in little
memory.
"""

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecars.slurm import protocol
from sidecars.slurm.errors import Malformed, SlurmError
from sidecars.slurm.records import Jobs
from sidecars.slurm.streaming import JobsReader

FIXTURES = Path(__file__).parent / "fixtures"
REQUEST = protocol.get_jobs()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(['},{"account":', "}, {", '"', "\\", "ü"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["account", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)
JOB = st.fixed_dictionaries(
    {"account": JSON, "job_id": st.integers(0, 9)},
    optional={
        "job_state": st.lists(st.sampled_from(["RUNNING", "PENDING"])),
        "cpus": JSON,
        "name": JSON,
    },
)
ANSWER = st.fixed_dictionaries(
    {"jobs": st.lists(JOB, max_size=4) | st.lists(JOB | JSON, max_size=4) | JSON},
    optional={"errors": JSON, "last_update": st.integers(0, 9) | JSON},
)


def read(chunks: Iterable[bytes]) -> Jobs | None:
    """The answer that comes in these chunks."""
    reader = JobsReader()
    for chunk in chunks:
        reader.feed(chunk)
    return protocol.decode(REQUEST, 200, reader.start, parse=lambda _: reader.finish())


def in_chunks(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def outcome(chunks: Iterable[bytes]) -> object:
    try:
        return read(chunks)
    except SlurmError as error:
        return type(error), str(error)


def whole(text: bytes) -> object:
    """What it is when it is decoded as a whole."""
    try:
        return protocol.decode(REQUEST, 200, text)
    except SlurmError as error:
        return type(error), str(error)


@pytest.mark.parametrize("version", protocol.VERSIONS)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_a_recorded_answer_is_the_same_in_pieces_of_any_size(
    version: str, indent: int | None, size: int
) -> None:
    body = json.loads((FIXTURES / f"{version}-jobs.json").read_text())["body"]
    text = json.dumps(body, indent=indent).encode()
    found = read(in_chunks(text, size))
    assert found == protocol.decode(REQUEST, 200, text)
    assert found is not None
    assert [job.job_id for job in found.jobs] == [job["job_id"] for job in body["jobs"]]


@given(ANSWER, st.sampled_from([None, 1]), st.integers(1, 60))
@example(
    {
        "jobs": [
            {"account": '},{"account":', "job_id": 1},
            {"account": [{"account": 1}, {"account": 2}]},
        ]
    },
    None,
    9,
)
def test_any_answer_in_pieces_is_what_it_is_as_a_whole(
    answer: Any, indent: int | None, size: int
) -> None:
    text = json.dumps(answer, indent=indent, separators=(",", ":")).encode()
    assert outcome(in_chunks(text, size)) == whole(text)


@given(ANSWER, st.integers(0, 300), st.integers(1, 60))
def test_a_part_of_an_answer_is_never_taken_for_the_whole(answer: Any, end: int, size: int) -> None:
    text = json.dumps(answer).encode()
    part = text[: min(end, len(text) - 1)]
    with pytest.raises(Malformed, match="no JSON"):
        read(in_chunks(part, size))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b"Authentication failure", "body"),
        (b"[" * 100_000, "body"),
        (b'{"jobs": [' + b'{"a":' * 100_000, "body"),
        (b'{"jobs": [{"a": 1}, {"a": 2}], "errors": [}', "body"),
        (b"{}", "jobs"),
        (b'{"jobs": {}}', "jobs"),
        (b'{"jobs": [{"a": 1}, 1]}', "jobs[1]"),
        (b'{"jobs": [{"job_id": 1}, {"job_id": "x"}, {"job_id": 3}]}', "jobs[1].job_id"),
        (b'{"jobs": [{"job_id": 1}, {"job_id": 2}], "last_update": "x"}', "last_update"),
    ],
)
def test_a_broken_answer_names_the_call_and_the_field(text: bytes, field: str) -> None:
    for size in (5, 10**6):
        with pytest.raises(Malformed) as caught:
            read(in_chunks(text, size))
        assert (caught.value.source, caught.value.field) == ("GET jobs/", field)


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_a_name_that_is_not_utf_8_hides_no_job(size: int) -> None:
    """Any user may give a job such a name."""
    text = json.dumps(
        {"jobs": [{"job_id": number, "name": "Pr?fung"} for number in range(1, 4)]}
    ).encode()
    found = read(in_chunks(text.replace(b"?", b"\xfc"), size))
    assert found is not None
    assert [(job.job_id, job.name) for job in found.jobs] == [
        (number, "Pr\ufffdfung") for number in range(1, 4)
    ]


def test_many_jobs_are_never_kept_as_json() -> None:
    jobs, comment = 2_000, "x" * 5_000

    def answer() -> Iterator[bytes]:
        yield b'{"jobs": ['
        for number in range(jobs):
            record = {"account": "", "job_id": number, "job_state": ["PENDING"], "comment": comment}
            yield json.dumps(record).encode() + (b", " if number < jobs - 1 else b"], ")
        yield b'"last_update": 7}'

    size = sum(map(len, answer()))
    tracemalloc.start()
    try:
        found = read(answer())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert [job.job_id for job in found.jobs] == list(range(jobs))
    assert peak < size / 10


def test_what_looks_like_a_boundary_everywhere_takes_no_time() -> None:
    nested = ",".join('{"account":1}' for _ in range(20_000))
    text = (
        f'{{"jobs":[{{"account":[{nested}],"job_id":1}},{{"account":2,"job_id":2}}],'
        f'"last_update":7}}'
    ).encode()
    found = read(in_chunks(text, 4096))
    assert found is not None
    assert [job.job_id for job in found.jobs] == [1, 2]
