"""The states of a node."""

import pytest

from sidecars.slurm import states


@pytest.mark.parametrize(
    ("words", "busy", "drain", "drained", "draining"),
    [
        ("IDLE", False, False, False, False),
        ("MIXED", True, False, False, False),
        ("IDLE DRAIN", False, True, True, False),
        ("DOWN DRAIN", False, True, True, False),
        ("IDLE DRAIN NOT_RESPONDING DYNAMIC_NORM", False, True, True, False),
        ("MIXED DRAIN", True, True, False, True),
        ("ALLOCATED DRAIN", True, True, False, True),
        ("IDLE DRAIN COMPLETING", True, True, False, True),
        ("IDLE COMPLETING", True, False, False, False),
        ("IDLE DRAIN UNDRAIN", False, False, False, False),
        ("UNKNOWN DRAIN", False, True, False, False),
        ("FUTURE DRAIN", False, True, False, False),
        ("DRAIN", False, True, False, False),
        ("", False, False, False, False),
        ("IDLE DRAIN SOMETHING_NEW", False, True, True, False),
        ("IDLE FAIL", False, True, True, False),
        ("MIXED FAIL", True, True, False, True),
        ("DOWN FAIL", False, True, True, False),
    ],
)
def test_the_table_of_busy_drain_drained_and_draining(
    words: str, busy: bool, drain: bool, drained: bool, draining: bool
) -> None:
    node = frozenset(words.split())
    assert states.is_busy(node) is busy
    assert states.is_drain(node) is drain
    assert states.is_drained(node) is drained
    assert states.is_draining(node) is draining


def test_the_base_state_differs_from_the_flags() -> None:
    assert states.base_state({"MIXED", "DRAIN", "DYNAMIC_NORM"}) == "MIXED"
    assert states.base_state({"DRAIN"}) is None


def test_down_and_error_are_down() -> None:
    assert states.is_down({"DOWN", "DRAIN"})
    assert states.is_down({"ERROR"})
    assert not states.is_down({"IDLE"})


@pytest.mark.parametrize(
    ("words", "powered_down", "vacant", "kept"),
    [
        ("IDLE CLOUD POWERED_DOWN", True, True, True),
        ("IDLE CLOUD POWERING_DOWN", True, True, True),
        ("DOWN CLOUD POWERED_DOWN", True, True, True),
        ("IDLE CLOUD POWERED_DOWN POWER_UP", True, True, True),
        ("ALLOCATED CLOUD POWERED_DOWN", True, False, True),
        ("IDLE CLOUD COMPLETING POWERING_DOWN", True, False, True),
        ("UNKNOWN CLOUD POWERED_DOWN", True, False, True),
        ("ALLOCATED CLOUD POWERING_UP NOT_RESPONDING", False, False, True),
        ("IDLE CLOUD POWERING_UP", False, False, True),
        ("IDLE CLOUD POWER_DOWN", False, False, False),
        ("IDLE CLOUD", False, False, False),
        ("IDLE CLOUD DRAIN", False, True, False),
        ("IDLE POWERED_DOWN", True, True, False),
    ],
)
def test_the_table_of_power_saving(
    words: str, powered_down: bool, vacant: bool, kept: bool
) -> None:
    node = frozenset(words.split())
    assert states.is_powered_down(node) is powered_down
    assert states.is_vacant(node) is vacant
    assert states.is_under_power_saving(node) is kept


@pytest.mark.parametrize("more", ["", "CLOUD", "DYNAMIC_NORM", "CLOUD DRAIN"])
def test_a_node_that_is_idle_and_up_is_unused(more: str) -> None:
    assert states.is_unused(frozenset(f"IDLE {more}".split()))


@pytest.mark.parametrize(
    "words",
    [
        "",
        "MIXED",
        "DOWN",
        "IDLE MIXED",
        *(f"IDLE {it}" for it in ("COMPLETING", "PLANNED", "RESERVED", "POWER_DOWN")),
    ],
)
def test_a_node_with_work_or_a_plan_is_not_unused(words: str) -> None:
    assert not states.is_unused(frozenset(words.split()))


def test_a_node_is_awaited_while_power_saving_starts_it_for_a_job() -> None:
    assert states.is_awaited({"ALLOCATED", "CLOUD", "POWERING_UP"})
    assert not states.is_awaited({"IDLE", "CLOUD", "POWERING_UP"})
    assert not states.is_awaited({"ALLOCATED", "CLOUD"})
    assert not states.is_awaited({"ALLOCATED", "POWERING_UP"})
