"""Another slurm.key without a lost job: which keys Slurm's daemons are given, step by step.

    one key ─ Add: both, the old one signs ─ Switch: both, the new one signs ─ Remove: the new one
    alone

Every daemon has the keys of a step before the next is taken, so that at each moment everyone
understands everyone. What daemons have is a Secret that the operator keeps; the Secrets that a
custom resource names are only what is asked for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sidecars.policy.conditions import Condition, timestamp
from sidecars.policy.reasons import SlurmKey
from sidecars.slurm import jwks
from sidecars.slurm.jwks import Ring

TYPE = "SlurmKey"

SETTLE_SECONDS = 100.0
"""Seconds after a step before the next: a kubelet that missed every hint updates its volumes within
that.
"""

NUDGE_SECONDS = (0.0, 3.0)
"""Seconds after a step when pods are annotated. The second time is for a kubelet whose own watch
was late.
"""

READ_SECONDS = 5.0
"""Seconds that daemons need to read their keys, once slurmctld was asked to have them read."""

ASK_AGAIN_SECONDS, ASK_AGAIN_MOST_SECONDS = 60.0, 600.0
"""Seconds after a failed request until slurmctld is asked again: doubled each time, up to the
second number.

It reads its whole configuration for each request, also for one whose answer comes too late for
slurmrestd.
"""

CLOSED_SECONDS = 60.0
"""Seconds beyond its settling for which the last step is still checked."""

READING = "all daemons read them"


@dataclass(frozen=True, slots=True)
class Walk:
    """What has been done so that daemons read the present keys."""

    ring: str
    """Identifiers of the keys."""
    nudges: int = 0
    """How often the pods were annotated."""
    asked_at: float | None = None
    """When slurmctld had all daemons read them, in seconds since the epoch; None: not yet."""
    failures: int = 0
    """How many requests to slurmctld have failed in a row."""
    failure: str = ""
    """Why the last request failed, or empty."""
    retry_at: float = 0.0
    """When slurmctld may be asked again, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Settling:
    """What is to be done so that daemons read the present keys."""

    walk: Walk
    unsettled: str
    """Why daemons can't be relied on to have them yet, or empty."""
    nudge: bool = False
    """Whether to annotate the pods, so that their kubelets update the volumes."""
    ask: bool = False
    """Whether slurmctld must have all daemons read them: `asked` when it has answered, `failed`
    when not.
    """


def asked(walk: Walk, now: float) -> Walk:
    """Return what is known when slurmctld has answered."""
    return replace(walk, asked_at=now, failures=0, failure="", retry_at=0.0)


def failed(walk: Walk, failure: str, now: float) -> Walk:
    """Return what is known after a failed request to slurmctld. It may have been taken all the
    same.
    """
    wait = min(ASK_AGAIN_SECONDS * 2.0 ** min(walk.failures, 10), ASK_AGAIN_MOST_SECONDS)
    return replace(walk, failures=walk.failures + 1, failure=failure, retry_at=now + wait)


def unanswered(walk: Walk) -> str:
    """Explain why daemons can't be relied on to have the keys after a failed request."""
    return (
        f"slurmctld could not be asked to have all daemons read them: {walk.failure}; "
        f"it is asked again at {timestamp(walk.retry_at)}"
    )


def settle(
    walk: Walk | None,
    present: Ring,
    since: float,
    seconds: float,
    hindrances: Iterable[str],
    now: float,
) -> Settling | None:
    """Return how the present keys settle, None when they have settled for so long that nothing is
    checked.

    `since`: when daemons were given them. `seconds`: how long kubelets need. `hindrances`: why
    daemons can't have them, looked at only when kubelets have had that time.
    """
    age = now - since
    if not present.others and age > seconds + CLOSED_SECONDS:
        return None
    ring = ",".join(map(jwks.identifier, present.keys))
    if walk is None or walk.ring != ring:
        walk = Walk(ring)
    nudge = walk.nudges < len(NUDGE_SECONDS) and age >= NUDGE_SECONDS[walk.nudges]
    if nudge:
        walk = replace(walk, nudges=walk.nudges + 1)
    if age < seconds:
        return Settling(walk, f"pods get them until {timestamp(since + seconds)}", nudge)
    hindrance = next(iter(hindrances), "")
    if hindrance:
        return Settling(replace(walk, asked_at=None), hindrance, nudge)
    if walk.asked_at is None and now < walk.retry_at:
        return Settling(walk, unanswered(walk), nudge)
    if walk.asked_at is None:
        return Settling(walk, "all daemons are asked to read them", nudge, ask=True)
    return Settling(walk, READING if now - walk.asked_at < READ_SECONDS else "", nudge)


