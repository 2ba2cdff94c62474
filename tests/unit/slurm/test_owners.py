"""Who owns the state of a node: `sidecars.slurm.owners`."""

import pytest

from sidecars.contract.reasons import Owner
from sidecars.slurm.owners import own_words, owner_of, reason_to_write
from sidecars.slurm.records import Node

OURS = "slurm-operator: Node (m) was cordoned"


@pytest.mark.parametrize(
    ("words", "reason", "want"),
    [
        ("IDLE", "", Owner.NOBODY),
        ("IDLE", "watch this node", Owner.FOREIGN),
        ("IDLE DRAIN", "", Owner.FOREIGN),
        ("DOWN", "", Owner.FOREIGN),
        ("IDLE FAIL", "", Owner.FOREIGN),
        ("IDLE FAIL", OURS, Owner.FOREIGN),
        ("IDLE DRAIN", OURS, Owner.OPERATOR),
        ("DOWN", OURS, Owner.OPERATOR),
        ("DOWN", "slurm-node: the pod has gone", Owner.POD),
        ("DOWN", "Not responding", Owner.SLURMCTLD),
        ("DOWN DRAIN", f"{OURS} : Not responding", Owner.OPERATOR),
        ("DOWN DRAIN", "bad disk : Not responding", Owner.FOREIGN),
    ],
)
def test_a_state_without_a_reason_and_every_fail_belong_to_someone_else(words: str, reason: str, want: Owner) -> None:
    assert owner_of(Node("n0", states=frozenset(words.split()), reason=reason)) is want


def test_only_reasons_of_nobody_and_of_this_product_are_replaced() -> None:
    def written(*words: str, reason: str = "") -> str | None:
        return reason_to_write(Node("n0", states=frozenset(words), reason=reason), OURS)

    assert written("IDLE") == OURS
    assert written("DOWN", reason="slurm-node: the pod has gone") == OURS
    assert written("IDLE", reason="watch this node") is None
    assert written("DOWN", reason="Not responding") is None
    assert written("IDLE", "DRAIN") is None


def test_what_slurmctld_appends_is_not_part_of_the_reason() -> None:
    assert own_words(f"{OURS} : Not responding") == OURS
    assert own_words("Not responding") == "Not responding"
