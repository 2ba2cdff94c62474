"""Tests of sidecars.operator.upgrade."""
