"""Job traces drawn from the model of Lublin and Feitelson, with its parameters for jobs of all
types.

U. Lublin, D. G. Feitelson: The workload on parallel supercomputers: modeling the characteristics of
rigid jobs. Journal of Parallel and Distributed Computing 63(11), 2003, pages 1105-1122.
https://www.cs.huji.ac.il/labs/parallel/workload/m_lublin99/
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, lgamma, log, log2
from random import Random

SERIAL, POWER_OF_TWO = 0.244, 0.576
"""Shares of the jobs with one processor, and with a power of two of them."""
LOW, MIDDLE_BELOW_HIGH, BELOW_MIDDLE = 0.8, 2.5, 0.86
"""The logarithm to base 2 of the processors of other jobs is uniform from LOW to the middle for the
share BELOW_MIDDLE, and from there to that of all processors for the rest.
"""
SHORT, LONG = (4.2, 0.94), (312.0, 0.03)
"""Shape and scale of the gamma distributions of the logarithm of the run time."""
SHORT_SHARE, SHORT_SHARE_PER_PROCESSOR = 0.78, -0.0054
LONGEST_RUN = 12.0
"""The logarithm of the longest run time in seconds."""
ARRIVAL = (10.2303 * 1.0225, 0.4871)
"""Shape and scale of the logarithm of the seconds between two jobs at the mean load of a day."""
LONGEST_GAP = 13.0
OF_DAY = (8.1737, 3.9631)
"""Shape and scale of the distribution of a day's jobs over its half hours."""
HALF_HOURS, FIRST_HALF_HOUR = 48, 11
"""The day of this distribution begins at 5:30."""
HALF_HOUR = 1800.0


@dataclass(frozen=True, slots=True)
class Work:
    """One job. Times are seconds."""

    at: float
    """From the midnight at which the trace begins."""
    processors: int
    seconds: float


def trace(seed: int, count: int, processors: int) -> list[Work]:
    """So many jobs for a cluster with so many processors, in the order of their arrival."""
    random = Random(seed)  # noqa: S311 - no secret
    arrivals = _Arrivals()
    found = []
    for _ in range(count):
        at = arrivals.after(_below(LONGEST_GAP, lambda: random.gammavariate(*ARRIVAL)))
        size = _processors(random, processors)
        found.append(Work(at, size, _seconds(random, size)))
    return found


def _below(most: float, draw: Callable[[], float]) -> float:
    """A draw that is not above the limit."""
    while (found := draw()) > most:
        pass
    return found


def _processors(random: Random, most: int) -> int:
    kind = random.random()
    if kind < SERIAL:
        return 1
    high = log2(most)
    middle = high - MIDDLE_BELOW_HIGH
    low_half = random.random() < BELOW_MIDDLE
    found = random.uniform(LOW, middle) if low_half else random.uniform(middle, high)
    if kind < SERIAL + POWER_OF_TWO:
        found = round(found)
    return min(most, max(1, round(2**found)))


def _seconds(random: Random, processors: int) -> float:
    share = min(1.0, max(0.0, SHORT_SHARE + SHORT_SHARE_PER_PROCESSOR * processors))

    def draw() -> float:
        return random.gammavariate(*(SHORT if random.random() < share else LONG))

    return exp(_below(LONGEST_RUN, draw))


class _Arrivals:
    """Times of arrival: the more jobs a half hour has, the faster its time passes."""

    def __init__(self) -> None:
        weights = [0.0] * HALF_HOURS
        for number in range(FIRST_HALF_HOUR, HALF_HOURS + FIRST_HALF_HOUR):
            share = below(number + 0.5, *OF_DAY) - below(number - 0.5, *OF_DAY)
            weights[(number - 1) % HALF_HOURS] = share
        mean = sum(weights) / HALF_HOURS
        self._weights = [it / mean for it in weights]
        self._sums = [0.0, *accumulate(self._weights)]
        self._passed = 0.0
        """Half hours of mean load."""

    def after(self, logarithm: float) -> float:
        """The time of the next job, after a gap whose logarithm this is at mean load."""
        self._passed += exp(logarithm) / HALF_HOUR
        days, rest = divmod(self._passed, HALF_HOURS)
        at = min(bisect_right(self._sums, rest) - 1, HALF_HOURS - 1)
        part = (rest - self._sums[at]) / self._weights[at] if self._weights[at] else 0.0
        return (days * HALF_HOURS + at + min(1.0, part)) * HALF_HOUR


def below(value: float, shape: float, scale: float) -> float:
    """The share of a gamma distribution below a value: its series, which converges for any."""
    scaled = value / scale
    if scaled <= 0:
        return 0.0
    term = found = 1.0
    number = shape
    while term > 1e-15 * found:
        number += 1
        term *= scaled / number
        found += term
    return exp(shape * log(scaled) - scaled - lgamma(shape + 1)) * found


def work(jobs: Sequence[Work]) -> float:
    """The processor seconds of these jobs."""
    return sum(it.processors * it.seconds for it in jobs)
