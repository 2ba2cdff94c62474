"""What a phase begins with."""

from dataclasses import replace

from sidecars.reconfigure.states import Phase, State, to
from tests.unit.reconfigure.simulation import config, workers

A = config("a")


def test_a_phase_begins_now_and_with_nothing_of_the_one_before() -> None:
    before = State(Phase.VERIFY, since=1.0, wake=9.0, calm=2.0, unanswered="busy", gone=True)
    assert to(before, Phase.WATCH, 5.0) == State(Phase.WATCH, since=5.0, wake=5.0)


def test_what_is_known_of_the_sets_and_of_slurmds_stays() -> None:
    [worker] = workers(1)
    known = State(installed=A, former=A, slurmds=(worker.record,), silent={"w-0": 3.0}, retry=7.0)
    assert to(known, Phase.CHECK, 5.0, trying=A) == replace(
        known, phase=Phase.CHECK, trying=A, since=5.0, wake=5.0
    )
