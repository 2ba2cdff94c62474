"""Names of output files. Expected names are those that Slurm 26.05 documents or prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.logs.patterns import UnknownNameError, expand, fields

VALUES: dict[str, bytes | int] = {
    "A": 100,
    "a": 4,
    "b": 4,
    "J": 128,
    "j": 128,
    "r": 1,
    "S": b"sABC",
    "s": b"batch",
    "x": b"train",
    "N": b"gpu-3",
    "n": 0,
    "t": 0,
    "u": b"ada",
}


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        (b"slurm-%j.out", b"/home/ada/slurm-128.out"),
        (b"slurm-%A_%a.out", b"/home/ada/slurm-100_4.out"),
        (b"/logs/%u/%x-%j.%N", b"/logs/ada/train-128.gpu-3"),
        (b"job%4j.out", b"/home/ada/job0128.out"),
        (b"job%0j-%2t", b"/home/ada/job128-00"),
        (b"%99j", b"/home/ada/0000000128"),
        (b"%3N", b"/home/ada/gpu-3"),
        (b"%J.%s.%n.%t.%r.%S", b"/home/ada/128.batch.0.0.1.sABC"),
        (b"100%%-%j", b"/home/ada/100%-128"),
        (b"%q-%5q", b"/home/ada/%q-%5q"),
        (rb"a\%j", b"/home/ada/a%j"),
        (b"", b"/home/ada/"),
    ],
)
def test_a_name_is_expanded_as_slurmstepd_does(pattern: bytes, want: bytes) -> None:
    assert expand(pattern, b"/home/ada", VALUES) == want


@pytest.mark.parametrize("pattern", [b"/logs/x\0y", b"/" + b"x" * 5000])
def test_what_cannot_be_a_path_is_refused(pattern: bytes) -> None:
    with pytest.raises(UnknownNameError, match="absolute path"):
        expand(pattern, b"/home/ada", VALUES)


def test_without_a_work_dir_only_absolute_paths_are_known() -> None:
    with pytest.raises(UnknownNameError, match="absolute path"):
        expand(b"out", b"relative", VALUES)


def test_a_field_without_a_value_is_named() -> None:
    with pytest.raises(UnknownNameError, match="%x"):
        expand(b"%x-%j", b"/home/ada", {"j": 1})


@pytest.mark.parametrize("digits", [b"9" * 5000, b"0" * 5000 + b"12", b"12"])
def test_a_width_of_any_length_is_the_largest_one(digits: bytes) -> None:
    assert expand(b"/x/%" + digits + b"j", b"", {"j": 7}) == b"/x/0000000007"


def test_the_fields_of_a_pattern_are_found() -> None:
    assert fields(b"%x-%4j.%%a %q") == {"x", "j"}
    assert fields(rb"\%x") == set()


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_pattern_gives_an_absolute_path_or_an_error(pattern: bytes, name: bytes) -> None:
    try:
        path = expand(pattern, b"/w", VALUES | {"x": name})
    except UnknownNameError:
        return
    assert path.startswith(b"/")
    assert b"\0" not in path
