"""A plugin of pytest that appends the wall and CPU seconds of each test to the file that PART
names, if it does.

With pytest-xdist the workers measure, and the process that controls them writes. It does so after
each test: a run can be cut off.
"""

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.run import times
from tests.run.usage import METER

PART = "SLURM_CHARTS_TIMES"
_CPU = "cpu_seconds"
_MEASURED = "slurm_charts_times"


def register(config: pytest.Config) -> None:
    """To be called when pytest is configured."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    # Another pytest that a test starts writes no record.
    part = os.environ.pop(PART, None)
    if worker is None and part:
        config.pluginmanager.register(Writer(Path(part)))
    if part or (worker and worker.get(_MEASURED)):
        config.pluginmanager.register(Measure())


class Measure:
    """Adds to each report the CPU seconds of its phase, with what its fixtures have used."""

    def __init__(self) -> None:
        self._before = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._before = METER.seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = METER.seconds()
        report.user_properties.append((_CPU, now - self._before))
        self._before = now
        return report


class Writer:
    """Appends a record for each test that has ended, and one for the session."""

    def __init__(self, part: Path) -> None:
        self._part = part
        self._reports: dict[str, list[pytest.TestReport]] = defaultdict(list)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Workers of pytest-xdist measure."""
        node.workerinput[_MEASURED] = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports[report.nodeid].append(report)
        if report.when != "teardown":
            return
        reports = self._reports.pop(report.nodeid)
        if any(each.failed for each in reports):
            outcome = "failed"
        else:
            outcome = "passed" if all(each.passed for each in reports) else "skipped"
        cpu = sum(
            float(str(value))
            for each in reports
            for name, value in each.user_properties
            if name == _CPU
        )
        times.append(
            self._part,
            times.Test(
                report.nodeid,
                outcome,
                round(sum(each.duration for each in reports), 3),
                round(cpu, 3),
            ),
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        times.append(self._part, times.Session(round(METER.seconds(), 3)))
