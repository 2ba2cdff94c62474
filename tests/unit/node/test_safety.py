"""What must be true whatever happens in whatever order: random lives of a worker pod, in virtual
time.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.contract.reasons import POD_GONE, POD_LEAVING
from sidecars.node.records import (
    Answer,
    Call,
    Claim,
    Delete,
    Down,
    Drain,
    Phase,
    Probe,
    Read,
    Settings,
    Undrain,
)
from sidecars.slurm.records import Node
from tests.unit.node.simulation import UID, Pod, Slurm, node

FOREIGN = "admin: bad memory"
REASONS = ("", POD_LEAVING, POD_GONE, "slurm-operator: scale-in", FOREIGN)


class WatchedSlurm(Slurm):
    """Checks each call against the record as it is."""

    may_touch_predecessor = True

    def perform(self, call: Call) -> Answer:
        record = self.record
        if record is not None and not self.silent and not isinstance(call, Read | Probe | Claim):
            own = UID in record.extra
            # This product gives a reason with each state that it sets.
            foreign = record.reason == FOREIGN or (not record.reason and "DOWN" in record.states)
            assert own or self.may_touch_predecessor, f"{call} on the record of another pod"
            match call:
                case Delete():
                    assert not foreign
                    assert not record.reservation
                case Undrain():
                    assert own
                    assert record.reason.startswith((POD_LEAVING, POD_GONE))
                case Drain(reason):
                    assert "DRAIN" not in record.states
                    assert own or foreign
                    assert record.reason != FOREIGN or reason is None
                case Down(reason):
                    assert record.reason != FOREIGN or reason is None
        return super().perform(call)


class Life:
    """A pod, and what may happen to it."""

    def __init__(self, record: Node | None, listening: bool) -> None:
        self.slurm = WatchedSlurm(record, listening=frozenset({"10.0.0.9"} if listening else ()))
        self.pod = Pod(self.slurm, Settings(pod_uid=UID, grace=100))
        self.bound = 0.0

    def happen(self, event: str) -> None:
        record = self.slurm.record
        match event:
            case "register" if self.pod.record:
                self.pod.slurmd_may_run = True
                self.slurm.may_touch_predecessor = False
                self.slurm.record = record or node("IDLE")
            case "job" if record and "DRAIN" not in record.states:
                self.slurm.record = replace(
                    record, states=record.states - {"IDLE", "DOWN"} | {"MIXED"}
                )
            case "jobs end" if record and self.slurm.busy:
                self.slurm.end_jobs()
            case "foreign drain" if record:
                self.slurm.record = replace(
                    record, states=record.states | {"DRAIN"}, reason=FOREIGN
                )
            case "reserved" if record:
                self.slurm.record = replace(record, reservation="maintenance")
            case "silence" | "speech":
                self.slurm.silent = event == "silence"
            case "hook" | "no steps" if self.pod.slurmd_may_run and not self.pod.terminating:
                if self.pod.steps is None:
                    self.bound = self.pod.now + 80
                if not self.pod.released:
                    self.pod.hook(1 if event == "hook" else 0)
            case "cut":
                self.pod.hook_cut = True
            case "slurmd again" if self.pod.steps is not None:
                self.pod.slurmd_starts_again()
            case "successor" if record:
                self.slurm.record = replace(record, extra='{"podUid": "uid-2"}')
                self.slurm.may_touch_predecessor = False
            case "end":
                self.pod.slurmd_stops()


EVENTS = (
    "register",
    "job",
    "jobs end",
    "foreign drain",
    "reserved",
    "silence",
    "speech",
    "hook",
    "no steps",
    "cut",
    "slurmd again",
    "successor",
    "end",
)
RECORDS = st.none() | st.builds(
    lambda uid, base, drain, reason, reservation: node(
        base, *(["DRAIN"] if drain else []), uid=uid, reason=reason, reservation=reservation
    ),
    st.sampled_from((UID, "uid-0", "")),
    st.sampled_from(("IDLE", "MIXED", "DOWN")),
    st.booleans(),
    st.sampled_from(REASONS),
    st.sampled_from(("", "maintenance")),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    RECORDS,
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from((0.5, 3, 12, 90)))),
)
def test_no_order_of_events_harms_a_job_or_somebody_elses_record(
    record: Node | None, listening: bool, events: list[tuple[str, float]]
) -> None:
    life = Life(record, listening)
    pod = life.pod
    pod.run(0.1)
    for event, seconds in events:
        life.happen(event)
        was_released = pod.released
        pod.run(seconds)
        if pod.released and not was_released and pod.released_at is not None:
            assert pod.steps == 0 or pod.released_at >= life.bound - 1, (
                "released with a step running"
            )
    pod.slurmd_stops()
    pod.run(60)
    assert pod.phase is Phase.DONE, "the end has a bound"
