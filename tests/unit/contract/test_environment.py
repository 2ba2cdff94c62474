"""Environment variables that pod templates set: `sidecars.contract.environment`."""

import pytest

from sidecars.contract.environment import number, required


def test_a_required_variable_is_returned() -> None:
    assert required({"POD_NAME": "w-0"}, "POD_NAME") == "w-0"


@pytest.mark.parametrize("environment", [{}, {"POD_NAME": ""}])
def test_a_required_variable_that_is_not_set_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="POD_NAME"):
        required(environment, "POD_NAME")


def test_a_number_is_read_and_an_unset_one_has_its_default() -> None:
    assert number({"PORT": "7"}, "PORT", 6818) == 7
    assert number({"PORT": ""}, "PORT", 6818) == number({}, "PORT", 6818) == 6818


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "1 "])
def test_what_is_not_a_whole_number_is_refused_with_its_name_and_value(text: str) -> None:
    with pytest.raises(ValueError, match="PORT is"):
        number({"PORT": text}, "PORT", 1)
