"""When to poll, and whether the last answer is still good. Pure: the caller passes the time.

Each fault doubles the pause, up to `MAX_PAUSE`. `BREAKER_FAULTS` in a row open the circuit breaker.
An idle cluster is polled `CALM_FACTOR` times less often: with dozens of clusters, polling is all
that an operator does at rest.
"""

import random
from collections import deque

STALE_AFTER = 10.0
"""Seconds after which the last good answer is stale; ten intervals if that is more.

A cluster that is polled less often gets the additional pause on top."""

BREAKER_FAULTS = 3
"""Faults in a row that open the circuit breaker."""

CALM_FACTOR = 7.0
"""How many times less often an idle cluster is polled."""

MAX_PAUSE = 10.0
"""Longest pause in seconds between polls after faults, before jitter."""

HURRY_FOR = 30.0
"""Seconds for which a cluster is polled twice as often after a decision began to wait for its next
answer.
"""

_LOAD_FACTOR = 4.0  # the pause is at least this many times as long as an answer takes
_COSTS = (
    3  # the quickest of so many answers counts: a single slow one may be due to load of our own
)


class PollSchedule:
    """The schedule of one cluster. `interval` is the seconds between polls of a busy cluster."""

    def __init__(self, interval: float, rng: random.Random) -> None:
        self._interval = interval
        self._rng = rng
        self._costs: dict[bool, deque[float]] = {
            news: deque(maxlen=_COSTS) for news in (False, True)
        }
        self._cost = 0.0
        self.faults = 0
        """Faults in a row."""
        self.fault = ""
        """The last fault, "" after a good answer."""
        self.good_at: float | None = None
        """When the last good answer was asked for; None before the first."""
        self.first_good_at: float | None = None
        """When the first good answer was asked for."""
        self.arrived_at: float | None = None
        """When the last good answer arrived."""
        self._hurried_until = float("-inf")

    @property
    def breaker_open(self) -> bool:
        """Whether no request should be sent but polls."""
        return self.faults >= BREAKER_FAULTS

    def hurry(self, now: float) -> None:
        """Poll twice as often for `HURRY_FOR`."""
        self._hurried_until = now + HURRY_FOR

    def failed(self, fault: str) -> None:
        """Record a failed poll."""
        self.faults += 1
        self.fault = fault

    def open_breaker(self, fault: str) -> None:
        """Record a fault that stops polling: it counts like `BREAKER_FAULTS` in a row."""
        self.faults, self.fault = BREAKER_FAULTS, fault

    def succeeded(self, asked_at: float, arrived_at: float) -> None:
        """Record a good answer."""
        self.faults, self.fault = 0, ""
        self.good_at, self.arrived_at = asked_at, arrived_at
        self.first_good_at = asked_at if self.first_good_at is None else self.first_good_at

    def took(self, seconds: float, *, news: bool) -> None:
        """Record how long an answer took until it was applied; `news`: it was a list of nodes."""
        costs = self._costs[news]
        costs.append(seconds)
        self._cost = min(costs)

    def fresh(self, now: float, *, calm: bool) -> bool:
        """Return whether the last good answer is recent enough. `calm`: the cluster is polled less
        often.
        """
        limit = max(STALE_AFTER, 10 * self._interval) + self._interval * (_tempo(calm) - 1)
        return self.good_at is not None and now - self.good_at <= limit

    def pause(self, now: float, *, calm: bool) -> float:
        """Return the seconds until the next poll."""
        if self.faults:
            doubled: float = min(MAX_PAUSE, self._interval * 2.0 ** min(self.faults - 1, 10))
            return doubled * self._rng.uniform(0.8, 1.2)
        pause = self._interval * (0.5 if now < self._hurried_until else _tempo(calm))
        if pause > self._interval:
            # All idle clusters at the same time: many requests in a row cost a third of as many
            # separate ones.
            pause -= now % pause
        return max(pause, self.least_pause())

    def least_pause(self) -> float:
        """Return the seconds until the next poll even if it is woken. Expensive answers are asked
        for less often.
        """
        return max(self._interval / 5, min(MAX_PAUSE / 2, _LOAD_FACTOR * self._cost))


def _tempo(calm: bool) -> float:
    return CALM_FACTOR if calm else 1.0
