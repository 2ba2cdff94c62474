"""Whether a namespace is being deleted: `sidecars.kube.namespaces`."""

from typing import Any, cast

import pytest

from sidecars.kube import Client, Forbidden, NotFound, Unreachable
from sidecars.kube.namespaces import is_leaving

DELETED = {"name": "slurm", "deletionTimestamp": "2026-01-01T00:00:00Z"}


class Answers:
    """A client to which the API server gives one answer."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer

    async def get(self, *_: object) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "leaving"),
    [
        ({"metadata": {"name": "slurm"}}, False),
        ({"metadata": DELETED}, True),
        (NotFound(404, "NotFound", "namespaces"), True),
        (Forbidden(403, "Forbidden", "namespaces"), False),
        (Unreachable("GET /api/v1/namespaces/slurm"), False),
    ],
    ids=["exists", "is being deleted", "is gone", "may not be read", "no answer"],
)
async def test_a_namespace_is_leaving_only_if_the_api_server_reports_that(
    answer: dict[str, Any] | Exception, *, leaving: bool
) -> None:
    assert await is_leaving(cast("Client", Answers(answer)), "slurm") is leaving
