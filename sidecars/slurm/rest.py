"""The standard library's carrier of `sidecars.slurm.protocol`, for the sidecars of a pod: blocking, one call at a time."""

from collections.abc import Callable
from typing import TypeVar

from sidecars.slurm.protocol import Request

T = TypeVar("T")


class Rest:
    """Calls one slurmrestd. `url` is e.g. `http://slurm-restapi.slurm:6820`; `token()` is asked before each call."""

    def __init__(self, url: str, token: Callable[[], str], *, timeout: float = 10.0) -> None:
        raise NotImplementedError

    def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Carry the request and decode its answer; whole, name look-up included, within `timeout` seconds.

        The API version is found at the first call. Raises SlurmError.
        """
        raise NotImplementedError
