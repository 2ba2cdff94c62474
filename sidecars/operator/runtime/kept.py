"""Remembers which changes of workloads are not applied, and which sizes of claims the API server
has refused.
"""

from collections.abc import Iterable, Sequence

from sidecars.policy.immutable import Resize

AGAIN_SECONDS = 300.0
"""How long a refused size is not asked for again: no event shows that a StorageClass or a quota has
changed.
"""

Place = tuple[str, str, str]
"""Kind, namespace and name."""


class Kept:
    """All times are seconds of one clock."""

    def __init__(self) -> None:
        self._kept: dict[Place, Sequence[str]] = {}
        self._refused: dict[tuple[str, Resize], tuple[str, float]] = {}
        """By namespace and size of a claim: the answer of the API server, and until when it counts.
        """

    def of(self, kind: str, namespace: str, name: str) -> Sequence[str]:
        """Return what of the workload is not applied, as in `immutable.Plan.kept`."""
        return self._kept.get((kind, namespace, name), ())

    def remember(self, place: Place, kept: Sequence[str]) -> None:
        """Remember what is not applied now."""
        self._kept[place] = kept

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Forget a workload that is gone."""
        self._kept.pop((kind, namespace, name), None)

    def refuse(self, namespace: str, resize: Resize, answer: str, now: float) -> None:
        """Record that the API server has refused the size."""
        self._refused[namespace, resize] = answer, now + AGAIN_SECONDS

    def refusals(self, namespace: str, sizes: Iterable[Resize], now: float) -> dict[str, str]:
        """Return by claim why it doesn't get this size, as far as that was asked not long ago."""
        self._refused = {key: it for key, it in self._refused.items() if it[1] > now}
        found = {it.claim: self._refused.get((namespace, it)) for it in sizes}
        return {claim: refused[0] for claim, refused in found.items() if refused is not None}
