"""Tests of sidecars.operator.keys."""
