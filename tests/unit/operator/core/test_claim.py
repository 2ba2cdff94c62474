"""Whether slurmctld can use the claim that spec.persistence names."""

from typing import Any

import pytest

from sidecars.operator.core import claim
from tests.support import builders

NAMED = {"persistence": {"enabled": True, "existingClaim": "state"}}
HA = NAMED | {"ha": {"enabled": True}}


@pytest.mark.parametrize(
    ("spec", "modes", "want"),
    [
        ({}, None, None),
        ({"persistence": {"enabled": False, "existingClaim": "state"}}, None, None),
        (NAMED | {"external": True}, None, None),
        (NAMED, ["ReadWriteOnce"], None),
        (NAMED, None, ("ReferenceMissing", False)),
        (HA, None, ("ReferenceMissing", True)),
        (HA, ["ReadWriteOnce"], ("Invalid", True)),
        (HA, ["ReadWriteOnce", "ReadWriteMany"], None),
    ],
)
def test_a_missing_claim_blocks_only_standbys_and_they_need_one_that_several_nodes_can_mount(
    spec: dict[str, Any], modes: list[str] | None, want: tuple[str, bool] | None
) -> None:
    found = claim.problem(builders.controller(**spec), modes)
    assert (None if found is None else (found.reason, found.blocks)) == want
    assert found is None or "'state'" in found.message
