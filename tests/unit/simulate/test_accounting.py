"""The simulated slurmdbd beside its contract: what only a slurmdbd with several clusters and
partitions has.
"""

from sidecars.simulate.accounting import Accounting
from sidecars.simulate.records import SimAssociation
from sidecars.slurm.protocol import accounting
from sidecars.slurm.protocol.accounting import Association
from tests.support.slurmdbd import send


def of(slurmdbd: Accounting, account: str) -> dict[tuple[str, str, str], Association]:
    """The associations of an account, by cluster, user and partition."""
    found = send(slurmdbd, accounting.get_associations(account=account))
    return {(it.cluster, it.user, it.partition): it for it in found}


def test_accounts_and_users_of_one_cluster_are_not_those_of_another() -> None:
    slurmdbd = Accounting()
    slurmdbd.add_cluster("other")
    send(slurmdbd, accounting.add_accounts(["physics"], clusters=["other"]))
    send(
        slurmdbd, accounting.add_users(["alice"], accounts=["physics"], clusters=["other", "slurm"])
    )
    assert set(of(slurmdbd, "physics")) == {("other", "", ""), ("other", "alice", "")}
    send(slurmdbd, accounting.add_accounts(["physics"], clusters=["slurm"], shares=5))
    assert {key: it.shares for key, it in of(slurmdbd, "physics").items() if not key[1]} == {
        ("other", "", ""): 1,
        ("slurm", "", ""): 5,
    }


def test_a_change_reaches_the_association_of_the_named_partition_alone() -> None:
    slurmdbd = Accounting()
    send(slurmdbd, accounting.add_accounts(["physics"], clusters=["slurm"]))
    slurmdbd.associations.append(SimAssociation("physics", "slurm", "alice", partition="gpu"))
    assert set(of(slurmdbd, "physics")) == {("slurm", "", ""), ("slurm", "alice", "gpu")}
    send(slurmdbd, accounting.add_users(["alice"], accounts=["physics"], clusters=["slurm"]))
    for partition, shares in (("gpu", 7), ("", 3)):
        record = of(slurmdbd, "physics")["slurm", "alice", partition]
        send(slurmdbd, accounting.update_association(record, shares=shares))
    found = of(slurmdbd, "physics")
    assert (found["slurm", "alice", "gpu"].shares, found["slurm", "alice", ""].shares) == (7, 3)
