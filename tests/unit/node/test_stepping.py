"""One step in progress: what its helpers do to the state and to the actions."""

from sidecars.node.records import Fault, Log, Observation, Phase, Read, Settings, Settled, State
from sidecars.node.stepping import Step
from tests.unit.node.simulation import UID, node


def step(state: State, jitter: float = 0.5) -> Step:
    return Step(Settings(UID, 100), state, Observation(jitter=jitter), now=50)


def test_a_line_is_logged_once_until_another_one_is() -> None:
    this = step(State())
    for text in ("waiting", "waiting", "done", "waiting"):
        this.log(text)
    assert this.actions == [Log("waiting"), Log("done"), Log("waiting")]


def test_register_may_continue_once() -> None:
    this = step(State())
    this.settle("none before")
    this.settle("this pod's")
    assert this.actions == [Settled("none before")]


def test_a_phase_begins_without_the_record_and_the_counts_of_the_one_before() -> None:
    this = step(State(faults=3, polls=2, record=node(), wake=90))
    this.enter(Phase.WATCH)
    assert this.state == State(phase=Phase.WATCH, since=50, wake=50)


def test_each_failure_in_a_row_doubles_the_pause_up_to_the_longest() -> None:
    this = step(State(), jitter=0)
    pauses = []
    for _ in range(6):
        this.back_off(Fault(Read(), "no answer"), last=4)
        pauses.append(this.state.wake - this.now)
    assert pauses == [0.125, 0.25, 0.5, 1, 2, 2]
    assert this.actions == [Log("reading the node record failed and will be retried: no answer")]
