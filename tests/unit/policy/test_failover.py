"""Which slurmctld is the primary, and how the label gets there."""

from sidecars.policy.failover import labels, primary


def test_the_one_that_says_so_is_the_primary() -> None:
    assert primary({"c-0": False, "c-1": True}, None, "c-0") == "c-1"


def test_slurmrestds_ping_decides_where_the_pods_cannot_be_asked() -> None:
    assert primary({"c-0": None, "c-1": None}, [("c-0", False), ("c-1", True)], "c-0") == "c-1"


def test_of_two_that_claim_it_ping_decides() -> None:
    assert primary({"c-0": True, "c-1": True}, [("c-0", False), ("c-1", True)], None) == "c-1"


def test_while_nobody_can_tell_the_label_stays() -> None:
    assert primary({"c-0": None, "c-1": None}, None, "c-1") == "c-1"
    assert primary({"c-0": False, "c-1": False}, [("c-0", False), ("c-1", False)], "c-1") == "c-1"


def test_before_anybody_answered_it_is_the_first() -> None:
    assert primary({"c-0": None, "c-1": None}, None, None) == "c-0"
    assert primary({}, None, "c-0") is None


def test_the_new_primary_gets_the_label_before_the_old_one_loses_it() -> None:
    assert list(labels({"c-0": True, "c-1": False}, "c-1").items()) == [("c-1", True), ("c-0", False)]
    assert labels({"c-0": False, "c-1": True}, "c-1") == {}
    assert labels({"c-0": True}, None) == {}
