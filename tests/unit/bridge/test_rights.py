"""What is reported of a namespace in which the bridge may not change pods."""

import logging
from typing import Any, cast

import pytest

from sidecars.bridge.rights import AGAIN_SECONDS, Rights
from sidecars.kube import ApiError, Forbidden, Invalid

COMMAND = (
    "kubectl create rolebinding slurm-bridge-tenant --namespace physics --clusterrole=slurm-bridge-tenant "
    "--serviceaccount=slurm:slurm-bridge"
)
DENIED = Forbidden(
    403,
    "Forbidden",
    'pods "p" is forbidden: User "system:serviceaccount:slurm:slurm-bridge" cannot patch resource "pods" '
    'in API group "" in the namespace "physics"',
)


class Bench:
    """Records the Events."""

    def __init__(self) -> None:
        self.time = 0.0
        self.events: list[tuple[Any, ...]] = []
        place = ("slurm", "slurm-bridge-tenants", "slurm-bridge-tenant", "slurm-bridge")
        self.rights = Rights(cast("Any", self), *place, lambda: self.time)

    def emit(self, *event: Any) -> None:
        self.events.append(event)


def test_a_missing_rolebinding_is_reported_with_the_command_that_creates_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        text = bench.rights.explained("physics", DENIED)
    assert text.endswith(COMMAND)
    assert "may not change the pods of namespace physics" in text
    assert [it.getMessage() for it in caplog.records] == [text]
    [(regarding, kind, reason, _, note)] = bench.events
    assert regarding["metadata"] == {"namespace": "slurm", "name": "slurm-bridge-tenants"}
    assert (kind, reason.value, note) == ("Warning", "NoRoleBinding", text)


def test_a_namespace_is_reported_again_after_a_while_alone() -> None:
    bench = Bench()
    for time, events in ((0.0, 1), (AGAIN_SECONDS - 1, 1), (AGAIN_SECONDS, 2)):
        bench.time = time
        bench.rights.explained("physics", DENIED)
        assert len(bench.events) == events
    bench.rights.explained("chemistry", DENIED)
    assert len(bench.events) == 3


@pytest.mark.parametrize(
    "error", [Forbidden(403, "Forbidden", "exceeded quota: cannot be more"), Invalid(422, "Invalid", "too long")]
)
def test_another_refusal_is_quoted_and_is_no_missing_rolebinding(error: ApiError) -> None:
    bench = Bench()
    assert bench.rights.explained("physics", error) == error.message
    assert bench.events == []
