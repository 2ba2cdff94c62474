"""The ResourceClaims of the small Kubernetes of `model`: seen late, and deleted some time after the
pod.

The bridge's cache of them is a prefix of their history, as a watch gives it. Its writes are refused
when the claim has changed since the version that it has seen. An answer may be lost, with or
without the write.
"""

import random
from dataclasses import dataclass, field

from sidecars.bridge.core.devices import Claim, Device, Granted, Wish
from sidecars.bridge.core.records import Deallocate, Grant

GPUS = 2
"""Of each node."""
GRES = "gpu:h100"

_Version = tuple[int, tuple[Granted, ...] | None]


def gpu(node: str, index: int) -> Device:
    """The device of an index."""
    return Device("driver", node, f"gpu-{index}")


def claim_of(pod: str) -> str:
    """The uid of the claim of a pod."""
    return f"claim-{pod}"


@dataclass
class SimClaims:
    """All claims, and what the bridge knows of them."""

    rng: random.Random
    stored: dict[str, _Version] = field(default_factory=dict)
    """Version and devices."""
    cache: dict[str, _Version] = field(default_factory=dict)
    sent: dict[str, tuple[Granted, ...]] = field(default_factory=dict)
    """What the bridge remembers to have sent."""
    returned: dict[str, int] = field(default_factory=dict)
    """The versions of claims whose devices it remembers to have taken back."""
    numbers: dict[str, int] = field(default_factory=dict)
    """How many devices a claim requests."""
    taken_back: int = 0
    """How often a claim lost its devices."""
    _history: list[tuple[str, _Version | None]] = field(default_factory=list)
    _seen: int = 0
    _doomed: list[tuple[int, str]] = field(default_factory=list)

    def create(self, pod: str, number: int) -> None:
        """Of a new pod."""
        self.numbers[claim_of(pod)] = number
        self._store(claim_of(pod), None)

    def end(self, pod: str, step: int) -> None:
        """The pod doesn't need it by now."""
        if claim_of(pod) in self.stored:
            self._doomed.append((step + self.rng.randrange(5), claim_of(pod)))

    def advance(self, step: int) -> None:
        """kube-controller-manager deletes those of pods that have ended."""
        for due, uid in [it for it in self._doomed if it[0] <= step]:
            self._doomed.remove((due, uid))
            if self.stored.pop(uid, None) is not None:
                self._history.append((uid, None))

    def observe(self, *, all_of: bool = False) -> None:
        """The cache catches up with a part of the history, or with all."""
        until = len(self._history) if all_of else self.rng.randint(self._seen, len(self._history))
        for uid, version in self._history[self._seen : until]:
            if version is None:
                self.cache.pop(uid, None)
            else:
                self.cache[uid] = version
        self._seen = until
        for uid in list(self.sent):
            if uid not in self.cache or self.cache[uid][1] is not None:
                del self.sent[uid]

    def of(self, pod: str) -> tuple[Claim, ...] | None:
        """The claims of a pod as the bridge sees them."""
        uid = claim_of(pod)
        number = self.numbers.get(uid, 0)
        if not number:
            return ()
        if uid not in self.cache:
            return None
        granted = self.cache[uid][1]
        wishes = (Wish("gpu", GRES, number),)
        shown = granted is not None
        returned = self.returned.get(uid) == self.cache[uid][0]
        return (
            Claim(
                uid,
                uid,
                wishes,
                granted if shown else self.sent.get(uid),
                shown=shown,
                returned=returned,
            ),
        )

    def holders(self) -> dict[Device, set[str]]:
        """As `claims.holders`."""
        found: dict[Device, set[str]] = {}
        shown = {uid: granted or () for uid, (_, granted) in self.cache.items()}
        for uid, granted in (*shown.items(), *self.sent.items()):
            for _, device in granted:
                found.setdefault(device, set()).add(uid)
        return found

    def grant(self, action: Grant) -> None:
        """As the effects do."""
        uid = action.claim.uid
        self.sent[uid] = action.granted
        fate = self.rng.random()
        if fate < 0.1:
            return
        if not self._write(uid, action.granted):
            self.sent.pop(uid, None)

    def deallocate(self, action: Deallocate) -> None:
        """As the effects do."""
        self.returned[action.claim.uid] = self.cache[action.claim.uid][0]
        if self.rng.random() < 0.9:
            self.sent.pop(action.claim.uid, None)
            self._write(action.claim.uid, None)

    def forge(self, pod: str, node: str, index: int) -> None:
        """Another one allocates a device to the claim of a pod that waits."""
        uid = claim_of(pod)
        if uid in self.stored and self.stored[uid][1] is None:
            self._store(uid, (Granted("gpu", gpu(node, index)),))

    def has(self, pod: str) -> tuple[Device, ...] | None:
        """What the pod really has."""
        found = self.stored.get(claim_of(pod), (0, None))[1]
        return None if found is None else tuple(device for _, device in found)

    def _write(self, uid: str, granted: tuple[Granted, ...] | None) -> bool:
        if uid not in self.stored or self.stored[uid] != self.cache.get(uid):
            return False
        self.taken_back += granted is None
        self._store(uid, granted)
        return True

    def _store(self, uid: str, granted: tuple[Granted, ...] | None) -> None:
        self.stored[uid] = len(self._history), granted
        self._history.append((uid, self.stored[uid]))
