"""The life of a configuration in a slurmctld pod, as a pure state machine.

The steps of a candidate, where "restore" installs the former set again:

    check ─┬─ refused: kept out, with the reason
           └─ install ─ reconfigure (or restart) ─ verify ─┬─ watch ─┬─ keep as last good
                                                           │         └─ slurmds ended: restore
                                                           └─ slurmctld ended: restore

One step takes what is seen, with the answer to the action asked for last, and returns what to do
next. What slurmctld reads is only ever changed to a set that a dry run has passed, or to the last
good one. Unknown is never accepted: a check without a result is repeated later. Times are seconds
of a monotonic clock.
"""

import dataclasses

from sidecars.contract.status import Stage
from sidecars.reconfigure import watch
from sidecars.reconfigure.actions import (
    Action,
    Alive,
    Check,
    Forget,
    Install,
    Keep,
    Log,
    Look,
    Looked,
    NoAnswer,
    Passed,
    Probe,
    Reconfigure,
    Refuse,
    Refused,
    Restart,
    Taken,
)
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.refusals import Refusal
from sidecars.reconfigure.states import RETRY, Phase, Rejected, Seen, Settings, State
from sidecars.reconfigure.states import to as _to
from sidecars.slurm.diagnosis import Culprit

RETRY_MOST = 30.0
"""Seconds, from RETRY on, until a check or reconfigure without an answer is tried again."""
PROBE = 0.1
CALM = 0.5
"""Seconds for which slurmctld must answer after a reconfigure: one that dies of it does so within
tenths.
"""
GO = 10.0
"""Seconds within which a slurmctld that was asked to end is gone."""
VERIFY = 20.0
"""Seconds for slurmctld to be calm after it took a reconfigure. One that still listens then keeps
it.
"""
CONTACT = 30.0
"""Seconds for slurmctld to answer a reconfigure. Then a slurmctld that has ended gets the former
set back; one that listens may be slow, and is asked again: it may have taken the request.
"""
PATIENCE = 5.0
"""Seconds for a starting slurmctld to come up before another candidate is looked at."""
START = 90.0
"""Seconds for slurmctld to come up with a set that it has never run; after them the last good one
replaces it.
"""
_SLURMCTLD = "slurmctld"


def step(settings: Settings, state: State, seen: Seen, now: float) -> tuple[State, list[Action]]:
    """Return the next state and what to do, at most one of it to be answered."""
    match state.phase:
        case Phase.BEGIN:
            return _begin(state, seen, now)
        case Phase.CHECK:
            return _checked(settings, state, seen, now)
        case Phase.APPLY:
            return _applied(state, seen, now)
        case Phase.VERIFY:
            return _verified(state, seen, now)
        case Phase.WATCH:
            return _watched(state, seen, now)
        case Phase.START:
            return _started(state, seen, now)
        case Phase.SETTLED:
            return _settled(settings, state, seen, now)


def due(state: State, now: float) -> bool:
    """Return whether a step is due although nothing changed."""
    return state.phase is not Phase.SETTLED or (
        state.rejected is not None and not state.rejected.final and now >= state.retry
    )


