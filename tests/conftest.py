"""What all tests share.

Hypothesis profiles: `default` for every run, `soak` for long ones (`--hypothesis-profile=soak`). No
stray loop. A failed test is named when it fails. What each test takes is recorded, if `python -m
tests.run` runs it.
"""

import asyncio
import gc
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.run import recorder

_SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much)
settings.register_profile(
    "default", deadline=None, max_examples=50, derandomize=True, database=None
)
settings.register_profile(
    "soak", deadline=None, max_examples=2000, database=None, suppress_health_check=_SLOW
)
settings.load_profile("default")

# Otherwise Python 3.11 creates a loop when code asks for the current one, and nothing closes it.
asyncio.set_event_loop(None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end, so that the garbage collector need not look at it
    again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


class FailuresAtOnce:
    """Names a test that fails and its error at once, not only when all tests have ended: a run may
    be cut off.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            error = " | ".join((crash.message if crash else report.longreprtext).split("\n"))
            self.config.get_terminal_writer().line(
                f"\n{report.nodeid} ({report.when}): {error[:600]}"
            )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))
    recorder.register(config)