@dataclass(frozen=True, slots=True)
class Decision:
    """`ring`: what daemons are to have from now on. `waiting`: a step is under way and must settle
    first.
    """

    ring: Ring
    condition: Condition
    waiting: bool = False


def plan(
    present: Ring | None,
    first: tuple[str, bytes],
    following: tuple[str, bytes] | None,
    unsettled: str,
) -> Decision:
    """Return the next step.

    `present`: what daemons have; None before the first pass. `first` and `following`: name and key
    of the Secrets in `slurmKeyRef` and `nextSlurmKeyRef`. `unsettled`: why daemons can't be relied
    on to have `present` yet, or empty.
    """
    name, key = first
    if following is not None and len(following[1]) <= jwks.MOST_ENTROPY_LACKING:
        message = (
            f"spec.nextSlurmKeyRef: the key in Secret {following[0]!r} has {len(following[1])} "
            f"bytes, and auth/slurm takes none below {jwks.MOST_ENTROPY_LACKING + 1}; the cluster "
            "continues with its key. Use 1024 random bytes"
        )
        return Decision(
            present or Ring(key), Condition(TYPE, "False", SlurmKey.KEY_TOO_SHORT, message)
        )
    if present is None:
        if following is None or following[1] == key:
            return _done(Ring(key), name)
        # The Secret with the daemons' keys was lost: they may have either key.
        return _step(Ring(following[1], (key,)), "Switch", following[0])
    if following is None:
        return _without_following(present, first, unsettled)
    other, wanted = following
    if present == Ring(wanted):
        # The last step needs no more than to be taken; it is done when the daemons have dropped the
        # old key.
        return (
            Decision(*_removing(present, other, unsettled)) if unsettled else _done(present, other)
        )
    if unsettled:
        return Decision(
            present, _progress(_reached(present, wanted), other, unsettled), waiting=True
        )
    if present.default == wanted:
        return _step(Ring(wanted), "Remove", other)
    if wanted in present.others:
        return _step(
            Ring(wanted, tuple(it for it in present.keys if it != wanted)), "Switch", other
        )
    if present.others:
        return _step(Ring(present.default), "Back", other)
    return _step(Ring(present.default, (wanted,)), "Add", other)


def _without_following(present: Ring, first: tuple[str, bytes], unsettled: str) -> Decision:
    name, key = first
    if present.others:
        # No other key is requested: the one that signs is retained.
        if unsettled:
            return Decision(present, _progress("Back", name, unsettled), waiting=True)
        return _step(Ring(present.default), "Back", name)
    if present.default == key:
        return _done(present, name)
    message = (
        f"Secret {name!r} (spec.slurmKeyRef) contains another key than the cluster uses. Daemons "
        "with different keys can't communicate, so they keep theirs. Put the new key into a "
        "Secret of its own and name it in spec.nextSlurmKeyRef: the operator then changes it "
        "step by step. Or put the former key back"
    )
    return Decision(present, Condition(TYPE, "False", SlurmKey.SWAPPED, message))


def _done(ring: Ring, name: str) -> Decision:
    message = f"Slurm uses the key of Secret {name!r} and no other"
    return Decision(ring, Condition(TYPE, "True", SlurmKey.IN_USE, message))


def _reached(present: Ring, wanted: bytes) -> str:
    if present.default == wanted:
        return "Switch"
    return "Add" if wanted in present.others else "Back"


_STEPS = {
    "Add": "step 1 of 3: all daemons get both keys, and sign with the old one",
    "Switch": "step 2 of 3: all daemons sign with the new key, and still accept the old one",
    "Remove": "step 3 of 3: the old key is removed from all daemons",
    "Back": "all daemons return to one key first",
}

_REASONS = {
    "Add": SlurmKey.ADDING,
    "Switch": SlurmKey.SWITCHING,
    "Remove": SlurmKey.REMOVING,
    "Back": SlurmKey.REVERTING,
}


def _progress(step: str, name: str, unsettled: str) -> Condition:
    reason = _REASONS[step]
    waits = f"; {unsettled}" if unsettled else ""
    return Condition(
        TYPE, "False", reason, f"the key of Secret {name!r} is introduced, {_STEPS[step]}{waits}"
    )


def _step(ring: Ring, step: str, name: str) -> Decision:
    return Decision(ring, _progress(step, name, ""), waiting=True)


def _removing(present: Ring, name: str, unsettled: str) -> tuple[Ring, Condition, bool]:
    return present, _progress("Remove", name, unsettled), True
