"""Another slurm.key without a lost job: which keys Slurm's daemons are given, step by step.

    one key ─ Add: both, the old one signs ─ Switch: both, the new one signs ─ Remove: the new one alone

Every daemon has the keys of a step before the next is taken, so that at each moment everyone understands everyone. What
daemons have is a Secret that the operator keeps; the Secrets that a custom resource names are only what is asked for.
"""

from dataclasses import dataclass

from sidecars.policy.conditions import Condition
from sidecars.slurm import jwks
from sidecars.slurm.jwks import Ring

TYPE = "SlurmKey"

SETTLE_SECONDS = 100.0
"""Seconds after a step before the next: a kubelet that missed every hint updates its volumes within that."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`ring`: what daemons are to have from now on. `waiting`: a step is under way and must settle first."""

    ring: Ring
    condition: Condition
    waiting: bool = False


def plan(
    present: Ring | None, first: tuple[str, bytes], following: tuple[str, bytes] | None, unsettled: str
) -> Decision:
    """The next step.

    `present`: what daemons have; None before the first pass. `first` and `following`: name and key of the Secrets in
    `slurmKeyRef` and `nextSlurmKeyRef`. `unsettled`: why daemons can't be relied on to have `present` yet, or empty.
    """
    name, key = first
    if following is not None and len(following[1]) <= jwks.MOST_ENTROPY_LACKING:
        message = (
            f"spec.nextSlurmKeyRef: the key in Secret {following[0]!r} has {len(following[1])} bytes, and auth/slurm "
            f"takes none below {jwks.MOST_ENTROPY_LACKING + 1}; the cluster continues with its key. Use 1024 "
            "random bytes"
        )
        return Decision(present or Ring(key), Condition(TYPE, "False", "KeyTooShort", message))
    if present is None:
        if following is None or following[1] == key:
            return _done(Ring(key), name)
        # The Secret with the daemons' keys was lost: they may have either key.
        return _step(Ring(following[1], (key,)), "Switch", following[0])
    if following is None:
        return _without_following(present, first, unsettled)
    other, wanted = following
    if present == Ring(wanted):
        # The last step needs no more than to be taken; it is done when the daemons have dropped the old key.
        return Decision(*_removing(present, other, unsettled)) if unsettled else _done(present, other)
    if unsettled:
        return Decision(present, _progress(_reached(present, wanted), other, unsettled), waiting=True)
    if present.default == wanted:
        return _step(Ring(wanted), "Remove", other)
    if wanted in present.others:
        return _step(Ring(wanted, tuple(it for it in present.keys if it != wanted)), "Switch", other)
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
        f"Secret {name!r} (spec.slurmKeyRef) contains another key than the cluster uses. Daemons whose key is swapped "
        "at once don't understand each other, so they keep theirs. Put the new key into a Secret of its own and name "
        "it in spec.nextSlurmKeyRef: the operator then changes it step by step. Or put the former key back"
    )
    return Decision(present, Condition(TYPE, "False", "Swapped", message))


def _done(ring: Ring, name: str) -> Decision:
    message = f"Slurm uses the key of Secret {name!r} and no other"
    return Decision(ring, Condition(TYPE, "True", "InUse", message))


def _reached(present: Ring, wanted: bytes) -> str:
    if present.default == wanted:
        return "Switch"
    return "Add" if wanted in present.others else "Back"


_STEPS = {
    "Add": "step 1 of 3: all daemons are given both keys, and sign with the old one",
    "Switch": "step 2 of 3: all daemons sign with the new key, and still take the old one",
    "Remove": "step 3 of 3: the old key is taken from all daemons",
    "Back": "all daemons have one key before anything else",
}


def _progress(step: str, name: str, unsettled: str) -> Condition:
    reason = {"Add": "Adding", "Switch": "Switching", "Remove": "Removing", "Back": "GoingBack"}[step]
    waits = f"; {unsettled}" if unsettled else ""
    return Condition(TYPE, "False", reason, f"the key of Secret {name!r} is brought in, {_STEPS[step]}{waits}")


def _step(ring: Ring, step: str, name: str) -> Decision:
    return Decision(ring, _progress(step, name, ""), waiting=True)


def _removing(present: Ring, name: str, unsettled: str) -> tuple[Ring, Condition, bool]:
    return present, _progress("Remove", name, unsettled), True
