"""The file in which `register` writes for `node` what slurmd is about to register."""

import pytest

from sidecars.contract.shape import Shape, decode, encode


@pytest.mark.parametrize("shape", [Shape(), Shape(8, 16000, "gpu:h100:8"), Shape(gres="")])
def test_what_is_written_is_read(shape: Shape) -> None:
    assert decode(encode(shape)) == shape


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", "[" * 100_000])
def test_what_is_no_shape_is_none(text: str) -> None:
    assert decode(text) is None


def test_a_field_of_another_type_is_not_decided() -> None:
    assert decode('{"cpus": "8", "memory": 1.5, "gres": 1}') == Shape()
