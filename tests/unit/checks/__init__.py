"""Tests of the role `checks`."""
