"""The one way to wait here: poll a condition until a deadline, and say on giving up what was waited
for.
"""

import time
from collections.abc import Callable

from tests.cluster.errors import ClusterError


def until(
    condition: Callable[[], bool],
    what: str,
    seconds: float,
    why: Callable[[], str] | None = None,
    pause: float = 0.1,
) -> None:
    """Poll `condition` every `pause` seconds for up to `seconds`.

    Raises ClusterError that names `what`, and with `why()` the reason, when the time is over.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            reason = f": {why()}" if why else ""
            raise ClusterError(f"waited {seconds:.0f} s for {what}{reason}")
        time.sleep(pause)
