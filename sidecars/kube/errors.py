"""What can go wrong when talking to Kubernetes, by what the caller can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for text that isn't the JSON asked for."""


class KubeError(Exception):
    """Every failure of this package."""


class Unreachable(KubeError):
    """No answer: refused, cut, or not within the deadline. A write may or may not have happened."""


class Malformed(KubeError):
    """An answer that isn't what the API promises. Names the request, and the field where one is
    wrong.
    """


class CredentialsError(KubeError):
    """No usable credentials. Names the file (or plug-in), the field and the remedy; never contains
    a secret.
    """


class LeadershipLost(KubeError):
    """This process does not hold the lease: a write was not sent, or leading must end."""


class ApiError(KubeError):
    """The API server refused. `status` is the HTTP status, `reason` and `details` are those of the
    Status object.

    See https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        details: Mapping[str, Any] | None = None,
        request: str = "",
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.request = request
        """Method and path, for the log."""

    def __str__(self) -> str:
        where = f"{self.request}: " if self.request else ""
        return f"{where}{self.status} {self.reason or 'Unknown'}: {self.message or 'no message'}"


class Unauthorized(ApiError):
    """401: the credentials aren't valid (expired, revoked), also after they were read again."""


class Forbidden(ApiError):
    """403: a role is missing, a quota is exceeded, the namespace is terminating, or an admission
    plug-in refused.
    """


class NotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 AlreadyExists: a create of a name that is taken."""


class Conflict(ApiError):
    """409 otherwise: the resourceVersion or uid isn't the one asked for, or a field belongs to
    another manager.
    """


class Gone(ApiError):
    """410, or `Expired` in a watch: the asked resourceVersion or continue token is too old. List
    again.
    """


class Invalid(ApiError):
    """422: the object breaks a rule; `details["causes"]` names the fields. Retrying the same body
    is in vain.
    """


class TooManyRequests(ApiError):
    """429: the server is overloaded. `retry_after` in seconds; None if the server gave none."""

    retry_after: float | None = None


class ServerError(ApiError):
    """5xx. A write may or may not have happened."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Gone": Gone,
}


def api_error(
    status: int,
    reason: str = "",
    message: str = "",
    details: Mapping[str, Any] | None = None,
    *,
    request: str = "",
    retry_after: float | None = None,
) -> ApiError:
    """Return the ApiError of the class that fits the reason, else the status."""
    causes = (details or {}).get("causes") or ()
    if any(
        isinstance(cause, Mapping) and cause.get("reason") == "ResourceVersionTooLarge"
        for cause in causes
    ):
        reason = (
            "Expired"  # a version of another time (etcd was restored): as useless as one too old
        )
    cls = (
        _BY_REASON.get(reason)
        or _BY_STATUS.get(status)
        or (ServerError if status >= 500 else ApiError)
    )
    error = cls(status, reason, message, details, request)
    if isinstance(error, TooManyRequests):
        error.retry_after = retry_after
    return error
