"""Tests of the charts as Helm renders them: `python -m tests.charts`."""
