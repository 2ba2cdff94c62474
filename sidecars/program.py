"""What long-running roles share: their log, and the signals that stop them. Not for the sidecars of
worker pods, which can't afford logging.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from sidecars.contract.text import LONGEST_LINE, printable

_log = logging.getLogger(__name__)


class PrintableFormatter(logging.Formatter):
    """One line for each record, whatever it quotes. Tracebacks follow on lines of their own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        return printable(super().formatMessage(record), LONGEST_LINE)


def log_to_stderr(level: str = "info") -> None:
    """Write the records of this level and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do the work until it ends, or cancel it when it is to stop. Raises what the work raises."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        _log.info("stopping")
        working.cancel()
    try:
        await working
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