def _begin(state: State, seen: Seen, now: float) -> tuple[State, list[Action]]:
    if (
        not watch.is_refused(seen.present, seen)
        and seen.interrupted
        and seen.present is not None
        and seen.good is not None
        and seen.present.config != seen.good.config
    ):
        # This container ended while it brought a set in: whether slurmctld took that is not known.
        # A set that ran before another slurmctld stored a newer one as good is not such a one, and
        # must not replace that.
        changes = {
            "installed": seen.present,
            "accepted": seen.present,
            "trying": seen.present,
            "former": seen.good,
        }
        return _to(state, Phase.APPLY, now, **changes), [
            Log(f"asking again for {seen.present}"),
            Reconfigure(),
        ]
    if seen.present is not None and seen.good is None:
        # This container ended during the first start: what comes up is kept.
        changes = {"installed": seen.present, "accepted": seen.present, "trying": seen.present}
        return _to(state, Phase.START, now, **changes), [Probe()]
    if seen.present is not None:
        # Only this container was restarted: slurmctld runs on with what lies there.
        known = _to(
            state,
            Phase.SETTLED,
            now,
            installed=seen.present,
            running=seen.present,
            accepted=seen.present,
        )
        return known, [Log(f"slurmctld has configuration {seen.present}")]
    if seen.candidate is None:
        if seen.good is None:
            return state, []
        return _take(state, seen.good, now, "the candidate is incomplete: last good configuration")
    if seen.good is not None and seen.candidate.config == seen.good.config:
        return _take(
            dataclasses.replace(state, accepted=seen.candidate),
            seen.candidate,
            now,
            "configuration as before:",
        )
    rejected = state.rejected
    if (
        rejected is not None
        and rejected.id == seen.candidate
        and (rejected.final or now < state.retry)
    ):
        return state, []
    if watch.is_refused(seen.candidate, seen):
        refused = dataclasses.replace(state, rejected=watch.rejection(seen))
        return _kept_out(refused, seen, now, f"slurmds ended of configuration {seen.candidate}")
    return _to(state, Phase.CHECK, now, trying=seen.candidate), [Check(seen.candidate)]


def _take(state: State, what: Id, now: float, why: str) -> tuple[State, list[Action]]:
    taken = _to(state, Phase.START, now, installed=what, trying=None)
    return taken, [Log(f"{why} {what}"), Install(what), Probe()]


def _checked(
    settings: Settings, state: State, seen: Seen, now: float
) -> tuple[State, list[Action]]:
    trying = state.trying
    assert trying is not None  # noqa: S101 - this phase always has one
    # What is installed was never read, or by none that still lives: the next start reads what lies
    # there then.
    fresh = state.installed is None or state.running != state.installed
    match seen.answer:
        case Passed(restart, slurmds):
            passed = dataclasses.replace(state, accepted=trying, rejected=None, delay=RETRY)
            log = Log(f"configuration {trying} passed the dry run")
            if fresh:
                started = _to(passed, Phase.START, now, installed=trying, trying=trying)
                return started, [log, Install(trying), Probe()]
            if not settings.live:
                return _to(passed, Phase.SETTLED, now, trying=None), [log]
            # One about which nothing is known yet is not what to go back to.
            former = state.former or state.installed
            applied = _to(
                passed,
                Phase.APPLY,
                now,
                installed=trying,
                former=former,
                slurmds=slurmds,
                silent={},
                restoring=False,
            )
            if restart:
                why = Log(f"slurmctld is restarted for {restart}")
                return dataclasses.replace(applied, restart=restart), [
                    log,
                    why,
                    Install(trying),
                    Restart(),
                ]
            return dataclasses.replace(applied, restart=""), [log, Install(trying), Reconfigure()]
        case Refused(culprit):
            refused = dataclasses.replace(
                state, rejected=Rejected(trying, Stage.DRY_RUN, culprit, now), delay=RETRY
            )
            return _kept_out(refused, seen, now, f"configuration {trying} is refused: {culprit}")
        case NoAnswer(reason):
            rejected = Rejected(
                trying,
                Stage.DRY_RUN,
                Culprit(f"the dry run had no result: {reason}"),
                now,
                final=False,
            )
            unknown = _later(dataclasses.replace(state, rejected=rejected), now)
            return _kept_out(
                unknown, seen, now, f"configuration {trying} can't be checked: {reason}"
            )
        case _:
            return state, [Check(trying)]


