"""A simulated slurmdbd to which plans are applied without any carrier in between."""

from collections.abc import Collection, Iterable
from typing import Any

from sidecars.operator.accounts.core.declared import Declared
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.plan import Plan, plan
from sidecars.operator.accounts.core.step import Change
from sidecars.simulate.accounting import Accounting
from sidecars.simulate.records import Call
from sidecars.slurm.errors import Rejected
from sidecars.slurm.protocol import Request, accounting, decode

CLUSTER = "slurm"


def send(slurmdbd: Accounting, request: Request[Any]) -> Any:
    """The decoded answer. Raises SlurmError."""
    call = Call(request.method, f"slurmdb/{request.path}", dict(request.query), request.body)
    reply = slurmdbd.answer(call, trusted=True)
    return decode(request, reply.status, reply.body)


def live(slurmdbd: Accounting, cluster: str = CLUSTER) -> Live:
    """What it has, as the operator of one of its clusters reads it."""
    return Live(
        cluster,
        {it.name: it for it in send(slurmdbd, accounting.get_accounts())},
        {it.name: it for it in send(slurmdbd, accounting.get_users())},
        {it.name: it for it in send(slurmdbd, accounting.get_qos())},
        send(slurmdbd, accounting.get_associations()),
        send(slurmdbd, accounting.get_tres()),
    )


def apply(slurmdbd: Accounting, changes: Iterable[Change]) -> list[str]:
    """Send all; the texts of those that were refused."""
    refused = []
    for change in changes:
        try:
            send(slurmdbd, change.request)
        except Rejected:
            refused.append(change.text)
    return refused


def settle(
    slurmdbd: Accounting,
    declared: Declared,
    created: Collection[str] = (),
    cluster: str = CLUSTER,
) -> tuple[Plan, frozenset[str]]:
    """Plan and apply until nothing changes, for one of the clusters. The last plan, and what counts
    as created.
    """
    ours, former = frozenset(created), None
    for _ in range(5):
        step = plan(declared, live(slurmdbd, cluster), ours)
        if not step.changes or step == former:
            break
        ours, former = step.created(ours), step
        apply(slurmdbd, step.changes)
    return step, ours


def by_hand(slurmdbd: Accounting, declared: Declared) -> None:
    """Bring it there as an administrator would, so that nothing counts as created from a
    declaration.
    """
    settle(slurmdbd, replace_prune(declared, prune=False))


def replace_prune(declared: Declared, *, prune: bool) -> Declared:
    """The same with another `prune`."""
    return Declared(declared.accounts, declared.users, declared.qos, prune)
