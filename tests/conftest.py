"""Hypothesis profiles: `default` for every run, `soak` for long ones (`--hypothesis-profile=soak`); no stray loop."""

import asyncio

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much)
settings.register_profile("default", deadline=None, max_examples=50, derandomize=True, database=None)
settings.register_profile("soak", deadline=None, max_examples=2000, database=None, suppress_health_check=_SLOW)
settings.load_profile("default")

# Otherwise Python 3.11 creates a loop when code asks for the current one, and nothing closes it.
asyncio.set_event_loop(None)