def _kept_out(state: State, seen: Seen, now: float, message: str) -> tuple[State, list[Action]]:
    """Keep the candidate out: a running slurmctld is not changed, and a new pod takes the last good
    set if any.
    """
    if state.installed is not None:
        if state.running != state.installed:
            return _to(state, Phase.START, now, trying=None), [Log(message), Probe()]
        if state.former is not None:
            # The one before it is still watched.
            return _to(state, Phase.WATCH, now, trying=state.installed), [Log(message)]
        return _to(state, Phase.SETTLED, now, trying=None), [Log(message)]
    if seen.good is not None:
        taken, actions = _take(state, seen.good, now, "last good configuration")
        return taken, [Log(message), *actions]
    return _to(state, Phase.BEGIN, now, trying=None), [
        Log(f"{message}; slurmctld waits, as no last good one exists")
    ]


def _applied(state: State, seen: Seen, now: float) -> tuple[State, list[Action]]:
    match seen.answer:
        case Taken():
            return _to(
                state, Phase.VERIFY, now, rejected=state.rejected if state.restoring else None
            ), [Probe()]
        case Refused(culprit) if state.restoring:
            log = Log(f"slurmctld is restarted for configuration {state.trying}: {culprit}")
            return _to(state, Phase.START, now, trying=None, restoring=False), [log, Restart()]
        case Refused(culprit):
            return _back(state, culprit, now)
        case NoAnswer(reason) if not state.unanswered:
            return dataclasses.replace(state, unanswered=reason), [Probe()]
        case Alive() | NoAnswer():
            return _unanswered(state, seen.answer == Alive(False), now)
        case _ if now < state.wake:
            return state, []
        case _:
            return state, [Restart() if state.restart else Reconfigure()]


def _unanswered(state: State, ended: bool, now: float) -> tuple[State, list[Action]]:
    """Ask again later. `ended`: whether nothing listens at slurmctld's port."""
    trying = state.trying
    assert trying is not None  # noqa: S101 - this phase always has one
    again = dataclasses.replace(state, unanswered="", wake=now + RETRY)
    if now - state.since < CONTACT:
        return again, []
    culprit = Culprit(f"slurmctld has not answered for {CONTACT:g} s: {state.unanswered}")
    if ended:
        return _back(again, culprit, now, final=False, daemon=_SLURMCTLD)
    if state.rejected is not None:
        return again, []
    rejected = Rejected(trying, Stage.RECONFIGURE, culprit, now, final=False)
    return dataclasses.replace(again, rejected=rejected), [
        Log(f"configuration {trying}: {culprit}; asked again")
    ]


def _verified(state: State, seen: Seen, now: float) -> tuple[State, list[Action]]:
    restarting = bool(state.restart)
    allowed = START if restarting else VERIFY
    late = now - state.since >= allowed
    unheard = Culprit(f"slurmctld read the configuration and did not answer for {allowed:g} s")
    assert state.trying is not None  # noqa: S101 - this phase always has one
    match seen.answer:
        case Alive(yes=True) if restarting and not state.gone and now - state.since < GO:
            return dataclasses.replace(state, wake=now + PROBE), []
        case Alive(yes=True):
            calm = now if state.calm is None else state.calm
            if now - calm >= CALM:
                rejected = state.rejected if state.restoring else None
                runs = _to(state, Phase.WATCH, now, running=state.installed, rejected=rejected)
                log = Log(f"slurmctld runs configuration {state.trying}")
                if state.slurmds:
                    return runs, [log]
                kept, actions = _kept(runs, seen, now)
                return kept, [log, *actions]
            return dataclasses.replace(state, calm=calm, wake=now + PROBE), []
        case Alive() if late:
            return _back(state, unheard, now, daemon=_SLURMCTLD)
        case NoAnswer() if late:
            # It runs the new set, and may be slow: its livenessProbe ends one that hangs.
            unknown = Rejected(
                state.trying, Stage.RECONFIGURE, unheard, now, final=False, daemon=_SLURMCTLD
            )
            rejected = state.rejected or unknown
            return dataclasses.replace(state, rejected=rejected, wake=now + RETRY), []
        case Alive() if not restarting and (state.calm is not None or now - state.since >= CALM):
            # Its port is closed: it ended, and the kubelet starts it again, with the former set.
            culprit = Culprit("slurmctld ended when it read the configuration")
            return _back(state, culprit, now, daemon=_SLURMCTLD)
        case Alive():
            return dataclasses.replace(state, gone=True, calm=None, wake=now + PROBE), []
        case NoAnswer():
            return dataclasses.replace(state, wake=now + PROBE), []
        case _ if now < state.wake:
            return state, []
        case _:
            return state, [Probe()]


