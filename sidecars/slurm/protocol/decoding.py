"""Answers: what an HTTP status and body mean for a request."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from sidecars.slurm.errors import (
    AuthenticationError,
    ErrorEntry,
    Malformed,
    NotFound,
    Refused,
    Rejected,
    ServerFault,
)
from sidecars.slurm.protocol.fields import Fields, WrongField
from sidecars.slurm.protocol.request import Request

T = TypeVar("T")

# Numbers of slurm_errno.h, grouped by what a caller can do about them.
_AUTHENTICATION = frozenset(
    {
        1007,  # SLURM_PROTOCOL_AUTHENTICATION_ERROR
        2002,  # ESLURM_ACCESS_DENIED
        2010,  # ESLURM_USER_ID_MISSING: the user lacks the right
    }
)

_NOT_FOUND = frozenset(
    {
        2017,  # ESLURM_INVALID_JOB_ID
        2018,  # ESLURM_INVALID_NODE_NAME
    }
)

_RESERVATION_INVALID = (
    2053  # ESLURM_RESERVATION_INVALID: of a reservation to create, or of one that does not exist
)

_FIRST_REJECTION, _AFTER_REJECTIONS = 2000, 3000  # slurmctld's own refusals

_REJECTED_BY_SLURMDBD = frozenset(
    {
        7001,  # ESLURM_JOBS_RUNNING_ON_ASSOC
        7009,  # ESLURM_NO_REMOVE_DEFAULT_ACCOUNT
        7011,  # ESLURM_NO_ASSOC_QOS_ACCESS: a default QOS that an association may not use
        7104,  # ESLURM_INVALID_CLUSTER_NAME
    }
)

_FIRST_PARSER, _AFTER_PARSER = 9000, 9300  # slurmrestd could not read the request

_STATUS_UNCHANGED, _STATUS_UNAUTHORIZED, _STATUS_NO_NETWORK_AUTH = 304, 401, 511


def decode(
    request: Request[T], status: int, body: bytes, *, parse: Callable[[bytes], Any] = json.loads
) -> T:
    """Decode the answer to `request`. Raises a SlurmError other than Unreachable: see
    `sidecars.slurm.errors`.

    `parse` reads JSON and raises ValueError for anything else. It may return Nodes and Jobs instead
    of their JSON.
    """
    if status == _STATUS_UNCHANGED and request.unchanged is not None:
        return request.unchanged()
    try:
        try:
            answer = parse(body)
        except UnicodeDecodeError:
            answer = parse(readable(body))
    except (ValueError, RecursionError):
        # Refusals without JSON: no token, no such endpoint, a proxy in between.
        if status != 200:
            raise _refused(request, status, (), body[:200].decode(errors="replace")) from None
        raise Malformed(str(request), "body", f"no JSON: {body[:80]!r}") from None
    try:
        fields = Fields(answer, "")
        errors = tuple(map(_error, fields.items("errors", optional=True)))
        if status != 200 or errors:
            raise _refused(request, status, errors, "")
        return request.read(fields)
    except WrongField as wrong:
        if status != 200:
            raise _refused(request, status, (), f"{wrong.where} {wrong.message}") from None
        raise Malformed(str(request), wrong.where, wrong.message) from None
    except ValueError as error:
        raise Malformed(str(request), "body", str(error)) from error


def readable(body: bytes) -> bytes:
    """Return the body with a sign in place of all that isn't UTF-8.

    Any user may give a job a name in another encoding, and Slurm's answers contain its bytes.
    """
    return body.decode(errors="replace").encode()


def _refused(
    request: Request[Any], status: int, errors: tuple[ErrorEntry, ...], message: str
) -> Refused:
    numbers = {entry.number for entry in errors}
    kind: type[Refused]
    if status in (_STATUS_UNAUTHORIZED, _STATUS_NO_NETWORK_AUTH) or numbers & _AUTHENTICATION:
        kind = AuthenticationError
    elif (
        numbers & _NOT_FOUND
        or _no_reservation(request, numbers)
        or _silently_unknown(request, status, errors)
    ):
        kind = NotFound
    elif numbers & _REJECTED_BY_SLURMDBD or any(
        _FIRST_REJECTION <= n < _AFTER_REJECTIONS or _FIRST_PARSER <= n < _AFTER_PARSER
        for n in numbers
    ):
        kind = Rejected
    else:
        kind = ServerFault
    return kind(str(request), status, errors, message)


def _no_reservation(request: Request[Any], numbers: set[int]) -> bool:
    return request.method == "DELETE" and _RESERVATION_INVALID in numbers


def _silently_unknown(request: Request[Any], status: int, errors: tuple[ErrorEntry, ...]) -> bool:
    """Return whether one unknown record was read, which fails with "No error"."""
    one = request.method == "GET" and not request.path.endswith("/")
    return one and status == 200 and all(entry.number == 0 for entry in errors)


def _error(entry: Fields) -> ErrorEntry:
    return ErrorEntry(
        number=entry.number("error_number"),
        error=entry.text("error"),
        description=entry.text("description"),
        source=entry.text("source"),
    )
