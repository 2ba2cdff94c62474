"""The form of log lines in long-running roles. Not for the sidecars of worker pods, which can't afford logging."""

import logging

from sidecars.contract.text import LONGEST_LINE, printable


class PrintableFormatter(logging.Formatter):
    """One line for each record, whatever it quotes. Tracebacks follow on lines of their own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        return printable(super().formatMessage(record), LONGEST_LINE)
