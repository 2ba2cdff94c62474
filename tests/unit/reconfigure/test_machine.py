"""The life of a configuration, in virtual time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.contract.status import Stage
from sidecars.reconfigure import machine
from sidecars.reconfigure.actions import Alive, Check
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.states import Phase, Seen, Settings, State
from tests.unit.reconfigure.simulation import Pod, config, workers

A, B, C = config("a"), config("b"), config("c")


def running(which: Id = A, **more: object) -> Pod:
    """A pod whose slurmctld runs a set."""
    pod = Pod(candidate=which)
    pod.settle()
    assert pod.reads == which
    pod.done.clear()
    for name, value in more.items():
        setattr(pod, name, value)
    return pod


def test_slurmctld_never_starts_without_a_configuration_that_was_checked() -> None:
    pod = Pod()
    pod.run(100)
    assert pod.folder is None
    assert pod.starts == 0
    pod.candidate = A
    pod.settle()
    assert (pod.reads, pod.good, pod.starts) == (A, A, 1)


def test_a_first_configuration_that_is_refused_is_reported_and_slurmctld_waits() -> None:
    pod = Pod(candidate=A, bad={A})
    pod.run(100)
    assert pod.folder is None
    assert pod.starts == 0
    assert pod.done == ["Check"]
    assert pod.state.rejected is not None
    assert str(pod.state.rejected.culprit) == "slurm.conf line 7: unrecognized key: Foo"
    pod.candidate = B
    pod.settle()
    assert pod.reads == B


def test_a_changed_configuration_is_taken_live() -> None:
    pod = running()
    pod.candidate = B
    pod.settle()
    assert (pod.reads, pod.good, pod.starts) == (B, B, 1)
    assert pod.done[:3] == ["Check", "Install", "Reconfigure"]
    assert pod.state.running == B


def test_it_takes_less_than_a_second_beside_what_slurmctld_takes() -> None:
    pod = running()
    pod.candidate, start = B, pod.now
    while pod.state.running != B:
        pod.run(0.05)
    assert pod.now - start < 1


def test_a_refused_configuration_never_reaches_slurmctlds_folder() -> None:
    pod = running(bad={B})
    pod.candidate = B
    pod.run(300)
    assert pod.done == ["Check"]
    assert (pod.folder, pod.reads, pod.good) == (A, A, A)
    assert pod.state.rejected is not None
    assert pod.state.rejected.final


def test_the_configuration_before_clears_the_refusal() -> None:
    pod = running(bad={B})
    pod.candidate = B
    pod.run(2)
    pod.candidate = A
    pod.run(2)
    assert pod.state.rejected is None
    assert pod.done == ["Check"]


def test_one_that_scontrol_refuses_is_taken_back() -> None:
    pod = running(refused_live={B})
    pod.candidate = B
    pod.settle()
    assert (pod.folder, pod.reads, pod.good) == (A, A, A)
    assert pod.state.rejected is not None
    assert pod.state.rejected.stage is Stage.RECONFIGURE


def test_a_slow_reconfigure_is_repeated_and_the_configuration_stays() -> None:
    pod = running()
    pod.candidate, pod.silent_until = B, pod.now + 100
    pod.run(95)
    assert pod.installed == [A, B]
    assert pod.done.count("Reconfigure") > 1
    assert pod.state.rejected is not None
    assert not pod.state.rejected.final
    assert str(pod.state.rejected.culprit) == "slurmctld has not answered for 30 s: exit status 124"
    pod.settle()
    assert (pod.folder, pod.reads, pod.good, pod.starts) == (B, B, B, 1)
    assert pod.installed == [A, B]
    assert pod.state.rejected is None


def test_a_slurmctld_that_stalls_after_it_took_one_keeps_it() -> None:
    pod = running()
    pod.candidate = B
    while pod.state.phase is not Phase.VERIFY:
        pod.run(0.05)
    pod.silent_until = pod.now + 25
    pod.run(22)
    assert pod.folder == B
    assert pod.state.rejected is not None
    assert not pod.state.rejected.final
    assert (
        str(pod.state.rejected.culprit)
        == "slurmctld read the configuration and did not answer for 20 s"
    )
    pod.settle()
    assert (pod.folder, pod.reads, pod.state.running, pod.good) == (B, B, B, B)
    assert pod.starts == 1
    assert pod.state.rejected is None


def test_a_slurmctld_that_stalls_is_asked_once_a_second_whether_it_answers() -> None:
    pod = running()
    pod.candidate = B
    while pod.state.phase is not Phase.VERIFY:
        pod.run(0.05)
    pod.silent_until = pod.now + 60
    pod.run(machine.VERIFY + 1)
    before = pod.done.count("Probe")
    pod.run(30)
    assert 25 <= pod.done.count("Probe") - before <= 30


def test_a_slurmctld_that_does_not_start_gets_another_configuration_after_the_patience() -> None:
    starting = State(Phase.START, installed=A, running=A, since=100.0)
    seen = Seen(B, A, answer=Alive(yes=False))
    at_its_end = 100.0 + machine.PATIENCE
    assert machine.step(Settings(), starting, seen, at_its_end - 0.01)[0].phase is Phase.START
    state, actions = machine.step(Settings(), starting, seen, at_its_end)
    assert (state.phase, state.trying, actions) == (Phase.CHECK, B, [Check(B)])


def test_one_that_a_slurmctld_stalls_on_and_ends_is_taken_back() -> None:
    pod = running()
    pod.candidate = B
    while pod.state.phase is not Phase.VERIFY:
        pod.run(0.05)
    pod.silent_until = pod.now + 60
    pod.run(60)
    pod.end_slurmctld()  # As its livenessProbe does.
    pod.settle()
    assert (pod.folder, pod.reads, pod.good) == (A, A, A)


def test_one_that_a_silent_slurmctld_dies_of_is_taken_back_and_tried_again() -> None:
    pod = running(deadly={B})
    pod.candidate, pod.silent_until = B, pod.now + 5
    pod.run(60)
    assert (pod.reads, pod.good) == (A, A)
    assert pod.installed[:3] == [A, B, A]


def test_one_that_slurmctld_dies_of_is_taken_back_before_it_starts_again() -> None:
    pod = running(deadly={B})
    pod.candidate = B
    pod.settle()
    assert (pod.folder, pod.reads, pod.good) == (A, A, A)
    assert pod.starts == 2
    rejected = pod.state.rejected
    assert rejected is not None
    assert rejected.final
    assert (str(rejected.culprit), rejected.daemon) == (
        "slurmctld ended when it read the configuration",
        "slurmctld",
    )


def test_a_new_pod_takes_the_last_good_one_when_the_candidate_is_bad() -> None:
    pod = running(bad={B})
    pod.restart_pod()
    pod.candidate = B
    pod.settle()
    assert (pod.reads, pod.good) == (A, A)
    assert pod.state.rejected is not None


def test_a_new_pod_takes_the_last_good_one_when_there_is_no_candidate() -> None:
    pod = running()
    pod.restart_pod()
    pod.candidate = None
    pod.settle()
    assert pod.reads == A


def test_a_new_pod_with_the_same_candidate_needs_no_check() -> None:
    pod = running()
    pod.restart_pod()
    pod.settle()
    assert "Check" not in pod.done
    assert pod.reads == A


def test_a_first_one_that_slurmctld_dies_of_gives_way_to_the_next() -> None:
    pod = Pod(candidate=A, deadly={A})
    pod.run(30)
    assert pod.starts > 1
    pod.candidate = B
    pod.settle()
    assert (pod.reads, pod.good) == (B, B)


def test_one_that_passes_and_never_comes_up_gives_way_to_the_last_good_one() -> None:
    pod = running(deadly={B})
    pod.restart_pod()
    pod.candidate = B
    pod.run(100)
    assert pod.reads == A
    assert pod.good == A


def test_a_check_that_cannot_be_made_accepts_nothing_and_is_made_again() -> None:
    pod = running(check_works=False)
    pod.candidate = B
    pod.run(20)
    assert pod.folder == A
    assert pod.state.rejected is not None
    assert not pod.state.rejected.final
    pod.check_works = True
    pod.run(40)
    assert pod.reads == B
    assert pod.state.rejected is None


def test_a_slurmctld_that_is_down_meanwhile_gets_it_when_it_is_back() -> None:
    pod = running()
    pod.candidate, pod.reads = B, None
    pod.settle()
    assert pod.good == B


def test_what_cannot_be_taken_live_restarts_slurmctld_and_reports_why() -> None:
    pod = running(needs_restart={B})
    pod.candidate = B
    pod.settle()
    assert (pod.reads, pod.good, pod.starts) == (B, B, 2)
    assert "Reconfigure" not in pod.done
    assert pod.state.restart == "SlurmctldPort (1 → 2)"


def test_changed_keys_go_the_same_way() -> None:
    pod = running()
    new = Id(A.config, "other")
    pod.candidate = new
    pod.settle()
    assert pod.done[:3] == ["Check", "Install", "Reconfigure"]
    assert (pod.reads, pod.starts) == (new, 1)


def test_with_recreate_a_change_is_checked_and_waits_for_the_next_pod() -> None:
    pod = running(live=False)
    pod.candidate = B
    pod.run(30)
    assert pod.done == ["Check"]
    assert pod.folder == A
    assert pod.state.accepted == B
    pod.restart_pod()
    pod.settle()
    assert pod.reads == B


def test_a_sidecar_that_starts_anew_leaves_slurmctld_alone() -> None:
    pod = running()
    pod.restart_sidecar()
    pod.run(10)
    assert pod.done == []
    assert pod.state.phase is Phase.SETTLED
    pod.candidate = B
    pod.settle()
    assert pod.reads == B


def test_a_sidecar_restarted_before_slurmctld_answered_asks_again_and_claims_nothing() -> None:
    pod = running()
    pod.candidate, pod.silent_until = B, pod.now + 20
    pod.run(5)
    assert pod.folder == B
    pod.restart_sidecar()
    pod.done.clear()
    pod.run(5)
    assert pod.state.running != B
    pod.settle()
    assert pod.done[0] == "Reconfigure"
    assert (pod.reads, pod.good, pod.state.running) == (B, B, B)


def test_a_standby_whose_sidecar_starts_anew_stores_no_older_one_than_the_primary() -> None:
    pod = running()
    pod.run(10)
    pod.keep(B)  # The primary's. The kubelet of this standby has not brought it yet.
    pod.restart_sidecar()
    pod.run(60)
    assert pod.good == B
    pod.candidate = B
    pod.settle()
    assert (pod.reads, pod.good) == (B, B)


def test_a_sidecar_that_starts_anew_during_the_first_start_keeps_what_comes_up() -> None:
    pod = Pod(candidate=A, bad={B})
    pod.run(1)
    assert (pod.folder, pod.reads) == (A, None)
    pod.restart_sidecar()
    pod.settle()
    assert (pod.reads, pod.good) == (A, A)
    pod.candidate = B
    pod.restart_pod()
    pod.settle()
    assert (pod.reads, pod.good) == (A, A)


def test_the_newest_of_several_changes_wins() -> None:
    pod = running()
    for which in (B, C, B, C):
        pod.candidate = which
        pod.run(0.3)
    pod.settle()
    assert pod.reads == C


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["candidate", "pod", "sidecar", "crash", "check", "pass"]),
        st.sampled_from("abcdefg"),
        st.sampled_from([0.1, 0.6, 2.0, 10.0, 40.0]),
    ),
    max_size=8,
)


@settings(max_examples=40)
@given(STEPS)
def test_nothing_bad_is_ever_installed_and_a_good_candidate_runs_in_the_end(
    steps: list[tuple[str, str, float]],
) -> None:
    bad, deadly, ending = {config("d"), config("e")}, {config("f")}, {config("g")}
    pod = Pod(candidate=A, bad=bad, deadly=deadly, ending=ending, workers=workers(2))
    for kind, letter, seconds in steps:
        match kind:
            case "candidate":
                pod.candidate = config(letter)
            case "pod":
                pod.restart_pod()
            case "sidecar":
                pod.restart_sidecar()
            case "crash":
                pod.reads = None
            case "check":
                pod.check_works = not pod.check_works
            case _:
                pass
        pod.run(seconds)
        assert not set(pod.installed) & pod.bad
        assert pod.good not in pod.bad | pod.deadly
        if pod.state.phase is Phase.SETTLED and pod.state.running is not None:
            assert pod.good is not None
    pod.check_works, pod.candidate = True, C
    pod.run(200)
    assert pod.reads == pod.state.running == pod.good == C
    assert all(it.listens for it in pod.workers)
