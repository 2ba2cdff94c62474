"""The limits that bind the jobs of a worker, from those of its NodeSet and of its containers."""

from decimal import Decimal

from sidecars.register.limits import Given, Limits, effective

NONE = Limits()
ALLOCATABLE = Given(Decimal("3.92"), 14000)
"""What the downward API reports for a slurmd without limits."""
DEFAULT = Given(Decimal("0.5"), 512)
"""The limits of a LimitRange."""
DECLARED = Limits(Decimal(16), 65536, 0)


def test_without_a_limit_range_the_nodesets_limits_count() -> None:
    assert effective(NONE, ALLOCATABLE, [Given(), Given()]) == NONE
    assert effective(DECLARED, Given(Decimal(16), 65536), [Given(), Given()]) == DECLARED


def test_the_default_limits_of_a_limit_range_count_where_the_nodeset_has_none() -> None:
    assert effective(NONE, DEFAULT, [DEFAULT, DEFAULT]) == Limits(Decimal("0.5"), 512, 1536)


def test_default_limits_of_the_sidecars_limit_the_pod() -> None:
    found = effective(DECLARED, Given(Decimal(16), 65536), [DEFAULT, DEFAULT])
    assert found == Limits(Decimal(16), 65536, 65536 + 1024)


def test_a_smaller_limit_of_the_nodeset_stays() -> None:
    declared = Limits(Decimal("0.25"), 256, 400)
    assert effective(declared, DEFAULT, [DEFAULT, DEFAULT]) == declared


def test_a_sidecar_without_a_limit_leaves_the_pod_without_one() -> None:
    assert effective(NONE, ALLOCATABLE, [DEFAULT, Given()]) == NONE


def test_a_limit_range_may_limit_one_resource_only() -> None:
    only_memory = Given(Decimal(0), 512)
    found = effective(NONE, Given(ALLOCATABLE.cpus, 512), [only_memory, only_memory])
    assert found == Limits(Decimal(0), 512, 1536)
    only_cpus = Given(Decimal("0.5"), 0)
    found = effective(NONE, Given(Decimal("0.5"), ALLOCATABLE.memory), [only_cpus, only_cpus])
    assert found == Limits(Decimal("0.5"), 0, 0)


def test_what_is_not_reported_changes_nothing() -> None:
    assert effective(DECLARED, Given(), []) == DECLARED
    assert effective(DECLARED, Given(), [DEFAULT, DEFAULT]) == DECLARED