def _back(
    state: State, culprit: Culprit, now: float, *, final: bool = True, daemon: str = ""
) -> tuple[State, list[Action]]:
    """Put the former set back under a slurmctld that refused the new one, or died of it: of
    `daemon`'s log.
    """
    trying, former = state.trying, state.former
    assert trying is not None  # noqa: S101 - this phase always has one
    over = {"trying": None, "former": None, "restart": "", "slurmds": (), "restoring": False}
    if state.restoring:
        # The former one lies there, and slurmctld starts again with it.
        return _to(state, Phase.START, now, **over), [
            Log(f"configuration {trying}: {culprit}"),
            Probe(),
        ]
    assert former is not None  # noqa: S101 - something ran before
    rejected = Rejected(trying, Stage.RECONFIGURE, culprit, now, final, daemon)
    back = _to(
        _later(dataclasses.replace(state, rejected=rejected), now),
        Phase.START,
        now,
        installed=former,
        **over,
    )
    log = Log(f"configuration {trying} is reverted: {culprit}")
    return back, [log, Install(former), Probe()]


def _watched(state: State, seen: Seen, now: float) -> tuple[State, list[Action]]:
    """Watch slurmctld, which runs with the set. Its slurmds may end of it yet. A restored one is
    kept when they run again.
    """
    late = now - state.since >= watch.WATCH
    match seen.answer:
        case Looked() as found:
            left, silent = watch.looked(state.slurmds, state.silent, found, now)
            ended = () if state.restoring else watch.ended(silent, now)
            if ended and state.former is not None and state.trying != state.former:
                return _restored(state, ended, now)
            looked = dataclasses.replace(state, slurmds=left, silent=silent, wake=now + watch.LOOK)
            return _kept(looked, seen, now) if late or not left else (looked, [])
        case NoAnswer():
            return (
                _kept(state, seen, now)
                if late
                else (dataclasses.replace(state, wake=now + watch.LOOK), [])
            )
        case _ if (
            seen.candidate is not None
            and not (state.silent or state.restoring)
            and _is_new(state, seen, now)
        ):
            return _to(state, Phase.CHECK, now, trying=seen.candidate), [Check(seen.candidate)]
        case _ if now < state.wake:
            return state, []
        case _:
            return state, [Look(state.slurmds)]


def _kept(state: State, seen: Seen, now: float) -> tuple[State, list[Action]]:
    """Return the set that slurmctld runs is the last good one."""
    assert state.trying is not None  # noqa: S101 - this phase always has one
    stored: list[Action] = [Keep(state.trying)] if state.restoring else _stored(state.trying, seen)
    none = dataclasses.replace(
        state, trying=None, former=None, slurmds=(), silent={}, restoring=False
    )
    return _to(none, Phase.SETTLED, now), stored


def _stored(which: Id, seen: Seen) -> list[Action]:
    """Another set than the refused one: the user has changed that."""
    return [Keep(which)] if seen.refused is None else [Keep(which), Forget()]


def _restored(state: State, nodes: tuple[str, ...], now: float) -> tuple[State, list[Action]]:
    """Bring the former set in again, because slurmds ended of this one."""
    trying, former = state.trying, state.former
    assert trying is not None and former is not None  # noqa: S101, PT018 - this phase always has them
    culprit = watch.culprit(nodes, len(state.slurmds))
    rejected = Rejected(trying, Stage.SLURMD, culprit, now, daemon=watch.SLURMD, nodes=nodes)
    log = Log(f"configuration {trying} is reverted: {culprit}")
    state, actions = _bring_back(dataclasses.replace(state, rejected=rejected), former, now)
    return state, [log, Refuse(Refusal(trying.config, culprit, nodes, now)), *actions]


