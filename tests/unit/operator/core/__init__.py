"""Tests of sidecars.operator.core."""
