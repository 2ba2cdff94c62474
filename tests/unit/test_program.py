"""Lines of logs."""

import logging

from sidecars.program import PrintableFormatter


def test_a_record_of_the_log_is_one_line_whatever_it_quotes() -> None:
    record = logging.LogRecord(
        "x",
        logging.WARNING,
        "",
        0,
        "reason: %s",
        ("a\n2026 ERROR forged\x1b[2J" + "x" * 9999,),
        None,
    )
    line = PrintableFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("WARNING reason: a 2026")
    assert line.isprintable()
    assert len(line) <= 4096
