"""Tests of how the charts are checked."""