def _bring_back(state: State, good: Id, now: float) -> tuple[State, list[Action]]:
    slurmds = tuple(it for it in state.slurmds if it.name in state.silent)
    changes = {
        "installed": good,
        "trying": good,
        "former": None,
        "slurmds": slurmds,
        "restoring": True,
    }
    return _to(state, Phase.APPLY, now, **changes), [
        Install(good),
        Restart() if state.restart else Reconfigure(),
    ]


def _started(state: State, seen: Seen, now: float) -> tuple[State, list[Action]]:
    """Watch slurmctld start with what is installed. `trying` is set if it never ran that."""
    match seen.answer:
        case Alive(yes=True):
            calm = now if state.calm is None else state.calm
            if now - calm < CALM:
                return dataclasses.replace(state, calm=calm, wake=now + PROBE), []
            done = _to(state, Phase.SETTLED, now, running=state.installed, trying=None)
            log = Log(f"slurmctld runs configuration {state.installed}")
            return done, [log, *_stored(state.trying, seen)] if state.trying is not None else [log]
        case Alive() | NoAnswer() if (
            state.trying is not None and seen.good is not None and now - state.since >= START
        ):
            # It may die of its first real start, or its image may take long: tried again once it
            # runs.
            culprit = Culprit(f"slurmctld did not start within {START:g} s")
            rejected = Rejected(
                state.trying, Stage.START, culprit, now, final=False, daemon=_SLURMCTLD
            )
            late = _later(dataclasses.replace(state, rejected=rejected), now)
            taken, actions = _take(late, seen.good, now, "last good configuration")
            return taken, [Log(f"configuration {state.trying}: {culprit}"), *actions]
        case Alive() | NoAnswer() if (
            seen.candidate is not None
            and _is_new(state, seen, now)
            and now - state.since >= PATIENCE
        ):
            # Nothing runs that a change could disturb, and it may be the cure.
            return _to(state, Phase.CHECK, now, trying=seen.candidate), [Check(seen.candidate)]
        case Alive() | NoAnswer():
            return dataclasses.replace(state, calm=None, wake=now + 5 * PROBE), []
        case _ if now < state.wake:
            return state, []
        case _:
            return state, [Probe()]


def _settled(
    settings: Settings, state: State, seen: Seen, now: float
) -> tuple[State, list[Action]]:
    candidate, good = seen.candidate, seen.good
    if good is not None and watch.is_refused(state.installed, seen):
        # Another slurmctld of the same state has seen slurmds end of it, or this container ended
        # meanwhile.
        return _bring_back(state, good, now)
    if candidate is None:
        return state, []
    if candidate == state.installed:
        # A refused one was reverted by the user.
        accepted = state.accepted if state.rejected is None else candidate
        forget: list[Action] = (
            [Forget()] if seen.refused is not None and state.rejected is not None else []
        )
        return dataclasses.replace(state, rejected=None, accepted=accepted), forget
    if watch.is_refused(candidate, seen):
        known = state.rejected is not None and state.rejected.id == candidate
        return state if known else dataclasses.replace(state, rejected=watch.rejection(seen)), []
    if not settings.live and candidate == state.accepted:
        return state, []
    if not _is_new(state, seen, now):
        return state, []
    return _to(state, Phase.CHECK, now, trying=candidate), [Check(candidate)]


def _is_new(state: State, seen: Seen, now: float) -> bool:
    """Return whether the candidate is one that neither lies there nor was refused."""
    candidate, rejected = seen.candidate, state.rejected
    if candidate == state.installed or watch.is_refused(candidate, seen):
        return False
    return (
        rejected is None or rejected.id != candidate or (not rejected.final and now >= state.retry)
    )


def _later(state: State, now: float) -> State:
    return dataclasses.replace(
        state, retry=now + state.delay, delay=min(2 * state.delay, RETRY_MOST)
    )
