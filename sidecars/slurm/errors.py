"""Failures of calls to Slurm, as types. Callers distinguish them by type or number, never by a
message's words.
"""

from dataclasses import dataclass

from sidecars.contract.text import printable


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One entry of an answer's `errors`: Slurm's number (0 when it gave none), its name, and the
    two texts.
    """

    number: int
    error: str = ""
    description: str = ""
    source: str = ""


class SlurmError(Exception):
    """Base of all failures of a call to Slurm. `request` is the call, for example `GET nodes/`.

    The message may quote Slurm: it is bounded and printable.
    """

    def __init__(self, request: str, message: str) -> None:
        super().__init__(printable(f"{request}: {message}"))
        self.request = request


class Unreachable(SlurmError):
    """No complete answer within the deadline: refused, reset, cut off, timed out, or not sent by a
    circuit breaker.
    """


class NotYet(SlurmError):
    """The request is still in progress. The caller is notified when it ends."""


class NoToken(SlurmError):
    """Nothing was sent, because no token could be signed: the key can't be read, or is empty."""


class Malformed(SlurmError):
    """The answer doesn't follow the REST schema. `source` is the call, `field` the place in the
    body.
    """

    def __init__(self, request: str, field: str, message: str) -> None:
        super().__init__(request, f"{field}: {message}")
        self.field = field

    @property
    def source(self) -> str:
        """The call that got the answer."""
        return self.request


class Refused(SlurmError):
    """An answer that reports errors, with Slurm's own words about them."""

    def __init__(
        self, request: str, status: int, errors: tuple[ErrorEntry, ...], message: str = ""
    ) -> None:
        reasons = "; ".join(_line(entry) for entry in errors) or message or "no reason given"
        super().__init__(request, f"HTTP {status}: {reasons}")
        self.status = status
        self.errors = errors

    @property
    def numbers(self) -> frozenset[int]:
        """Slurm's error numbers in the answer (slurm_errno.h)."""
        return frozenset(entry.number for entry in self.errors if entry.number)


class AuthenticationError(Refused):
    """The token was refused: wrong key, expired, unknown user, or no right to do this."""


class NotFound(Refused):
    """slurmctld doesn't know the named node, job or reservation. Slurm answered; nothing is
    broken.
    """


class Rejected(Refused):
    """slurmctld understood the request and rejected it (invalid state change, busy node, bad name,
    …).
    """


class ServerFault(Refused):
    """slurmrestd or slurmctld is out of order: slurmctld unreachable for it, HTTP 5xx, an unknown
    error.
    """


def _line(entry: ErrorEntry) -> str:
    text = ": ".join(part for part in (entry.error, entry.description) if part) or "error"
    return f"{text} ({entry.number})" if entry.number else text
