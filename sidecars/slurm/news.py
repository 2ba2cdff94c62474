"""Lists of what has changed, also from a slurmrestd that can't report changes.

slurmrestd before 26.05.3 answers `GET nodes/?update_time=` with HTTP 500 and number -1 ("Unable to
query partitions") whenever a node has changed since then and no partition has. It still answers
HTTP 304 when nothing has changed, and a request for the full list as usual. Each slurmrestd refuses
a time that it can't read (number 9000), such as a negative one of a damaged answer.
"""

from collections.abc import Callable
from typing import TypeVar

from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import Refused, SlurmError, Unreachable
from sidecars.slurm.protocol import Request

T = TypeVar("T")
S = TypeVar("S")

_STATUS, _UNSPECIFIED = 500, -1  # SLURM_ERROR
_INVALID_QUERY = 9000  # ESLURM_REST_INVALID_QUERY


def refuses_changes(error: SlurmError) -> bool:
    """Return whether this answer to a request for changes means that something has changed, and the
    server can't say what.

    A fault of the server may look the same: then the request for the full list fails, too.
    """
    return isinstance(error, Refused) and (
        (error.status == _STATUS and error.numbers == {_UNSPECIFIED})
        or _INVALID_QUERY in error.numbers
    )


async def read_news(
    client: Carrier,
    request: Callable[[S | None], Request[T | None]],
    since: S | None,
    *,
    timeout: float | None = None,
) -> T | None:
    """Read what has changed in the second `since` or later. Return None for nothing, and the full
    list if `since` is None or refused.

    `request` is the request for such a time, or for an answer that has it. Raises SlurmError,
    within `timeout` seconds for each request.
    """
    if since is not None:
        try:
            return await client.call(request(since), timeout=timeout)
        except SlurmError as error:
            if not refuses_changes(error):
                raise
    everything = request(None)
    answer = await client.call(everything, timeout=timeout)
    if answer is None:
        raise Unreachable(
            str(everything), "it reports no change in answer to a request for everything"
        )
    return answer
