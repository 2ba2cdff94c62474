"""The phase DEPART of `sidecars.node.machine`: slurmd has stopped, and the pod ends."""

from sidecars.contract.reasons import POD_GONE, is_for_deletion, is_kept, kept
from sidecars.node.records import (
    Absent,
    Call,
    Delete,
    Done,
    Down,
    Drain,
    Fault,
    Listening,
    Named,
    Names,
    Phase,
    Probe,
    Read,
    Record,
)
from sidecars.node.stepping import RETRY_SECONDS_LEAVING, Step
from sidecars.slurm import owners, states
from sidecars.slurm.records import Node

_PORT_SECONDS = 2.0
"""Seconds for which slurmd's port may accept connections after slurmd's end."""
_DEPART_SECONDS = 15.0


def depart(this: Step) -> None:
    """Take one step: delete the record, or set it DOWN where it must be retained."""
    state, now = this.state, this.now
    if now >= _departure_end(this):
        this.log("could not delete the record in time; the operator prunes it")
        this.enter(Phase.DONE)
        return
    match this.seen.answer:
        case None:
            if now >= state.wake:
                this.call(Probe("127.0.0.1", this.settings.slurmd_port))
        case Listening(yes=True):
            if now - state.since >= _PORT_SECONDS:
                this.log("slurmd still listens, so the pod is not ending: its record is retained")
                this.enter(Phase.DONE)
            else:
                this.sleep(0.1)
        case Listening():
            this.call(Read())
        case Absent():
            this.log("the record has already been deleted")
            this.enter(Phase.DONE)
        case Record(node):
            _remove(this, node)
        case Done(call):
            _go_on(this, call)
        case Named(""):
            this.call(Delete())
        case Named(by):
            this.call(_down(this, kept(POD_GONE, by)))
        case Fault(call=Delete(), refused=True) if state.polls == 0:
            this.state.polls = 1
            this.call(_down(this))
        case Fault() as fault:
            this.back_off(fault, RETRY_SECONDS_LEAVING)


def _go_on(this: Step, done: Call) -> None:
    """Take the step after a call that Slurm has accepted."""
    record = this.state.record
    match done:
        case Delete():
            this.log("deleted the record")
            this.enter(Phase.DONE)
        case Down(reason) if record is not None and (why := _why_kept(record, reason)):
            this.log(f"set the node DOWN and retained its record: {why}")
            this.enter(Phase.DONE)
        case Drain():
            this.call(Read())
        case _:
            this.call(Names())


def _remove(this: Step, node: Node) -> None:
    """Handle the record of a pod whose slurmd has stopped: delete it, or set it DOWN where it must
    be retained.
    """
    this.state.record = node
    this.state.faults = 0
    if not owners.belongs_to(node, this.settings.pod_uid):
        this.log("the record of this name belongs to another pod and is retained")
        this.enter(Phase.DONE)
    elif _is_powered(node):
        this.log("the record is retained for Slurm's power saving")
        this.enter(Phase.DONE)
    elif why := owners.why_retained(node):
        if owners.must_be_drained(node):
            this.call(Drain(None))
        elif states.is_down(node.states):
            this.log(f"retained the record: {why}")
            this.enter(Phase.DONE)
        else:
            this.call(_down(this))
    elif is_kept(node.reason):
        this.call(Down(None))
    elif states.is_busy(node.states) or not (
        states.is_drain(node.states) or states.is_down(node.states)
    ):
        # The work that Slurm still reports here ended with slurmd's container.
        this.call(_down(this))
    elif this.state.unnamed and is_for_deletion(node.reason):
        this.call(Delete())
    else:
        this.call(Names())


def _is_powered(node: Node) -> bool:
    """Return whether power saving has stopped the node, or has jobs wait for its next pod."""
    return states.is_under_power_saving(node.states) and not owners.is_departing(node)


def _down(this: Step, reason: str = POD_GONE) -> Down:
    return Down(
        None if this.state.record is None else owners.reason_to_write(this.state.record, reason)
    )


def _why_kept(node: Node, reason: str | None) -> str:
    """Return why the record outlives the pod, given the reason that it got with DOWN. Return "" if
    it doesn't.
    """
    reason = node.reason if reason is None else reason
    return owners.why_retained(node) or (reason if is_kept(reason) else "")


def _departure_end(this: Step) -> float:
    end = this.state.since + _DEPART_SECONDS
    if this.state.hook_since is not None:
        # The kubelet gives a native sidecar about two seconds even after the grace period.
        end = min(
            end, max(this.state.hook_since + this.settings.grace, this.state.since + _PORT_SECONDS)
        )
    return end
