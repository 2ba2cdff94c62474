"""Which refusal becomes which class."""

from __future__ import annotations

import pytest

from sidecars.kube import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from sidecars.kube.errors import api_error

TOO_LARGE = {
    "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
}


@pytest.mark.parametrize(
    ("status", "reason", "want"),
    [
        (400, "BadRequest", ApiError),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (410, "", Gone),
        (0, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (503, "", ServerError),
    ],
)
def test_a_refusal_has_the_class_of_its_reason_or_status(
    status: int, reason: str, want: type[ApiError]
) -> None:
    assert type(api_error(status, reason)) is want


def test_a_version_of_the_future_is_as_useless_as_one_too_old() -> None:
    assert isinstance(api_error(504, "Timeout", details=TOO_LARGE), Gone)


def test_an_error_names_request_status_reason_and_message() -> None:
    error = api_error(
        404,
        "NotFound",
        'pods "p" not found',
        {"name": "p"},
        request="GET /api/v1/namespaces/ns/pods/p",
    )
    assert str(error) == 'GET /api/v1/namespaces/ns/pods/p: 404 NotFound: pods "p" not found'
    assert error.details == {"name": "p"}
    assert str(api_error(500)) == "500 Unknown: no message"


def test_the_wait_that_the_server_asks_for_is_kept() -> None:
    error = api_error(429, "TooManyRequests", retry_after=7.0)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == 7
